package webhook_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/webhook"
	"github.com/capstan-cd/capstan/shared/fault"
)

const push = `{"ref":"refs/heads/main","repository":{"full_name":"Team/App",
 "html_url":"https://git.example.com/Team/App","clone_url":"https://git.example.com/Team/App.git",
 "git_url":"git://git.example.com/Team/App.git","ssh_url":"git@git.example.com:Team/App.git","url":"https://git.example.com/Team/App"},
 "commits":[{"added":["../../etc/passwd"]}]}`

const branchAt = "89abcdef0123456789abcdef0123456789abcdef"

// named is a push of a branch.
func named(ref, after string) string {
	return strings.Replace(push, `"ref":"refs/heads/main"`, fmt.Sprintf(`"ref":%q,"after":%q`, ref, after), 1)
}

func header(event, contentType, signature string) http.Header {
	h := http.Header{}
	h.Set("X-GitHub-Event", event)
	h.Set("X-GitHub-Delivery", "5f6e")
	h.Set("Content-Type", contentType)
	if signature != "" {
		h.Set("X-Hub-Signature-256", signature)
	}
	return h
}

func sign(body, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

var addresses = []string{"http://git.example.com/Team/App", "https://git.example.com/Team/App", "ssh://git.example.com/Team/App"}

func TestParse(t *testing.T) {
	t.Parallel()
	form := url.Values{"payload": {push}}.Encode()
	const ping = `{"zen":"…","hook_id":1}`
	cases := map[string]struct {
		header http.Header
		body   string
		secret string
		want   webhook.Push
	}{
		"HOOKW-02 a push as JSON": {header("push", "application/json", ""), push, "", webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses}},
		"HOOKW-02 what a push names": {
			header("push", "application/json", ""), named("refs/heads/main", branchAt), "",
			webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses, Ref: "refs/heads/main", Commit: branchAt},
		},
		"HOOKW-02 a branch that was deleted is nothing to ask for": {
			header("push", "application/json", ""), named("refs/heads/main", strings.Repeat("0", 40)), "",
			webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses},
		},
		"a name that is too long is not kept": {
			header("push", "application/json", ""), named("refs/heads/"+strings.Repeat("x", 1024), branchAt), "",
			webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses},
		},
		"HOOKW-02 a push as a form":                           {header("push", "application/x-www-form-urlencoded", sign(form, "s")), form, "s", webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses}},
		"HOOKW-03 a signed push":                              {header("push", "application/json; charset=utf-8", sign(push, "s3cret")), push, "s3cret", webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses}},
		"HOOKW-03 a broken signature is no matter of parsing": {header("push", "application/json", "sha256=00"), push, "", webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses}},
		"HOOKW-02 a ping asks for nothing":                    {header("ping", "application/json", sign(ping, "s")), ping, "s", webhook.Push{Event: "ping", Delivery: "5f6e"}},
		"other events ask for nothing":                        {header("issues", "application/json", ""), "{", "", webhook.Push{Event: "issues", Delivery: "5f6e"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Parse(c.header, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(webhook.Push{})); diff != "" {
				t.Error(diff)
			}
			if c.secret != "" && !got.SignedBy(map[string]string{hub.WebhookGitHub: c.secret}) {
				t.Error("it is not signed by its secret")
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	noEvent := header("push", "application/json", sign(push, "s3cret"))
	noEvent.Del("X-GitHub-Event")
	cases := map[string]struct {
		header http.Header
		body   string
		kind   fault.Kind
	}{
		"not an event":           {noEvent, push, fault.Invalid},
		"neither JSON nor form":  {header("push", "text/plain", sign(push, "s3cret")), push, fault.Invalid},
		"broken JSON":            {header("push", "application/json", sign(`{"repository":`, "s3cret")), `{"repository":`, fault.Invalid},
		"odd JSON":               {header("push", "application/json", sign(`{"repository":[1]}`, "s3cret")), `{"repository":[1]}`, fault.Invalid},
		"null":                   {header("push", "application/json", sign(`null`, "s3cret")), `null`, fault.Invalid},
		"a form without payload": {header("push", "application/x-www-form-urlencoded", sign("a=b", "s3cret")), "a=b", fault.Invalid},
		"a broken form":          {header("push", "application/x-www-form-urlencoded", sign("payload=%zz", "s3cret")), "payload=%zz", fault.Invalid},
		"no usable address":      {header("push", "application/json", sign(`{"repository":{"clone_url":"file:///etc"}}`, "s3cret")), `{"repository":{"clone_url":"file:///etc"}}`, fault.Invalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Parse(c.header, []byte(c.body))
			if fault.KindOf(err) != c.kind || got.URLs != nil {
				t.Errorf("Parse() = %v, %v; want kind %q and nothing", got, err, c.kind)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	old := hmac.New(sha1.New, []byte("s3cret"))
	old.Write([]byte(push))
	withOld := header("push", "application/json", "")
	withOld.Set("X-Hub-Signature", "sha1="+hex.EncodeToString(old.Sum(nil)))
	right := header("push", "application/json", sign(push, "s3cret"))
	for name, c := range map[string]struct {
		header       http.Header
		secret       string
		signed, good bool
	}{
		"HOOKW-03 the right one":                        {right, "s3cret", true, true},
		"HOOKW-03 no signature":                         {header("push", "application/json", ""), "s3cret", false, false},
		"HOOKW-03 signature of another body":            {header("push", "application/json", sign(push+" ", "s3cret")), "s3cret", true, false},
		"HOOKW-03 signature of another secret":          {header("push", "application/json", sign(push, "other")), "s3cret", true, false},
		"HOOKW-03 signature without its kind":           {header("push", "application/json", sign(push, "s3cret")[7:]), "s3cret", false, false},
		"HOOKW-03 half a signature":                     {header("push", "application/json", sign(push, "s3cret")[:40]), "s3cret", false, false},
		"HOOKW-03 SHA-1 only":                           {withOld, "s3cret", false, false},
		"HOOKW-03 an unsigned ping":                     {header("ping", "application/json", ""), "s3cret", false, false},
		"HOOKW-03 nothing is signed by an empty secret": {header("push", "application/json", sign(push, "")), "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Parse(c.header, []byte(push))
			if err != nil || got.Signed() != c.signed || got.SignedBy(map[string]string{hub.WebhookGitHub: c.secret}) != c.good {
				t.Errorf("signed %v, by the secret %v, %v", got.Signed(), got.SignedBy(map[string]string{hub.WebhookGitHub: c.secret}), err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("push", "application/json", push)
	f.Add("push", "application/x-www-form-urlencoded", "payload=%7B%7D")
	for _, s := range senders() {
		f.Add(s.event, "application/json", s.body)
	}
	f.Fuzz(func(t *testing.T, event, contentType, body string) {
		for _, h := range headersOf(event, contentType) {
			fuzzed(t, h, body)
		}
	})
}

// fuzzed reads an event of any sender.
func fuzzed(t *testing.T, h http.Header, body string) {
	t.Helper()
	got, err := webhook.Parse(h, []byte(body))
	if err != nil && fault.KindOf(err) == fault.Internal {
		t.Fatalf("unclassified error: %v", err)
	}
	for _, u := range got.URLs {
		if parsed, err := url.Parse(u); err != nil || parsed.User != nil || parsed.Host == "" {
			t.Fatalf("not normalised: %q, %v", u, err)
		}
	}
	if got.SignedBy(nil) {
		t.Fatal("it is signed by nothing")
	}
}
