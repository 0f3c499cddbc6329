package stories_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// TestBasesOfOtherRepositories deploys a kustomization with a private base.
func TestBasesOfOtherRepositories(t *testing.T) {
	const name, password = "kustbase", "canary-of-kustbase"
	lib := repository(t, "kustbase-lib", map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": configMap("a", "one")})
	repo := repository(t, name, map[string]string{"app/kustomization.yaml": "resources: ['" + strings.TrimSuffix(lib.URL(), ".git") + ".git//base?ref=main']\nnamePrefix: prod-\n"})
	for _, r := range []*gitserver.Repository{repo, lib} {
		r.Protect(gitserver.RepositoryOptions{Username: "bot", Password: password})
	}
	if out, err := s.API.CLI(within(t, waitLimit), password+"\n", "repo", "add", repo.URL(), "--username", "bot", "--password-stdin"); err != nil {
		t.Fatal(err, out)
	}
	deploy(t, name, repo.URL(), "app", "")
	says := func(text string) {
		t.Helper()
		condition(t, name, func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, password) {
					t.Errorf("a condition shows the password: %s", c.Message)
				}
				if strings.Contains(c.Message, text) {
					return nil
				}
			}
			return errors.New("no condition says " + text)
		})
	}
	t.Run("KUST-10 a private base on the same host is fetched with the repository's credential", func(t *testing.T) {
		settled(t, name)
		live(t, name, "prod-a", value("one"))
	})
	t.Run("KUST-10 a commit of the base is deployed by the next refresh", func(t *testing.T) {
		if _, err := lib.Commit(t.Context(), "two", map[string]string{"base/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		if err := poll.Until(within(t, waitLimit), func(context.Context) error {
			cli(t, "app", "refresh", name)
			if out := cli(t, "app", "manifests", name); !strings.Contains(out, "v: two") {
				return errors.New(out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		live(t, name, "prod-a", value("two"))
	})
	t.Run("KUST-10 SEC-A12 a base that the project does not permit is not read", func(t *testing.T) {
		if _, err := s.API.Apply(within(t, waitLimit), `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: kustbase, namespace: argocd}
spec:
  sourceRepos: ["`+repo.URL()+`"]
  destinations: [{name: "*", server: "*", namespace: kustbase}]
  clusterResourceWhitelist: [{group: "", kind: Namespace}]
`); err != nil {
			t.Fatal(err)
		}
		cli(t, "app", "set", name, "--project", "kustbase")
		says("it is a base, and")
		live(t, name, "prod-a", value("two")) // an error deletes nothing
	})
	cli(t, "app", "delete", name, "--yes")
}
