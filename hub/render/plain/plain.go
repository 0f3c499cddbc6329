// Package plain reads a directory of manifests (rows DIR). It never changes
// what is written there. The worker calls it for a source that is neither a
// chart nor a kustomization. Files are read in the order of their names.
package plain

import (
	"bytes"
	"context"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/jsonnet"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Render returns the objects of all manifests in a directory.
func Render(ctx context.Context, job render.Job) (render.Output, error) {
	settings := hub.DirectorySource{}
	if job.Source.Directory != nil {
		settings = *job.Source.Directory
	}
	names, err := choose(ctx, job, settings)
	if err != nil {
		return render.Output{}, err
	}
	files, err := job.Files.Read(ctx, names...)
	if err != nil {
		return render.Output{}, err
	}
	var evaluate *jsonnet.Evaluator
	if slices.ContainsFunc(names, isJsonnet) {
		with := hub.JsonnetSource{}
		if settings.Jsonnet != nil {
			with = *settings.Jsonnet
		}
		if evaluate, err = jsonnet.New(ctx, job, with); err != nil {
			return render.Output{}, err
		}
	}
	var out render.Output
	var total int64
	for i, f := range files {
		if !f.Found {
			return render.Output{}, fault.With(fault.New(fault.Invalid, "the symbolic link leads nowhere"), names[i], "")
		}
		if skipped(f.Data) {
			continue
		}
		if total += f.Size; total > job.Limits.DirectoryBytes {
			return render.Output{}, fault.With(fault.New(fault.Exceeded, "the manifests have more than %d bytes together", job.Limits.DirectoryBytes),
				job.Dir, "choose fewer files with directory.include or directory.exclude")
		}
		objects, err := read(ctx, job, evaluate, names[i], f.Data)
		if err != nil {
			return render.Output{}, err
		}
		for _, o := range objects {
			out.Objects = append(out.Objects, render.Rendered{File: names[i], Object: o})
		}
		if len(out.Objects) > job.Limits.Objects {
			return render.Output{}, fault.With(fault.New(fault.Exceeded, "the directory makes more than %d objects", job.Limits.Objects), job.Dir, "split the application")
		}
	}
	return out, nil
}

// read returns the objects of one file.
func read(ctx context.Context, job render.Job, evaluate *jsonnet.Evaluator, name string, data []byte) ([]*manifest.Object, error) {
	if isJsonnet(name) {
		return evaluate.Evaluate(ctx, name, data)
	}
	return manifest.Parse(name, data, manifest.Limits{
		MaxBytes: job.Limits.DirectoryBytes, MaxDocs: job.Limits.Objects, MaxDepth: job.Limits.Depth, LastKeyWins: true,
	})
}

// choose returns the names of the files that count, in order.
func choose(ctx context.Context, job render.Job, settings hub.DirectorySource) ([]string, error) {
	include, err := newGlob("directory.include", settings.Include)
	if err != nil {
		return nil, err
	}
	exclude, err := newGlob("directory.exclude", settings.Exclude)
	if err != nil {
		return nil, err
	}
	hidden, err := includesHidden(ctx, job, settings)
	if err != nil {
		return nil, err
	}
	evaluated, err := job.Enabled(ctx, hub.JsonnetEnableKey)
	if err != nil {
		return nil, err
	}
	_, entries, err := job.Files.List(ctx, job.Dir, render.Question{Recurse: settings.Recurse, Hidden: hidden})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := path.Join(job.Dir, e.Path)
		switch {
		case e.Kind == hub.InputDir:
		case exclude.set() && exclude.match(e.Path), include.set() && !include.match(e.Path):
		case isJsonnet(e.Path):
			if evaluated {
				names = append(names, name)
			}
		case settings.DisableExtensionFilter || isManifest(e.Path):
			names = append(names, name)
		}
	}
	return names, nil
}

// includesHidden reports whether directories whose names begin with a dot count
// (DIR-08). It matters only where directories below are read at all.
func includesHidden(ctx context.Context, job render.Job, settings hub.DirectorySource) (bool, error) {
	if !settings.Recurse {
		return false, nil
	}
	value, err := job.Files.Setting(ctx, hub.HiddenDirectoriesKey)
	on, wrong := strconv.ParseBool(strings.TrimSpace(value))
	return on && wrong == nil, err
}

func isJsonnet(name string) bool { return path.Ext(name) == ".jsonnet" }

func isManifest(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// skipped reports whether a comment of the file excludes it (DIR-04).
func skipped(data []byte) bool {
	if !bytes.Contains(data, []byte("+argocd:skip-file-rendering")) {
		return false
	}
	return regexp.MustCompile(`(?m)^[ \t]*#[ \t]*\+argocd:skip-file-rendering`).Match(data)
}

// A glob matches relative paths as a whole: * crosses slashes, as it does in
// Argo CD, so "*.yaml" finds a/b.yaml too.
type glob struct{ pattern string }

// flatten replaces slashes, so that they have no special meaning.
func flatten(s string) string { return strings.ReplaceAll(s, "/", "\x01") }

func newGlob(field, pattern string) (glob, error) {
	if !doublestar.ValidatePattern(flatten(pattern)) {
		return glob{}, fault.New(fault.Invalid, "%s: the pattern %q is malformed", field, pattern)
	}
	return glob{flatten(pattern)}, nil
}

func (g glob) set() bool { return g.pattern != "" }

func (g glob) match(name string) bool {
	return doublestar.MatchUnvalidated(g.pattern, flatten(name))
}
