package daemon

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/webhook"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

const (
	// maxVerified bounds what is hashed for one event: its bytes times the
	// tenants whose secrets are tried. What is beyond is found by polling.
	maxVerified = 256 << 20
	// verifiers bounds the events that are parsed, or whose signatures are
	// checked, at one time.
	verifiers = 2
	// pushedSetWait is how long a push delays the sets that list repositories of
	// its organisation: most pushes change nothing for them, and each costs a list.
	pushedSetWait = time.Minute
)

// hooks handles webhooks of Git hosts and registries. An event is valid for the tenants that have a
// repository at its address and whose secret has signed it; each fetches with
// its own credential and finds the changes itself. The reply does not depend on
// tenants whose secret has not signed the event.
type hooks struct {
	p        *parts
	secret   string // of the first tenant, unless that has one of its own
	unsigned bool   // events for tenants without a secret need no signature
	gate     chan struct{}
	rate     *eventRate
}

func (p *parts) newHooks() (hooks, error) {
	secret, err := p.cfg.webhookSecret()
	return hooks{p: p, secret: secret, unsigned: p.cfg.Webhook.AllowUnsigned, gate: make(chan struct{}, verifiers), rate: newEventRate()}, err
}

// webhookSecret reads the secret of the first tenant's events.
func (c Config) webhookSecret() (string, error) {
	if c.Webhook.GitHubSecretFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(c.Webhook.GitHubSecretFile)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "webhook.githubSecretFile cannot be read")
	}
	s := strings.TrimSpace(string(b))
	if s == "" {
		return "", errors.New("webhook.githubSecretFile is empty")
	}
	return s, nil
}

// Receive enqueues fetches for an event. The error is fault.Denied for an
// event that no secret has signed, in the same words whether or not anybody
// has the repository.
func (h hooks) Receive(ctx context.Context, header http.Header, body []byte) error {
	push, err := h.parse(ctx, header, body)
	switch {
	case err != nil:
		return err
	case !push.Signed() && !h.unsigned:
		return errUnsigned()
	case len(push.URLs) == 0:
		return nil
	}
	places := make([]string, len(push.URLs))
	var watched []string
	for i, u := range push.URLs {
		places[i] = repourl.Place(u)
		watched = append(watched, scm.WatchedBy(places[i])...)
	}
	targets, err := h.p.db.System().WebhookTargets(ctx, places, watched)
	if err != nil {
		return err
	}
	known, targets, err := h.verify(ctx, push, len(body), targets)
	if err != nil {
		return err
	}
	known = known || len(targets) > 0
	if push.Pull { // no branch was moved: only sets list it
		targets = onlySets(targets)
	} else {
		for i := range targets {
			targets[i].SetWait = pushedSetWait
		}
	}
	h.rate.slow(targets, time.Now())
	parent := trace.Parent(ctx)
	pushed := hub.Pushed{Ref: push.Ref, Commit: push.Commit, At: time.Now()}
	err = h.p.db.System().FetchTargets(ctx, targets, func(tenant hub.TenantID, id hub.RepositoryID) {
		h.p.queue.follow(parent, hub.WorkFetch, tenant, string(id))
		h.p.queue.pushed(tenant, id, pushed)
	})
	switch {
	case err != nil:
		return err
	case len(targets) > 0:
		h.p.due(hub.WorkFetch)
		h.p.due(hub.WorkRefresh)
		h.p.due(hub.WorkApplicationSet)
	case !known:
		return errUnsigned()
	}
	return nil
}

// parse reads an event. Large ones cost time, and their senders are not known
// yet.
func (h hooks) parse(ctx context.Context, header http.Header, body []byte) (webhook.Push, error) {
	select {
	case h.gate <- struct{}{}:
		defer func() { <-h.gate }()
	case <-ctx.Done():
		return webhook.Push{}, ctx.Err()
	}
	return webhook.Parse(header, body)
}

// verify returns the targets that an event is valid for, and whether it would
// be accepted if there were none. The installation's secret is always tried, so
// that an event costs the same whether or not its repository is registered. A
// tenant that has a secret for one kind of sender accepts no unsigned events of
// another: a forger chooses the kind.
func (h hooks) verify(ctx context.Context, push webhook.Push, size int, targets []store.WebhookTarget) (known bool, signed []store.WebhookTarget, err error) {
	select {
	case h.gate <- struct{}{}:
		defer func() { <-h.gate }()
	case <-ctx.Done():
		return false, nil, ctx.Err()
	}
	installation := push.SignedBy(map[string]string{hub.WebhookGitHub: h.secret})
	known = installation || h.unsigned
	for i, t := range targets {
		var ok bool
		switch {
		case t.Err != nil:
			h.p.log.ErrorContext(ctx, "the webhook secrets of a tenant cannot be opened", logkey.Tenant, t.Tenant, logkey.Error, t.Err)
		case len(t.Secrets) > 0 && (i+1)*size > maxVerified:
			h.p.log.WarnContext(ctx, "a webhook concerns too many tenants; the others find its change by polling", logkey.Tenants, len(targets))
			return known, signed, nil
		case t.First && h.secret != "" && t.Secrets[hub.WebhookGitHub] == "":
			ok = installation || push.SignedBy(t.Secrets)
		case hasCommon(t.Secrets):
			ok = push.SignedBy(t.Secrets)
		default:
			ok = h.unsigned
		}
		if !ok { // a secret of one repository tells nothing of bases and of what sets list
			t.Applications, t.Sets = nil, nil
		}
		if t.Repositories = ofWhom(push, t, ok); len(t.Repositories)+len(t.Applications)+len(t.Sets) > 0 {
			signed = append(signed, t)
		}
	}
	return known, signed, nil
}

// onlySets leaves out what only a push changes.
func onlySets(targets []store.WebhookTarget) []store.WebhookTarget {
	var out []store.WebhookTarget
	for _, t := range targets {
		if t.Repositories, t.Applications = nil, nil; len(t.Sets) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// hasCommon reports whether a tenant has a secret for all of its repositories.
func hasCommon(secrets map[string]string) bool {
	for key := range secrets {
		if !strings.HasPrefix(key, hub.WebhookRepository) {
			return true
		}
	}
	return false
}

// ofWhom returns the repositories of a tenant that an event is valid for. One
// that has a secret of its own needs that; for others it counts whether the
// tenant's secrets have signed the event.
func ofWhom(push webhook.Push, t store.WebhookTarget, signed bool) (out []hub.RepositoryID) {
	for _, id := range t.Repositories {
		own, has := t.Secrets[hub.WebhookRepository+string(id)]
		if has && push.SignedByOne(own, t.Secrets[hub.WebhookAzureUser]) || !has && signed {
			out = append(out, id)
		}
	}
	return out
}

func errUnsigned() error {
	return fault.With(fault.New(fault.Denied, "the event's signature is missing, or is by no secret of a tenant that uses its repository"), "",
		"set one secret at the Git host and in the tenant's argocd-secret, under the key of its kind such as webhook.github.secret or webhook.gitlab.secret, let GitHub and Bitbucket Server sign with SHA-256, and register the repository")
}
