package git_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	m := gittest.NewMirrors(t, git.Config{})
	origin := s.Repo("team/app.git")
	repo := origin.Hub()

	first := origin.Commit("refs/heads/main", "first", gittest.Files{"a.yaml": "a: 1\n", "dir/b.yaml": "b: 1\n"})
	origin.Git("", "tag", "-a", "-m", "one", "v1.0.0", first)
	origin.Git("", "update-ref", "refs/pull/1/head", first)
	got := gittest.Fetched(t, m, repo)
	want := map[string]string{"HEAD": first, "refs/heads/main": first, "refs/tags/v1.0.0": first}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("SRC-01 branches, peeled tags and HEAD, no pull requests:\n%s", diff)
	}
	if got := gittest.Content(t, m, repo, first, "dir/b.yaml"); got != "b: 1\n" {
		t.Fatalf("content = %q", got)
	}

	lists, packs := s.Lists.Load(), s.Packs.Load()
	if gittest.Fetched(t, m, repo); s.Lists.Load() != lists+1 || s.Packs.Load() != packs {
		t.Errorf("nothing new costs %d listings and %d transfers, want 1 and 0", s.Lists.Load()-lists, s.Packs.Load()-packs)
	}

	lists, sent := s.Lists.Load(), s.Sent.Load()
	second := origin.Commit("refs/heads/main", "second", gittest.Files{"a.yaml": "a: 2\n"})
	if got := gittest.Fetched(t, m, repo); got["refs/heads/main"] != second || got["HEAD"] != second {
		t.Errorf("refs after a push = %v, want %s", got, second)
	}
	if s.Lists.Load() != lists+1 || s.Packs.Load() != packs+1 || s.Sent.Load()-sent > 2000 {
		t.Errorf("a push costs %d listings, %d transfers, %d bytes; want 1, 1 and little", s.Lists.Load()-lists, s.Packs.Load()-packs, s.Sent.Load()-sent)
	}
	if got := gittest.Content(t, m, repo, second, "a.yaml") + gittest.Content(t, m, repo, first, "a.yaml"); got != "a: 2\na: 1\n" {
		t.Errorf("content of the new and the old commit = %q", got)
	}
	if n := s.Conns.Load(); n > 2 { // one for the 404 without .git may go its own way
		t.Errorf("%d connections, want them to be kept", n)
	}
}

func TestFetchFollowsWhatHappensToRefs(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	m := gittest.NewMirrors(t, git.Config{})
	origin := s.Repo("app")
	repo := origin.Hub()
	base := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "base", "big": strings.Repeat("0123456789abcdef\n", 4000)})
	lost := origin.Commit("refs/heads/main", "lost", gittest.Files{"f": "lost"})
	origin.Git("", "tag", "stable", lost)
	origin.Git("", "branch", "feature", lost)
	gittest.Fetched(t, m, repo)

	t.Run("FT-G1 a force push", func(t *testing.T) {
		sent := s.Sent.Load()
		rewritten := origin.CommitOn("refs/heads/main", base, "rewritten", gittest.Files{"f": "rewritten"})
		origin.Git("", "tag", "-f", "stable", rewritten)
		origin.Git("", "branch", "-D", "feature")
		origin.Git("", "reflog", "expire", "--expire=now", "--all")
		origin.Git("", "gc", "--quiet", "--prune=now")
		got := gittest.Fetched(t, m, repo)
		want := map[string]string{"HEAD": rewritten, "refs/heads/main": rewritten, "refs/tags/stable": rewritten}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("branch, tag and deleted branch:\n%s", diff)
		}
		if n := s.Sent.Load() - sent; n > 1500 {
			t.Errorf("%d bytes came; the common ancestor should have been offered", n)
		}
		if got := gittest.Content(t, m, repo, lost, "f"); got != "lost" {
			t.Errorf("the commit that no ref leads to any more has %q", got)
		}
	})
	t.Run("a default branch of another name", func(t *testing.T) {
		trunk := origin.CommitOn("refs/heads/trunk", base, "trunk", gittest.Files{"f": "trunk"})
		origin.Git("", "symbolic-ref", "HEAD", "refs/heads/trunk")
		origin.Git("", "branch", "-D", "main")
		got := gittest.Fetched(t, m, repo)
		if got["HEAD"] != trunk || got["refs/heads/trunk"] != trunk || got["refs/heads/main"] != "" {
			t.Errorf("refs = %v, want HEAD at %s", got, trunk)
		}
	})
	t.Run("FT-G1 an emptied repository keeps the last refs", func(t *testing.T) {
		origin.Git("", "update-ref", "-d", "refs/heads/trunk")
		origin.Git("", "tag", "-d", "stable")
		if refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); err == nil {
			t.Errorf("Fetch() = %v, want an error so that nobody takes it for the truth", refs)
		}
	})
}

func TestFetchManyRefs(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	m := gittest.NewMirrors(t, git.Config{})
	origin := s.Repo("app")
	base := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "create refs/heads/b%d %s\ncreate refs/tags/v0.%d.0 %s\n", i, base, i, base)
	}
	origin.Git(b.String(), "update-ref", "--stdin")
	repo := origin.Hub()
	if got := gittest.Fetched(t, m, repo); len(got) != 2002 || s.Packs.Load() != 1 {
		t.Fatalf("%d refs in %d transfers, want 2002 in one", len(got), s.Packs.Load())
	}
	next := origin.Commit("refs/heads/b7", "next", gittest.Files{"f": "y"})
	if got := gittest.Fetched(t, m, repo); got["refs/heads/b7"] != next {
		t.Errorf("b7 = %s, want %s", got["refs/heads/b7"], next)
	}
}

func TestFetchAfterRestart(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	dir := t.TempDir()
	origin := s.Repo("app")
	repo := origin.Hub()
	head := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	old := gittest.NewMirrors(t, git.Config{Dir: dir})
	gittest.Fetched(t, old, repo)
	gittest.CloseMirrors(t, old)
	packs, lists := s.Packs.Load(), s.Lists.Load()

	m := gittest.NewMirrors(t, git.Config{Dir: dir})
	if got := gittest.Content(t, m, repo, head, "f"); got != "x" || s.Lists.Load() != lists {
		t.Errorf("content %q after %d listings, want it from disk", got, s.Lists.Load()-lists)
	}
	if gittest.Fetched(t, m, repo); s.Packs.Load() != packs {
		t.Error("unchanged refs cost a transfer after a restart")
	}
	if out := origin.Git("", "--git-dir", filepath.Join(dir, string(tenant), string(repo.ID)), "fsck", "--full", "--strict"); strings.Contains(out, "error") {
		t.Errorf("git finds fault with the mirror: %s", out)
	}
}

func TestFetchHealsDamage(t *testing.T) {
	t.Parallel()
	damage := map[string]func(t *testing.T, pack string){
		"FT-G5 a truncated pack": func(t *testing.T, pack string) {
			t.Helper()
			if err := os.Truncate(pack, 40); err != nil {
				t.Fatal(err)
			}
		},
		"FT-G5 flipped bits": func(t *testing.T, pack string) {
			t.Helper()
			data, err := os.ReadFile(pack)
			if err != nil {
				t.Fatal(err)
			}
			for i := 20; i < len(data)-20; i++ {
				data[i] ^= 0x55
			}
			if err := os.WriteFile(pack, data, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"FT-G5 a lost pack": func(t *testing.T, pack string) {
			t.Helper()
			if err := os.Remove(pack); err != nil {
				t.Fatal(err)
			}
		},
		"FT-G5 a broken index": func(t *testing.T, pack string) {
			t.Helper()
			if err := os.WriteFile(strings.TrimSuffix(pack, "pack")+"idx", []byte("\xfftOc"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, harm := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := gittest.New(t)
			dir := t.TempDir()
			origin := s.Repo("app")
			repo := origin.Hub()
			head := origin.Commit("refs/heads/main", "base", gittest.Files{"f": strings.Repeat("text ", 100)})
			old := gittest.NewMirrors(t, git.Config{Dir: dir})
			gittest.Fetched(t, old, repo)
			gittest.CloseMirrors(t, old)
			folder := filepath.Join(dir, string(tenant), string(repo.ID), "objects", "pack")
			packs, err := filepath.Glob(filepath.Join(folder, "*.pack"))
			if err != nil || len(packs) != 1 {
				t.Fatalf("packs = %v, %v", packs, err)
			}
			harm(t, packs[0])
			leftover := filepath.Join(folder, "tmp_pack_1")
			if err := os.WriteFile(leftover, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}

			m := gittest.NewMirrors(t, git.Config{Dir: dir})
			tree, err := m.Tree(gittest.Context(t), tenant, repo, head)
			for try := 0; try < 2; try++ {
				if err == nil {
					_, err = tree.ReadFile("f")
				}
				if err == nil {
					break
				}
				tree, err = m.Tree(gittest.Context(t), tenant, repo, head)
			}
			if err != nil {
				t.Fatalf("still damaged: %v", err)
			}
			if _, err := tree.ReadFile("f"); err != nil {
				t.Fatalf("still damaged: %v", err)
			}
			if _, err := os.Stat(leftover); !os.IsNotExist(err) {
				t.Errorf("FT-G6 the leftover of an interrupted fetch is still there: %v", err)
			}
		})
	}
}

func TestFetchMergesPacks(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	dir := t.TempDir()
	m := gittest.NewMirrors(t, git.Config{Dir: dir, MaxPacks: 6})
	origin := s.Repo("app")
	repo := origin.Hub()
	var commits []string
	text := strings.Repeat("some lines that make a delta worth while\n", 60)
	for i := range 30 {
		commits = append(commits, origin.Commit("refs/heads/main", "n", gittest.Files{fmt.Sprint("f", i): fmt.Sprint(i), "long": fmt.Sprint(text, i)}))
		if i%3 == 0 {
			origin.Git("", "repack", "-adq")
		}
		gittest.Fetched(t, m, repo)
	}
	packs, err := filepath.Glob(filepath.Join(dir, string(tenant), string(repo.ID), "objects", "pack", "*"))
	if err != nil || len(packs) > 2*6 {
		t.Errorf("%d pack files, %v; want at most 12: %v", len(packs), err, packs)
	}
	for i, c := range commits {
		if got := gittest.Content(t, m, repo, c, "long"); got != fmt.Sprint(text, i) {
			t.Fatalf("commit %d is damaged", i)
		}
	}
	gittest.CloseMirrors(t, m)
	if got := gittest.Content(t, m, repo, commits[3], "f2"); got != "2" {
		t.Errorf("f2 after the files were opened again = %q", got)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	dir := t.TempDir()
	m := gittest.NewMirrors(t, git.Config{Dir: dir})
	origin := s.Repo("app")
	repo := origin.Hub()
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	gittest.Fetched(t, m, repo)
	if err := m.Remove(gittest.Context(t), tenant, repo.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, string(tenant), string(repo.ID))); !os.IsNotExist(err) {
		t.Errorf("the mirror is still there: %v", err)
	}
}

func TestFetchSkipsInvalidRefs(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	head := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	s.Set("", func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		line := func(text string) { fmt.Fprintf(w, "%04x%s", len(text)+4, text) }
		line("# service=git-upload-pack\n")
		fmt.Fprint(w, "0000")
		line(head + " HEAD\x00ofs-delta side-band-64k symref=HEAD:refs/heads/../../x\n")
		for _, name := range []string{
			"refs/heads/main", "refs/heads/../../../etc/x", "refs/heads/-option", "refs/heads/.hidden", "refs/heads/x.lock", "refs/heads/", "refs/tags/a..b",
			"refs/heads/" + strings.Repeat("n", 2000), "refs/pull/1/head", "refs/remotes/x/main", "main",
		} {
			line(head + " " + name + "\n")
		}
		fmt.Fprint(w, "0000")
		return true
	})
	dir := t.TempDir()
	m := gittest.NewMirrors(t, git.Config{Dir: dir})
	repo := origin.Hub()
	want := map[string]string{"HEAD": head, "refs/heads/main": head}
	if diff := cmp.Diff(want, gittest.Fetched(t, m, repo)); diff != "" {
		t.Errorf("SEC-A9 refs:\n%s", diff)
	}
	gittest.CloseMirrors(t, m)
	data, err := os.ReadFile(filepath.Join(dir, string(tenant), string(repo.ID), "HEAD"))
	if err != nil || string(data) != head+"\n" {
		t.Errorf("SEC-A9 HEAD of the mirror = %q, %v", data, err)
	}
}

func TestMorePacksThanFifty(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	dir := t.TempDir()
	m := gittest.NewMirrors(t, git.Config{Dir: dir})
	origin := s.Repo("app")
	repo := origin.Hub()
	packs := func() int {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(dir, string(tenant), string(repo.ID), "objects", "pack", "*.pack"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	var commits []string
	most, merged := 0, false
	for i := range 56 {
		commits = append(commits, origin.Commit("refs/heads/main", "n", gittest.Files{"f": fmt.Sprint(i)}))
		gittest.Fetched(t, m, repo)
		n := packs()
		most, merged = max(most, n), merged || n < most
	}
	t.Run("FT-G6 each fetch makes a pack, and those above 50 are merged without a loss", func(t *testing.T) {
		if most < 50 || most > 51 || !merged || packs() >= 50 {
			t.Errorf("at most %d packs, %d at the end", most, packs())
		}
		gittest.CloseMirrors(t, m) // so that files are opened anew
		for i, c := range commits {
			if got := gittest.Content(t, m, repo, c, "f"); got != fmt.Sprint(i) {
				t.Fatalf("commit %d has %q", i, got)
			}
		}
	})
}
