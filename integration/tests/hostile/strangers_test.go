package hostile_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// deliver sends a push event of a repository, signed with a secret if there
// is one, and returns the answer as a stranger sees it.
func deliver(t *testing.T, url, secret string) string {
	t.Helper()
	body := fmt.Appendf(nil, `{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, url)
	req, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodPost, s.URL()+"/api/webhook", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Event", "push")
	if secret != "" {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body)
		req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	// Each answer has an id of its own.
	return fmt.Sprint(res.StatusCode, " ", strings.ReplaceAll(string(text), res.Header.Get("X-Request-Id"), "ID"))
}

// Who holds the secret of one tenant, or none, learns nothing of what others
// deploy, and makes nobody else fetch.
func TestStrangers(t *testing.T) {
	ctx := within(t, 2*waitLimit)
	theirs, err := s.Repository(ctx, "private", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Commit(ctx, "one", map[string]string{"app/a.yaml": configMap("one")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(ctx, app("private", theirs.URL(), "app")); err != nil {
		t.Fatal(err)
	}
	if _, err := evil.CLI(ctx, "of the other tenant", "settings", "set", "webhook.github.secret", "--map", "argocd-secret", "--from-file", "-"); err != nil {
		t.Fatal(err)
	}
	nowhere := theirs.URL() + "-that-nobody-has"
	for name, secret := range map[string]string{
		"nobody's": "", "a guessed": "guessed", "another tenant's": "of the other tenant", "the installation's": s.Hub.Secret(),
	} {
		t.Run("SEC-I3 SEC-G2 INV-7 with "+name+" secret an event is answered alike for what others have and what nobody has", func(t *testing.T) {
			known, unknown := deliver(t, theirs.URL(), secret), deliver(t, nowhere, secret)
			if known != unknown {
				t.Errorf("known: %s\nunknown: %s", known, unknown)
			}
			want := "403"
			if secret == s.Hub.Secret() {
				want = "202"
			}
			if !strings.HasPrefix(known, want) {
				t.Errorf("answer %s, want %s", known, want)
			}
		})
	}
	t.Run("INV-7 the cursor of an idle tenant does not move while another one works", func(t *testing.T) {
		cursor := func() string {
			var list struct{ Cursor string }
			if err := evil.Do(ctx, http.MethodGet, "/api/v1/clusters", nil, &list); err != nil {
				t.Fatal(err)
			}
			return list.Cursor
		}
		before := cursor()
		for i := range 5 {
			if _, err := s.API.Apply(ctx, fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: busy-%d}\nspec: {}\n", i)); err != nil {
				t.Fatal(err)
			}
		}
		if after := cursor(); after != before || before == "" {
			t.Errorf("it went from %q to %q", before, after)
		}
	})
	t.Run("SEC-C1 a password in a URL is refused and stored nowhere", func(t *testing.T) {
		const canary = "CANARYURLPW"
		out, err := s.API.Apply(ctx, app("leak", "http://user:"+canary+"@127.0.0.1:9/x.git", "app"))
		if gotText := out + fmt.Sprint(err); err == nil || strings.Contains(gotText, canary) || !strings.Contains(gotText, "password or a token") {
			t.Errorf("output %s, error %v", out, err)
		}
		out, err = s.API.CLI(ctx, "", "audit", "list", "-o", "json")
		if strings.Contains(out, canary) {
			t.Errorf("the audit log has it, %v", err)
		}
	})
}
