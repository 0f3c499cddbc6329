// Package webhook reads the events that Git hosts send after a push. It never
// believes more of an event than which repositories it names: what changed is
// found out by fetching them, so a forged event costs a few requests to their
// host and nothing else. The branch and the commit that it names are a reason
// to ask the host for that branch first. It knows nothing of HTTP servers: its caller passes headers and body to
// Parse, and enqueues a fetch for the repositories at these URLs of each tenant
// whose secret has signed the event.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// MaxBody is how many bytes of an event are read. A handler should stop
// reading there. GitHub sends up to 25 MB for the largest pushes; what is
// beyond this limit is found by polling.
const MaxBody = 5 << 20

// A Push is what is used of an event.
type Push struct {
	Event    string   // the host's word: push, ping …
	Delivery string   // the host's id of this delivery, for logs
	URLs     []string // the repository's addresses, normalised by hub.NormalizeRepoURL; empty: nothing to do
	// Ref and Commit are what the event says was pushed: a reason to ask the
	// host for it, and nothing to be believed. Empty: it does not say, or what it
	// names was deleted.
	Ref, Commit string

	signature []byte // nil: it has none
	body      []byte
}

// Parse reads an event of GitHub (HOOKW-02), sent as application/json or as a
// form. It does not check the signature: Push.SignedBy does, with the secret of
// each tenant that the event may concern.
//
// A ping and events that are no push have no URLs and no error. The error is
// fault.Exceeded for a body over MaxBody, and fault.Invalid for anything that
// cannot be understood.
func Parse(header http.Header, body []byte) (Push, error) {
	if len(body) > MaxBody {
		return Push{}, fault.With(fault.New(fault.Exceeded, "the event has more than %d bytes", MaxBody), "", "nothing needs to be done: the change is found by polling")
	}
	p := Push{
		Event: clip(header.Get("X-GitHub-Event")), Delivery: clip(header.Get("X-GitHub-Delivery")),
		signature: signatureOf(header.Get("X-Hub-Signature-256")), body: body,
	}
	if p.Event == "" {
		return Push{}, fault.With(fault.New(fault.Invalid, "the request is not an event of a known Git host"), "", "point a GitHub webhook at this address")
	}
	if p.Event != "push" {
		return p, nil
	}
	payload, err := payloadOf(header.Get("Content-Type"), body)
	if err != nil {
		return Push{}, err
	}
	var e event
	if err := json.Unmarshal(payload, &e); err != nil {
		return Push{}, fault.Wrap(fault.Invalid, err, "the event is not valid JSON")
	}
	if p.URLs, err = e.addresses(); err != nil {
		return Push{}, err
	}
	if len(e.Ref) <= maxRef && len(e.After) <= maxRef && strings.Trim(e.After, "0") != "" {
		p.Ref, p.Commit = e.Ref, e.After
	}
	return p, nil
}

// maxRef is the longest name of a branch that is kept.
const maxRef = 1024

// signatureOf is the digest of an X-Hub-Signature-256 (HOOKW-03); nil: there is
// none. The older SHA-1 signature is not enough.
func signatureOf(header string) []byte {
	digits, found := strings.CutPrefix(header, "sha256=")
	given, err := hex.DecodeString(digits)
	if !found || err != nil || len(given) != sha256.Size {
		return nil
	}
	return given
}

// Signed says whether the event carries a signature of the right form.
func (p Push) Signed() bool { return p.signature != nil }

// SignedBy says, in constant time, whether the signature is that of a secret.
// No event is signed by an empty one.
func (p Push) SignedBy(secret string) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(p.body)
	return hmac.Equal(p.signature, mac.Sum(nil)) && secret != ""
}

func payloadOf(contentType string, body []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && kind == "application/json":
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

// event is the part of a push that is looked at.
type event struct {
	Ref        string `json:"ref"`
	After      string `json:"after"`
	Repository struct {
		HTML  string `json:"html_url"`
		Clone string `json:"clone_url"`
		Git   string `json:"git_url"`
		SSH   string `json:"ssh_url"`
		URL   string `json:"url"`
	} `json:"repository"`
}

// addresses are all spellings under which a tenant may have registered the
// repository (HOOKW-04: the scheme does not count).
func (e event) addresses() ([]string, error) {
	r := e.Repository
	var urls []string
	for _, raw := range []string{r.Clone, r.HTML, r.SSH, r.Git, r.URL} {
		if rest, ok := strings.CutPrefix(raw, "git://"); ok {
			raw = "https://" + rest
		}
		norm, err := hub.NormalizeRepoURL(raw)
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
