package plugin

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxDepth is how deep directories are exported.
const maxDepth = 64

// An export writes a part of a tree into a directory. Nothing of it is outside
// of that directory, whatever the tree contains.
type export struct {
	tree    hub.Tree
	root    string // in the tree
	dir     string // on disk
	exclude []string
	modes   bool  // files keep the bit that makes them programs
	bytes   int64 // that may be written still
	files   int
	alive   func()
}

// all exports everything below the root.
func (e *export) all(ctx context.Context) error { return e.walk(ctx, e.root, "", 0) }

func (e *export) walk(ctx context.Context, from, to string, depth int) error {
	if depth > maxDepth {
		return fault.With(fault.New(fault.Exceeded, "directories are nested more than %d deep", maxDepth), from, "")
	}
	if err := os.MkdirAll(filepath.Join(e.dir, to), 0o700); err != nil {
		return fmt.Errorf("export for a plugin: %w", err)
	}
	entries, err := e.tree.ReadDir(from)
	if err != nil {
		return fmt.Errorf("export for a plugin: %w", err)
	}
	for _, d := range entries {
		if ctx.Err() != nil {
			return fmt.Errorf("export for a plugin: %w", ctx.Err())
		}
		if e.files--; e.files < 0 {
			return e.tooMuch("files")
		}
		if e.files%1000 == 0 && e.alive != nil {
			e.alive()
		}
		name, target := path.Join(from, d.Name()), path.Join(to, d.Name())
		switch {
		case e.excludes(target):
		case d.Type()&fs.ModeSymlink != 0:
			err = e.link(name, target)
		case d.IsDir():
			err = e.walk(ctx, name, target, depth+1)
		default:
			err = e.file(name, target, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *export) excludes(name string) bool {
	for _, pattern := range e.exclude {
		if ok, err := doublestar.Match(strings.TrimPrefix(pattern, "./"), name); ok && err == nil {
			return true
		}
	}
	return false
}

func (e *export) file(name, target string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("export for a plugin: %w", err)
	}
	if e.bytes -= info.Size(); e.bytes < 0 {
		return e.tooMuch("bytes")
	}
	data, err := e.tree.ReadFile(name)
	if err != nil {
		return fmt.Errorf("export for a plugin: %w", err)
	}
	mode := fs.FileMode(0o644)
	if e.modes && info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := os.WriteFile(filepath.Join(e.dir, target), data, mode); err != nil {
		return fmt.Errorf("export for a plugin: %w", err)
	}
	return nil
}

// link exports a symbolic link that stays below the root. Another one is left
// out: the sandbox would not follow it either.
func (e *export) link(name, target string) error {
	text, err := e.tree.ReadLink(name)
	if err != nil {
		return fmt.Errorf("export for a plugin: %w", err)
	}
	at := path.Join("/root", path.Dir(target), text)
	if path.IsAbs(text) || at != "/root" && !strings.HasPrefix(at, "/root/") {
		return nil
	}
	if err := os.Symlink(text, filepath.Join(e.dir, target)); err != nil {
		return fmt.Errorf("export for a plugin: %w", err)
	}
	return nil
}

func (e *export) tooMuch(what string) error {
	return fault.With(fault.New(fault.Exceeded, "the part of the repository that the plugin gets has too many %s", what), e.root,
		"set reposerver.plugin.tar.exclusions, or reposerver.plugin.use.manifest.generate.paths with the annotation manifest-generate-paths")
}
