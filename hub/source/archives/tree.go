package archives

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const maxLinks = 40 // symbolic links that one name may lead through

// A tree serves the files of one archive. Only that of an upload holds a file
// open.
type tree struct {
	*layout
	commit   string
	contents string   // the file with the bytes
	open     *os.File // that file, if it has no name
	maxFile  int64
	damaged  func() // has the archive fetched again
}

var (
	_ hub.Tree     = (*tree)(nil)
	_ fs.ReadDirFS = (*tree)(nil)
)

// Commit is the version of a chart, or the digest of an artifact.
func (t *tree) Commit() string { return t.commit }

// Info is what people see of it.
func (t *tree) Info() hub.CommitInfo { return t.info }

// resolve finds what is at a name. Links in the middle are followed always, one
// at the end if follow is set.
func (t *tree) resolve(op, name string, follow bool) (*node, error) {
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) || len(name) > maxName {
		return nil, &fs.PathError{Op: op, Path: shorten(name), Err: fs.ErrInvalid}
	}
	n, err := t.walk(name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

func shorten(s string) string { return strings.ToValidUTF8(s[:min(len(s), 120)], "") }

func (t *tree) walk(name string, follow bool) (*node, error) {
	stack := []*node{t.root}
	rest := strings.Split(name, "/")
	links := 0
	for len(rest) > 0 {
		elem := rest[0]
		rest = rest[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			if len(stack) == 1 {
				return nil, leaves(name)
			}
			stack = stack[:len(stack)-1]
			continue
		}
		n, ok := stack[len(stack)-1].child(elem)
		if !ok {
			return nil, fs.ErrNotExist
		}
		if !n.isLink() || !follow && len(rest) == 0 {
			stack = append(stack, n)
			continue
		}
		if links++; links > maxLinks {
			return nil, fault.With(fault.Wrap(fault.Invalid, fs.ErrInvalid, "it leads through more than %d symbolic links, or in a circle", maxLinks), name, "")
		}
		if strings.HasPrefix(n.Text, "/") {
			return nil, leaves(name)
		}
		rest = append(strings.Split(n.Text, "/"), rest...)
	}
	return stack[len(stack)-1], nil
}

func leaves(name string) error {
	return fault.With(fault.Wrap(fault.Invalid, fs.ErrInvalid, "the symbolic link leads out of the archive"), name, "")
}

// Input returns what a recorder notes for a read.
func (t *tree) Input(kind hub.InputKind, name string) (hub.Input, error) {
	n, err := t.resolve("look up", name, kind != hub.InputLink)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return hub.Input{Kind: hub.InputMissing, Path: name}, nil
	case err != nil:
		return hub.Input{}, err
	case n.isLink():
		return hub.Input{Kind: hub.InputLink, Path: name, Hash: n.Hash}, nil
	case !n.isDir():
		return hub.Input{Kind: hub.InputFile, Path: name, Hash: n.Hash}, nil
	case kind == hub.InputTree:
		return hub.Input{Kind: hub.InputTree, Path: name, Hash: n.hash}, nil
	case kind == hub.InputList:
		return hub.Input{Kind: hub.InputList, Path: name, Hash: n.names}, nil
	}
	return hub.Input{Kind: hub.InputDir, Path: name}, nil
}

// Linkless is that of hub.Tree.
func (t *tree) Linkless(name string, most int) bool {
	n, err := t.resolve("look up", name, true)
	return err == nil && n.isDir() && n.linkless(&most)
}

func (n *node) linkless(left *int) bool {
	for _, c := range n.children {
		if *left--; *left < 0 || c.isLink() || c.isDir() && !c.linkless(left) {
			return false
		}
	}
	return true
}

// ReadLink returns the text of a link.
func (t *tree) ReadLink(name string) (string, error) {
	n, err := t.resolve("readlink", name, false)
	if err != nil {
		return "", err
	}
	if !n.isLink() {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return n.Text, nil
}

// ReadFile returns the content of a file.
func (t *tree) ReadFile(name string) ([]byte, error) {
	n, err := t.resolve("read", name, true)
	if err != nil {
		return nil, err
	}
	data, err := t.content(n, name)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return data, nil
}

func (t *tree) content(n *node, name string) ([]byte, error) {
	if n.isDir() {
		return nil, fault.Wrap(fault.Invalid, fs.ErrInvalid, "there is a directory where a file is expected")
	}
	if n.Size > t.maxFile {
		return nil, fault.With(fault.New(fault.Exceeded, "the file has %d bytes, and at most %d are read", n.Size, t.maxFile), name, "keep large files out of the source's path")
	}
	f := t.open
	if f == nil {
		var err error
		if f, err = os.Open(t.contents); err != nil {
			return nil, t.lost(err)
		}
		defer func() { _ = f.Close() }() // it was only read
	}
	data := make([]byte, n.Size)
	if _, err := f.ReadAt(data, n.Offset); err != nil && (!errors.Is(err, io.EOF) || n.Size > 0) {
		return nil, t.lost(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != n.Hash {
		return nil, t.lost(errors.New("the bytes have another digest"))
	}
	return data, nil
}

// lost reports that the stored archive cannot be used. It is fetched again.
func (t *tree) lost(err error) error {
	t.damaged()
	return fault.With(fault.Wrap(fault.Offline, fmt.Errorf("read %s: %w", path.Base(t.contents), err), "what the hub has stored of it is damaged or gone"), "", "it is fetched again automatically")
}

// Stat returns what is at a name, through links.
func (t *tree) Stat(name string) (fs.FileInfo, error) { return t.stat("stat", name, true) }

// Lstat returns what is at a name; a link at its end stays a link.
func (t *tree) Lstat(name string) (fs.FileInfo, error) { return t.stat("lstat", name, false) }

func (t *tree) stat(op, name string, follow bool) (fs.FileInfo, error) {
	n, err := t.resolve(op, name, follow)
	if err != nil {
		return nil, err
	}
	return nodeInfo{path.Base(name), n}, nil
}

// ReadDir lists a directory in the order of names.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.resolve("readdir", name, true)
	if err != nil {
		return nil, err
	}
	list, err := listOf(n)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return list, nil
}

func listOf(n *node) ([]fs.DirEntry, error) {
	if !n.isDir() {
		return nil, fault.Wrap(fault.Invalid, fs.ErrInvalid, "there is a file where a directory is expected")
	}
	list := make([]fs.DirEntry, len(n.children))
	for i, c := range n.children {
		list[i] = nodeInfo{path.Base(c.Name), c}
	}
	return list, nil
}

// Open opens a file or a directory.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.resolve("open", name, true)
	if err != nil {
		return nil, err
	}
	info := nodeInfo{path.Base(name), n}
	if n.isDir() {
		list, err := listOf(n)
		return &openDir{info: info, rest: list}, err
	}
	data, err := t.content(n, name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{Reader: bytes.NewReader(data), info: info}, nil
}

type openFile struct {
	*bytes.Reader
	info nodeInfo
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

type openDir struct {
	info nodeInfo
	rest []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

// ReadDir returns the next n entries, or all that are left.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out, nil
}
