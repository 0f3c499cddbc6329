package stories_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// TestSeveralSources follows two sources through syncs, of which the second
// changes alone.
func TestSeveralSources(t *testing.T) {
	const name = "several"
	first, second := repository(t, "several-first", map[string]string{"app/a.yaml": configMap("a", "one")}), repository(t, "several-second", map[string]string{"app/b.yaml": configMap("b", "one")})
	if _, err := s.API.Apply(within(t, waitLimit), fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: several, namespace: argocd}
spec:
  project: default
  sources:
  - {repoURL: %q, path: app, targetRevision: main}
  - {repoURL: %q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: several}
  syncPolicy: {syncOptions: [CreateNamespace=true]}
`, first.URL(), second.URL())); err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Revisions []string `json:"revisions"`
		Sources   []struct {
			RepoURL string `json:"repoURL"`
		} `json:"sources"`
	}
	status := func() (revisions []string, history []entry) {
		t.Helper()
		var x struct {
			Status struct {
				Sync struct {
					Revisions []string `json:"revisions"`
				} `json:"sync"`
				History []entry `json:"history"`
			} `json:"status"`
		}
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications/argocd/"+name, nil, &x); err != nil {
			t.Fatal(err)
		}
		return x.Status.Sync.Revisions, x.Status.History
	}
	head := func(r *gitserver.Repository) string {
		t.Helper()
		commit, err := r.Run(within(t, waitLimit), "rev-parse", "HEAD")
		if err != nil {
			t.Fatal(err)
		}
		return commit
	}
	cli(t, "app", "sync", name)
	settled(t, name)
	one, two := head(first), head(second)
	t.Run("SRC-13 revisions and history are parallel to the sources", func(t *testing.T) {
		later, err := second.Commit(t.Context(), "two", map[string]string{"app/b.yaml": configMap("b", "two")})
		if err != nil {
			t.Fatal(err)
		}
		cli(t, "app", "refresh", name)
		cli(t, "app", "sync", name)
		live(t, name, "b", value("two"))
		settled(t, name)
		revisions, history := status()
		if !slices.Equal(revisions, []string{one, later}) || len(history) != 2 {
			t.Fatalf("revisions %v, history %+v", revisions, history)
		}
		for i, want := range [][]string{{one, two}, {one, later}} {
			h := history[i]
			if !slices.Equal(h.Revisions, want) || len(h.Sources) != 2 || h.Sources[0].RepoURL != first.URL() || h.Sources[1].RepoURL != second.URL() {
				t.Errorf("entry %d of the history is %+v, want %v", i+1, h, want)
			}
		}
	})
	t.Run("SRC-13 CLI-06 --source-positions counts from 1, in any order, and the sync and its history keep the order of the sources", func(t *testing.T) {
		later := head(second)
		for _, c := range []struct {
			positions, revisions string
			want                 []string
			b                    string
		}{
			{"2", two, []string{one, two}, "one"}, {"2,1", later + "," + one, []string{one, later}, "two"},
		} {
			cli(t, "app", "sync", name, "--source-positions", c.positions, "--revisions", c.revisions)
			live(t, name, "b", value(c.b))
			_, history := status()
			if last := history[len(history)-1]; !slices.Equal(last.Revisions, c.want) || len(last.Sources) != 2 || last.Sources[1].RepoURL != second.URL() {
				t.Errorf("--source-positions %s: the history ends with %+v, want %v", c.positions, last, c.want)
			}
		}
	})
	t.Run("SRC-13 CLI-06 positions that no source has, or that are given twice, are refused, and nothing is synced", func(t *testing.T) {
		_, before := status()
		for positions, revisions := range map[string]string{"0": two, "3": two, "1,2": one, "2,2": two + "," + two} {
			if out, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", name, "--source-positions", positions, "--revisions", revisions); err == nil {
				t.Errorf("--source-positions %s is accepted: %s", positions, out)
			}
		}
		if _, after := status(); len(after) != len(before) {
			t.Errorf("the history grew from %d to %d entries", len(before), len(after))
		}
	})
	t.Run("SRC-13 CLI-04 a diff takes them, too", func(t *testing.T) {
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "diff", name, "--source-positions", "2", "--revisions", two)
		if err == nil || !strings.Contains(out, "one") {
			t.Errorf("the diff to an earlier commit of the second source: %v: %s", err, out)
		}
	})
	cli(t, "app", "delete", name, "--yes")
}

// TestSubmodule deploys what stands in a submodule, which needs a password as
// its repository does.
func TestSubmodule(t *testing.T) {
	const name, password = "submodule", "canary-of-submodule"
	lib, repo := repository(t, "submodule-lib", map[string]string{"base/a.yaml": configMap("a", "one")}), repository(t, name, map[string]string{"readme.md": "text"})
	pin := func(message string) {
		t.Helper()
		commit, err := lib.Run(within(t, waitLimit), "rev-parse", "HEAD")
		for _, args := range [][]string{
			{"update-index", "--add", "--cacheinfo", "160000," + commit + ",vendor/lib"}, {"commit", "--quiet", "--message=" + message}, {"push", "--quiet", "origin", "HEAD:refs/heads/main"},
		} {
			if err == nil {
				_, err = repo.Run(within(t, waitLimit), args...)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := repo.Commit(t.Context(), "modules", map[string]string{".gitmodules": "[submodule \"vendor/lib\"]\n\tpath = vendor/lib\n\turl = " + lib.URL() + "\n"}); err != nil {
		t.Fatal(err)
	}
	pin("the submodule")
	for _, r := range []*gitserver.Repository{repo, lib} {
		r.Protect(gitserver.RepositoryOptions{Username: "bot", Password: password})
	}
	t.Run("SRC-23 a submodule is fetched with the repository's credential, and deployed", func(t *testing.T) {
		if out, err := s.API.CLI(within(t, waitLimit), password+"\n", "repo", "add", repo.URL(), "--username", "bot", "--password-stdin"); err != nil {
			t.Fatal(errors.Join(err, errors.New(out)))
		}
		deploy(t, name, repo.URL(), "vendor/lib/base", "")
		settled(t, name)
		live(t, name, "a", value("one"))
	})
	t.Run("SRC-23 a commit of the submodule is deployed once the repository names it", func(t *testing.T) {
		if _, err := lib.Commit(t.Context(), "two", map[string]string{"base/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		pin("another commit")
		refreshRepository(t, repo.URL())
		live(t, name, "a", value("two"))
	})
	cli(t, "app", "delete", name, "--yes")
}
