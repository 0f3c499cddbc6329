package gitserver

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// webhookTimeout is how long a receiver has, as with GitHub.
const webhookTimeout = 10 * time.Second

// noCommit stands for a ref that is not there.
const noCommit = "0000000000000000000000000000000000000000"

// A Webhook is called after every push, in the format of GitHub.
type Webhook struct {
	URL    string // empty: none
	Secret string // signs the body; empty: no signature
	Client *http.Client
}

// A Delivery is one call of a webhook.
type Delivery struct {
	Ref, Before, After string
	Status             int   // what the receiver answered; zero: nothing
	Err                error // why it did not answer
	Took               time.Duration
}

// SetWebhook calls a URL after every later push.
func (r *Repository) SetWebhook(w Webhook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.webhook = w
}

// Deliveries are the finished calls of the webhook, oldest first.
func (r *Repository) Deliveries() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deliveries)
}

// refs are all branches and tags with their commits.
func (r *Repository) refs(ctx context.Context) map[string]string {
	out, err := r.git.command(ctx, "-C", r.bare, "for-each-ref", "--format=%(refname) %(objectname)")
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = id
	}
	return found
}

// announce calls the webhook for every ref that a push has changed.
func (r *Repository) announce(before map[string]string) {
	r.mu.Lock()
	hook := r.webhook
	r.mu.Unlock()
	if hook.URL == "" {
		return
	}
	after := r.refs(r.git.ctx)
	all := maps.Clone(before)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, after)
	for _, ref := range slices.Sorted(maps.Keys(all)) {
		d := Delivery{Ref: ref, Before: orNone(before[ref]), After: orNone(after[ref])}
		if d.Before == d.After {
			continue
		}
		r.git.hooks.Go(func() {
			begun := time.Now()
			d.Status, d.Err = r.deliver(r.git.ctx, hook, d)
			d.Took = time.Since(begun)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.deliveries = append(r.deliveries, d)
		})
	}
}

func orNone(id string) string {
	if id == "" {
		return noCommit
	}
	return id
}

// deliver makes one call.
func (r *Repository) deliver(ctx context.Context, hook Webhook, d Delivery) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	body, err := json.Marshal(r.payload(ctx, d))
	if err != nil {
		return 0, fmt.Errorf("write the webhook's body: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("call the webhook: %w", err)
	}
	request.Close = true // a connection that is kept may lead to a replica that does not answer any more
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "GitHub-Hookshot/harness")
	request.Header.Set("X-GitHub-Event", "push")
	request.Header.Set("X-GitHub-Delivery", rand.Text())
	if hook.Secret != "" {
		request.Header.Set("X-Hub-Signature-256", Sign(hook.Secret, body))
	}
	client := hook.Client
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("call the webhook: %w", err)
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, err
}

// Sign is the value of X-Hub-Signature-256 for a body.
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// pushPayload is what GitHub sends about a push, as far as receivers care.
type pushPayload struct {
	Ref        string           `json:"ref"`
	Before     string           `json:"before"`
	After      string           `json:"after"`
	Created    bool             `json:"created"`
	Deleted    bool             `json:"deleted"`
	Repository pushedRepository `json:"repository"`
	Pusher     pushedPerson     `json:"pusher"`
	Commits    []pushedCommit   `json:"commits"`
	HeadCommit *pushedCommit    `json:"head_commit"`
}

type pushedRepository struct {
	Name          string `json:"name"`
	FullName      string `json:"full_name"`
	HTMLURL       string `json:"html_url"`
	CloneURL      string `json:"clone_url"`
	DefaultBranch string `json:"default_branch"`
}

type pushedPerson struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

type pushedCommit struct {
	ID       string       `json:"id"`
	Message  string       `json:"message"`
	Author   pushedPerson `json:"author"`
	Added    []string     `json:"added"`
	Removed  []string     `json:"removed"`
	Modified []string     `json:"modified"`
}

func (r *Repository) payload(ctx context.Context, d Delivery) pushPayload {
	p := pushPayload{
		Ref: d.Ref, Before: d.Before, After: d.After, Created: d.Before == noCommit, Deleted: d.After == noCommit,
		Repository: pushedRepository{
			Name: path.Base(r.Name), FullName: r.Name, HTMLURL: strings.TrimSuffix(r.URL(), ".git"),
			CloneURL: r.URL(), DefaultBranch: Branch,
		},
		Pusher:  pushedPerson{Name: "Harness", Email: "harness@example.test"},
		Commits: []pushedCommit{},
	}
	if p.Deleted {
		return p
	}
	head := r.describe(ctx, d.Before, d.After)
	p.Commits, p.HeadCommit = append(p.Commits, head), &head
	return p
}

// describe names what a push changed, as one commit.
func (r *Repository) describe(ctx context.Context, before, after string) pushedCommit {
	c := pushedCommit{ID: after, Added: []string{}, Removed: []string{}, Modified: []string{}}
	c.Message, _ = r.git.command(ctx, "-C", r.bare, "log", "-1", "--format=%B", after)
	c.Author = pushedPerson{Name: "Harness", Email: "harness@example.test"}
	if before == noCommit {
		before = "4b825dc642cb6eb9a060e54bf8d69288fbee4904" // the empty tree
	}
	out, _ := r.git.command(ctx, "-C", r.bare, "diff", "--name-status", "--no-renames", "-z", before, after)
	fields := strings.Split(out, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		switch fields[i] {
		case "A":
			c.Added = append(c.Added, fields[i+1])
		case "D":
			c.Removed = append(c.Removed, fields[i+1])
		default:
			c.Modified = append(c.Modified, fields[i+1])
		}
	}
	return c
}
