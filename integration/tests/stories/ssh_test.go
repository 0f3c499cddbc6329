package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A repository that is reached over SSH alone, with a real OpenSSH server.
func TestPushOverSSHReachesTheCluster(t *testing.T) {
	repo := repository(t, "over-ssh", map[string]string{"app/a.yaml": configMap("a", "one")})
	server := gitserver.NewSSH(t, gitserver.SSHOptions{Repositories: s.Git.Repositories()})
	key, err := server.NewKey("ed25519")
	if err != nil {
		t.Fatal(err)
	}
	url := server.RelativeURL("over-ssh.git")
	secret := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: over-ssh, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}
stringData:
  type: git
  url: %s
  sshPrivateKey: |
    %s
`, url, strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n    "))
	if _, err := s.API.Apply(within(t, waitLimit), secret); err != nil {
		t.Fatal(err)
	}
	deploy(t, "over-ssh", url, "app", "")
	lines, err := server.KnownHosts()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("CRED-07 a server that is not known is refused, and the error says how to trust it", func(t *testing.T) {
		if _, err := s.API.Wait(within(t, waitLimit), "over-ssh", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, "capstan cert add-ssh --batch --fingerprint SHA256:") {
					return nil
				}
			}
			return errors.New("no condition says it")
		}); err != nil {
			t.Fatal(err)
		}
	})
	if out, err := s.API.CLI(within(t, waitLimit), lines, "cert", "add-ssh", "--batch"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	settled(t, "over-ssh")
	cluster := s.Clusters["in-cluster"]
	t.Run("HOOKW-04 an event that names the http address refreshes what is fetched over SSH", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "over-ssh", "a", value("two")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("SRC-01 without an event the next listing finds it", func(t *testing.T) {
		repo.SetWebhook(gitserver.Webhook{})
		if _, err := repo.Commit(t.Context(), "three", map[string]string{"app/a.yaml": configMap("a", "three")}); err != nil {
			t.Fatal(err)
		}
		refreshRepository(t, url)
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "over-ssh", "a", value("three")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("SEC-A a server with another key is refused, and deployed objects stay", func(t *testing.T) {
		if err := errors.Join(server.ChangeHostKeys(), server.Restart(within(t, waitLimit))); err != nil {
			t.Fatal(err)
		}
		refreshRepository(t, url)
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			out, err := s.API.CLI(ctx, "", "repo", "list")
			if err != nil || !strings.Contains(out, "HAS CHANGED") {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "over-ssh", "a", value("three")); err != nil {
			t.Fatal(err)
		}
	})
}

// refreshRepository has the hub look at a repository now, as its next poll would.
func refreshRepository(t *testing.T, address string) {
	t.Helper()
	ctx := within(t, waitLimit)
	var l struct {
		Items []struct{ ID, URL string }
	}
	if err := s.API.Do(ctx, http.MethodGet, "/api/v1/repositories", nil, &l); err != nil {
		t.Fatal(err)
	}
	place := strings.TrimSuffix(address[strings.LastIndex(address, "@")+1:], ".git")
	for _, r := range l.Items {
		if strings.HasSuffix(r.URL, place) {
			if err := s.API.Do(ctx, http.MethodPost, "/api/v1/repositories/"+r.ID+"/refresh", nil, nil); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s is not among the repositories: %+v", place, l.Items)
}
