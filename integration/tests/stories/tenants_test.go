package stories_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

const project = `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop}
spec:
  sourceRepos: ["*"]
  destinations: [{name: in-cluster, namespace: "*"}]
---
`

func shop(repo string) string {
	return fmt.Sprintf(project+`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop, namespace: argocd}
spec:
  project: shop
  source: {repoURL: %q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: shop}
  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}
`, repo)
}

func TestTenantsSideBySide(t *testing.T) {
	ctx := within(t, 10*time.Minute)
	out, err := s.API.CLI(ctx, "", "tenant", "create", "globex", "-o", "json")
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
	cluster := kube.New(t, "globex", kube.Options{Controllers: true})
	token, err := other.CLI(ctx, "", "cluster", "enroll", "in-cluster", "--token-only")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := stack.StartAgent(ctx, stack.AgentOptions{Bin: s.Bin(), Dir: t.TempDir(), Cluster: cluster, JoinToken: strings.TrimSpace(token)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Stop() })

	ours := repository(t, "ours", map[string]string{"app/a.yaml": configMap("a", "ours")})
	theirs := repository(t, "theirs", map[string]string{"app/a.yaml": configMap("a", "theirs")})
	t.Run("ISO-8 projects, applications and clusters of equal names coexist", func(t *testing.T) {
		if _, err := s.API.Apply(ctx, shop(ours.URL())); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Apply(ctx, shop(theirs.URL())); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Clusters["in-cluster"].WaitFor(ctx, configMaps, "shop", "a", value("ours")); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(ctx, configMaps, "shop", "a", value("theirs")); err != nil {
			t.Fatal(err)
		}
		for _, a := range []*stack.API{s.API, other} {
			if _, err := a.Wait(within(t, waitLimit), "shop", stack.Settled); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("INV-7 a push to the repository of one changes nothing of the other", func(t *testing.T) {
		before, err := s.API.Get(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Commit(ctx, "two", map[string]string{"app/a.yaml": configMap("a", "theirs again")}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.CLI(ctx, "", "app", "refresh", "shop"); err != nil { // or three minutes pass until the repository is polled
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(ctx, configMaps, "shop", "a", value("theirs again")); err != nil {
			t.Fatal(err)
		}
		after, err := s.API.Get(ctx, "shop")
		if err != nil || after.Status.Sync.Revision != before.Status.Sync.Revision {
			t.Errorf("%v, revision %s became %s", err, before.Status.Sync.Revision, after.Status.Sync.Revision)
		}
	})
	t.Run("ISO-5 lists and names of one reveal nothing of the other", func(t *testing.T) {
		repository(t, "secret-of-ours", map[string]string{"app/a.yaml": configMap("a", "x")})
		deploy(t, "only-ours", ours.URL(), "app", "")
		for _, path := range []string{"/api/v1/applications", "/api/v1/repositories", "/api/v1/projects", "/api/v1/clusters", "/api/v1/audit"} {
			var raw json.RawMessage
			if err := other.Do(ctx, http.MethodGet, path, nil, &raw); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			for _, word := range []string{"only-ours", ours.URL(), "my-project"} {
				if strings.Contains(string(raw), word) {
					t.Errorf("%s of the other tenant shows %q", path, word)
				}
			}
		}
		missing, there := other.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/no-such-thing", nil, nil), other.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/only-ours", nil, nil)
		if missing == nil || there == nil || neutral(missing) != strings.ReplaceAll(neutral(there), "only-ours", "no-such-thing") {
			t.Errorf("the answers differ:\n%v\n%v", missing, there)
		}
	})
	t.Run("an admin of a tenant may not make tenants", func(t *testing.T) {
		if _, err := other.CLI(ctx, "", "tenant", "create", "third"); err == nil {
			t.Error("a tenant admin made a tenant")
		}
	})
	t.Run("AGT-01 a join token works once", func(t *testing.T) {
		second := kube.New(t, "second", kube.Options{Controllers: true})
		dir := t.TempDir()
		again, err := stack.StartAgent(ctx, stack.AgentOptions{Bin: s.Bin(), Dir: dir, Cluster: second, JoinToken: strings.TrimSpace(token)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = again.Stop() })
		err = poll.Until(within(t, waitLimit), func(context.Context) error {
			b, err := os.ReadFile(filepath.Join(dir, "agent.log"))
			if err != nil || !strings.Contains(string(b), "used") {
				return fmt.Errorf("%v: the agent does not say that the token was used:\n%s", err, b)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// neutral is an error without what differs between any two requests.
func neutral(err error) string {
	text := err.Error()
	if i := strings.Index(text, "request_id"); i > 0 {
		text = text[:i]
	}
	return text
}
