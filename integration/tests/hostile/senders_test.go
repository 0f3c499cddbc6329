package hostile_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// post sends an event to the hub and gives the status of the answer.
func post(t *testing.T, body string, header map[string]string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodPost, s.URL()+"/api/webhook", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// hexHMAC signs a body as Bitbucket Server and Gogs do.
func hexHMAC(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// Events of each kind of sender count with the secret of the tenant, and with
// no other one. The repository calls no webhook itself, and the hub would look
// at it later than these tests wait.
func TestSendersOfEvents(t *testing.T) {
	ctx := within(t, 5*waitLimit)
	repo, err := s.Git.Create(ctx, "senders", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	push := func(v string) string {
		t.Helper()
		commit, err := repo.Commit(ctx, v, map[string]string{"app/a.yaml": configMap(v)})
		if err != nil {
			t.Fatal(err)
		}
		return commit
	}
	seen := func(t *testing.T, commit string) {
		t.Helper()
		if _, err := s.API.Wait(within(t, waitLimit), "senders", func(x stack.App) error {
			if x.Status.Sync.Revision != commit {
				return fmt.Errorf("revision %q; conditions %v", x.Status.Sync.Revision, x.Status.Conditions)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	first := push("zero")
	if _, err := s.API.Apply(ctx, app("senders", repo.URL(), "app")); err != nil {
		t.Fatal(err)
	}
	seen(t, first)
	for key, value := range map[string]string{
		"webhook.gitlab.secret": "s3cret", "webhook.bitbucket.uuid": "s3cret", "webhook.bitbucketserver.secret": "s3cret", "webhook.gogs.secret": "s3cret",
		"webhook.azuredevops.username": "capstan", "webhook.azuredevops.password": "s3cret",
	} {
		set(ctx, t, key, value)
	}
	gitlab := fmt.Sprintf(`{"object_kind":"push","ref":"refs/heads/main","project":{"git_http_url":%q}}`, repo.URL())
	cloud := fmt.Sprintf(`{"push":{"changes":[]},"repository":{"links":{"html":{"href":%q}}}}`, repo.URL())
	server := fmt.Sprintf(`{"eventKey":"repo:refs_changed","repository":{"links":{"clone":[{"href":%q,"name":"http"}]}}}`, repo.URL())
	azure := fmt.Sprintf(`{"eventType":"git.push","resource":{"repository":{"remoteUrl":%q}}}`, repo.URL())
	gogs := fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, repo.URL())
	for name, sends := range map[string]func(secret string) int{
		"GitLab": func(secret string) int {
			return post(t, gitlab, map[string]string{"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": secret})
		},
		"Bitbucket Cloud": func(secret string) int {
			return post(t, cloud, map[string]string{"X-Event-Key": "repo:push", "X-Hook-UUID": secret})
		},
		"Bitbucket Server": func(secret string) int {
			return post(t, server, map[string]string{"X-Event-Key": "repo:refs_changed", "X-Hub-Signature": "sha256=" + hexHMAC(secret, server)})
		},
		"Azure DevOps": func(secret string) int {
			return post(t, azure, map[string]string{"X-Vss-Activityid": "1", "Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("capstan:"+secret))})
		},
		"Gogs": func(secret string) int {
			return post(t, gogs, map[string]string{"X-Gogs-Event": "push", "X-Gogs-Signature": hexHMAC(secret, gogs)})
		},
	} {
		t.Run("HOOKW-02 HOOKW-03 a push event of "+name+" counts with the tenant's secret alone", func(t *testing.T) {
			commit := push(name)
			for _, wrong := range []string{"guessed", ""} {
				if status := sends(wrong); status != http.StatusForbidden {
					t.Errorf("with the secret %q it is answered %d", wrong, status)
				}
			}
			if status := sends("s3cret"); status != http.StatusAccepted {
				t.Errorf("with the tenant's it is answered %d", status)
			}
			seen(t, commit)
		})
	}
}

// set sets a secret of the installation's own tenant.
func set(ctx context.Context, t *testing.T, key, value string) {
	t.Helper()
	if out, err := s.API.CLI(ctx, value, "settings", "set", key, "--map", "argocd-secret", "--from-file", "-"); err != nil {
		t.Fatal(out, err)
	}
}
