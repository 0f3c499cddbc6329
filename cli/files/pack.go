package files

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/capstan-cd/capstan/cli/usage"
)

// Includes are the names of files that are sent to be rendered, unless others
// are given: manifests, templates and Jsonnet.
func Includes() []string {
	return []string{"*.yaml", "*.yml", "*.json", "*.tpl", "*.jsonnet", "*.libsonnet", "Kustomization"}
}

// mostPacked bounds the files that are sent.
const mostPacked = 100_000

// Pack writes the files below a folder as a tar.gz. It takes those whose names,
// without their folders, match one of the patterns, and no folder .git. Links
// stay links.
func Pack(w io.Writer, root string, include []string) error {
	for _, pattern := range include {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return usage.Errorf("--local-include %q is no pattern; write it like *.yaml", pattern)
		}
	}
	if root, err := repoRoot(root); err != nil {
		return err
	} else if err := pack(w, root, include); err != nil {
		return fmt.Errorf("pack %s: %w", root, err)
	}
	return nil
}

func pack(w io.Writer, root string, include []string) error {
	packed := gzip.NewWriter(w)
	out := tar.NewWriter(packed)
	count := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case d.IsDir() && d.Name() == ".git" && path != root:
			return fs.SkipDir
		case d.IsDir() || !matches(d.Name(), include) || d.Type()&^fs.ModeSymlink != 0:
			return nil
		}
		if count++; count > mostPacked {
			return usage.Errorf("there are more than %d files; give a smaller folder, or --local-include", mostPacked)
		}
		return packFile(out, path, filepath.ToSlash(name), d)
	})
	if err == nil && count == 0 {
		err = usage.Errorf("no file matches %v; give other patterns with --local-include", include)
	}
	if err != nil {
		return err
	}
	return errors.Join(out.Close(), packed.Close())
}

func matches(name string, include []string) bool {
	return slices.ContainsFunc(include, func(pattern string) bool {
		ok, err := filepath.Match(pattern, name)
		return ok && err == nil
	})
}

// packFile writes one file. Of its metadata only the right to execute is sent.
func packFile(out *tar.Writer, path, name string, d fs.DirEntry) error {
	header := tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}
	if d.Type()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		header.Typeflag, header.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
		return out.WriteHeader(&header)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if header.Size = info.Size(); info.Mode()&0o111 != 0 {
		header.Mode = 0o755
	}
	if err := out.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}
