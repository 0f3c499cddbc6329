package stories_test

import (
	"context"
	"errors"
	"fmt"
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
	t.Run("KUST-10 HOOKW-04 a push to the base alone is deployed by all applications that use it, and nobody refreshes", func(t *testing.T) {
		deploy(t, name+"-too", repo.URL(), "app", "")
		settled(t, name+"-too")
		live(t, name+"-too", "prod-a", value("two"))
		if _, err := lib.Commit(t.Context(), "three", map[string]string{"base/a.yaml": configMap("a", "three")}); err != nil {
			t.Fatal(err)
		}
		settled(t, name)
		live(t, name, "prod-a", value("three"))
		live(t, name+"-too", "prod-a", value("three"))
		if d := lib.Deliveries(); len(d) == 0 || d[len(d)-1].Status/100 != 2 {
			t.Errorf("the webhook of the base was called with the results %+v", d)
		}
		cli(t, "app", "delete", name+"-too", "--yes")
		if _, err := lib.Commit(t.Context(), "two again", map[string]string{"base/a.yaml": configMap("a", "two")}); err != nil {
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

// TestSignaturesOfBases has a project demand signed commits, and a base that has
// none.
func TestSignaturesOfBases(t *testing.T) {
	const name = "signedbase"
	lib := repository(t, name+"-lib", map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": configMap("a", "unsigned")})
	repo, err := s.Repository(within(t, waitLimit), name, gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t, repo)
	if _, err := repo.Commit(within(t, waitLimit), "signed", map[string]string{"app/kustomization.yaml": "resources: ['" + strings.TrimSuffix(lib.URL(), ".git") + ".git//base?ref=main']\n"}); err != nil {
		t.Fatal(err)
	}
	if out, err := s.API.CLI(within(t, waitLimit), key.public, "gpg", "add"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := s.API.Apply(within(t, waitLimit), `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: `+name+`, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{name: "*", server: "*", namespace: `+name+`}]
  clusterResourceWhitelist: [{group: "", kind: Namespace}]
  signatureKeys: [{keyID: `+key.id+`}]
`); err != nil {
		t.Fatal(out, err)
	}
	if out, err := s.API.Apply(within(t, waitLimit), `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: `+name+`, namespace: argocd}
spec:
  project: `+name+`
  source: {repoURL: "`+repo.URL()+`", path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: `+name+`}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`); err != nil {
		t.Fatal(out, err)
	}
	t.Run("KUST-10 PROJ-15 an unsigned base does not get into a source that must be signed, and the condition says why", func(t *testing.T) {
		condition(t, name, func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, "the project demands signatures of commits") && strings.Contains(c.Message, "it is not signed") && strings.Contains(c.Message, name+"-lib") {
					return nil
				}
			}
			return fmt.Errorf("no condition names the base: %v", x.Status.Conditions)
		})
	})
	t.Run("KUST-10 PROJ-15 a signed commit of the base is deployed", func(t *testing.T) {
		signWith(t, lib, key)
		if _, err := lib.Commit(within(t, waitLimit), "signed", map[string]string{"base/a.yaml": configMap("a", "signed")}); err != nil {
			t.Fatal(err)
		}
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			cli(t, "app", "refresh", name)
			if out, err := s.API.CLI(ctx, "", "app", "manifests", name); err != nil || !strings.Contains(out, "v: signed") {
				return fmt.Errorf("manifests: %v: %s", err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		live(t, name, "a", value("signed"))
	})
	says := func(text string) {
		t.Helper()
		condition(t, name, func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, text) && strings.Contains(c.Message, name+"-lib") {
					return nil
				}
			}
			return fmt.Errorf("no condition says %q of the base: %v", text, x.Status.Conditions)
		})
	}
	t.Run("KUST-10 FT-G12 a commit of the base that Git has signed with an SSH key, and finds good, is refused as one of another kind", func(t *testing.T) {
		signWithSSH(t, lib)
		if _, err := lib.Commit(within(t, waitLimit), "by SSH", map[string]string{"base/a.yaml": configMap("a", "ssh")}); err != nil {
			t.Fatal(err)
		}
		if out, err := lib.Run(within(t, waitLimit), "verify-commit", "main"); err != nil {
			t.Fatalf("Git itself does not verify it: %v\n%s", err, out)
		}
		says("its signature is of another kind than OpenPGP")
		live(t, name, "a", value("signed"))
	})
	t.Run("KUST-10 FT-G12 so is an unsigned one, and what is deployed stays", func(t *testing.T) {
		if _, err := lib.Run(within(t, waitLimit), "config", "commit.gpgsign", "false"); err != nil {
			t.Fatal(err)
		}
		if _, err := lib.Commit(within(t, waitLimit), "unsigned", map[string]string{"base/a.yaml": configMap("a", "unsigned")}); err != nil {
			t.Fatal(err)
		}
		says("it is not signed")
		live(t, name, "a", value("signed"))
	})
	t.Run("KUST-10 HOOKW-04 PROJ-15 a signed commit after it is deployed by its push alone", func(t *testing.T) {
		if _, err := lib.Run(within(t, waitLimit), "config", "gpg.format", "openpgp"); err != nil {
			t.Fatal(err)
		}
		signWith(t, lib, key)
		if _, err := lib.Commit(within(t, waitLimit), "signed again", map[string]string{"base/a.yaml": configMap("a", "again")}); err != nil {
			t.Fatal(err)
		}
		live(t, name, "a", value("again"))
	})
	cli(t, "app", "delete", name, "--yes")
}
