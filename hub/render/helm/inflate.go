package helm

import (
	"context"
	"path"
	"strings"
	"text/template"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Chart is one that a kustomization inflates (KUST-08): a directory of the
// tree, or an archive.
type Chart struct {
	ld   *loading
	root *loaded
}

// LoadDir reads the chart in a directory of the tree.
func LoadDir(ctx context.Context, job render.Job, dir string) (*Chart, error) {
	job.Dir = dir
	ld := &loading{ctx: ctx, job: job}
	root, err := ld.chart(dir)
	if err != nil {
		return nil, err
	}
	return &Chart{ld, root}, nil
}

// LoadArchive reads a packed chart. Messages name its files as if it lay in dir.
func LoadArchive(ctx context.Context, job render.Job, dir string, archive []byte) (*Chart, error) {
	job.Dir = dir
	c, err := unpack(archive)
	if err != nil {
		return nil, fault.With(err, dir, "")
	}
	return &Chart{&loading{ctx: ctx, job: job}, &loaded{Chart: c, dir: dir, packed: true}}, nil
}

// Name is what the chart calls itself.
func (c *Chart) Name() string { return c.root.Name() }

// Values is the text of the chart's own values.yaml; empty if it has none.
func (c *Chart) Values() []byte {
	for _, f := range c.root.Raw {
		if f.Name == "values.yaml" {
			return f.Data
		}
	}
	return nil
}

// An Inflation has the options of helm template for a chart.
type Inflation struct {
	ReleaseName  string // default: release-name
	NameTemplate string // instead of ReleaseName
	Namespace    string // default: default
	KubeVersion  string // empty: that of the destination
	APIVersions  []string
	Values       [][]byte // texts of value files; later ones win
	IncludeCRDs  bool
	SkipTests    bool
	SkipHooks    bool
}

// Inflate renders the chart.
func (c *Chart) Inflate(in Inflation) (render.Output, error) {
	given := map[string]any{}
	for _, text := range in.Values {
		more, err := inlineValues(hub.HelmSource{Values: string(text)})
		if err != nil {
			return render.Output{}, err
		}
		given = merge(given, more)
	}
	eng := newEvaluator(c.ld.ctx, c.ld.job, c.root)
	name, err := eng.releaseName(in)
	if err != nil {
		return render.Output{}, err
	}
	settings := hub.HelmSource{
		ReleaseName: name, Namespace: in.Namespace, KubeVersion: in.KubeVersion, APIVersions: in.APIVersions, SkipCrds: !in.IncludeCRDs, SkipTests: in.SkipTests,
	}
	if settings.Namespace == "" {
		settings.Namespace = "default"
	}
	out, err := c.ld.render(c.root, eng, settings, given)
	if !in.SkipHooks || err != nil {
		return out, err
	}
	kept := out.Objects[:0]
	for _, o := range out.Objects {
		if _, hook := manifest.RawAnnotation(o.Object, "helm.sh/hook"); !hook {
			kept = append(kept, o)
		}
	}
	out.Objects = kept
	return out, nil
}

// releaseName is what helm template would call the release.
func (e *evaluator) releaseName(in Inflation) (string, error) {
	switch {
	case in.NameTemplate == "" && in.ReleaseName == "":
		return "release-name", nil
	case in.NameTemplate == "":
		return in.ReleaseName, nil
	}
	all := template.New("name").Funcs(e.functions())
	e.bind(all, map[string]int{})
	if _, err := all.New("nameTemplate").Parse(in.NameTemplate); err != nil {
		return "", e.explain("nameTemplate", err)
	}
	name, err := e.execute(all, "nameTemplate", map[string]any{})
	if err != nil {
		return "", e.explain("nameTemplate", err)
	}
	return strings.TrimSpace(name), nil
}

// completePacked is complete for a chart that was packed: what it depends on is
// in its archive, or missing.
func completePacked(root *chart.Chart, dir string) {
	had := map[string]bool{}
	for _, d := range root.Dependencies() {
		had[d.Name()] = true
	}
	for _, dep := range root.Metadata.Dependencies {
		if dep != nil && !had[dep.Name] {
			root.AddDependency(standIn(dep, "the archive "+path.Base(dir)+" does not hold it"))
		}
	}
}
