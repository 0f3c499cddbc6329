package git

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/capstan-cd/capstan/hub/source/git/packstore"
)

// info describes a node under the requested name.
func (t *tree) info(name string, n packstore.Node) (fs.FileInfo, error) {
	i := fileInfo{name: name, mode: fileMode(n.Mode), time: t.commit.When}
	if n.IsDir() {
		return i, nil
	}
	var err error
	if n.Mode == filemode.Submodule {
		i.mode = fileMode(filemode.Dir)
		return i, nil
	}
	if i.size, err = t.m.objects.Size(n.Hash); err != nil {
		return nil, err
	}
	if t.repo.LFS && i.size <= maxPointer && !n.IsLink() {
		obj, err := t.m.objects.Read(n.Hash, maxPointer)
		if err != nil {
			return nil, err
		}
		if p, ok := readPointer(obj.Data); ok {
			i.size = p.size
		}
	}
	return i, nil
}

// fileMode is a mode as io/fs has it. Nothing can be written.
func fileMode(m filemode.FileMode) fs.FileMode {
	switch m {
	case filemode.Dir, filemode.Submodule:
		return fs.ModeDir | 0o555
	case filemode.Symlink:
		return fs.ModeSymlink | 0o777
	case filemode.Executable:
		return 0o555
	}
	return 0o444
}

type fileInfo struct {
	name string
	size int64
	mode fs.FileMode
	time time.Time
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() fs.FileMode  { return i.mode }
func (i fileInfo) ModTime() time.Time { return i.time }
func (i fileInfo) IsDir() bool        { return i.mode.IsDir() }
func (fileInfo) Sys() any             { return nil }

// String shows the file as ls would.
func (i fileInfo) String() string { return fs.FormatFileInfo(i) }

type dirEntry struct {
	t *tree
	n packstore.Node
}

func (e dirEntry) Name() string      { return e.n.Name }
func (e dirEntry) IsDir() bool       { return e.n.IsDir() }
func (e dirEntry) Type() fs.FileMode { return fileMode(e.n.Mode).Type() }

// Info reads the size, which a listing does not have.
func (e dirEntry) Info() (fs.FileInfo, error) {
	info, err := e.t.info(e.n.Name, e.n)
	if err != nil {
		return nil, e.t.wrong(e.n.Name, err)
	}
	return info, nil
}

// String shows the entry as ls would.
func (e dirEntry) String() string { return fs.FormatDirEntry(e) }

// Open opens a file or a directory. A file is read when it is first used.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.resolve("open", name, true)
	if err != nil {
		return nil, err
	}
	info, err := t.Stat(name)
	if err != nil {
		return nil, err
	}
	return &file{t: t, name: name, node: n, info: info}, nil
}

// A file is an open file or directory.
type file struct {
	t      *tree
	name   string
	node   place
	info   fs.FileInfo
	data   *bytes.Reader
	rest   []fs.DirEntry
	listed bool
	closed bool
}

var (
	_ fs.ReadDirFile = (*file)(nil)
	_ io.ReadSeeker  = (*file)(nil)
	_ io.ReaderAt    = (*file)(nil)
)

func (f *file) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

func (f *file) load(op string) error {
	if f.closed {
		return f.fail(op, fs.ErrClosed)
	}
	if f.data != nil {
		return nil
	}
	data, err := f.node.t.content(f.node.Node, f.name)
	if err != nil {
		return f.fail(op, err)
	}
	f.data = bytes.NewReader(data)
	return nil
}

func (f *file) Stat() (fs.FileInfo, error) {
	if f.closed {
		return nil, f.fail("stat", fs.ErrClosed)
	}
	return f.info, nil
}

func (f *file) Read(p []byte) (int, error) {
	if err := f.load("read"); err != nil {
		return 0, err
	}
	return f.data.Read(p)
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.load("read"); err != nil {
		return 0, err
	}
	return f.data.ReadAt(p, off)
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	if err := f.load("seek"); err != nil {
		return 0, err
	}
	at, err := f.data.Seek(offset, whence)
	if err != nil {
		return 0, f.fail("seek", fmt.Errorf("%w: %w", fs.ErrInvalid, err))
	}
	return at, nil
}

// ReadDir returns the next n entries, or all of them.
func (f *file) ReadDir(n int) ([]fs.DirEntry, error) {
	if f.closed {
		return nil, f.fail("readdir", fs.ErrClosed)
	}
	if !f.listed {
		list, err := f.t.list(f.node)
		if err != nil {
			return nil, f.fail("readdir", f.t.wrong(f.name, err))
		}
		f.rest, f.listed = list, true
	}
	if n <= 0 {
		all := f.rest
		f.rest = nil
		return all, nil
	}
	if len(f.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.rest))
	some := f.rest[:n:n]
	f.rest = f.rest[n:]
	return some, nil
}

func (f *file) Close() error {
	if f.closed {
		return f.fail("close", fs.ErrClosed)
	}
	f.closed, f.data, f.rest = true, nil, nil
	return nil
}
