package git_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
)

const lfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

// openTree makes a repository with some files and opens its newest commit.
func openTree(t *testing.T, cfg git.Config, f gittest.Files) (hub.Tree, *gittest.Repo) {
	t.Helper()
	s := gittest.New(t)
	origin := s.Repo("app")
	head := origin.Commit("refs/heads/main", "a message\n\nwith a body", f)
	m := gittest.NewMirrors(t, cfg)
	repo := origin.Hub()
	gittest.Fetched(t, m, repo)
	tree, err := m.Tree(gittest.Context(t), tenant, repo, head)
	if err != nil {
		t.Fatal(err)
	}
	return tree, origin
}

func TestTreeIsAFileSystem(t *testing.T) {
	t.Parallel()
	tree, origin := openTree(t, git.Config{}, gittest.Files{
		"README.md": "hello\n", "100755 bin/run.sh": "#!/bin/sh\n", "a/b/c/d.yaml": "x: 1\n", "a/b.yaml": "y: 1\n", "a-b": "sorts oddly", "a0": "too", "empty": "",
		"unicode ÿ/ä b.txt": "ü", "a/.hidden": "h",
	})
	if err := fstest.TestFS(tree, "README.md", "bin/run.sh", "a/b/c/d.yaml", "a/b.yaml", "a-b", "a0", "empty", "unicode ÿ/ä b.txt", "a/.hidden"); err != nil {
		t.Error(err)
	}
	if got := tree.Commit(); got != origin.Git("", "rev-parse", "main") {
		t.Errorf("Commit() = %s", got)
	}
	info := tree.Info()
	if info.Author != "Alma <alma@example.com>" || info.Message != "a message\n\nwith a body" || info.At.Format("2006-01-02T15:04:05Z") != "2026-01-02T03:04:05Z" {
		t.Errorf("Info() = %+v", info)
	}
	for name, want := range map[string]fs.FileMode{"bin/run.sh": 0o555, "README.md": 0o444, "a": fs.ModeDir | 0o555, ".": fs.ModeDir | 0o555} {
		if fi, err := tree.Stat(name); err != nil || fi.Mode() != want {
			t.Errorf("Stat(%q) = %v, %v; want %v", name, fi, err, want)
		}
	}
}

func TestTreeLinks(t *testing.T) {
	t.Parallel()
	f := gittest.Files{
		"real/f": "content", "real/deep/g": "deep", "120000 link": "real/f", "120000 dirlink": "real", "120000 real/up": "../real/./deep//g",
		"120000 chain": "link", "120000 trailing": "real/", "120000 dangling": "nowhere", "120000 belowfile": "link/x",
		"120000 out": "../outside", "120000 real/out": "../../outside", "120000 absolute": "/etc/passwd", "120000 home": "real/../../../etc/passwd",
		"120000 backin": "../app/real/f", "120000 self": "self", "120000 ping": "pong", "120000 pong": "ping", "120000 dirloop": "dirloop/x",
		"120000 long": strings.Repeat("a", 5000),
	}
	for i := range 45 {
		target := fmt.Sprintf("hop%d", i+1)
		if i == 44 {
			target = "real/f"
		}
		f[fmt.Sprintf("120000 hop%d", i)] = target
	}
	tree, _ := openTree(t, git.Config{}, f)

	for name, want := range map[string]string{
		"link": "content", "dirlink/f": "content", "real/up": "deep", "chain": "content", "dirlink/up": "deep", "trailing/f": "content",
		"dirlink/deep/g": "deep", "hop5": "content",
	} {
		if got, err := fs.ReadFile(tree, name); err != nil || string(got) != want {
			t.Errorf("ReadFile(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"dangling", "belowfile", "nothing", "real/f/x", "link/x", "Link", "REAL/f"} {
		if _, err := tree.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadFile(%q) = %v, want not exist", name, err)
		}
		if in, err := tree.Input(hub.InputFile, name); err != nil || in.Kind != hub.InputMissing {
			t.Errorf("Input(%q) = %v, %v; want missing", name, in, err)
		}
	}
	for _, name := range []string{"out", "real/out", "absolute", "home", "backin", "dirlink/out", "absolute/x", "self", "ping", "dirloop", "dirloop/y", "hop0", "hop4", "long"} {
		for op, err := range map[string]error{
			"ReadFile": second(tree.ReadFile(name)), "Stat": second(tree.Stat(name)), "Open": second(tree.Open(name)),
			"ReadDir": second(tree.ReadDir(name)), "Input": second(tree.Input(hub.InputFile, name)),
		} {
			if !errors.Is(err, fs.ErrInvalid) || fault.KindOf(err) != fault.Invalid {
				t.Errorf("SEC-A1 %s(%q) = %v, want an Invalid fault that is fs.ErrInvalid", op, name, err)
				continue
			}
			if sentence := fault.Sentence(err); !strings.HasPrefix(sentence, name+": ") || strings.Contains(sentence, "passwd") {
				t.Errorf("SEC-A1 %s(%q) says %q, want the file named and not its target", op, name, sentence)
			}
		}
	}
	if text, err := tree.ReadLink("absolute"); err != nil || text != "/etc/passwd" {
		t.Errorf("ReadLink(absolute) = %q, %v", text, err)
	}
	if _, err := tree.ReadLink("real/f"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("ReadLink of a file = %v", err)
	}
	if fi, err := tree.Lstat("out"); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("Lstat(out) = %v, %v; want a link", fi, err)
	}
	if in, err := tree.Input(hub.InputLink, "out"); err != nil || in.Kind != hub.InputLink || in.Hash == "" {
		t.Errorf("Input(link, out) = %v, %v", in, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestTreeRefusesPathsThatLeave(t *testing.T) {
	t.Parallel()
	tree, _ := openTree(t, git.Config{}, gittest.Files{"a/f": "x"})
	for _, name := range []string{"", "/", "/a/f", "../a", "a/../a/f", "a//f", "./a", "a/", "a/f\x00", "..", "a/..", strings.Repeat("a/", 4000) + "a"} {
		for op, err := range map[string]error{
			"ReadFile": second(tree.ReadFile(name)), "Stat": second(tree.Stat(name)), "Lstat": second(tree.Lstat(name)), "Open": second(tree.Open(name)),
			"ReadDir": second(tree.ReadDir(name)), "ReadLink": second(tree.ReadLink(name)), "Input": second(tree.Input(hub.InputFile, name)),
		} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("SEC-A2 %s(%q) = %v, want fs.ErrInvalid", op, name, err)
			}
		}
	}
	for _, name := range []string{"%2e%2e/a", `..\a`, ".git/config", "A/f", "a/F", "．．/a"} {
		if _, err := tree.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("SEC-A2 ReadFile(%q) = %v, want not exist", name, err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a./f\\%\x00-]{0,12}`).Draw(rt, "name")
		if data, err := tree.ReadFile(name); err == nil && name != "a/f" {
			rt.Fatalf("SEC-A2 ReadFile(%q) = %q", name, data)
		}
	})
}

func TestTreeSizes(t *testing.T) {
	t.Parallel()
	big := string(bytes.Repeat([]byte("0123456789abcde\n"), 100<<20/16))
	tree, origin := openTree(t, git.Config{}, gittest.Files{"big.yaml": big, "small.yaml": "x", "fits": big[:10<<20], "over": big[:10<<20+1]})
	_ = origin
	for _, name := range []string{"big.yaml", "over"} {
		_, err := tree.ReadFile(name)
		if fault.KindOf(err) != fault.Exceeded || !strings.HasPrefix(fault.Sentence(err), name+": the file has ") {
			t.Errorf("ReadFile(%q) = %v, want it refused by name", name, err)
		}
		if fi, err := tree.Stat(name); err != nil || fi.Size() <= 10<<20 {
			t.Errorf("Stat(%q) = %v, %v; the size is known all the same", name, fi, err)
		}
		file, err := tree.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Read(make([]byte, 1)); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("Read(%q) = %v", name, err)
		}
	}
	if data, err := tree.ReadFile("fits"); err != nil || len(data) != 10<<20 {
		t.Errorf("ReadFile(fits) = %d bytes, %v", len(data), err)
	}
}

func TestTreeSubmodulesAndLFS(t *testing.T) {
	t.Parallel()
	tree, _ := openTree(t, git.Config{}, gittest.Files{
		"f": lfsPointer, "160000 sub": "1234567890123456789012345678901234567890", "120000 tosub": "sub/x",
		".gitmodules": "[submodule \"sub\"]\n\tpath = sub\n\turl = file:///etc\n",
	})
	if fi, err := tree.Stat("sub"); err != nil || !fi.IsDir() {
		t.Errorf("Stat(sub) = %v, %v; want a directory", fi, err)
	}
	list, err := tree.ReadDir(".")
	if err != nil || len(list) != 4 {
		t.Fatalf("ReadDir(.) = %v, %v", list, err)
	}
	for op, err := range map[string]error{
		"ReadDir": second(tree.ReadDir("sub")), "ReadFile": second(tree.ReadFile("sub/x")), "through a link": second(tree.ReadFile("tosub")),
		"Input": second(tree.Input(hub.InputList, "sub")),
	} {
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "is none of a Git server") || !strings.Contains(fault.Sentence(err), "sub") {
			t.Errorf("SEC-A9 %s = %v", op, err)
		}
	}
	data, err := tree.ReadFile("f")
	if err != nil || string(data) != lfsPointer {
		t.Fatalf("ReadFile(f) = %q, %v; want the pointer as it is", data, err)
	}
	if text, yes := git.LFSWarning("f", data); !yes || !strings.Contains(text, "f is a Git LFS pointer") {
		t.Errorf("LFSWarning() = %q, %v", text, yes)
	}
	if _, yes := git.LFSWarning("f", []byte("kind: ConfigMap")); yes {
		t.Error("a manifest is taken for a pointer")
	}
}

func TestTreeReadsOfTheWrongKind(t *testing.T) {
	t.Parallel()
	tree, _ := openTree(t, git.Config{}, gittest.Files{"d/f": "x"})
	if _, err := tree.ReadFile("d"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("ReadFile(d) = %v", err)
	}
	if _, err := tree.ReadDir("d/f"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("ReadDir(d/f) = %v", err)
	}
	file, err := tree.Open("d")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(file); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("Read of a directory = %v", err)
	}
	if err := errors.Join(file.Close()); err != nil {
		t.Error(err)
	}
	if err := file.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Close() = %v", err)
	}
}

// TestTreeInputs shows what moves which hash.
func TestTreeInputs(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	m := gittest.NewMirrors(t, git.Config{})
	repo := origin.Hub()
	base := gittest.Files{"app/a.yaml": "a", "app/sub/b.yaml": "b", "other/c": "c", "120000 link": "app"}
	origin.Commit("refs/heads/main", "base", base)
	type key struct {
		kind hub.InputKind
		name string
	}
	keys := []key{
		{hub.InputFile, "app/a.yaml"}, {hub.InputList, "app"}, {hub.InputTree, "app"}, {hub.InputList, "."}, {hub.InputTree, "."},
		{hub.InputFile, "link/a.yaml"}, {hub.InputLink, "link"}, {hub.InputFile, "app/new"},
	}
	read := func() map[key]hub.Input {
		t.Helper()
		tree, err := m.Tree(gittest.Context(t), tenant, repo, gittest.Fetched(t, m, repo)["HEAD"])
		if err != nil {
			t.Fatal(err)
		}
		out := map[key]hub.Input{}
		for _, k := range keys {
			if out[k], err = tree.Input(k.kind, k.name); err != nil {
				t.Fatalf("Input(%v) = %v", k, err)
			}
		}
		return out
	}
	before := read()
	if in := before[key{hub.InputFile, "app/new"}]; in.Kind != hub.InputMissing || in.Hash != "" {
		t.Errorf("nothing there = %v", in)
	}
	if a, b := before[key{hub.InputFile, "app/a.yaml"}].Hash, before[key{hub.InputFile, "link/a.yaml"}].Hash; a != b || a != origin.Git("", "rev-parse", "main:app/a.yaml") {
		t.Errorf("file hashes %s and %s, want the blob", a, b)
	}
	if got := before[key{hub.InputTree, "app"}].Hash; got != origin.Git("", "rev-parse", "main:app") {
		t.Errorf("tree hash %s, want that of the tree object", got)
	}
	steps := []struct {
		name    string
		change  gittest.Files
		differs []key
	}{
		{"the content of a file", gittest.Files{"app/a.yaml": "A"}, []key{keys[0], keys[2], keys[4], keys[5]}},
		{"the content below", gittest.Files{"app/sub/b.yaml": "B"}, []key{keys[2], keys[4]}},
		{"a file elsewhere", gittest.Files{"other/c": "C"}, []key{keys[4]}},
		{"a new file", gittest.Files{"app/new": "n"}, []key{keys[1], keys[2], keys[4], keys[7]}},
		{"the executable bit", gittest.Files{"100755 other/c": "C"}, []key{keys[4]}},
		{"the link", gittest.Files{"120000 link": "app/sub/.."}, []key{keys[4], keys[6]}},
		{"nothing", gittest.Files{}, nil},
	}
	for _, step := range steps {
		origin.Commit("refs/heads/main", step.name, step.change)
		after := read()
		var differs []key
		for _, k := range keys {
			if after[k] != before[k] {
				differs = append(differs, k)
			}
		}
		if diff := cmp.Diff(step.differs, differs, cmp.AllowUnexported(key{})); diff != "" {
			t.Errorf("%s changes other inputs than expected:\n%s", step.name, diff)
		}
		before = after
	}
}

// TestTreeOfHostileObjects writes objects that git itself would refuse.
func TestTreeOfHostileObjects(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	m := gittest.NewMirrors(t, git.Config{})
	repo := origin.Hub()
	blob := origin.Git("canary", "hash-object", "-w", "--stdin")
	raw := func(kind, data string) string {
		return origin.Git(data, "hash-object", "-t", kind, "-w", "--literally", "--stdin")
	}
	hash := func(h string) string {
		var b strings.Builder
		for i := 0; i < 40; i += 2 {
			var c byte
			if _, err := fmt.Sscanf(h[i:i+2], "%02x", &c); err != nil {
				t.Fatal(err)
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	good := raw("tree", "100644 f\x00"+hash(blob))
	for name, data := range map[string]string{
		"SEC-A9 dot dot":        "100644 ..\x00" + hash(blob),
		"SEC-A9 dot":            "40000 .\x00" + hash(good),
		"SEC-A9 .git":           "40000 .git\x00" + hash(good),
		"SEC-A9 .GIT":           "40000 .GIT\x00" + hash(good),
		"SEC-A9 a slash":        "100644 a/b\x00" + hash(blob),
		"SEC-A9 twice":          "100644 a\x00" + hash(blob) + "100644 a\x00" + hash(blob),
		"SEC-A9 a strange mode": "170000 a\x00" + hash(blob),
	} {
		commit := raw("commit", "tree "+raw("tree", data)+"\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx\n")
		origin.Git("", "update-ref", "refs/heads/main", commit)
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		if err != nil {
			t.Fatalf("%s: Fetch() = %v", name, err)
		}
		tree, err := m.Tree(gittest.Context(t), tenant, repo, gittest.ByName(refs)["HEAD"])
		if err != nil {
			t.Fatalf("%s: Tree() = %v", name, err)
		}
		if list, err := tree.ReadDir("."); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: ReadDir(.) = %v, %v; want an Invalid fault", name, list, err)
		}
	}

	t.Run("a message is cut at 500 characters", func(t *testing.T) {
		commit := raw("commit", "tree "+good+"\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\n"+strings.Repeat("ü", 600)+"\n")
		origin.Git("", "update-ref", "refs/heads/main", commit)
		info, err := m.Commit(gittest.Context(t), tenant, repo, gittest.Fetched(t, m, repo)["HEAD"])
		if err != nil || len([]rune(info.Message)) != 500 {
			t.Errorf("message of %d characters, %v; want 500", len([]rune(info.Message)), err)
		}
	})
	t.Run("a tag of a file is no commit", func(t *testing.T) {
		origin.Git("", "tag", "file", blob)
		refs := gittest.Fetched(t, m, repo)
		if _, err := m.Tree(gittest.Context(t), tenant, repo, refs["refs/tags/file"]); fault.KindOf(err) != fault.Missing {
			t.Errorf("Tree() = %v, want Missing", err)
		}
	})
}

func TestLinkless(t *testing.T) {
	t.Parallel()
	tree, _ := openTree(t, git.Config{}, gittest.Files{
		"plain/a": "a", "plain/sub/b": "b", "deep/sub/deeper/a": "a", "120000 deep/sub/deeper/link": "a", "120000 way": "plain", "file": "x",
	})
	for name, want := range map[string]bool{
		"plain": true, "way": true, "plain/sub": true, "deep": false, "deep/sub/deeper": false, ".": false, "file": false, "none": false, "../x": false,
	} {
		if got := tree.Linkless(name, 100); got != want {
			t.Errorf("Linkless(%q) = %v", name, got)
		}
	}
	if tree.Linkless("plain", 2) || !tree.Linkless("plain", 3) {
		t.Error("it does not count entries")
	}
}
