package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A repository on a real Git server over HTTPS whose certificate comes from a
// private authority.
func TestPrivateAuthorityOfAGitServer(t *testing.T) {
	ctx := within(t, 3*waitLimit)
	server := gitserver.New(t, gitserver.Options{TLS: true})
	repo, err := server.Create(ctx, "over-tls", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(ctx, "one", map[string]string{"app/a.yaml": configMap("a", "one")}); err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, server.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := s.Clusters["in-cluster"]
	deploy(t, "over-tls", repo.URL(), "app", "")
	refused := func(t *testing.T) {
		t.Helper()
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			text, err := fetchError(ctx, s.API, repo.URL())
			if err != nil || !strings.Contains(text, "signed by an authority that the hub does not know") || !strings.Contains(text, "capstan cert add-tls 127.0.0.1") {
				return fmt.Errorf("%v: the repository says %q", err, text)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("CRED-18(refused) without the certificate the repository says what to store", func(t *testing.T) {
		refused(t)
	})
	t.Run("CRED-18 CRED-08 a certificate that is added is used at once", func(t *testing.T) {
		if out, err := s.API.CLI(ctx, "", "cert", "add-tls", "127.0.0.1", "--from", ca); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		settled(t, "over-tls")
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "over-tls", "a", value("one")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("CRED-18 what one tenant trusts another does not", func(t *testing.T) {
		out, err := s.API.CLI(ctx, "", "tenant", "create", "untrusting", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		var made struct {
			SetupToken string `json:"setupToken"`
		}
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			t.Fatal(err)
		}
		other, err := s.SecondAdmin(ctx, t.TempDir(), made.SetupToken)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := other.CLI(ctx, "", "repo", "add", repo.URL()); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			text, err := fetchError(ctx, other, repo.URL())
			if err != nil || !strings.Contains(text, "signed by an authority") {
				return fmt.Errorf("%v: the repository says %q", err, text)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("CRED-18 after its deletion the server is refused again, and what runs keeps running", func(t *testing.T) {
		if out, err := s.API.CLI(ctx, "", "cert", "rm", "127.0.0.1", "--cert-type", "https", "--yes"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		refused(t)
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "over-tls", "a", value("one")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("CRED-08 the ConfigMap argocd-tls-certs-cm of Argo CD is used", func(t *testing.T) {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-tls-certs-cm, namespace: argocd}\ndata:\n  127.0.0.1: |\n    " +
			strings.ReplaceAll(strings.TrimSpace(string(server.CA())), "\n", "\n    ") + "\n"
		if _, err := s.API.Apply(within(t, waitLimit), text); err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Commit(ctx, "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		refreshRepository(t, repo.URL())
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "over-tls", "a", value("two")); err != nil {
			t.Fatal(err)
		}
	})
}

// fetchError is what a repository says of its last look.
func fetchError(ctx context.Context, api *stack.API, address string) (string, error) {
	var l struct {
		Items []struct {
			URL        string
			Connection struct{ Message string }
		}
	}
	if err := api.Do(ctx, http.MethodGet, "/api/v1/repositories", nil, &l); err != nil {
		return "", err
	}
	for _, r := range l.Items {
		if r.URL == strings.TrimSuffix(address, ".git") {
			return r.Connection.Message, nil
		}
	}
	return "", errors.New("it is not among the repositories")
}
