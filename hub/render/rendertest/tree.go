// Package rendertest holds a hub.Tree in memory for the tests of renderers.
// Nothing but tests imports it.
package rendertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// A Tree is a file tree: names to contents. A name that begins with "link "
// is a symbolic link to its content.
type Tree struct {
	files   fstest.MapFS
	commit  string
	broken  error
	reads   []string
	lookups int
}

// NewTree makes a tree.
func NewTree(files map[string]string) *Tree {
	t := &Tree{files: fstest.MapFS{}}
	var all strings.Builder
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		content := files[n]
		fmt.Fprintf(&all, "%s\x00%s\x00", n, content)
		if link, ok := strings.CutPrefix(n, "link "); ok {
			t.files[link] = &fstest.MapFile{Data: []byte(content), Mode: fs.ModeSymlink | 0o777}
			continue
		}
		t.files[n] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	sum := sha256.Sum256([]byte(all.String()))
	t.commit = hex.EncodeToString(sum[:20])
	return t
}

// With returns a tree in which some files are different; "" removes one.
func (t *Tree) With(files map[string]string) *Tree {
	all := map[string]string{}
	for n, f := range t.files {
		if f.Mode&fs.ModeSymlink != 0 {
			n = "link " + n
		}
		all[n] = string(f.Data)
	}
	for n, content := range files {
		if content == "" {
			delete(all, n)
			continue
		}
		all[n] = content
	}
	return NewTree(all)
}

// Break makes every call fail with err.
func (t *Tree) Break(err error) { t.broken = err }

// Lookups returns how many inputs were lookups up.
func (t *Tree) Lookups() int { return t.lookups }

// Sound reports whether no file or link has another one below it.
func (t *Tree) Sound() bool {
	for name := range t.files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if t.files[dir] != nil {
				return false
			}
		}
	}
	return true
}

// Linkless reports whether a directory has no links below it. It looks at so
// many files at most.
func (t *Tree) Linkless(name string, most int) bool {
	at, err := t.resolve("look up", name, true)
	if err != nil || t.files[at] != nil {
		return false
	}
	for n, f := range t.files {
		if !strings.HasPrefix(n, at+"/") {
			continue
		}
		if most--; most < 0 || f.Mode&fs.ModeSymlink != 0 {
			return false
		}
	}
	return true
}

// Reads returns the names whose contents were read.
func (t *Tree) Reads() []string { return t.reads }

// resolve follows links; last reports whether the last element is followed too.
func (t *Tree) resolve(op, name string, last bool) (string, error) {
	if t.broken != nil {
		return "", t.broken
	}
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	rest := strings.Split(name, "/")
	at := "."
	for hops := 0; len(rest) > 0; {
		next := rest[0]
		rest = rest[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
			}
			at = path.Dir(at)
			continue
		}
		at = path.Join(at, next)
		f, ok := t.files[at]
		if !ok || f.Mode&fs.ModeSymlink == 0 || len(rest) == 0 && !last {
			continue
		}
		target := string(f.Data)
		if hops++; hops > 40 || path.IsAbs(target) {
			return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
		}
		rest = append(strings.Split(target, "/"), rest...)
		at = path.Dir(at)
	}
	return at, nil
}

// Open implements fs.FS.
func (t *Tree) Open(name string) (fs.File, error) {
	at, err := t.resolve("open", name, true)
	if err != nil {
		return nil, err
	}
	return t.files.Open(at)
}

// ReadFile implements fs.ReadFileFS.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	f, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	t.reads = append(t.reads, name)
	return io.ReadAll(f)
}

// ReadDir implements fs.ReadDirFS.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := t.resolve("readdir", name, true)
	if err != nil {
		return nil, err
	}
	entries, err := t.files.ReadDir(at)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if f, ok := t.files[path.Join(at, e.Name())]; ok && f.Mode&fs.ModeSymlink != 0 {
			entries[i] = fs.FileInfoToDirEntry(linkInfo{e.Name()})
		}
	}
	return entries, nil
}

// Stat implements fs.StatFS.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	at, err := t.resolve("stat", name, true)
	if err != nil {
		return nil, err
	}
	f, err := t.files.Open(at)
	if err != nil {
		return nil, err
	}
	return f.Stat()
}

// Lstat implements hub.Tree.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	at, err := t.resolve("lstat", name, false)
	if err != nil {
		return nil, err
	}
	if f, ok := t.files[at]; ok && f.Mode&fs.ModeSymlink != 0 {
		return linkInfo{path.Base(at)}, nil
	}
	f, err := t.files.Open(at)
	if err != nil {
		return nil, err
	}
	return f.Stat()
}

// ReadLink implements hub.Tree.
func (t *Tree) ReadLink(name string) (string, error) {
	at, err := t.resolve("readlink", name, false)
	if err != nil {
		return "", err
	}
	f, ok := t.files[at]
	if !ok || f.Mode&fs.ModeSymlink == 0 {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return string(f.Data), nil
}

// Input implements hub.Tree.
func (t *Tree) Input(kind hub.InputKind, name string) (hub.Input, error) {
	t.lookups++
	at, err := t.resolve("input", name, kind != hub.InputLink)
	if err != nil {
		return hub.Input{}, err
	}
	missing := hub.Input{Kind: hub.InputMissing, Path: name}
	switch kind {
	case hub.InputFile, hub.InputLink:
		f, ok := t.files[at]
		if !ok || kind == hub.InputLink && f.Mode&fs.ModeSymlink == 0 {
			return missing, nil
		}
		return hub.Input{Kind: kind, Path: name, Hash: hash(f.Data)}, nil
	case hub.InputTree:
		var text strings.Builder
		for _, n := range slices.Sorted(maps.Keys(t.files)) {
			if at == "." || n == at || strings.HasPrefix(n, at+"/") {
				fmt.Fprintf(&text, "%s %v %s\n", n, t.files[n].Mode, hash(t.files[n].Data))
			}
		}
		if text.Len() == 0 {
			return missing, nil
		}
		return hub.Input{Kind: kind, Path: name, Hash: hash([]byte(text.String()))}, nil
	case hub.InputList:
		entries, err := t.ReadDir(at)
		if err != nil {
			return missing, nil
		}
		var text strings.Builder
		for _, e := range entries {
			fmt.Fprintf(&text, "%s %v\n", e.Name(), e.Type())
		}
		return hub.Input{Kind: kind, Path: name, Hash: hash([]byte(text.String()))}, nil
	default:
		return hub.Input{}, fmt.Errorf("input of kind %q", kind)
	}
}

// Commit implements hub.Tree.
func (t *Tree) Commit() string { return t.commit }

// Info implements hub.Tree.
func (t *Tree) Info() hub.CommitInfo { return hub.CommitInfo{} }

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:20])
}

type linkInfo struct{ name string }

func (l linkInfo) Name() string       { return l.name }
func (l linkInfo) Size() int64        { return 0 }
func (l linkInfo) Mode() fs.FileMode  { return fs.ModeSymlink | 0o777 }
func (l linkInfo) ModTime() time.Time { return time.Time{} }
func (l linkInfo) IsDir() bool        { return false }
func (l linkInfo) Sys() any           { return nil }

var _ hub.Tree = (*Tree)(nil)
