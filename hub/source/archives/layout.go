package archives

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// A node is a file, link or directory of an archive.
type node struct {
	entry
	children []*node // of a directory, in the order of names
	hash     string  // of everything below
	names    string  // hash of the names and kinds of the children
}

func (n *node) isDir() bool  { return n.Kind == "" }
func (n *node) isLink() bool { return n.Kind == isLink }

func (n *node) child(name string) (*node, bool) {
	i, found := slices.BinarySearchFunc(n.children, name, func(c *node, name string) int { return strings.Compare(path.Base(c.Name), name) })
	if !found {
		return nil, false
	}
	return n.children[i], true
}

// A layout is the tree of an archive. It never changes.
type layout struct {
	info hub.CommitInfo
	root *node
	size int64 // memory that it takes, about
}

func newLayout(m manifest) *layout {
	l := &layout{info: m.Info, root: &node{entry: entry{Name: "."}}}
	dirs := map[string]*node{".": l.root}
	for _, e := range m.Entries {
		l.dir(dirs, path.Dir(e.Name)).children = append(dirs[path.Dir(e.Name)].children, &node{entry: e, hash: e.Hash})
		l.size += int64(2*len(e.Name)+len(e.Text)) + 300
	}
	l.root.seal()
	return l
}

// dir returns a directory, with those above it.
func (l *layout) dir(dirs map[string]*node, name string) *node {
	if d, ok := dirs[name]; ok {
		return d
	}
	d := &node{entry: entry{Name: name}}
	dirs[name] = d
	above := l.dir(dirs, path.Dir(name))
	above.children = append(above.children, d)
	return d
}

// seal sorts and hashes a directory and what is below it. Its depth is that of
// names, which is bounded.
func (n *node) seal() {
	slices.SortFunc(n.children, func(a, b *node) int { return strings.Compare(path.Base(a.Name), path.Base(b.Name)) })
	whole, names := sha256.New(), sha256.New()
	for _, c := range n.children {
		if c.isDir() {
			c.seal()
		}
		line := c.Kind + "\x00" + path.Base(c.Name) + "\x00"
		_, _ = io.WriteString(names, line)
		_, _ = io.WriteString(whole, line+c.hash+"\x00")
	}
	n.hash, n.names = hex.EncodeToString(whole.Sum(nil)), hex.EncodeToString(names.Sum(nil))
}

// A nodeInfo is what fs wants to know of a node.
type nodeInfo struct {
	name string
	n    *node
}

func (i nodeInfo) Name() string               { return i.name }
func (i nodeInfo) Size() int64                { return i.n.Size }
func (i nodeInfo) ModTime() time.Time         { return time.Time{} }
func (i nodeInfo) IsDir() bool                { return i.n.isDir() }
func (i nodeInfo) Sys() any                   { return nil }
func (i nodeInfo) Type() fs.FileMode          { return i.Mode().Type() }
func (i nodeInfo) Info() (fs.FileInfo, error) { return i, nil }
func (i nodeInfo) Mode() fs.FileMode {
	switch {
	case i.n.isDir():
		return fs.ModeDir | 0o755
	case i.n.isLink():
		return fs.ModeSymlink | 0o777
	case i.n.Exec:
		return 0o755
	}
	return 0o644
}
