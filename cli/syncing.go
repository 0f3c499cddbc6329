package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// fillSync adds to a request what flags say in a form of their own.
func fillSync(req *apimodel.SyncRequest, infos []string, local, root, strategy string) error {
	var list []apimodel.Info
	for _, text := range infos {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" {
			return usageError{fmt.Errorf("--info %q is not name=value", text)}
		}
		list = append(list, apimodel.Info{Name: name, Value: value})
	}
	req.Infos = list
	if strategy != "" {
		chosen, err := among("--strategy", strategy, "apply", "hook")
		if err != nil {
			return err
		}
		if chosen == "apply" {
			req.SkipHooks = true
		}
	}
	if local == "" {
		if root != "" {
			return usageError{errors.New("--local-repo-root says what files of --local may belong to; give --local too")}
		}
		return nil
	}
	manifests, err := localManifests(local, root)
	if err != nil {
		return err
	}
	req.Manifests = manifests
	return nil
}

// mostLocal bounds what is read of a directory.
const mostLocal = 5000

// localManifests reads a file, or the YAML and JSON files of a directory in
// order of their names. Nothing is rendered: charts and overlays are not. With
// a root, no file may lie outside of it, by links either.
func localManifests(place, root string) ([]string, error) {
	info, err := os.Stat(place)
	if err != nil {
		return nil, usageError{fmt.Errorf("--local %s: %w", place, err)}
	}
	if root, err = repoRoot(root); err != nil {
		return nil, err
	}
	if err := inRoot(place, root); err != nil {
		return nil, err
	}
	files := []string{place}
	if info.IsDir() {
		files = nil
		err = filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
				files = append(files, path)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", place, err)
	}
	if len(files) == 0 || len(files) > mostLocal {
		return nil, usageError{fmt.Errorf("--local %s contains %d manifest files; the limit is 1 to %d", place, len(files), mostLocal)}
	}
	slices.Sort(files)
	var out []string
	for _, f := range files {
		if base := filepath.Base(f); slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Chart.yaml"}, base) {
			return nil, usageError{errors.New("--local needs plain manifests; render " + f + " first, and give the result")}
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

// repoRoot returns a directory without links in its path; empty for none.
func repoRoot(root string) (string, error) {
	if root == "" {
		return "", nil
	}
	info, err := os.Stat(root)
	if err != nil {
		return "", usageError{fmt.Errorf("--local-repo-root %s: %w", root, err)}
	}
	if !info.IsDir() {
		return "", usageError{fmt.Errorf("--local-repo-root %s is no directory; give the one that holds the repository", root)}
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
		return usageError{fmt.Errorf("--local: %s is %s, which lies outside of --local-repo-root %s; give a root that holds it", file, real, root)}
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

// preview shows what a sync would change, and asks. done says that there is
// nothing to do.
func (a *app) preview(cmd *cobra.Command, api *client.Client, namespace, name string, yes bool) (done bool, err error) {
	d, _, err := call[struct {
		Items []apimodel.ObjectDiff `json:"items"`
	}](api.DiffApplication(cmd.Context(), namespace, name, apimodel.DiffApplicationParams{}))
	if err != nil {
		return false, err
	}
	if len(d.Items) == 0 {
		fmt.Fprintln(a.streams.Out, "Nothing differs.")
		return true, nil
	}
	for _, o := range d.Items {
		if err := a.showDiff(cmd, o, diffing{}); err != nil {
			return false, err
		}
	}
	return false, a.confirm(yes, "Apply these changes?")
}

// selectors reads "group:kind:namespace/name".
func selectors(given []string) ([]apimodel.ResourceSelector, error) {
	if len(given) == 0 {
		return nil, nil
	}
	var out []apimodel.ResourceSelector
	for _, s := range given {
		s, exclude := strings.CutPrefix(s, "!")
		parts := strings.SplitN(s, ":", 3)
		if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
			return nil, usageError{fmt.Errorf("%q is no object; write group:kind:namespace/name, with an empty group for core kinds", s)}
		}
		sel := apimodel.ResourceSelector{Group: parts[0], Kind: parts[1], Name: parts[2], Exclude: exclude}
		if ns, n, ok := strings.Cut(parts[2], "/"); ok {
			if ns == "" || n == "" {
				return nil, usageError{fmt.Errorf("%q is no object; write group:kind:namespace/name, or group:kind:name", s)}
			}
			sel.Namespace, sel.Name = ns, n
		}
		out = append(out, sel)
	}
	return out, nil
}
