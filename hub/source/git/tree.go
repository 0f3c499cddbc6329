package git

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxLinks    = 40   // symbolic links that one name may lead through
	maxLinkText = 4096 // bytes of a link's text
	maxName     = 4096 // bytes of a path
)

// A tree serves the files of one commit. It holds no files open and may be
// used beside a fetch and by several goroutines.
type tree struct {
	m      *mirror
	repo   hub.Repository
	commit packstore.Commit
	depth  int                    // submodules around it
	permit func(url string) error // of submodules; nil: all are permitted
	plain  bool                   // submodules are empty directories
}

// A place is something in a tree, which may be that of a submodule.
type place struct {
	packstore.Node
	t  *tree
	at string // path in t
}

var (
	_ hub.Tree     = (*tree)(nil)
	_ fs.ReadDirFS = (*tree)(nil)
)

func newTree(m *mirror, repo hub.Repository, c packstore.Commit) *tree {
	return &tree{m: m, repo: repo, commit: c}
}

// root is the uppermost directory.
func (t *tree) root() place {
	return place{packstore.Node{Name: ".", Mode: filemode.Dir, Hash: t.commit.Tree}, t, "."}
}

// Commit is the full hash of the commit.
func (t *tree) Commit() string { return t.commit.Hash.String() }

// Info is what users see of the commit.
func (t *tree) Info() hub.CommitInfo {
	return hub.CommitInfo{Author: t.commit.Author, Message: t.commit.Message, At: t.commit.When.UTC()}
}

// A walk is the way from the top of the tree to a name.
type walk struct {
	name  string  // that was requested
	stack []place // directories passed, the top first
	links int
}

// resolve finds what is at a name. Links in the middle are followed
// always, one at the end if follow is set.
func (t *tree) resolve(op, name string, follow bool) (place, error) {
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) || len(name) > maxName {
		return place{}, &fs.PathError{Op: op, Path: cut(name, 120), Err: fs.ErrInvalid}
	}
	w := walk{name: name, stack: []place{t.root()}}
	n, err := w.to(name, follow)
	if err != nil {
		return place{}, &fs.PathError{Op: op, Path: name, Err: t.wrong(name, err)}
	}
	return n, nil
}

// wrong returns fs.ErrNotExist and errors with a sentence unchanged.
func (t *tree) wrong(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, message := fault.As(err); message {
		return fault.With(err, name, "")
	}
	return t.m.broken(err)
}

func (w *walk) to(name string, follow bool) (place, error) {
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		elem := rest[0]
		rest = rest[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			if len(w.stack) == 1 {
				return place{}, w.leaves()
			}
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		n, err := w.child(elem)
		if err != nil {
			return place{}, err
		}
		if n.IsLink() && (follow || len(rest) > 0) {
			text, err := w.link(n)
			if err != nil {
				return place{}, err
			}
			rest = append(strings.Split(text, "/"), rest...)
			continue
		}
		w.stack = append(w.stack, n)
	}
	return w.stack[len(w.stack)-1], nil
}

// child looks up a name in the current directory of the walk.
func (w *walk) child(elem string) (place, error) {
	at := w.stack[len(w.stack)-1]
	switch at.Mode {
	case filemode.Dir:
	case filemode.Submodule:
		if at.t.plain {
			return place{}, fs.ErrNotExist
		}
		inside, err := at.enter()
		if err != nil {
			return place{}, err
		}
		w.stack[len(w.stack)-1], at = inside, inside
	default:
		return place{}, fs.ErrNotExist // below a file there is nothing
	}
	d, err := at.t.m.objects.Directory(at.Hash)
	if err != nil {
		return place{}, at.t.wrong(w.name, err)
	}
	n, ok := d.Find(elem)
	if !ok {
		return place{}, fs.ErrNotExist
	}
	return place{n, at.t, path.Join(at.at, elem)}, nil
}

// enter is the uppermost directory of the submodule at a place, and the place
// itself if it is none.
func (p place) enter() (place, error) {
	if p.Mode != filemode.Submodule {
		return p, nil
	}
	inside, err := p.t.submodule(p.at, p.Hash)
	if err != nil {
		return place{}, err
	}
	root := inside.root()
	root.Name = p.Name
	return root, nil
}

func (w *walk) link(n place) (string, error) {
	if w.links++; w.links > maxLinks {
		return "", fault.With(fault.Wrap(fault.Invalid, fs.ErrInvalid, "it leads through more than %d symbolic links, or in a circle", maxLinks), w.name, "")
	}
	text, err := n.t.linkText(n.Node)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(text, "/") {
		return "", w.leaves()
	}
	return text, nil
}

func (w *walk) leaves() error {
	return fault.With(fault.Wrap(fault.Invalid, fs.ErrInvalid, "the symbolic link leads out of the repository"), w.name, "")
}

func (t *tree) linkText(n packstore.Node) (string, error) {
	obj, err := t.m.objects.Read(n.Hash, maxLinkText)
	if errors.As(err, new(packstore.TooLargeError)) {
		return "", fault.Wrap(fault.Invalid, fs.ErrInvalid, "the symbolic link is longer than %d bytes", maxLinkText)
	}
	if err != nil {
		return "", err
	}
	text := string(obj.Data)
	if text == "" || strings.ContainsRune(text, 0) {
		return "", fault.Wrap(fault.Invalid, fs.ErrInvalid, "the symbolic link is malformed")
	}
	return text, nil
}

// Input returns what a recorder notes for a read.
func (t *tree) Input(kind hub.InputKind, name string) (hub.Input, error) {
	in := hub.Input{Kind: hub.InputMissing, Path: name}
	n, err := t.resolve("look up", name, kind != hub.InputLink)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return in, nil
	case err != nil:
		return hub.Input{}, err
	}
	if n.empty() {
		return emptyInput(kind, name), nil
	}
	// Also what was recorded for another project is only equal for one that may
	// read it.
	inside, err := n.enter()
	if err != nil {
		return hub.Input{}, &fs.PathError{Op: "look up", Path: name, Err: t.wrong(name, err)}
	}
	commit := n.Hash
	switch n = inside; {
	case n.IsLink():
		return hub.Input{Kind: hub.InputLink, Path: name, Hash: n.Hash.String()}, nil
	case !n.IsDir():
		return hub.Input{Kind: hub.InputFile, Path: name, Hash: n.t.recorded(n.Hash)}, nil
	case kind == hub.InputTree:
		return hub.Input{Kind: hub.InputTree, Path: name, Hash: n.t.recorded(commit)}, nil
	case kind == hub.InputList:
		d, err := n.t.m.objects.Directory(n.Hash)
		if err != nil {
			return hub.Input{}, &fs.PathError{Op: "look up", Path: name, Err: t.wrong(name, err)}
		}
		return hub.Input{Kind: hub.InputList, Path: name, Hash: d.Names()}, nil
	}
	return hub.Input{Kind: hub.InputDir, Path: name}, nil
}

// Linkless is that of hub.Tree.
func (t *tree) Linkless(name string, most int) bool {
	n, err := t.resolve("look up", name, true)
	return err == nil && n.Mode == filemode.Dir && n.t.linkless(n.Hash, &most)
}

func (t *tree) linkless(h plumbing.Hash, left *int) bool {
	d, err := t.m.objects.Directory(h)
	if err != nil {
		return false
	}
	for _, n := range d {
		if *left--; *left < 0 || n.IsLink() || n.Mode == filemode.Submodule {
			return false
		}
		if n.IsDir() && !t.linkless(n.Hash, left) {
			return false
		}
	}
	return true
}

// recorded identifies content. With LFS, or without submodules, the same object
// is another content.
func (t *tree) recorded(h plumbing.Hash) string {
	out := h.String()
	if t.repo.LFS {
		out += " lfs"
	}
	if t.plain {
		out += " plain"
	}
	return out
}

// ReadLink returns the text of a link.
func (t *tree) ReadLink(name string) (string, error) {
	n, err := t.resolve("readlink", name, false)
	if err != nil {
		return "", err
	}
	if !n.IsLink() {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	text, err := n.t.linkText(n.Node)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: t.wrong(name, err)}
	}
	return text, nil
}

// ReadFile returns the content of a file. The caller may change it.
func (t *tree) ReadFile(name string) ([]byte, error) {
	n, err := t.resolve("read", name, true)
	if err != nil {
		return nil, err
	}
	data, err := n.t.content(n.Node, name)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return bytes.Clone(data), nil
}

// content reads a file. Others may hold the same bytes.
func (t *tree) content(n packstore.Node, name string) ([]byte, error) {
	if n.IsDir() || n.Mode == filemode.Submodule {
		return nil, errIsDir
	}
	obj, err := t.m.objects.Read(n.Hash, t.m.cfg.MaxFile)
	var large packstore.TooLargeError
	if errors.As(err, &large) {
		return nil, fault.With(fault.Wrap(fault.Exceeded, err, "the file has %d bytes, and at most %d are read", large.Size, t.m.cfg.MaxFile),
			name, "keep large files out of the source's path")
	}
	if err != nil {
		return nil, t.wrong(name, err)
	}
	if obj.Kind != plumbing.BlobObject {
		return nil, t.m.broken(fmt.Errorf("%w: %s is not a file", packstore.ErrDamaged, n.Hash))
	}
	if t.repo.LFS {
		if p, ok := readPointer(obj.Data); ok {
			return t.large(p, name)
		}
	}
	return obj.Data, nil
}

// errIsDir means that there is a directory where a file is expected.
var errIsDir = fault.Wrap(fault.Invalid, fs.ErrInvalid, "there is a directory where a file is expected")

// Stat returns what is at a name, through links.
func (t *tree) Stat(name string) (fs.FileInfo, error) { return t.stat("stat", name, true) }

// Lstat returns what is at a name; a link at its end stays a link.
func (t *tree) Lstat(name string) (fs.FileInfo, error) { return t.stat("lstat", name, false) }

func (t *tree) stat(op, name string, follow bool) (fs.FileInfo, error) {
	n, err := t.resolve(op, name, follow)
	if err != nil {
		return nil, err
	}
	info, err := n.t.info(path.Base(name), n.Node)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: t.wrong(name, err)}
	}
	return info, nil
}

// ReadDir lists a directory in the order of names.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.resolve("readdir", name, true)
	if err != nil {
		return nil, err
	}
	list, err := t.list(n)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: t.wrong(name, err)}
	}
	return list, nil
}

func (*tree) list(n place) ([]fs.DirEntry, error) {
	if n.empty() {
		return nil, nil
	}
	n, err := n.enter()
	if err != nil {
		return nil, err
	}
	if !n.IsDir() {
		return nil, fault.Wrap(fault.Invalid, fs.ErrInvalid, "there is a file where a directory is expected")
	}
	d, err := n.t.m.objects.Directory(n.Hash)
	if err != nil {
		return nil, n.t.wrong(n.at, err)
	}
	list := make([]fs.DirEntry, len(d))
	of := n.t
	for i, n := range d {
		list[i] = dirEntry{of, n}
	}
	return list, nil
}
