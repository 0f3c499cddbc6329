package kustomize

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// errReadOnly answers every attempt to change something.
var errReadOnly = errors.New("the repository is read only")

// files shows kustomize a source's tree as a disk whose root is the root of
// the repository. Nothing can be written. The context is that of the one
// build it is made for: the interface of kustomize has no place for it.
type files struct {
	ctx      context.Context //nolint:containedctx // see above
	tree     render.Files
	replaced map[string][]byte // edited files by absolute path
	made     map[string][]byte // files that are not in the tree, by absolute path: the objects of charts
	charts   *inflater         // of the kustomizations that name charts
	inflated map[string][]byte // those kustomizations without their charts, by absolute path
	refused  error             // first refusal of ours; kustomize would hide it
}

func newFiles(ctx context.Context, tree render.Files) *files {
	return &files{ctx: ctx, tree: tree, replaced: map[string][]byte{}, made: map[string][]byte{}, inflated: map[string][]byte{}}
}

// name returns the name in the tree. Kustomize cleans paths against the root,
// so ".." never leads above it.
func name(p string) string {
	p = strings.TrimPrefix(path.Clean("/"+p), "/")
	if p == "" {
		return "."
	}
	return p
}

func (f *files) refuse(err error) error {
	if f.refused == nil {
		f.refused = err
	}
	return err
}

func (f *files) kind(p string) hub.InputKind {
	if _, ok := f.made["/"+name(p)]; ok {
		return hub.InputFile
	}
	kind, err := f.tree.Kind(f.ctx, name(p))
	if err != nil {
		_ = f.refuse(err)
		return hub.InputMissing
	}
	return kind
}

// IsDir implements filesys.FileSystem.
func (f *files) IsDir(p string) bool { return f.kind(p) == hub.InputDir }

// Exists implements filesys.FileSystem.
func (f *files) Exists(p string) bool { return f.kind(p) != hub.InputMissing }

// CleanedAbs implements filesys.FileSystem. Kustomize compares the result with
// the directory that a kustomization may read from, so links are resolved.
func (f *files) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	if n := name(p); f.made["/"+n] != nil {
		return filesys.ConfirmedDir(path.Join("/", path.Dir(n))), path.Base(n), nil
	}
	resolved, kind, err := f.tree.Real(f.ctx, name(p))
	if err != nil {
		return "", "", f.refuse(err)
	}
	abs := path.Join("/", resolved)
	switch kind {
	case hub.InputMissing:
		return "", "", &fs.PathError{Op: "open", Path: name(p), Err: fs.ErrNotExist}
	case hub.InputDir:
		return filesys.ConfirmedDir(abs), "", nil
	default:
		return filesys.ConfirmedDir(path.Dir(abs)), path.Base(abs), nil
	}
}

// ReadFile implements filesys.FileSystem. A kustomization that refers to
// anything outside the repository is refused here, before kustomize tries to
// fetch it. A directory gives an ordinary error, as on a disk: where files may
// be loaded from anywhere, kustomize reads each resource as a file first, and
// takes it for a base when that fails.
func (f *files) ReadFile(p string) ([]byte, error) {
	n := name(p)
	for _, known := range []map[string][]byte{f.made, f.inflated} {
		if data, ok := known["/"+n]; ok {
			return data, nil
		}
	}
	data, ok := f.replaced["/"+n]
	if !ok {
		found, err := f.tree.Read(f.ctx, n)
		if err != nil && f.IsDir(n) {
			return nil, &fs.PathError{Op: "read", Path: n, Err: syscall.EISDIR}
		}
		if err != nil {
			return nil, f.refuse(err)
		}
		if !found[0].Found {
			return nil, &fs.PathError{Op: "open", Path: n, Err: fs.ErrNotExist}
		}
		data = found[0].Data
	}
	if !slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(n)) {
		return data, nil
	}
	if err := onlyLocal(data); err != nil {
		return nil, f.refuse(fault.With(err, n, "commit what it refers to into this repository"))
	}
	data, err := f.borrowed(n, data)
	if err != nil {
		return nil, f.refuse(err)
	}
	return f.withoutCharts(n, data)
}

// withoutCharts renders the charts that a kustomization names, and returns it
// with their objects among its resources.
func (f *files) withoutCharts(name string, text []byte) ([]byte, error) {
	rest, made, err := f.charts.inflate(f, name, text)
	if err != nil {
		return nil, f.refuse(err)
	}
	for file, objects := range made {
		f.made["/"+file] = objects
	}
	f.inflated["/"+name] = rest
	return rest, nil
}

// ReadDir implements filesys.FileSystem.
func (f *files) ReadDir(p string) ([]string, error) {
	kind, entries, err := f.tree.List(f.ctx, name(p), render.Question{})
	if err != nil {
		return nil, f.refuse(err)
	}
	if kind != hub.InputDir {
		return nil, &fs.PathError{Op: "readdir", Path: name(p), Err: fs.ErrNotExist}
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Path
	}
	return out, nil
}

// Glob implements filesys.FileSystem. Kustomize has no use for it in a build.
func (f *files) Glob(string) ([]string, error) { return nil, nil }

// Walk implements filesys.FileSystem. Kustomize has no use for it in a build.
func (f *files) Walk(string, filepath.WalkFunc) error { return errReadOnly }

// Open implements filesys.FileSystem. A build reads whole files only.
func (f *files) Open(string) (filesys.File, error) { return nil, errReadOnly }

// Create implements filesys.FileSystem.
func (f *files) Create(string) (filesys.File, error) { return nil, errReadOnly }

// Mkdir implements filesys.FileSystem.
func (f *files) Mkdir(string) error { return errReadOnly }

// MkdirAll implements filesys.FileSystem.
func (f *files) MkdirAll(string) error { return errReadOnly }

// RemoveAll implements filesys.FileSystem.
func (f *files) RemoveAll(string) error { return errReadOnly }

// WriteFile implements filesys.FileSystem.
func (f *files) WriteFile(string, []byte) error { return errReadOnly }
