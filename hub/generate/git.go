package generate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A tree is what a generation has read of a repository at a revision.
type tree struct {
	files fs.FS
	dirs  []string
	names []string // of files, and of symbolic links
	read  map[string][]byte
}

func checkGit(config map[string]any) error {
	var spec hub.GitGenerator
	if err := convert(config, &spec); err != nil {
		return err
	}
	switch {
	case spec.RepoURL == "":
		return fault.New(fault.Invalid, "repoURL is missing")
	case len(spec.Directories)+len(spec.Files) == 0:
		return fault.New(fault.Invalid, "directories or files is missing")
	}
	for _, p := range slices.Concat(spec.Directories, spec.Files) {
		if !strings.Contains(p.Path, "{{") {
			if _, err := patternOf(p.Path, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// git makes parameters of directories, or of files (AGEN-03 to AGEN-05).
func (r *round) git(ctx context.Context, src source) ([]map[string]any, error) {
	var spec hub.GitGenerator
	if err := convert(src.config, &spec); err != nil {
		return nil, err
	}
	t, err := r.tree(ctx, hub.SetRepository{URL: spec.RepoURL, Revision: spec.Revision})
	if err != nil {
		return nil, err
	}
	if len(spec.Directories) > 0 {
		return r.directories(t, spec)
	}
	return r.gitFiles(ctx, t, spec)
}

// tree lists a repository, once in a generation.
func (r *round) tree(ctx context.Context, use hub.SetRepository) (*tree, error) {
	if t, ok := r.trees[use]; ok {
		return t, nil
	}
	files, _, err := r.in.Tree(ctx, use.URL, use.Revision)
	if err != nil {
		return nil, err
	}
	t := &tree{files: files, read: map[string][]byte{}}
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case len(t.dirs)+len(t.names) > maxTreeEntries:
			return fault.New(fault.Exceeded, "the repository %s has more than %d files and directories", use.URL, maxTreeEntries)
		case name == ".":
		case d.IsDir():
			t.dirs = append(t.dirs, name)
		case d.Type().IsRegular() || d.Type() == fs.ModeSymlink:
			t.names = append(t.names, name)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", use.URL, err)
	}
	r.trees[use] = t
	return t, nil
}

func (r *round) directories(t *tree, spec hub.GitGenerator) ([]map[string]any, error) {
	out := []map[string]any{}
	for _, dir := range t.dirs {
		if !r.limits.HiddenDirectories && hidden(dir) {
			continue
		}
		included, excluded := false, false
		for _, d := range spec.Directories {
			match, err := path.Match(d.Path, dir)
			if err != nil {
				return nil, fault.New(fault.Invalid, "%q is no pattern of directories", d.Path)
			}
			included, excluded = included || match && !d.Exclude, excluded || match && d.Exclude
		}
		if !included || excluded {
			continue
		}
		params := map[string]any{}
		r.addPath(params, spec.PathParamPrefix, dir, "")
		if err := r.addValues(params, spec.Values); err != nil {
			return nil, err
		}
		out = append(out, params)
	}
	return out, nil
}

func hidden(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(s string) bool { return strings.HasPrefix(s, ".") })
}

// addPath adds the parameters of a directory, and of a file in it if there is
// one.
func (r *round) addPath(params map[string]any, prefix, dir, file string) {
	if r.set.spec.GoTemplate {
		p := map[string]any{"path": dir, "basename": path.Base(dir), "basenameNormalized": template.Normalize(path.Base(dir)), "segments": strings.Split(dir, "/")}
		if file != "" {
			p["filename"], p["filenameNormalized"] = file, template.Normalize(file)
		}
		if prefix == "" {
			params["path"] = p
		} else {
			params[prefix] = map[string]any{"path": p}
		}
		return
	}
	name := "path"
	if prefix != "" {
		name = prefix + ".path"
	}
	params[name], params[name+".basename"], params[name+".basenameNormalized"] = dir, path.Base(dir), template.Normalize(path.Base(dir))
	if file != "" {
		params[name+".filename"], params[name+".filenameNormalized"] = file, template.Normalize(file)
	}
	for i, segment := range strings.Split(dir, "/") {
		params[name+"["+strconv.Itoa(i)+"]"] = segment
	}
}

func (r *round) gitFiles(ctx context.Context, t *tree, spec hub.GitGenerator) ([]map[string]any, error) {
	names, err := t.selected(spec.Files, r.limits.PathGlobs)
	if err != nil {
		return nil, err
	}
	if most := r.limits.parameterSets(); len(names) > most {
		names, r.truncated = names[:most], true
	}
	out := []map[string]any{}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sets, err := r.ofFile(t, name, spec)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", name, err)
		}
		out = append(out, sets...)
	}
	return out, nil
}

// selected are the files that patterns select and none excludes, sorted.
func (t *tree) selected(patterns []hub.GitPath, pathGlobs bool) ([]string, error) {
	found := map[string]bool{}
	for _, exclude := range []bool{false, true} {
		for _, p := range patterns {
			if p.Exclude != exclude {
				continue
			}
			matches, err := patternOf(p.Path, pathGlobs)
			if err != nil {
				return nil, err
			}
			for _, name := range t.names {
				if matches(name) {
					found[name] = !exclude
				}
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, selected bool) bool { return !selected })
	return slices.Sorted(maps.Keys(found)), nil
}

// ofFile makes parameters of a file: of a map one set, and of a list of maps
// one set for each.
func (r *round) ofFile(t *tree, name string, spec hub.GitGenerator) ([]map[string]any, error) {
	text, err := t.text(name)
	if err != nil {
		return nil, err
	}
	contents, err := fileParams(name, text)
	if err != nil {
		return nil, err
	}
	out := make([]map[string]any, 0, len(contents))
	for _, params := range contents {
		if !r.set.spec.GoTemplate {
			params = flat(params)
		}
		r.addPath(params, spec.PathParamPrefix, path.Dir(name), path.Base(name))
		if err := r.addValues(params, spec.Values); err != nil {
			return nil, err
		}
		out = append(out, params)
	}
	return out, nil
}

// fileParams reads a file with parameters. An empty one has a set without
// parameters.
func fileParams(name string, text []byte) ([]map[string]any, error) {
	v, err := template.YAML(name, text)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return []map[string]any{{}}, nil
	case map[string]any:
		return []map[string]any{v}, nil
	case []any:
		out := make([]map[string]any, len(v))
		for i, element := range v {
			m, ok := element.(map[string]any)
			if !ok && element != nil {
				return nil, fault.New(fault.Invalid, "element %d of its list is no map", i)
			}
			if out[i] = m; m == nil {
				out[i] = map[string]any{}
			}
		}
		return out, nil
	}
	return nil, fault.New(fault.Invalid, "it is neither a map nor a list of maps")
}

func (t *tree) text(name string) ([]byte, error) {
	if text, ok := t.read[name]; ok {
		return text, nil
	}
	info, err := fs.Stat(t.files, name)
	if err != nil {
		return nil, readError(err)
	}
	if info.IsDir() || info.Size() > maxFileBytes {
		return nil, fault.New(fault.Exceeded, "it has %d bytes, and may have %d", info.Size(), maxFileBytes)
	}
	text, err := fs.ReadFile(t.files, name)
	if err != nil {
		return nil, readError(err)
	}
	t.read[name] = text
	return text, nil
}

func readError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Invalid, "it is a link to a file that does not exist")
	}
	return err
}
