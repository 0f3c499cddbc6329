package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// A proof shows that the sender of an event knows a secret (HOOKW-03). It names
// the keys of argocd-secret that it is compared with.
type proof struct {
	keys []string
	// holds compares in constant time. The secrets are in the order of the
	// keys, and none is empty.
	holds func(secrets []string) bool
}

// Signed reports whether the event brings a proof of the right form.
func (p Push) Signed() bool { return len(p.proofs) > 0 }

// SignedBy reports, in constant time, whether one of the event's proofs is of
// these secrets, by their keys in argocd-secret. Nothing is proved by an empty
// secret.
func (p Push) SignedBy(secrets map[string]string) bool {
	good := false
	for _, x := range p.proofs {
		given, whole := make([]string, len(x.keys)), true
		for i, key := range x.keys {
			given[i] = secrets[key]
			whole = whole && given[i] != ""
		}
		good = whole && x.holds(given) || good
	}
	return good
}

// SignedByOne is SignedBy for a secret that counts for every kind of sender.
// User is the name that Azure DevOps sends with it.
func (p Push) SignedByOne(secret, user string) bool {
	all := map[string]string{hub.WebhookAzureUser: user}
	for _, x := range p.proofs {
		for _, key := range x.keys {
			if key != hub.WebhookAzureUser {
				all[key] = secret
			}
		}
	}
	return p.SignedBy(all)
}

// proofsOf are the proofs in an event, whatever its claimed sender: Gitea signs
// as GitHub does and as Gogs does. Authorization is compared with the secret of
// a key, unless that is empty.
func proofsOf(h http.Header, body []byte, key string) (out []proof) {
	add := func(holds func([]string) bool, keys ...string) {
		if holds != nil {
			out = append(out, proof{keys, holds})
		}
	}
	if h.Get("X-GitHub-Event") != "" {
		add(signed(cutPrefix(h.Get("X-Hub-Signature-256"), "sha256="), body), hub.WebhookGitHub)
	}
	if h.Get("X-Gogs-Event") != "" {
		add(signed(h.Get("X-Gogs-Signature"), body), hub.WebhookGogs)
	}
	switch {
	case h.Get(eventHeader) != "":
		add(signed(cutPrefix(h.Get("X-Capstan-Signature-256"), "sha256="), body), hub.WebhookGeneric)
	case h.Get("X-Gitlab-Event") != "":
		add(same(h.Get("X-Gitlab-Token")), hub.WebhookGitLab)
	case h.Get("X-Event-Key") != "" && h.Get("X-Hook-UUID") != "":
		add(sameUUID(h.Get("X-Hook-UUID")), hub.WebhookBitbucket)
	case h.Get("X-Event-Key") != "":
		add(signed(cutPrefix(h.Get("X-Hub-Signature"), "sha256="), body), hub.WebhookBitbucketServer)
	case isAzure(h):
		if user, password, ok := (&http.Request{Header: h}).BasicAuth(); ok {
			add(same(user, password), hub.WebhookAzureUser, hub.WebhookAzurePassword)
		}
	}
	if key != "" {
		add(authorized(h), key)
	}
	return out
}

// authorized compares what a sender was configured to send as Authorization:
// the whole value, the token of a Bearer, or the password of a basic
// authentication. nil: there is none.
func authorized(h http.Header) func([]string) bool {
	value := strings.TrimSpace(h.Get("Authorization"))
	forms := []string{value}
	if kind, token, found := strings.Cut(value, " "); found && strings.EqualFold(kind, "Bearer") {
		forms = append(forms, strings.TrimSpace(token))
	}
	if _, password, ok := (&http.Request{Header: h}).BasicAuth(); ok {
		forms = append(forms, password)
	}
	var each []func([]string) bool
	for _, form := range forms {
		if holds := same(form); holds != nil {
			each = append(each, holds)
		}
	}
	if len(each) == 0 {
		return nil
	}
	return func(secrets []string) bool {
		good := false
		for _, holds := range each {
			good = holds(secrets) || good
		}
		return good
	}
}

// cutPrefix is the rest after a prefix, or nothing.
func cutPrefix(s, prefix string) string {
	rest, found := strings.CutPrefix(s, prefix)
	if !found {
		return ""
	}
	return rest
}

// signed compares an HMAC with SHA-256 of the body, in hexadecimal digits. An
// older signature with SHA-1 is no proof. nil: there is none.
func signed(digits string, body []byte) func([]string) bool {
	given, err := hex.DecodeString(digits)
	if err != nil || len(given) != sha256.Size {
		return nil
	}
	return func(secrets []string) bool {
		mac := hmac.New(sha256.New, []byte(secrets[0]))
		mac.Write(body)
		return hmac.Equal(given, mac.Sum(nil))
	}
}

// same compares texts that are the secrets themselves. nil: one is missing.
func same(given ...string) func([]string) bool {
	for _, g := range given {
		if g == "" {
			return nil
		}
	}
	return func(secrets []string) bool {
		equal := 1
		for i, g := range given {
			a, b := sha256.Sum256([]byte(g)), sha256.Sum256([]byte(secrets[i]))
			equal &= subtle.ConstantTimeCompare(a[:], b[:])
		}
		return equal == 1
	}
}

// sameUUID is same for a UUID that may be in braces.
func sameUUID(given string) func([]string) bool {
	bare := func(s string) string { return strings.ToLower(strings.Trim(strings.TrimSpace(s), "{}")) }
	holds := same(bare(given))
	if holds == nil {
		return nil
	}
	return func(secrets []string) bool { return bare(secrets[0]) != "" && holds([]string{bare(secrets[0])}) }
}
