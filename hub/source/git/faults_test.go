package git_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/integration/rigs/machine"
	"github.com/capstan-cd/capstan/shared/fault"
)

// noise is text that no compression makes smaller.
func noise(n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b)
	return string(b)
}

// leftovers are files of a mirror's folder that belong to no pack.
func leftovers(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && (strings.Contains(d.Name(), "tmp") || strings.Contains(name, "trash")) {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestARepositoryThatMovesMeanwhile(t *testing.T) {
	t.Parallel()
	t.Run("FT-G1 a force push between the listing and the transfer", func(t *testing.T) {
		t.Parallel()
		s := gittest.New(t)
		m := gittest.NewMirrors(t, git.Config{})
		origin := s.Repo("app")
		repo := origin.Hub()
		base := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "base"})
		good := gittest.Fetched(t, m, repo)
		origin.Commit("refs/heads/main", "lost", gittest.Files{"f": "lost"})
		var once atomic.Bool
		var rewritten string
		s.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && once.CompareAndSwap(false, true) {
				rewritten = origin.CommitOn("refs/heads/main", base, "rewritten", gittest.Files{"f": "rewritten"})
				origin.Git("", "reflog", "expire", "--expire=now", "--all")
				origin.Git("", "gc", "--quiet", "--prune=now")
			}
			return false
		})
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		if err == nil {
			t.Fatalf("refs %v, though what they name is gone", refs)
		}
		if kind := fault.KindOf(err); kind != fault.Offline && kind != fault.Invalid || len(fault.Sentence(err)) > 500 {
			t.Errorf("INV-3 error %v (kind %q), want one sentence", err, kind)
		}
		if got := gittest.Content(t, m, repo, good["HEAD"], "f"); got != "base" {
			t.Errorf("what was served before is now %q", got)
		}
		if got := gittest.Fetched(t, m, repo); got["HEAD"] != rewritten {
			t.Errorf("INV-5 the next fetch gives %v, want %s", got, rewritten)
		}
		if got := gittest.Content(t, m, repo, rewritten, "f"); got != "rewritten" {
			t.Errorf("content %q", got)
		}
	})
	t.Run("FT-G1 a force push between the look-up and the read", func(t *testing.T) {
		t.Parallel()
		s := gittest.New(t)
		origin := s.Repo("app")
		repo := origin.Hub()
		base := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "base"})
		lost := origin.Commit("refs/heads/main", "lost", gittest.Files{"f": "lost"})
		m := gittest.NewMirrors(t, git.Config{})
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		if err != nil {
			t.Fatal(err)
		}
		commit, err := m.Resolve(gittest.Context(t), tenant, repo, refs, "main", "")
		if err != nil || commit != lost {
			t.Fatalf("Resolve() = %s, %v", commit, err)
		}
		origin.CommitOn("refs/heads/main", base, "rewritten", gittest.Files{"f": "rewritten"})
		origin.Git("", "reflog", "expire", "--expire=now", "--all")
		origin.Git("", "gc", "--quiet", "--prune=now")
		gittest.Fetched(t, m, repo)
		if got := gittest.Content(t, m, repo, commit, "f"); got != "lost" {
			t.Errorf("a mirror that had it reads %q", got)
		}
		// Another replica has never seen the commit, and cannot get it any more.
		other := gittest.NewMirrors(t, git.Config{})
		if _, err := other.Tree(gittest.Context(t), tenant, repo, commit); err == nil || fault.KindOf(err) == fault.Internal || !strings.Contains(fault.Sentence(err), commit[:7]) {
			t.Errorf("another replica says %v (kind %q), want that %s is gone", err, fault.KindOf(err), commit[:7])
		}
	})
	t.Run("FT-G1 a branch that is deleted is a sentence, and its last commit stays readable", func(t *testing.T) {
		t.Parallel()
		s := gittest.New(t)
		m := gittest.NewMirrors(t, git.Config{})
		origin := s.Repo("app")
		repo := origin.Hub()
		base := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "base"})
		feature := origin.CommitOn("refs/heads/feature", base, "feature", gittest.Files{"f": "feature"})
		gittest.Fetched(t, m, repo)
		origin.Git("", "branch", "-D", "feature")
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		if err != nil {
			t.Fatal(err)
		}
		commit, err := m.Resolve(gittest.Context(t), tenant, repo, refs, "feature", "")
		if kind := fault.KindOf(err); kind != fault.Missing && kind != fault.Invalid || !strings.Contains(fault.Sentence(err), "feature") {
			t.Errorf("Resolve() = %q, %v (kind %q)", commit, err, kind)
		}
		if got := gittest.Content(t, m, repo, feature, "f"); got != "feature" {
			t.Errorf("content %q; a rollback needs it", got)
		}
	})
}

func TestARepositoryThatGrows(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	dir := t.TempDir()
	m := gittest.NewMirrors(t, git.Config{Dir: dir, MaxBytes: 200_000})
	origin, neighbour := s.Repo("app"), s.Repo("neighbour")
	repo, other := origin.Hub(), neighbour.Hub()
	small := origin.Commit("refs/heads/main", "small", gittest.Files{"f": "small"})
	neighbour.Commit("refs/heads/main", "base", gittest.Files{"f": "neighbour"})
	gittest.Fetched(t, m, repo)
	gittest.Fetched(t, m, other)
	large := origin.Commit("refs/heads/main", "large", gittest.Files{"blob": noise(1 << 20)})
	for range 3 {
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		if fault.KindOf(err) != fault.Exceeded || refs != nil || !strings.Contains(fault.Sentence(err), "limit is 200000") {
			t.Fatalf("Fetch() = %v, %v (kind %q)", refs, err, fault.KindOf(err))
		}
	}
	t.Run("SEC-B12 FT-G6 a repository that has grown too large leaves nothing behind", func(t *testing.T) {
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("FT-G1 what was there stays, and neighbours are not touched", func(t *testing.T) {
		if got := gittest.Content(t, m, repo, small, "f"); got != "small" {
			t.Errorf("content %q", got)
		}
		next := neighbour.Commit("refs/heads/main", "next", gittest.Files{"f": "next"})
		if got := gittest.Fetched(t, m, other); got["HEAD"] != next {
			t.Errorf("refs of the neighbour %v", got)
		}
	})
	t.Run("INV-5 once it is small again everything works", func(t *testing.T) {
		again := origin.CommitOn("refs/heads/main", small, "again", gittest.Files{"f": "again"})
		if got := gittest.Fetched(t, m, repo); got["HEAD"] != again || got["HEAD"] == large {
			t.Errorf("refs %v", got)
		}
	})
}

func TestAServerThatSendsGarbage(t *testing.T) {
	t.Parallel()
	answers := map[string]func(http.ResponseWriter){
		"FT-G2 a web page for a pack": func(w http.ResponseWriter) { fmt.Fprint(w, "<html>please sign in</html>") },
		"FT-G2 nothing for a pack":    func(http.ResponseWriter) {},
		"FT-G2 noise for a pack":      func(w http.ResponseWriter) { fmt.Fprint(w, noise(100_000)) },
		"FT-G2 a pack that is noise": func(w http.ResponseWriter) {
			fmt.Fprint(w, "0008NAK\n", frame("\x01PACK\x00\x00\x00\x02\x00\x00\x00\x01"+noise(500)), "0000")
		},
		"FT-G2 a pack with no objects": func(w http.ResponseWriter) { fmt.Fprint(w, "0008NAK\n", frame("\x01"+emptyPack), "0000") },
		"FT-G2 half a pack": func(w http.ResponseWriter) {
			fmt.Fprint(w, "0008NAK\n", frame("\x01PACK\x00\x00\x00\x02\x00\x00\x00\x09"))
		},
		"FT-G2 an error in words":           func(w http.ResponseWriter) { fmt.Fprint(w, "0008NAK\n", frame("\x03out of memory on "+secret), "0000") },
		"FT-G2 a frame that is never whole": func(w http.ResponseWriter) { fmt.Fprint(w, "0008NAK\nfff0\x01") },
		"FT-G2 a length that is no number":  func(w http.ResponseWriter) { fmt.Fprint(w, "zzzz") },
		"FT-G2 SEC-B12 words without end":   func(w http.ResponseWriter) { endless(w, frame("\x02"+strings.Repeat("progress ", 1000))) },
		"FT-G2 SEC-B12 NAKs without end":    func(w http.ResponseWriter) { endless(w, strings.Repeat("0008NAK\n", 1000)) },
		"FT-G2 SEC-B12 a pack without an end": func(w http.ResponseWriter) {
			fmt.Fprint(w, "0008NAK\n", frame("\x01PACK\x00\x00\x00\x02\x00\x00\xff\xff"))
			endless(w, frame("\x01"+noise(60_000)))
		},
		"FT-G2 an error of the server": func(w http.ResponseWriter) { http.Error(w, "no", http.StatusBadGateway) },
		"FT-G2 a limit of the server":  func(w http.ResponseWriter) { http.Error(w, "slow down", http.StatusTooManyRequests) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := gittest.New(t)
			dir := t.TempDir()
			m := gittest.NewMirrors(t, git.Config{Dir: dir, MaxBytes: 10 << 20})
			origin := s.Repo("app")
			repo := origin.Hub()
			base := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "base"})
			gittest.Fetched(t, m, repo)
			next := origin.Commit("refs/heads/main", "next", gittest.Files{"f": "next"})
			s.Set("", func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				answer(w)
				return true
			})
			refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
			kind := fault.KindOf(err)
			if err == nil || refs != nil || kind == fault.Internal {
				t.Fatalf("Fetch() = %v, %v (kind %q), want one sentence", refs, err, kind)
			}
			if s := fault.Sentence(err); strings.Contains(s, secret) || strings.Contains(s, "<html>") || len(s) > 400 {
				t.Errorf("sentence %q", s)
			}
			if got := gittest.Content(t, m, repo, base, "f"); got != "base" {
				t.Errorf("INV-3 what was served before is %q", got)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("FT-G6 left behind: %v", left)
			}
			s.Set("", nil)
			if got := gittest.Fetched(t, m, repo); got["HEAD"] != next {
				t.Errorf("INV-5 once the server is well: %v, want %s", got, next)
			}
		})
	}
}

func frame(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// emptyPack is what git packs out of nothing.
const emptyPack = "PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e"

func endless(w http.ResponseWriter, text string) {
	for {
		if _, err := fmt.Fprint(w, text); err != nil {
			return
		}
	}
}

// A file system of its own that is too small, as a volume of the hub may be.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=600k"); errors.Is(err, unix.EPERM) {
		machine.Lacks(t, "file systems can be mounted by root only")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := gittest.New(t)
	state := filepath.Join(dir, "mirrors")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	m := gittest.NewMirrors(t, git.Config{Dir: state})
	origin := s.Repo("app")
	repo := origin.Hub()
	base := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "base"})
	gittest.Fetched(t, m, repo)
	next := origin.Commit("refs/heads/main", "next", gittest.Files{"f": "next", "blob": noise(1 << 20)})
	full := func() {
		t.Helper()
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		if fault.KindOf(err) != fault.Offline || refs != nil || !strings.Contains(fault.Sentence(err), "no room left") {
			t.Fatalf("Fetch() = %v, %v (kind %q)", refs, err, fault.KindOf(err))
		}
	}
	t.Run("FT-H9 a full disk is one sentence that names the operator's part", func(*testing.T) { full(); full() })
	t.Run("FT-H9 FT-G5 existing data is still served, and what did not fit is removed", func(t *testing.T) {
		if got := gittest.Content(t, m, repo, base, "f"); got != "base" {
			t.Errorf("content %q", got)
		}
		if left := leftovers(t, state); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("FT-H9 a new repository that does not fit is one sentence too", func(t *testing.T) {
		second := s.Repo("second")
		second.Commit("refs/heads/main", "base", gittest.Files{"blob": noise(900_000)})
		_, err := m.Fetch(gittest.Context(t), tenant, second.Hub(), hub.Credential{})
		if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "no room left") {
			t.Errorf("error %v (kind %q)", err, fault.KindOf(err))
		}
	})
	t.Run("FT-H9 INV-5 it recovers when there is space again", func(t *testing.T) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
			t.Fatal(err)
		}
		if got := gittest.Fetched(t, m, repo); got["HEAD"] != next {
			t.Errorf("refs %v, want %s", got, next)
		}
		if got := gittest.Content(t, m, repo, next, "f"); got != "next" {
			t.Errorf("content %q", got)
		}
	})
}
