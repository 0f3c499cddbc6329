package helm

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/ignore"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxNesting is how deep charts may depend on each other by path.
const maxNesting = 16

// loading reads charts for one render. Its context is that of the render.
type loading struct {
	ctx context.Context //nolint:containedctx // lives for one render
	job render.Job
}

// A loaded chart knows where it came from and which of its files it ignores.
type loaded struct {
	*chart.Chart
	dir   string
	rules *ignore.Rules
	// lazy means that the other files of the chart were not read, because every
	// use of them in templates is recognised.
	lazy bool
	// packed means that the chart came from an archive.
	packed bool
}

// chart reads the chart in a directory, without what is not needed for
// rendering unless a template may want it.
func (l *loading) chart(dir string) (*loaded, error) {
	c, files, err := l.heads(dir)
	if err != nil {
		return nil, err
	}
	for _, below := range []string{"templates", "crds", "charts"} {
		more, err := l.below(c, below)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	if c.lazy = onlyKnownUses(files); !c.lazy {
		more, err := l.others(c, files)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	if c.Chart, err = loader.LoadFiles(files); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the chart cannot be loaded: %s", err), path.Join(dir, "Chart.yaml"), "")
	}
	return c, nil
}

// heads reads the files of a chart that have fixed names, and what it ignores.
func (l *loading) heads(dir string) (*loaded, []*loader.BufferedFile, error) {
	heads := []string{"Chart.yaml", ignore.HelmIgnore, "Chart.lock", "requirements.yaml", "requirements.lock", "values.yaml", "values.schema.json"}
	names := make([]string, len(heads))
	for i, h := range heads {
		names[i] = path.Join(dir, h)
	}
	found, err := l.job.Files.Read(l.ctx, names...)
	if err != nil {
		return nil, nil, err
	}
	if !found[0].Found {
		return nil, nil, fault.With(fault.New(fault.Invalid, "there is no Chart.yaml"), dir, "correct the source's path, or remove the helm settings")
	}
	c := &loaded{dir: dir, rules: ignore.Empty()}
	if found[1].Found {
		if c.rules, err = ignore.Parse(bytes.NewReader(found[1].Data)); err != nil {
			return nil, nil, fault.With(fault.Wrap(fault.Invalid, err, "the file cannot be read: %s", err), names[1], "")
		}
	}
	c.rules.AddDefaults()
	var files []*loader.BufferedFile
	for i, f := range found {
		if f.Found && i != 1 && !c.ignored(heads[i]) {
			files = append(files, buffered(heads[i], f.Data))
		}
	}
	return c, files, nil
}

func buffered(name string, data []byte) *loader.BufferedFile {
	return &loader.BufferedFile{Name: name, Data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))}
}

// below reads all files of one directory of a chart that are not ignored.
func (l *loading) below(c *loaded, sub string) ([]*loader.BufferedFile, error) {
	_, entries, err := l.job.Files.List(l.ctx, path.Join(c.dir, sub), render.Question{Recurse: true, Hidden: true, Links: true})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := path.Join(sub, e.Path)
		if e.Kind != hub.InputDir && !c.ignored(name) {
			names = append(names, name)
		}
	}
	return l.read(c.dir, names)
}

// others reads what is in a chart besides the files that every chart has.
func (l *loading) others(c *loaded, have []*loader.BufferedFile) ([]*loader.BufferedFile, error) {
	known := map[string]bool{}
	for _, f := range have {
		known[f.Name] = true
	}
	all, err := c.names(l.ctx, l.job.Files)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		if !known[name] {
			names = append(names, name)
		}
	}
	return l.read(c.dir, names)
}

func (l *loading) read(dir string, names []string) ([]*loader.BufferedFile, error) {
	full := make([]string, len(names))
	for i, n := range names {
		full[i] = path.Join(dir, n)
	}
	found, err := l.job.Files.Read(l.ctx, full...)
	if err != nil {
		return nil, err
	}
	out := make([]*loader.BufferedFile, len(found))
	for i, f := range found {
		if !f.Found {
			return nil, fault.With(fault.New(fault.Invalid, "the symbolic link leads nowhere"), full[i], "")
		}
		out[i] = buffered(names[i], f.Data)
	}
	return out, nil
}

// names returns all files of a chart that are not ignored.
func (c *loaded) names(ctx context.Context, files render.Files) ([]string, error) {
	_, entries, err := files.List(ctx, c.dir, render.Question{Recurse: true, Hidden: true, Links: true})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Kind != hub.InputDir && !c.ignored(e.Path) {
			out = append(out, e.Path)
		}
	}
	return out, nil
}

// ignored reports whether .helmignore names a file or a directory that it is in.
func (c *loaded) ignored(name string) bool {
	if c.rules.Ignore(name, info{path.Base(name), false}) {
		return true
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if c.rules.Ignore(dir, info{path.Base(dir), true}) {
			return true
		}
	}
	return false
}

// info is what the ignore rules want to know of a name.
type info struct {
	name string
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return 0 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

// onlyKnownUses reports whether every mention of .Files in the chart calls one of
// its methods. If so, files can be read when they are used.
func onlyKnownUses(files []*loader.BufferedFile) bool {
	mention := regexp.MustCompile(`\bFiles\b(\.\w+)?`)
	for _, f := range files {
		for _, m := range mention.FindAllSubmatch(f.Data, -1) {
			switch string(m[1]) {
			case ".Get", ".GetBytes", ".Glob", ".Lines", ".AsConfig", ".AsSecrets":
			default:
				return false
			}
		}
	}
	return true
}

// complete adds declared charts that are not in the charts directory. It
// refuses the chart if an enabled one is still missing (HELM-15).
func (l *loading) complete(root *loaded, given map[string]any) (*chart.Chart, error) {
	if strings.EqualFold(root.Metadata.Type, "library") {
		return nil, fault.With(fault.New(fault.Invalid, "the chart %s is a library and makes no objects", root.Name()), root.dir, "")
	}
	if root.packed {
		completePacked(root.Chart, root.dir)
	} else if err := l.dependencies(root.Chart, root.dir, nil); err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependenciesWithMerge(root.Chart, given); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the dependencies cannot be worked out: %s", err), root.dir, "")
	}
	return root.Chart, absent(root.Chart, root.dir)
}

// dependencies finds the charts that are declared but not in charts/. path is
// how this chart was reached.
func (l *loading) dependencies(c *chart.Chart, dir string, path []string) error {
	if len(path) > maxNesting {
		return fault.With(fault.New(fault.Exceeded, "charts depend on each other more than %d deep", maxNesting), dir, "")
	}
	synced := inSync(c, dir) // before anything of it is changed
	// A chart that is declared under two names is fetched for both.
	had := map[string]bool{}
	for _, d := range c.Dependencies() {
		had[d.Name()] = true
	}
	for place, dep := range c.Metadata.Dependencies {
		if dep == nil || had[dep.Name] {
			continue
		}
		local, isLocal := strings.CutPrefix(dep.Repository, "file://")
		if !isLocal && len(path) > 0 {
			continue // as helm dependency build leaves it
		}
		var sub *chart.Chart
		var err error
		if isLocal {
			sub, err = l.local(c, dep, dir, local, path)
		} else {
			sub, err = l.far(dep, dir, place, synced)
		}
		if err != nil {
			return err
		}
		c.AddDependency(sub)
	}
	return nil
}

// local loads a chart that is named by a path relative to the one that needs it.
func (l *loading) local(c *chart.Chart, dep *chart.Dependency, dir, written string, reached []string) (*chart.Chart, error) {
	at := fmt.Sprintf("%s, dependency %s", path.Join(dir, "Chart.yaml"), dep.Name)
	where, err := render.Within(dir, written)
	if err != nil {
		return nil, fault.With(err, at, "")
	}
	for _, r := range append(reached, dir) {
		if r == where {
			return nil, fault.With(fault.New(fault.Invalid, "the charts depend on each other in a circle"), at, "")
		}
	}
	sub, err := l.chart(where)
	if err != nil {
		return nil, err
	}
	// Helm packs such a chart whole, with all its files.
	if sub.lazy {
		more, err := l.others(sub, rawFiles(sub.Chart))
		if err != nil {
			return nil, err
		}
		for _, f := range more {
			sub.Files = append(sub.Files, &chart.File{Name: f.Name, Data: f.Data})
		}
	}
	if sub.Name() != dep.Name {
		return nil, fault.With(fault.New(fault.Invalid, "%s holds the chart %q", where, sub.Name()), at, "")
	}
	if dep.Version != "" && !chartutil.IsCompatibleRange(dep.Version, sub.Metadata.Version) {
		return nil, fault.With(fault.New(fault.Invalid, "%s holds version %s, and %s is asked for", where, sub.Metadata.Version, dep.Version), at, "")
	}
	return sub.Chart, l.dependencies(sub.Chart, where, append(reached[:len(reached):len(reached)], dir))
}

func rawFiles(c *chart.Chart) []*loader.BufferedFile {
	out := make([]*loader.BufferedFile, len(c.Raw))
	for i, f := range c.Raw {
		out[i] = &loader.BufferedFile{Name: f.Name, Data: f.Data}
	}
	return out
}
