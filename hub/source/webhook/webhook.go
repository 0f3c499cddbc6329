// Package webhook reads the events that Git hosts send after a push. It never
// believes more of an event than which repositories it names: what changed is
// found out by fetching them, so a forged event costs a listing and nothing
// else. It knows nothing of HTTP servers; the API's handler calls Parse with
// what it was sent, and enqueues a fetch for each repository of the tenant
// whose normalised URL is among the result.
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
}

// Parse reads an event of GitHub (HOOKW-02), sent as application/json or as a
// form. With a secret, the event must carry a valid X-Hub-Signature-256
// (HOOKW-03); the older SHA-1 signature is not enough. Without a secret,
// events are taken unsigned, as in Argo CD: whoever can reach the hub can then
// make it list refs earlier than it would.
//
// A ping and events that are no push give no URLs and no error. The error is
// fault.Denied for a wrong or missing signature, fault.Exceeded for a body
// over MaxBody, and fault.Invalid for anything that cannot be understood.
func Parse(header http.Header, body []byte, secret string) (Push, error) {
	if len(body) > MaxBody {
		return Push{}, fault.With(fault.New(fault.Exceeded, "the event has more than %d bytes", MaxBody), "", "nothing needs to be done: the change is found by polling")
	}
	if secret != "" && !signed(header.Get("X-Hub-Signature-256"), body, secret) {
		return Push{}, fault.With(fault.New(fault.Denied, "the signature of the event is missing or wrong"), "", "set the same secret at the Git host and in the hub, and let it sign with SHA-256")
	}
	p := Push{Event: clip(header.Get("X-GitHub-Event")), Delivery: clip(header.Get("X-GitHub-Delivery"))}
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
	p.URLs, err = addresses(payload)
	return p, err
}

// signed compares in constant time.
func signed(signature string, body []byte, secret string) bool {
	digits, found := strings.CutPrefix(signature, "sha256=")
	given, err := hex.DecodeString(digits)
	if !found || err != nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hmac.Equal(given, mac.Sum(nil))
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
func addresses(payload []byte) ([]string, error) {
	var e event
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the event is not valid JSON")
	}
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
