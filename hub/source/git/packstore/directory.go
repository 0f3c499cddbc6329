package packstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxTree  = 32 << 20 // bytes of one directory
	maxShown = 120      // bytes of a name that an error shows
)

// A Node is one name in a directory.
type Node struct {
	Name string
	Mode filemode.FileMode
	Hash plumbing.Hash
}

// IsDir reports whether it is a directory, or the place of another repository.
func (n Node) IsDir() bool { return n.Mode == filemode.Dir || n.Mode == filemode.Submodule }

// IsLink reports whether it is a symbolic link.
func (n Node) IsLink() bool { return n.Mode == filemode.Symlink }

// A Directory is the content of one directory in the order of names, never
// changed once it is made.
type Directory []Node

// Find looks up a name.
func (d Directory) Find(name string) (Node, bool) {
	i, found := slices.BinarySearchFunc(d, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
	if !found {
		return Node{}, false
	}
	return d[i], true
}

// Names is the hash over names and kinds in a directory. Contents do not
// count, and neither does the executable bit, which no renderer sees.
func (d Directory) Names() string {
	h := sha256.New()
	for _, n := range d {
		mode := n.Mode
		if mode == filemode.Executable {
			mode = filemode.Regular
		}
		_, _ = fmt.Fprintf(h, "%o %s\x00", uint32(mode), n.Name)
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// Directory reads a directory, or finds it in the cache. What is wrong with
// what somebody has committed is a fault, with a sentence.
func (o *Objects) Directory(h plumbing.Hash) (Directory, error) {
	key := cacheKey{owner: o.id, offset: -1, hash: h}
	if kept, ok := o.lib.cache.Get(key); ok {
		d, _ := kept.(Directory)
		return d, nil
	}
	obj, err := o.Read(h, maxTree)
	if errors.As(err, new(TooLargeError)) {
		return nil, fault.Wrap(fault.Exceeded, err, "the directory has too many entries")
	}
	if err != nil {
		return nil, err
	}
	if obj.Kind != plumbing.TreeObject {
		return nil, fmt.Errorf("%w: %s is not a directory", ErrDamaged, h)
	}
	d, err := parseTree(obj.Data)
	if err != nil {
		return nil, err
	}
	o.lib.cache.Put(key, d, int64(len(obj.Data)+len(d)*48))
	return d, nil
}

// parseTree reads a tree object. Names that could lead anywhere else, which
// git itself never writes, make the whole directory invalid.
func parseTree(data []byte) (Directory, error) {
	bad := fault.New(fault.Invalid, "a directory of the repository is malformed")
	d := make(Directory, 0, len(data)/36)
	for len(data) > 0 {
		mode, rest, ok := bytes.Cut(data, []byte(" "))
		name, rest, ok2 := bytes.Cut(rest, []byte{0})
		if !ok || !ok2 || len(rest) < 20 || len(mode) > 6 {
			return nil, bad
		}
		n := Node{Name: string(name), Hash: plumbing.Hash(rest[:20])}
		data = rest[20:]
		if n.Name == "" || n.Name == "." || n.Name == ".." || strings.EqualFold(n.Name, ".git") || strings.Contains(n.Name, "/") {
			return nil, fault.New(fault.Invalid, "a directory of the repository contains the forbidden name %q", cut(n.Name))
		}
		var err error
		if n.Mode, err = canonicalMode(string(mode)); err != nil {
			return nil, bad
		}
		d = append(d, n)
	}
	slices.SortFunc(d, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	for i := range d {
		if i > 0 && d[i].Name == d[i-1].Name {
			return nil, fault.New(fault.Invalid, "a directory of the repository contains the name %q twice", cut(d[i].Name))
		}
	}
	return d, nil
}

func cut(name string) string {
	if len(name) > maxShown {
		return strings.ToValidUTF8(name[:maxShown], "") + "…"
	}
	return name
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
