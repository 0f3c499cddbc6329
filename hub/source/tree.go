package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxLinks    = 40       // symbolic links that one name may lead through
	maxLinkText = 4096     // bytes of a link's text
	maxTree     = 32 << 20 // bytes of one directory
	maxName     = 4096     // bytes of a path
)

// A tree serves the files of one commit. It holds no files open and may be
// used beside a fetch and by several goroutines.
type tree struct {
	m      *mirror
	commit commit
}

var (
	_ hub.Tree     = (*tree)(nil)
	_ fs.ReadDirFS = (*tree)(nil)
)

func newTree(m *mirror, c commit) *tree { return &tree{m, c} }

// Commit is the full hash of the commit.
func (t *tree) Commit() string { return t.commit.hash.String() }

// Info is what people see of the commit.
func (t *tree) Info() hub.CommitInfo { return t.commit.info }

// A node is one name in a directory.
type node struct {
	name string
	mode filemode.FileMode
	hash plumbing.Hash
}

func (n node) isDir() bool  { return n.mode == filemode.Dir || n.mode == filemode.Submodule }
func (n node) isLink() bool { return n.mode == filemode.Symlink }

// directory is the content of one directory in the order of names, never
// changed once it is made.
type directory []node

func (d directory) find(name string) (node, bool) {
	i, found := slices.BinarySearchFunc(d, name, func(n node, name string) int { return strings.Compare(n.name, name) })
	if !found {
		return node{}, false
	}
	return d[i], true
}

// directory reads a directory, or finds it in the cache.
func (t *tree) directory(h plumbing.Hash) (directory, error) {
	key := cacheKey{owner: t.m.id, offset: -1, hash: h}
	if kept, ok := t.m.lib.cache.Get(key); ok {
		d, _ := kept.(directory)
		return d, nil
	}
	obj, err := t.m.odb.read(h, maxTree)
	if errors.As(err, new(errTooLarge)) {
		return nil, fault.Wrap(fault.Exceeded, err, "the directory has too many entries")
	}
	if err != nil {
		return nil, err
	}
	if obj.kind != plumbing.TreeObject {
		return nil, fmt.Errorf("%w: %s is not a directory", errDamaged, h)
	}
	d, err := parseTree(obj.data)
	if err != nil {
		return nil, err
	}
	t.m.lib.cache.Put(key, d, int64(len(obj.data)+len(d)*48))
	return d, nil
}

// parseTree reads a tree object. Names that could lead anywhere else, which
// git itself never writes, make the whole directory invalid.
func parseTree(data []byte) (directory, error) {
	bad := fault.New(fault.Invalid, "a directory of the repository is malformed")
	d := make(directory, 0, len(data)/36)
	for len(data) > 0 {
		mode, rest, ok := bytes.Cut(data, []byte(" "))
		name, rest, ok2 := bytes.Cut(rest, []byte{0})
		if !ok || !ok2 || len(rest) < 20 || len(mode) > 6 {
			return nil, bad
		}
		n := node{name: string(name), hash: plumbing.Hash(rest[:20])}
		data = rest[20:]
		if n.name == "" || n.name == "." || n.name == ".." || strings.EqualFold(n.name, ".git") || strings.Contains(n.name, "/") {
			return nil, fault.New(fault.Invalid, "a directory of the repository holds the forbidden name %q", cut(n.name, 120))
		}
		var err error
		if n.mode, err = canonicalMode(string(mode)); err != nil {
			return nil, bad
		}
		d = append(d, n)
	}
	slices.SortFunc(d, func(a, b node) int { return strings.Compare(a.name, b.name) })
	for i := range d {
		if i > 0 && d[i].name == d[i-1].name {
			return nil, fault.New(fault.Invalid, "a directory of the repository holds the name %q twice", cut(d[i].name, 120))
		}
	}
	return d, nil
}

func canonicalMode(s string) (filemode.FileMode, error) {
	m, err := filemode.New(s)
	if err != nil {
		return 0, fmt.Errorf("mode %q: %w", s, err)
	}
	switch m & 0o170000 {
	case 0o040000:
		return filemode.Dir, nil
	case 0o120000:
		return filemode.Symlink, nil
	case 0o160000:
		return filemode.Submodule, nil
	case 0o100000:
		if m&0o111 != 0 {
			return filemode.Executable, nil
		}
		return filemode.Regular, nil
	}
	return 0, fmt.Errorf("mode %q", s)
}

// A walk is the way from the top of the tree to a name.
type walk struct {
	t     *tree
	name  string // that was asked for
	stack []node // directories passed, the top first
	links int
}

// resolve finds what stands at a name. Links in the middle are followed
// always, one at the end if follow is set.
func (t *tree) resolve(op, name string, follow bool) (node, error) {
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) || len(name) > maxName {
		return node{}, &fs.PathError{Op: op, Path: cut(name, 120), Err: fs.ErrInvalid}
	}
	w := walk{t: t, name: name, stack: []node{{name: ".", mode: filemode.Dir, hash: t.commit.tree}}}
	n, err := w.to(name, follow)
	if err != nil {
		return node{}, &fs.PathError{Op: op, Path: name, Err: t.wrong(name, err)}
	}
	return n, nil
}

// wrong leaves a missing name and what is already told as they are.
func (t *tree) wrong(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, message := fault.As(err); message {
		return fault.With(err, name, "")
	}
	return t.m.broken(err)
}

func (w *walk) to(name string, follow bool) (node, error) {
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		elem := rest[0]
		rest = rest[1:]
		if elem == "" || elem == "." {
			continue
		}
		if elem == ".." {
			if len(w.stack) == 1 {
				return node{}, w.leaves()
			}
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		n, err := w.child(elem)
		if err != nil {
			return node{}, err
		}
		if n.isLink() && (follow || len(rest) > 0) {
			text, err := w.link(n)
			if err != nil {
				return node{}, err
			}
			rest = append(strings.Split(text, "/"), rest...)
			continue
		}
		w.stack = append(w.stack, n)
	}
	return w.stack[len(w.stack)-1], nil
}

// child looks a name up in the directory where the walk stands.
func (w *walk) child(elem string) (node, error) {
	at := w.stack[len(w.stack)-1]
	switch at.mode {
	case filemode.Dir:
	case filemode.Submodule:
		return node{}, errSubmodule()
	default:
		return node{}, fs.ErrNotExist // below a file there is nothing
	}
	d, err := w.t.directory(at.hash)
	if err != nil {
		return node{}, err
	}
	n, ok := d.find(elem)
	if !ok {
		return node{}, fs.ErrNotExist
	}
	return n, nil
}

func (w *walk) link(n node) (string, error) {
	if w.links++; w.links > maxLinks {
		return "", fault.With(fault.Wrap(fault.Invalid, fs.ErrInvalid, "it leads through more than %d symbolic links, or in a circle", maxLinks), w.name, "")
	}
	text, err := w.t.linkText(n)
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

func (t *tree) linkText(n node) (string, error) {
	obj, err := t.m.odb.read(n.hash, maxLinkText)
	if errors.As(err, new(errTooLarge)) {
		return "", fault.Wrap(fault.Invalid, fs.ErrInvalid, "the symbolic link is longer than %d bytes", maxLinkText)
	}
	if err != nil {
		return "", err
	}
	text := string(obj.data)
	if text == "" || strings.ContainsRune(text, 0) {
		return "", fault.Wrap(fault.Invalid, fs.ErrInvalid, "the symbolic link is malformed")
	}
	return text, nil
}

func errSubmodule() error {
	return fault.With(fault.New(fault.Invalid, "submodules are not served yet"), "", "put the files into the repository itself, or use the submodule's repository as a source of its own")
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
	switch {
	case n.mode == filemode.Submodule:
		return hub.Input{}, &fs.PathError{Op: "look up", Path: name, Err: fault.With(errSubmodule(), name, "")}
	case n.isLink():
		return hub.Input{Kind: hub.InputLink, Path: name, Hash: n.hash.String()}, nil
	case !n.isDir():
		return hub.Input{Kind: hub.InputFile, Path: name, Hash: n.hash.String()}, nil
	case kind == hub.InputTree:
		return hub.Input{Kind: hub.InputTree, Path: name, Hash: n.hash.String()}, nil
	case kind == hub.InputList:
		d, err := t.directory(n.hash)
		if err != nil {
			return hub.Input{}, &fs.PathError{Op: "look up", Path: name, Err: t.wrong(name, err)}
		}
		return hub.Input{Kind: hub.InputList, Path: name, Hash: d.names()}, nil
	}
	return hub.Input{Kind: hub.InputDir, Path: name}, nil
}

// names is the hash over names and kinds in a directory. Contents do not
// count, and neither does the executable bit, which no renderer sees.
func (d directory) names() string {
	h := sha256.New()
	for _, n := range d {
		mode := n.mode
		if mode == filemode.Executable {
			mode = filemode.Regular
		}
		_, _ = fmt.Fprintf(h, "%o %s\x00", uint32(mode), n.name)
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
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
	text, err := t.linkText(n)
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
	data, err := t.content(n, name)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return bytes.Clone(data), nil
}

// content reads a file. Others may hold the same bytes.
func (t *tree) content(n node, name string) ([]byte, error) {
	switch {
	case n.mode == filemode.Submodule:
		return nil, fault.With(errSubmodule(), name, "")
	case n.isDir():
		return nil, errIsDir
	}
	obj, err := t.m.odb.read(n.hash, t.m.cfg.MaxFile)
	var large errTooLarge
	if errors.As(err, &large) {
		return nil, fault.With(fault.Wrap(fault.Exceeded, err, "the file has %d bytes, and at most %d are read", large.size, t.m.cfg.MaxFile),
			name, "keep large files out of the source's path")
	}
	if err != nil {
		return nil, t.wrong(name, err)
	}
	if obj.kind != plumbing.BlobObject {
		return nil, t.m.broken(fmt.Errorf("%w: %s is not a file", errDamaged, n.hash))
	}
	return obj.data, nil
}

// errIsDir says that a directory stands where a file is expected.
var errIsDir = fault.Wrap(fault.Invalid, fs.ErrInvalid, "a directory stands where a file is expected")

// Stat tells what stands at a name, through links.
func (t *tree) Stat(name string) (fs.FileInfo, error) { return t.stat("stat", name, true) }

// Lstat tells what stands at a name; a link at its end stays a link.
func (t *tree) Lstat(name string) (fs.FileInfo, error) { return t.stat("lstat", name, false) }

func (t *tree) stat(op, name string, follow bool) (fs.FileInfo, error) {
	n, err := t.resolve(op, name, follow)
	if err != nil {
		return nil, err
	}
	info, err := t.info(path.Base(name), n)
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

func (t *tree) list(n node) ([]fs.DirEntry, error) {
	switch {
	case n.mode == filemode.Submodule:
		return nil, errSubmodule()
	case !n.isDir():
		return nil, fault.Wrap(fault.Invalid, fs.ErrInvalid, "a file stands where a directory is expected")
	}
	d, err := t.directory(n.hash)
	if err != nil {
		return nil, err
	}
	list := make([]fs.DirEntry, len(d))
	for i, n := range d {
		list[i] = dirEntry{t, n}
	}
	return list, nil
}
