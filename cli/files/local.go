package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/capstan-cd/capstan/cli/usage"
)

// mostLocal bounds what is read of a directory.
const mostLocal = 5000

// ReadLocal reads a file, or the YAML and JSON files of a directory in
// order of their names. Nothing is rendered: charts and overlays are not. With
// a root, no file may lie outside of it, by links either.
func ReadLocal(place, root string) ([]string, error) {
	info, err := os.Stat(place)
	if err != nil {
		return nil, usage.Errorf("--local %s: %w", place, err)
	}
	if root, err = repoRoot(root); err != nil {
		return nil, err
	}
	if err := inRoot(place, root); err != nil {
		return nil, err
	}
	files := []string{place}
	if info.IsDir() {
		if files, err = manifestFiles(place); err != nil {
			return nil, fmt.Errorf("read %s: %w", place, err)
		}
	}
	if len(files) == 0 || len(files) > mostLocal {
		return nil, usage.Errorf("--local %s contains %d manifest files; the limit is 1 to %d", place, len(files), mostLocal)
	}
	slices.Sort(files)
	var out []string
	for _, f := range files {
		if base := filepath.Base(f); slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Chart.yaml"}, base) {
			return nil, usage.Errorf("--local needs plain manifests; render %s first, and give the result", f)
		}
		if err := inRoot(f, root); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
		out = append(out, string(text))
	}
	return out, nil
}

// manifestFiles are the YAML and JSON files below a directory.
func manifestFiles(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// repoRoot returns a directory without links in its path; empty for none.
func repoRoot(root string) (string, error) {
	if root == "" {
		return "", nil
	}
	info, err := os.Stat(root)
	if err != nil {
		return "", usage.Errorf("--local-repo-root %s: %w", root, err)
	}
	if !info.IsDir() {
		return "", usage.Errorf("--local-repo-root %s is no directory; give the one that holds the repository", root)
	}
	return unlinked(root)
}

// inRoot refuses a file that lies outside of the root, if there is one.
func inRoot(file, root string) error {
	if root == "" {
		return nil
	}
	real, err := unlinked(file)
	if err != nil {
		return err
	}
	if inside, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(inside) {
		return usage.Errorf("--local: %s is %s, which lies outside of --local-repo-root %s; give a root that holds it", file, real, root)
	}
	return nil
}

func unlinked(path string) (string, error) {
	whole, err := filepath.Abs(path)
	if err == nil {
		whole, err = filepath.EvalSymlinks(whole)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return whole, nil
}
