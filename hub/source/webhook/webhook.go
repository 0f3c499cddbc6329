// Package webhook parses the events that Git hosts send after a push: GitHub,
// GitLab, Bitbucket Cloud and Server, Azure DevOps, Gogs, and compatible ones.
// Those of pull requests are read of GitHub, GitLab and Azure DevOps: generators
// of application sets list them.
// It also parses those of registries: GitHub's, Harbor, Docker Hub, and those
// that are built on distribution. Others use Capstan's own form.
// It trusts an event only to name repositories: changes are found by fetching
// them, so a forged event costs a few requests to their host and nothing else.
// The branch and the commit in an event only select the branch to fetch first.
// It is independent of HTTP servers: its caller passes headers and body to
// Parse, and enqueues a fetch of the repositories for each tenant whose secret
// has signed the event.
package webhook

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Push is what is used of an event.
type Push struct {
	Event    string   // the host's word: push, ping …
	Delivery string   // the host's id of this delivery, for logs
	URLs     []string // the repository's addresses, normalised by hub.NormalizeRepoURL; empty: nothing to do
	// Ref and Commit are the pushed branch of the event: a reason to read it
	// from the host, and not trusted. They are empty if the event has none, has
	// several, or deletes it.
	Ref, Commit string
	// Pull means that a pull request of the repository has changed. No branch of
	// the repository was moved.
	Pull bool

	proofs []proof
}

// Parse reads an event (HOOKW-02). It does not check what proves the sender:
// Push.SignedBy does, with the secrets of each tenant that the event may
// concern.
//
// A ping and events that are neither a push nor about a pull request have no
// URLs and no error. The error is
// fault.Invalid for anything that cannot be understood. The caller limits the
// size of a body.
func Parse(header http.Header, body []byte) (Push, error) {
	from := senderOf(header, body)
	if from == nil {
		return Push{}, fault.With(fault.New(fault.Invalid, "the request is not an event of a known Git host or registry"), "",
			"point a webhook of GitHub, GitLab, Bitbucket, Azure DevOps, Gogs, Harbor or a registry at this address, or send Capstan's own form")
	}
	p := Push{Event: clip(from.event(header)), Delivery: clip(header.Get(from.delivery)), proofs: proofsOf(header, body, from.secret)}
	read := from.read
	if p.Pull = from.pulls != nil && from.pulls.event(p.Event); p.Pull {
		read = from.pulls.read
	} else if !from.pushes(p.Event) {
		return p, nil
	}
	payload, err := payloadOf(header.Get("Content-Type"), body)
	if err != nil {
		return Push{}, err
	}
	event, err := read(payload)
	if err != nil {
		return Push{}, fault.Wrap(fault.Invalid, err, "the event is not valid JSON")
	}
	if event.nothing {
		p.Pull = false
		return p, nil
	}
	p.Pull = p.Pull || event.pull
	if p.URLs, err = addresses(event.urls); err != nil {
		return Push{}, err
	}
	if len(event.changes) == 1 && event.changes[0].isUsable() {
		p.Ref, p.Commit = event.changes[0].ref, event.changes[0].commit
	}
	return p, nil
}

// maxRef is the longest stored name of a branch.
const maxRef = 1024

func payloadOf(contentType string, body []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && (kind == "application/json" || kind == "application/cloudevents+json" || isDistribution(kind)):
		return body, nil
	case err == nil && kind == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil || form.Get("payload") == "" {
			return nil, fault.Wrap(fault.Invalid, err, "the form of the event has no payload")
		}
		return []byte(form.Get("payload")), nil
	}
	return nil, fault.New(fault.Invalid, "the event is neither application/json nor a form")
}

// into reads JSON into a value of its type.
func into[T any](payload []byte) (v T, err error) {
	err = json.Unmarshal(payload, &v)
	return v, err
}

// addresses are all spellings under which a tenant may have registered the
// repository (HOOKW-04: the scheme does not count).
func addresses(named []string) ([]string, error) {
	var urls []string
	for _, raw := range named {
		if rest, ok := strings.CutPrefix(raw, "git://"); ok {
			raw = "https://" + rest
		}
		norm, err := repourl.Normalize(raw)
		if err != nil {
			continue
		}
		urls = append(urls, norm)
		if rest, ok := strings.CutPrefix(norm, "https://"); ok {
			urls = append(urls, "http://"+rest)
		} else if rest, ok := strings.CutPrefix(norm, "http://"); ok {
			urls = append(urls, "https://"+rest)
		}
	}
	slices.Sort(urls)
	if urls = slices.Compact(urls); len(urls) == 0 {
		return nil, fault.New(fault.Invalid, "the event names no repository")
	}
	return urls, nil
}

// clip shortens a header that goes to a log.
func clip(s string) string { return s[:min(len(s), 64)] }
