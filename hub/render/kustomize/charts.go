package kustomize

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/kustomize/kyaml/yaml/merge2"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/helm"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An inflater renders the charts that kustomizations of one build name
// (KUST-08, KUST-09). Kustomize would start helm for it.
type inflater struct {
	ctx         context.Context //nolint:containedctx // lives for one build
	job         render.Job
	enabled     bool // --enable-helm was given
	kubeVersion string
	apiVersions []string
	impure      bool
}

// newInflater reads the cluster's capabilities for charts from the application,
// then from the options. The default is those of the destination.
func newInflater(ctx context.Context, job render.Job, o hub.KustomizeOptions, s hub.KustomizeSource) *inflater {
	out := &inflater{ctx: ctx, job: job, enabled: o.Helm, kubeVersion: o.HelmVersion, apiVersions: o.HelmAPIs}
	if s.KubeVersion != "" { // the application has precedence
		out.kubeVersion = s.KubeVersion
	}
	if len(s.APIVersions) > 0 {
		out.apiVersions = s.APIVersions
	}
	return out
}

// inflate renders the charts of a kustomization. It returns the kustomization
// with files of objects in place of the charts, and these files by name.
func (c *inflater) inflate(files *files, name string, text []byte) (rest []byte, made map[string][]byte, err error) {
	var k map[string]any
	if err := yaml.Unmarshal(text, &k); err != nil || len(list(k["helmCharts"])) == 0 {
		return text, nil, nil // kustomize reports what is wrong with it
	}
	if !c.enabled {
		return nil, nil, fault.With(fault.New(fault.Invalid, "helmCharts need the build option --enable-helm"), name,
			"set "+hub.KustomizeOptionsKey+" of "+hub.SettingsMap+" to --enable-helm")
	}
	var spec struct {
		HelmGlobals types.HelmGlobals `json:"helmGlobals"`
		HelmCharts  []types.HelmChart `json:"helmCharts"`
	}
	if err := yaml.UnmarshalStrict(only(k, "helmGlobals", "helmCharts"), &spec); err != nil {
		return nil, nil, fault.With(fault.Wrap(fault.Invalid, err, "helmCharts cannot be read: %s", tidy(err)), name, "")
	}
	made = map[string][]byte{}
	resources := slices.Clone(list(k["resources"]))
	for i, chart := range spec.HelmCharts {
		objects, err := c.one(files, inflation{file: name, place: i, home: spec.HelmGlobals.ChartHome, HelmChart: chart})
		if err != nil {
			return nil, nil, fault.With(err, fmt.Sprintf("%s, helmCharts %s", name, chart.Name), "")
		}
		if len(objects) == 0 {
			continue
		}
		file := fmt.Sprintf("helm-chart-%d.capstan.yaml", i)
		made[path.Join(path.Dir(name), file)] = objects
		resources = append(resources, file)
	}
	delete(k, "helmCharts")
	delete(k, "helmGlobals")
	k["resources"] = resources
	rest, err = yaml.Marshal(k)
	if err != nil {
		return nil, nil, fault.With(fault.Wrap(fault.Invalid, err, "the kustomization cannot be written"), name, "")
	}
	return rest, made, nil
}

// only is a map with some of the keys of another, as YAML.
func only(k map[string]any, keys ...string) []byte {
	some := map[string]any{}
	for _, key := range keys {
		if v, ok := k[key]; ok {
			some[key] = v
		}
	}
	text, err := yaml.Marshal(some)
	if err != nil {
		return nil
	}
	return text
}

// An inflation is one entry of helmCharts.
type inflation struct {
	file  string // the kustomization
	place int    // in its list
	home  string // chartHome
	types.HelmChart
}

// one renders one chart to a text of many documents.
func (c *inflater) one(files *files, in inflation) ([]byte, error) {
	if err := checkChart(in.HelmChart); err != nil {
		return nil, err
	}
	chart, err := c.load(in)
	if err != nil {
		return nil, err
	}
	values, err := valueTexts(files, in, chart)
	if err != nil {
		return nil, err
	}
	how := helm.Inflation{
		ReleaseName: in.ReleaseName, NameTemplate: in.NameTemplate, Namespace: in.Namespace, KubeVersion: in.KubeVersion, APIVersions: in.ApiVersions,
		Values: values, IncludeCRDs: in.IncludeCRDs, SkipTests: in.SkipTests, SkipHooks: in.SkipHooks,
	}
	if how.KubeVersion == "" {
		how.KubeVersion = c.kubeVersion
	}
	if len(how.APIVersions) == 0 {
		how.APIVersions = c.apiVersions
	}
	out, err := chart.Inflate(how)
	if err != nil {
		return nil, err
	}
	c.impure = c.impure || out.Impure
	return documents(out.Objects)
}

func checkChart(chart types.HelmChart) error {
	switch {
	case chart.Name == "":
		return fault.New(fault.Invalid, "the entry names no chart")
	case chart.ValuesMerge != "" && !slices.Contains([]string{"merge", "override", "replace"}, chart.ValuesMerge):
		return fault.New(fault.Invalid, "valuesMerge is %q, and must be merge, override or replace", chart.ValuesMerge)
	}
	return nil
}

// load reads the chart from the tree if it is there, as kustomize does, or from
// its repository.
func (c *inflater) load(in inflation) (*helm.Chart, error) {
	home := in.home
	if home == "" {
		home = types.HelmDefaultHome
	}
	if in.Version != "" && in.Repo != "" {
		home = path.Join(home, in.Name+"-"+in.Version)
	}
	dir, err := render.Within(path.Dir(in.file), path.Join(home, in.Name))
	if err != nil {
		return nil, err
	}
	kind, err := c.job.Files.Kind(c.ctx, dir)
	switch {
	case err != nil:
		return nil, err
	case kind == hub.InputDir:
		return helm.LoadDir(c.ctx, c.job, dir)
	case in.Repo == "":
		return nil, fault.With(fault.New(fault.Invalid, "there is no chart in %s, and the entry names no repo", dir), "", "commit the chart there, or set repo")
	}
	found, err := c.job.Files.Chart(c.ctx, in.file, in.place)
	if err != nil {
		return nil, err
	}
	if found.Refused != nil {
		return nil, found.Refused.Err()
	}
	return helm.LoadArchive(c.ctx, c.job, dir, found.Data)
}

// valueTexts are the value files that kustomize would pass to helm: valuesFile,
// or else the chart's own values, with valuesInline put over, under or in place
// of them, and the additional files after that.
func valueTexts(files *files, in inflation, chart *helm.Chart) ([][]byte, error) {
	read := func(file string) ([]byte, error) {
		if render.RemoteBase(file) {
			return nil, fault.New(fault.Invalid, "value files of charts are read from the repository only: %q", redact(file))
		}
		at, err := render.Within(path.Dir(in.file), file)
		if err != nil {
			return nil, err
		}
		text, err := files.ReadFile("/" + at)
		if err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "there is no file %q", file), "", "correct the path of the value file")
		}
		return text, nil
	}
	first := chart.Values()
	if in.ValuesFile != "" {
		var err error
		if first, err = read(in.ValuesFile); err != nil {
			return nil, err
		}
	}
	first, err := withInline(first, in)
	if err != nil {
		return nil, err
	}
	out := [][]byte{first}
	for _, file := range in.AdditionalValuesFiles {
		text, err := read(file)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// withInline puts valuesInline together with a value file, by kustomize's own
// rules of merging.
func withInline(file []byte, in inflation) ([]byte, error) {
	if len(in.ValuesInline) == 0 {
		return file, nil
	}
	bad := func(err error) error {
		return fault.Wrap(fault.Invalid, err, "valuesInline cannot be merged with the value file: %s", tidy(err))
	}
	inline, err := kyaml.FromMap(in.ValuesInline)
	if err != nil {
		return nil, bad(err)
	}
	if in.ValuesMerge != "replace" && len(bytes.TrimSpace(file)) > 0 {
		under, err := kyaml.Parse(string(file))
		if err != nil {
			return nil, bad(err)
		}
		if in.ValuesMerge == "merge" {
			inline, under = under, inline
		}
		if inline, err = merge2.Merge(inline, under, kyaml.MergeOptions{}); err != nil {
			return nil, bad(err)
		}
	}
	text, err := inline.String()
	if err != nil {
		return nil, bad(err)
	}
	return []byte(text), nil
}

// documents writes objects as a stream, marked as those of a chart: kustomize
// leaves their namespaces to the chart.
func documents(objects []render.Rendered) ([]byte, error) {
	var out strings.Builder
	for _, o := range objects {
		text, err := json.Marshal(o.Object.Object)
		if err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "the object cannot be written"), o.File, "")
		}
		node, err := kyaml.Parse(string(text))
		if err == nil {
			err = node.PipeE(kyaml.SetAnnotation(konfig.HelmGeneratedAnnotation, "true"))
		}
		if err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "the object cannot be written: %s", tidy(err)), o.File, "")
		}
		doc, err := node.String()
		if err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "the object cannot be written: %s", tidy(err)), o.File, "")
		}
		out.WriteString("---\n" + doc)
	}
	return []byte(out.String()), nil
}
