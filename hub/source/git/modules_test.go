package git_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/integration/rigs/lfsserver"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// openWith makes mirrors of which every repository has a credential.
func openWith(t *testing.T, cred hub.Credential, cfg git.Config) *git.Mirrors {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.AllowedNetworks == nil {
		cfg.AllowedNetworks = gittest.Loopback()
	}
	cfg.ListTimeout = gittest.AnswerTimeout
	m, err := git.New(cfg, stored{of: func(hub.TenantID) hub.Credential { return cred }}, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gittest.CloseMirrors(t, m) })
	return m
}

// modules is the text of a file .gitmodules.
func modules(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "[submodule %q]\n\tpath = %s\n\turl = %s\n", pairs[i], pairs[i], pairs[i+1])
	}
	return b.String()
}

func treeAt(t *testing.T, m *git.Mirrors, repo hub.Repository, commit string) hub.Tree {
	t.Helper()
	tree, err := m.Tree(gittest.Context(t), tenant, repo, commit)
	if err != nil {
		t.Fatalf("Tree(%s) = %v", commit, err)
	}
	return tree
}

func TestSubmodules(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	deep, lib := s.Repo("deep"), s.Repo("lib")
	inner := deep.Commit("refs/heads/main", "base", gittest.Files{"deep.yaml": "deep"})
	first := lib.Commit("refs/heads/main", "base", gittest.Files{"base/f.yaml": "lib", "120000 up": "../f", ".gitmodules": modules("vendor/deep", "../deep"), "160000 vendor/deep": inner})
	lib.Commit("refs/heads/main", "later", gittest.Files{"base/f.yaml": "later"})
	app := s.Repo("app")
	commit := app.Commit("refs/heads/main", "base", gittest.Files{"f": "app", ".gitmodules": modules("sub/lib", s.HTTP.URL+"/lib.git"), "160000 sub/lib": first})
	repo := app.Hub()
	t.Run("SRC-23 a submodule is read at its own commit, its own submodules by relative URLs too", func(t *testing.T) {
		m := gittest.NewMirrors(t, git.Config{})
		gittest.Fetched(t, m, repo)
		for name, want := range map[string]string{"sub/lib/base/f.yaml": "lib", "sub/lib/vendor/deep/deep.yaml": "deep", "sub/lib/../../f": "", "f": "app"} {
			if want == "" {
				continue
			}
			if got := gittest.Content(t, m, repo, commit, name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		tree := treeAt(t, m, repo, commit)
		var all []string
		err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all = append(all, name)
			}
			return err
		})
		if got := strings.Join(all, " "); err != nil || got != ".gitmodules f sub/lib/.gitmodules sub/lib/base/f.yaml sub/lib/up sub/lib/vendor/deep/deep.yaml" {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := fs.ReadFile(tree, "sub/lib/up"); err == nil {
			t.Errorf("a link that leads nowhere: %q", got)
		}
	})
	t.Run("SRC-23 inputs of a submodule are those of its commit", func(t *testing.T) {
		m := gittest.NewMirrors(t, git.Config{})
		gittest.Fetched(t, m, repo)
		tree := treeAt(t, m, repo, commit)
		whole, err := tree.Input(hub.InputTree, "sub/lib")
		file, err2 := tree.Input(hub.InputFile, "sub/lib/base/f.yaml")
		list, err3 := tree.Input(hub.InputList, "sub/lib")
		if errors.Join(err, err2, err3) != nil || whole.Hash != first || file.Kind != hub.InputFile || list.Hash == "" {
			t.Errorf("%+v %+v %+v: %v", whole, file, list, errors.Join(err, err2, err3))
		}
	})
	t.Run("SRC-23 with submodules switched off their directories are empty, nothing is fetched, and the recorded inputs are others", func(t *testing.T) {
		m := gittest.NewMirrors(t, git.Config{})
		gittest.Fetched(t, m, repo)
		whole := treeAt(t, m, repo, commit)
		switched, ok := whole.(interface{ WithoutSubmodules() hub.Tree })
		if !ok {
			t.Fatal("the tree has no such switch")
		}
		plain := switched.WithoutSubmodules()
		var asked atomic.Int64
		s.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/lib") {
				asked.Add(1)
			}
			return false
		})
		defer s.Set("", nil)
		list, err := plain.ReadDir("sub/lib")
		if err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		if info, err := plain.Stat("sub/lib"); err != nil || !info.IsDir() {
			t.Errorf("%v, %v", info, err)
		}
		if got, err := plain.ReadFile("sub/lib/base/f.yaml"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := plain.ReadFile("f"); err != nil || string(got) != "app" {
			t.Errorf("%q, %v", got, err)
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("the repository of the submodule got %d requests", n)
		}
		for _, name := range []string{".", "sub", "sub/lib"} {
			on, err := whole.Input(hub.InputTree, name)
			off, err2 := plain.Input(hub.InputTree, name)
			if errors.Join(err, err2) != nil || on.Hash == off.Hash {
				t.Errorf("%s: %+v and %+v, %v", name, on, off, errors.Join(err, err2))
			}
		}
		if in, err := plain.Input(hub.InputFile, "sub/lib/base/f.yaml"); err != nil || in.Kind != hub.InputMissing {
			t.Errorf("%+v, %v", in, err)
		}
	})
	t.Run("SRC-23 SEC-C3 the credential goes to submodules on the repository's server, and to no other host", func(t *testing.T) {
		other := gittest.New(t)
		foreign := other.Repo("foreign")
		theirs := foreign.Commit("refs/heads/main", "base", gittest.Files{"f": "foreign"})
		var sent []string
		other.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
			sent = append(sent, r.Header.Get("Authorization"))
			return false
		})
		own := gittest.New(t)
		l, a := own.Repo("lib"), own.Repo("app")
		ours := l.Commit("refs/heads/main", "base", gittest.Files{"f": "own"})
		c := a.Commit("refs/heads/main", "base", gittest.Files{".gitmodules": modules("own", "../lib", "foreign", other.HTTP.URL+"/foreign"), "160000 own": ours, "160000 foreign": theirs})
		own.Set("canary-of-git", nil)
		cred := hub.Credential{Username: "bob", Password: "canary-of-git"}
		m := openWith(t, cred, git.Config{})
		r := a.Hub()
		if _, err := m.Fetch(gittest.Context(t), tenant, r, cred); err != nil {
			t.Fatal(err)
		}
		if got := gittest.Content(t, m, r, c, "own/f"); got != "own" {
			t.Errorf("own/f = %q", got)
		}
		if got := gittest.Content(t, m, r, c, "foreign/f"); got != "foreign" {
			t.Errorf("foreign/f = %q", got)
		}
		if len(sent) == 0 || strings.Join(sent, "") != "" {
			t.Errorf("the other server was sent %q", sent)
		}
	})
	t.Run("SRC-23 SEC-A12 what the project does not permit is not read, also where it was fetched before", func(t *testing.T) {
		m := gittest.NewMirrors(t, git.Config{})
		gittest.Fetched(t, m, repo)
		gittest.Content(t, m, repo, commit, "sub/lib/base/f.yaml")
		permitting, ok := treeAt(t, m, repo, commit).(interface {
			Permitting(func(string) error) hub.Tree
		})
		if !ok {
			t.Fatal("no rule can be set")
		}
		var asked string
		tree := permitting.Permitting(func(url string) error {
			asked = url
			return fault.New(fault.Invalid, "project %q does not permit the repository", "shop")
		})
		_, err := fs.ReadFile(tree, "sub/lib/base/f.yaml")
		_, err2 := tree.Input(hub.InputTree, "sub/lib")
		for _, err := range []error{err, err2} {
			if s := fault.Sentence(err); !strings.Contains(s, `it is a submodule, and project "shop" does not permit`) {
				t.Errorf("%q", s)
			}
		}
		if !strings.HasSuffix(asked, "/lib") {
			t.Errorf("asked about %q", asked)
		}
		if got, err := fs.ReadFile(tree, "f"); err != nil || string(got) != "app" {
			t.Errorf("the rest: %q, %v", got, err)
		}
	})
	t.Run("SEC-A9 SEC-A8 a submodule leads to no file, helper, option or internal address", func(t *testing.T) {
		outside := filepath.Join(t.TempDir(), "canary")
		if err := os.WriteFile(outside, []byte("canary"), 0o600); err != nil {
			t.Fatal(err)
		}
		for url, want := range map[string]string{
			"file://" + outside: "is none of a Git server", outside: "is none of a Git server", "ext::sh -c touch% " + outside: "is none of a Git server",
			"--upload-pack=touch " + outside: "is none of a Git server", "-oProxyCommand=id:x": "is none of a Git server", "fd::17": "is none of a Git server",
			"git://127.0.0.1/x": "is none of a Git server", "ftp://127.0.0.1/x": "is none of a Git server",
			"../../../../x": "leads above its server", "ssh://-oProxyCommand=id/x": "", "http://169.254.169.254/latest": "private address", "http://10.0.0.1/x": "private address", "http://[::1]:1/x": "private address",
		} {
			bad := s.Repo("bad" + hub.NewID[string]())
			c := bad.Commit("refs/heads/main", "base", gittest.Files{"f": "fine", ".gitmodules": "[submodule \"s\"]\n\tpath = s\n\turl = " + fmt.Sprintf("%q", url) + "\n", "160000 s": first})
			m := gittest.NewMirrors(t, git.Config{})
			gittest.Fetched(t, m, bad.Hub())
			r := bad.Hub()
			gittest.Fetched(t, m, r)
			tree := treeAt(t, m, r, c)
			_, err := fs.ReadFile(tree, "s/f")
			if s := fault.Sentence(err); err == nil || !strings.Contains(s, want) || strings.Contains(s, "canary") && want != "" && !strings.Contains(s, "s") {
				t.Errorf("%q: %q (%v)", url, s, err)
			}
			if got, err := fs.ReadFile(tree, "f"); err != nil || string(got) != "fine" {
				t.Errorf("%q: the rest: %q, %v", url, got, err)
			}
		}
	})
	t.Run("SEC-A9 a .gitmodules that is a link, a directory, missing or senseless is one sentence", func(t *testing.T) {
		for name, files := range map[string]gittest.Files{
			"link":      {"120000 .gitmodules": "other", "other": modules("s", "../lib")},
			"directory": {".gitmodules/x": modules("s", "../lib")},
			"missing":   {"f": "x"},
			"senseless": {".gitmodules": "\x00[[["},
			"unnamed":   {".gitmodules": modules("elsewhere", "../lib")},
			"huge":      {".gitmodules": modules("s", "../lib") + strings.Repeat("# x\n", 100_000)},
		} {
			bad := s.Repo("modules-" + name)
			files["160000 s"] = first
			c := bad.Commit("refs/heads/main", "base", files)
			m := gittest.NewMirrors(t, git.Config{})
			r := bad.Hub()
			gittest.Fetched(t, m, r)
			_, err := fs.ReadFile(treeAt(t, m, r, c), "s/f")
			if k := fault.KindOf(err); k != fault.Invalid && k != fault.Exceeded {
				t.Errorf("%s: %v (%s)", name, err, k)
			}
		}
	})
	t.Run("SEC-A9 submodules within each other end at a depth, and a loop ends", func(t *testing.T) {
		loop := s.Repo("loop")
		at := loop.Commit("refs/heads/main", "0", gittest.Files{"f": "end"})
		for i := range 12 {
			at = loop.Commit("refs/heads/main", fmt.Sprint(i+1), gittest.Files{".gitmodules": modules("s", "../loop"), "160000 s": at})
		}
		m := gittest.NewMirrors(t, git.Config{})
		r := loop.Hub()
		gittest.Fetched(t, m, r)
		_, err := fs.ReadFile(treeAt(t, m, r, at), strings.Repeat("s/", 11)+"f")
		if s := fault.Sentence(err); fault.KindOf(err) != fault.Exceeded || !strings.Contains(s, "nested more than 8 deep") {
			t.Errorf("%q, %v", s, err)
		}
		if got := gittest.Content(t, m, r, at, strings.Repeat("s/", 8)+".gitmodules"); got == "" {
			t.Error("eight are too many")
		}
	})
	t.Run("SRC-23 FT-G1 a commit that the submodule does not have is one sentence, and its mirror goes with the repository", func(t *testing.T) {
		dir := t.TempDir()
		gone := s.Repo("gone")
		c := gone.Commit("refs/heads/main", "base", gittest.Files{"f": "x", ".gitmodules": modules("s", "../lib"), "160000 s": strings.Repeat("1", 40)})
		m := gittest.NewMirrors(t, git.Config{Dir: dir})
		r := gone.Hub()
		gittest.Fetched(t, m, r)
		if _, err := fs.ReadFile(treeAt(t, m, r, c), "s/f"); fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
		if err := m.Remove(gittest.Context(t), tenant, r.ID); err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(dir, string(tenant), "*"))
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

func TestLFS(t *testing.T) {
	t.Parallel()
	const content = "kind: ConfigMap\n"
	type world struct {
		files  *lfsserver.Server
		origin *gittest.Repo
		repo   hub.Repository
		commit string
		m      *git.Mirrors
	}
	start := func(t *testing.T, pointer func(*lfsserver.Server) string, cfg git.Config) *world {
		t.Helper()
		w := &world{files: lfsserver.New(t)}
		s := gittest.New(t)
		w.origin = s.Repo("app")
		w.commit = w.origin.Commit("refs/heads/main", "base", gittest.Files{"large.yaml": pointer(w.files), "f": "x"})
		s.Set("canary-of-git", func(rw http.ResponseWriter, r *http.Request) bool {
			if _, password, _ := r.BasicAuth(); strings.Contains(r.URL.Path, "/info/lfs/") && password != "canary-of-git" {
				rw.WriteHeader(http.StatusUnauthorized)
				return true
			}
			return w.files.Batch(rw, r)
		})
		cred := hub.Credential{Username: "bob", Password: "canary-of-git"}
		w.m = openWith(t, cred, cfg)
		w.repo = w.origin.Hub()
		w.repo.LFS = true
		if _, err := w.m.Fetch(gittest.Context(t), tenant, w.repo, cred); err != nil {
			t.Fatal(err)
		}
		return w
	}
	put := func(s *lfsserver.Server) string { return s.Put(content) }
	read := func(t *testing.T, w *world) (string, error) {
		t.Helper()
		b, err := fs.ReadFile(treeAt(t, w.m, w.repo, w.commit), "large.yaml")
		return string(b), err
	}
	t.Run("SRC-24 the content comes from the LFS server, once, with its size", func(t *testing.T) {
		t.Parallel()
		w := start(t, put, git.Config{})
		for range 3 {
			if got, err := read(t, w); err != nil || got != content {
				t.Fatalf("%q, %v", got, err)
			}
		}
		if got := strings.Join(w.files.Asked(), " "); got != "batch download" {
			t.Errorf("requests: %s", got)
		}
		if info, err := fs.Stat(treeAt(t, w.m, w.repo, w.commit), "large.yaml"); err != nil || info.Size() != int64(len(content)) {
			t.Errorf("%v, %v", info, err)
		}
	})
	t.Run("SRC-24 without enableLfs a pointer stays one, and the switch changes the recorded inputs", func(t *testing.T) {
		t.Parallel()
		w := start(t, put, git.Config{})
		with, err := treeAt(t, w.m, w.repo, w.commit).Input(hub.InputFile, "large.yaml")
		w.repo.LFS = false
		without, err2 := treeAt(t, w.m, w.repo, w.commit).Input(hub.InputFile, "large.yaml")
		if err != nil || err2 != nil || with.Hash == without.Hash {
			t.Errorf("%v %v, %v %v", with, without, err, err2)
		}
		if got, err := read(t, w); err != nil || !strings.HasPrefix(got, "version https://git-lfs") || len(w.files.Asked()) != 0 {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("SRC-24 SEC-C3 the credential goes to the Git server, and a download to another host has the server's header alone", func(t *testing.T) {
		t.Parallel()
		w := start(t, put, git.Config{})
		if _, err := read(t, w); err != nil {
			t.Fatal(err)
		}
		for _, h := range w.files.Headers() {
			if got := h.Get("Authorization"); got != w.files.Token {
				t.Errorf("a download was sent %q", got)
			}
		}
	})
	t.Run("SRC-24 SEC-A6 a redirect to another host loses the header, and one into the network is refused", func(t *testing.T) {
		t.Parallel()
		w, other := start(t, put, git.Config{}), lfsserver.New(t)
		other.Put(content)
		w.files.Override = func(rw http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/files/") {
				http.Redirect(rw, r, other.HTTP.URL+r.URL.Path, http.StatusFound)
				return true
			}
			return false
		}
		if _, err := read(t, w); fault.KindOf(err) != fault.Invalid {
			t.Errorf("error %v", err)
		}
		if h := other.Headers(); len(h) != 1 || h[0].Get("Authorization") != "" {
			t.Errorf("the other host was sent %v", h)
		}
		for _, to := range []string{"http://169.254.169.254/latest", "http://10.0.0.1/x", "file:///etc/passwd", "http://user:pw@127.0.0.1/x"} {
			w := start(t, put, git.Config{})
			w.files.Override = func(rw http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/files/") {
					rw.Header().Set("Location", to)
					rw.WriteHeader(http.StatusTemporaryRedirect)
					return true
				}
				return false
			}
			if _, err := read(t, w); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v", to, err)
			}
		}
	})
	t.Run("SEC-A6 SEC-A9 a batch answer that names an internal address or a file is refused", func(t *testing.T) {
		t.Parallel()
		for _, href := range []string{"http://169.254.169.254/latest", "file:///etc/passwd", "//", "http://10.1.2.3/x", "ext::id"} {
			w := start(t, put, git.Config{})
			w.files.Override = func(rw http.ResponseWriter, r *http.Request) bool {
				oid := strings.Fields(w.files.Put(content))[3]
				_, _ = fmt.Fprintf(rw, `{"objects":[{"oid":%q,"actions":{"download":{"href":%q}}}]}`, strings.TrimPrefix(oid, "sha256:"), href)
				return true
			}
			if _, err := read(t, w); fault.KindOf(err) != fault.Invalid || strings.Contains(fault.Sentence(err), "passwd") {
				t.Errorf("%s: %v", href, err)
			}
		}
	})
	t.Run("SRC-24 SEC-A9 another content, a shorter, a longer or an endless one is refused and not stored", func(t *testing.T) {
		t.Parallel()
		for name, text := range map[string]string{"another": "kind: ConfigMax\n", "shorter": "kind", "longer": content + "x", "endless": strings.Repeat("x", 8<<20), "none": ""} {
			w := start(t, put, git.Config{})
			w.files.Override = func(rw http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/files/") {
					_, _ = rw.Write([]byte(text))
					return true
				}
				return false
			}
			if got, err := read(t, w); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "another content") {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			w.files.Override = nil
		}
	})
	t.Run("SRC-24 SEC-A9 a pointer to a file that is too large costs no request, and a pointer to a pointer is not followed", func(t *testing.T) {
		t.Parallel()
		w := start(t, func(s *lfsserver.Server) string { return lfsserver.Pointer(strings.Repeat("a", 64), 1<<40) }, git.Config{})
		if _, err := read(t, w); fault.KindOf(err) != fault.Exceeded || len(w.files.Asked()) != 0 {
			t.Errorf("%v, asked %v", err, w.files.Asked())
		}
		w = start(t, func(s *lfsserver.Server) string { return s.Put(lfsserver.Pointer(strings.Repeat("b", 64), 10)) }, git.Config{})
		if got, err := read(t, w); err != nil || !strings.Contains(got, strings.Repeat("b", 64)) || len(w.files.Asked()) != 2 {
			t.Errorf("%q, %v, asked %v", got, err, w.files.Asked())
		}
	})
	t.Run("SRC-24 files in LFS count for the size of the repository", func(t *testing.T) {
		t.Parallel()
		w := start(t, func(s *lfsserver.Server) string { return s.Put(strings.Repeat("x", 100_000)) }, git.Config{MaxBytes: 50_000})
		if _, err := read(t, w); fault.KindOf(err) != fault.Exceeded || !strings.Contains(fault.Sentence(err), "too large") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("FT-G2 FT-G5 an LFS server that fails is one sentence, and a stored file that was damaged is fetched again", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			answer func(http.ResponseWriter)
			kind   fault.Kind
		}{
			"missing":   {func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusNotFound) }, fault.Missing},
			"down":      {func(rw http.ResponseWriter) { http.Error(rw, "<html>canary", http.StatusBadGateway) }, fault.Offline},
			"a page":    {func(rw http.ResponseWriter) { _, _ = rw.Write([]byte("<html>canary")) }, fault.Offline},
			"forbidden": {func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusForbidden) }, fault.Invalid},
			"no object": {func(rw http.ResponseWriter) { _, _ = rw.Write([]byte(`{"objects":[]}`)) }, fault.Offline},
			"endless":   {func(rw http.ResponseWriter) { _, _ = rw.Write([]byte(strings.Repeat("x", 4<<20))) }, fault.Offline},
		} {
			w := start(t, put, git.Config{})
			w.files.Override = func(rw http.ResponseWriter, _ *http.Request) bool { c.answer(rw); return true }
			if _, err := read(t, w); fault.KindOf(err) != c.kind || strings.Contains(fault.Sentence(err), "canary") {
				t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
			}
			if got, err := fs.ReadFile(treeAt(t, w.m, w.repo, w.commit), "f"); err != nil || string(got) != "x" {
				t.Errorf("%s: the rest: %q, %v", name, got, err)
			}
		}
		dir := t.TempDir()
		w := start(t, put, git.Config{Dir: dir})
		if _, err := read(t, w); err != nil {
			t.Fatal(err)
		}
		stored, err := filepath.Glob(filepath.Join(dir, "*", "*", "lfs", "*", "*"))
		if err != nil || len(stored) != 1 || os.WriteFile(stored[0], []byte("damaged"), 0o600) != nil {
			t.Fatal(stored, err)
		}
		if got, err := read(t, w); err != nil || got != content || len(w.files.Asked()) != 4 {
			t.Errorf("%q, %v, asked %v", got, err, w.files.Asked())
		}
	})
}

func TestShallow(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	var commits []string
	for i := range 10 {
		commits = append(commits, origin.Commit("refs/heads/main", fmt.Sprint(i), gittest.Files{"f": fmt.Sprint(i), fmt.Sprintf("d/%d", i): strings.Repeat(fmt.Sprintln(i), 200)}))
	}
	dir := t.TempDir()
	m := gittest.NewMirrors(t, git.Config{Dir: dir})
	repo := origin.Hub()
	repo.Depth = 2
	has := func(commit string) bool {
		gittest.CloseMirrors(t, m) // writes HEAD, without which git takes no folder for a repository
		cmd := &gittest.Repo{Server: s, Path: filepath.Join(dir, string(tenant), string(repo.ID))}
		_, err := cmd.Try("cat-file", "-e", commit)
		return err == nil
	}
	t.Run("SRC-25 only the newest commits of a branch are fetched, and git finds the copy whole", func(t *testing.T) {
		gittest.Fetched(t, m, repo)
		if got := gittest.Content(t, m, repo, commits[9], "f"); got != "9" || !has(commits[8]) || has(commits[7]) || has(commits[0]) {
			t.Errorf("f = %q; 8: %v, 7: %v, 0: %v", got, has(commits[8]), has(commits[7]), has(commits[0]))
		}
		if got := gittest.Content(t, m, repo, commits[9], "d/0"); got == "" {
			t.Error("an old file is missing")
		}
	})
	t.Run("SRC-25 later commits come without what is here, also after a branch was rewritten", func(t *testing.T) {
		before := s.Sent.Load()
		next := origin.Commit("refs/heads/main", "next", gittest.Files{"f": "next"})
		gittest.Fetched(t, m, repo)
		if got := gittest.Content(t, m, repo, next, "f"); got != "next" {
			t.Errorf("f = %q", got)
		}
		if sent := s.Sent.Load() - before; sent > 4000 {
			t.Errorf("%d bytes were sent for one small commit", sent)
		}
		forced := origin.CommitOn("refs/heads/main", commits[8], "forced", gittest.Files{"f": "forced"})
		gittest.Fetched(t, m, repo)
		if got := gittest.Content(t, m, repo, forced, "f"); got != "forced" {
			t.Errorf("FT-G1 f = %q", got)
		}
	})
	t.Run("SRC-25 an older commit is fetched by its name", func(t *testing.T) {
		origin.Git("", "config", "uploadpack.allowReachableSHA1InWant", "true")
		if got := gittest.Content(t, m, repo, commits[3], "f"); got != "3" || has(commits[0]) {
			t.Errorf("f = %q, 0: %v", got, has(commits[0]))
		}
	})
	t.Run("SRC-25 without a depth the whole history is fetched again", func(t *testing.T) {
		repo.Depth = 0
		gittest.Fetched(t, m, repo)
		if !has(commits[0]) {
			t.Error("the history is not here")
		}
	})
}
