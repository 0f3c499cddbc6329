package stories_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// One private URL and two projects, of which one has the credential.
func TestRepositoryOfOneProject(t *testing.T) {
	ctx := within(t, 4*waitLimit)
	repo, err := s.Repository(ctx, "of-one-project", gitserver.RepositoryOptions{Username: "bot", Password: "canary-private"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(ctx, "one", map[string]string{"app/a.yaml": configMap("a", "one")}); err != nil {
		t.Fatal(err)
	}
	app := func(project string) string {
		return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: %[1]s}
spec:
  sourceRepos: ["*"]
  destinations: [{name: in-cluster, namespace: "*"}]
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd}
spec:
  project: %[1]s
  source: {repoURL: %[2]q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}
`, project, repo.URL())
	}
	refused := func(t *testing.T, name, says string) {
		t.Helper()
		if _, err := s.API.Wait(within(t, waitLimit), name, func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, says) {
					return nil
				}
			}
			return fmt.Errorf("no condition says %q: %+v", says, x.Status.Conditions)
		}); err != nil {
			t.Fatal(err)
		}
	}
	add := func(t *testing.T, args ...string) {
		t.Helper()
		if out, err := s.API.CLI(ctx, "canary-private", append([]string{"repo", "add", repo.URL(), "--username", "bot", "--password-stdin"}, args...)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, project := range []string{"insiders", "outsiders"} {
		if _, err := s.API.Apply(ctx, app(project)); err != nil {
			t.Fatal(err)
		}
	}
	cluster := s.Clusters["in-cluster"]
	add(t, "--project", "insiders")
	t.Run("CRED-15 the applications of the project are deployed with its credential, those of another are not", func(t *testing.T) {
		settled(t, "insiders")
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "insiders", "a", value("one")); err != nil {
			t.Fatal(err)
		}
		refused(t, "outsiders", "asks for credentials")
		if x, err := s.API.Get(ctx, "outsiders"); err != nil || x.Status.Sync.Revision != "" {
			t.Errorf("%v: it knows the revision %q", err, x.Status.Sync.Revision)
		}
	})
	t.Run("CRED-15 a push reaches only the project that may read it", func(t *testing.T) {
		if _, err := repo.Commit(ctx, "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "insiders", "a", value("two")); err != nil {
			t.Fatal(err)
		}
		refused(t, "outsiders", "asks for credentials")
	})
	t.Run("CRED-15 one without a project serves the others, and the project after its own is deleted", func(t *testing.T) {
		add(t)
		settled(t, "outsiders")
		if out, err := s.API.CLI(ctx, "", "repo", "rm", strings.TrimSuffix(repo.URL(), ".git"), "--project", "insiders", "--yes"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if _, err := repo.Commit(ctx, "three", map[string]string{"app/a.yaml": configMap("a", "three")}); err != nil {
			t.Fatal(err)
		}
		for _, namespace := range []string{"insiders", "outsiders"} {
			if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, namespace, "a", value("three")); err != nil {
				t.Fatal(errors.Join(errors.New(namespace), err))
			}
		}
	})
}
