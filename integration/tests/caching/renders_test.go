package caching_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// application is the manifest of one with some annotation and sources.
func application(name, annotation string, sources ...string) string {
	return fmt.Sprintf(`---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %s
  namespace: argocd
  annotations: {%s}
spec:
  project: default
  sources: [%s]
  destination: {name: in-cluster, namespace: default}
`, name, annotation, strings.Join(sources, ", "))
}

func source(repo *gitserver.Repository, path string) string {
	return fmt.Sprintf("{repoURL: %q, path: %q, targetRevision: main}", repo.URL(), path)
}

// world is a repository with applications of every kind.
func world(t *testing.T, name string, repo *gitserver.Repository) (apps []string) {
	t.Helper()
	ctx := within(t)
	commit, err := repo.Commit(ctx, "begin", map[string]string{
		"README": "0", "plain/a.yaml": configMap("a", "0"), "marked/a.yaml": configMap("b", "0"), "elsewhere/a.yaml": configMap("c", "0"),
		"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": configMap("d", "0"), "overlay/kustomization.yaml": "resources: [../base]\nnamePrefix: x-\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "chart/templates/a.yaml": configMap("e", "{{ .Values.v }}"), "chart/values.yaml": "v: 0\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	paths := "argocd.argoproj.io/manifest-generate-paths: "
	all := map[string]string{
		"plain": application(name+"-plain", "", source(repo, "plain")), "marked": application(name+"-marked", paths+"'.;/elsewhere'", source(repo, "marked")),
		"astray": application(name+"-astray", paths+"/elsewhere", source(repo, "marked")), "overlay": application(name+"-overlay", "", source(repo, "overlay")),
		"chart": application(name+"-chart", "", source(repo, "chart")), "several": application(name+"-several", "", source(repo, "plain"), source(repo, "chart")),
	}
	var text strings.Builder
	for kind, manifest := range all {
		apps = append(apps, name+"-"+kind)
		text.WriteString(manifest)
	}
	if _, err := s.API.Apply(ctx, text.String()); err != nil {
		t.Fatal(err)
	}
	single := strings.Fields(strings.ReplaceAll(strings.Join(apps, " "), name+"-several", ""))
	shows(t, commit, single...)
	if _, err := s.API.Wait(ctx, name+"-several", func(x stack.App) error { // it has a revision of each source
		if x.Status.Capstan.Target == "" {
			return errors.New("it is not rendered yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return single
}

// What a commit costs does not depend on how the hub hears of it, nor on an
// annotation: it is decided by what renders have read.
func TestACommitRendersOnlyWhatReadIt(t *testing.T) {
	for by, create := range map[string]func(name string) (*gitserver.Repository, error){
		"push": func(name string) (*gitserver.Repository, error) {
			return s.Repository(within(t), name, gitserver.RepositoryOptions{})
		},
		"polling": func(name string) (*gitserver.Repository, error) {
			return s.Git.Create(within(t), name, gitserver.RepositoryOptions{})
		},
	} {
		t.Run(by, func(t *testing.T) {
			repo, err := create("by-" + by)
			if err != nil {
				t.Fatal(err)
			}
			apps := world(t, "by-"+by, repo)
			costs := func(t *testing.T, path string, want int) {
				t.Helper()
				before := read(t)
				shows(t, push(t, repo, path, text(path, t.Name())), apps...)
				if got := before.since(t); got != want {
					t.Errorf("a change of %s costs %d renders, want %d", path, got, want)
				}
			}
			ids := "REPO-09 REPO-10"
			if by == "push" {
				ids = "REPO-09 HOOKW-05"
			}
			t.Run(ids+" HOOKW-06 what no application has read renders nothing, and all move to the new revision, by "+by, func(t *testing.T) {
				costs(t, "README", 0)
			})
			t.Run(ids+" what an annotation lists and nobody has read renders nothing, by "+by, func(t *testing.T) {
				costs(t, "elsewhere/a.yaml", 0)
			})
			t.Run(ids+" what was read renders, also where the annotation does not list it, by "+by, func(t *testing.T) {
				costs(t, "marked/a.yaml", 1) // of two applications, which share it
			})
			t.Run(ids+" without an annotation too: a base of an overlay, by "+by, func(t *testing.T) {
				costs(t, "base/a.yaml", 1)
			})
			t.Run(ids+" a chart, and the application of two sources that has it, by "+by, func(t *testing.T) {
				before := read(t)
				commit := push(t, repo, "chart/values.yaml", "v: "+by+"\n")
				shows(t, commit, apps...)
				if _, err := s.API.CLI(within(t), "", "app", "get", "by-"+by+"-several", "--refresh"); err != nil {
					t.Fatal(err)
				}
				if got := before.since(t); got != 2 {
					t.Errorf("it costs %d renders, want one of each application", got)
				}
			})
		})
	}
}

func text(path, value string) string {
	if strings.HasSuffix(path, ".yaml") {
		return configMap(strings.NewReplacer("/", "-", ".yaml", "").Replace(path), value)
	}
	return value
}

// A chart that makes random values is rendered once for what it reads. Nothing
// is deployed anew until that changes, and people see why.
func TestImpureCharts(t *testing.T) {
	repo, err := s.Repository(within(t), "impure", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chart := map[string]string{"c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "c/templates/a.yaml": configMap("impure", "{{ randAlphaNum 20 }}"), "README": "0"}
	commit, err := repo.Commit(within(t), "begin", chart)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(within(t), application("impure", "", source(repo, "c"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.CLI(within(t), "", "app", "get", "impure", "--refresh"); err != nil {
		t.Fatal(err)
	}
	shows(t, commit, "impure")
	app := func() stack.App {
		t.Helper()
		x, err := s.API.Get(within(t), "impure")
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	marked := func() bool {
		for _, c := range app().Status.Conditions {
			if c.Type == "ImpureWarning" {
				return true
			}
		}
		return false
	}
	t.Run("FT-G8 HELM-21 it is marked, and says what to do", func(t *testing.T) {
		if !marked() {
			t.Errorf("conditions %+v", app().Status.Conditions)
		}
	})
	first := app().Status.Capstan.Target
	t.Run("FT-G8 commits that it does not read and refreshes change nothing, also after a restart", func(t *testing.T) {
		before := read(t)
		shows(t, push(t, repo, "README", "1"), "impure")
		if _, err := s.API.CLI(within(t), "", "app", "get", "impure", "--refresh"); err != nil {
			t.Fatal(err)
		}
		if got := before.since(t); got != 0 {
			t.Errorf("%d renders", got)
		}
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Start(within(t)); err != nil {
			t.Fatal(err)
		}
		shows(t, push(t, repo, "README", "2"), "impure")
		if got := app().Status.Capstan.Target; got != first || !marked() {
			t.Errorf("the target is %s, and was %s; marked: %v", got, first, marked())
		}
	})
	t.Run("FT-G8 the mark goes with the random value", func(t *testing.T) {
		shows(t, push(t, repo, "c/templates/a.yaml", configMap("impure", "fixed")), "impure")
		if marked() {
			t.Errorf("conditions %+v", app().Status.Conditions)
		}
	})
}

// A shared cache is not needed: what counts is in Postgres, and a mirror can be
// lost.
func TestLostCaches(t *testing.T) {
	repo, err := s.Repository(within(t), "lost", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	apps := world(t, "lost", repo)
	t.Run("REPO-14 REPO-03 a hub that has lost its memory and its mirrors renders nothing again", func(t *testing.T) {
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(s.Hub.Dir(), "state")); err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Start(within(t)); err != nil {
			t.Fatal(err)
		}
		before := read(t)
		shows(t, push(t, repo, "README", "after the loss"), apps...)
		if got := before.since(t); got != 0 || before["capstan_renders_total"] != 0 {
			t.Errorf("%d renders before the commit, and %d for it", int(before["capstan_renders_total"]), got)
		}
	})
	t.Run("REPO-03 a normal refresh reads the branch anew and renders nothing, a hard one renders", func(t *testing.T) {
		quiet, err := s.Git.Create(within(t), "quiet", gitserver.RepositoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := push(t, quiet, "a/a.yaml", configMap("a", "0"))
		if _, err := s.API.Apply(within(t), application("quiet", "", source(quiet, "a"))); err != nil {
			t.Fatal(err)
		}
		shows(t, first, "quiet")
		before, listings := read(t), quiet.Requests().Listings
		if _, err := s.API.CLI(within(t), "", "app", "get", "quiet", "--refresh"); err != nil {
			t.Fatal(err)
		}
		if quiet.Requests().Listings == listings || before.since(t) != 0 {
			t.Errorf("a normal refresh costs %d listings and %d renders", quiet.Requests().Listings-listings, before.since(t))
		}
		if _, err := s.API.CLI(within(t), "", "app", "get", "quiet", "--hard-refresh"); err != nil {
			t.Fatal(err)
		}
		if got := before.since(t); got != 1 {
			t.Errorf("a hard refresh costs %d renders", got)
		}
	})
}

func TestFailingApplication(t *testing.T) {
	repo, err := s.Repository(within(t), "failing", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	push(t, repo, "app/a.yaml", "kind: [\n")
	if _, err := s.API.Apply(within(t), application("failing", "", source(repo, "app"))); err != nil {
		t.Fatal(err)
	}
	says := func(t *testing.T, check func(message string) bool) {
		t.Helper()
		if _, err := s.API.Wait(within(t), "failing", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if c.Type == "ComparisonError" && check(c.Message) {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", x.Status.Conditions)
		}); err != nil {
			t.Fatal(err)
		}
	}
	says(t, func(m string) bool { return strings.Contains(m, "app/a.yaml") })
	t.Run("REPO-05 after three failures the condition says that its error is cached, and until when", func(t *testing.T) {
		for range 3 {
			if _, err := s.API.CLI(within(t), "", "app", "get", "failing", "--refresh"); err != nil {
				t.Fatal(err)
			}
		}
		says(t, func(m string) bool {
			return strings.Contains(m, "app/a.yaml") && strings.Contains(m, "cached error of 3 attempts")
		})
		if read(t)["capstan_renders_paused_total"] == 0 {
			t.Error("the hub does not count it")
		}
	})
	t.Run("REPO-05 another input ends the pause at once", func(t *testing.T) {
		shows(t, push(t, repo, "app/a.yaml", configMap("a", "mended")), "failing")
	})
}

// Bases are in a repository that nobody has registered.
func TestBasesArePolled(t *testing.T) {
	lib, err := s.Git.Create(within(t), "polled-base", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(value string) {
		t.Helper()
		if _, err := lib.Commit(within(t), value, map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": configMap("a", value)}); err != nil {
			t.Fatal(err)
		}
	}
	commit("one")
	repo, err := s.Git.Create(within(t), "with-base", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files, names := map[string]string{}, []string{"base-x", "base-y", "base-z"}
	var text strings.Builder
	for _, name := range names {
		files[name+"/kustomization.yaml"] = "resources: ['" + lib.URL() + "//base?ref=main']\nnamePrefix: " + name + "-\n"
		text.WriteString(application(name, "", source(repo, name)))
	}
	if _, err := repo.Commit(within(t), "begin", files); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(within(t), text.String()); err != nil {
		t.Fatal(err)
	}
	have := func(value string) {
		t.Helper()
		if err := poll.Until(within(t), func(ctx context.Context) error {
			for _, name := range names {
				if out, err := s.API.CLI(ctx, "", "app", "manifests", name); err != nil || !strings.Contains(out, "v: "+value) {
					return fmt.Errorf("%s: %v: %s", name, err, out)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	have("one")
	t.Run("KUST-10 REPO-09 a commit of a base reaches all of its applications by polling, with one fetch of the base and none of what names it", func(t *testing.T) {
		base, named := lib.Requests().Fetches, repo.Requests().Fetches
		commit("two")
		have("two")
		if n := lib.Requests().Fetches - base; n != 1 {
			t.Errorf("the base was fetched %d times", n)
		}
		if n := repo.Requests().Fetches - named; n != 0 {
			t.Errorf("the repository that names it was fetched %d times", n)
		}
	})
}
