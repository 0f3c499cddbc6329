package hub

import "io/fs"

// A Tree is a read-only file tree at one commit. Names are slash-separated
// and relative to the root, as in io/fs. Symbolic links are followed inside
// the tree only; one that leaves it is an fs.ErrInvalid error that names the
// file. A Tree may be used by one goroutine at a time.
type Tree interface {
	fs.ReadFileFS
	fs.ReadDirFS
	fs.StatFS
	// Lstat is Stat that does not follow a link in the last element.
	Lstat(name string) (fs.FileInfo, error)
	// ReadLink returns the text of a link.
	ReadLink(name string) (string, error)
	// Input returns what a recorder would note for a read of this kind at
	// name, without reading contents. Links inside the tree are followed for
	// file, list and tree. Nothing there: kind missing, no error.
	Input(kind InputKind, name string) (Input, error)
	// Linkless reports whether a directory has neither symbolic links nor
	// submodules below it, so that its hash alone decides what is read there.
	// It looks at so many entries at most; beyond them the answer is false.
	Linkless(name string, most int) bool
	// Commit is the full hash of the commit; Info what people see of it.
	Commit() string
	Info() CommitInfo
}
