package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/kustomize"
	"github.com/capstan-cd/capstan/shared/fault"
)

// What details may have at most. They are for a form that people fill in.
const (
	maxParameters = 2_000
	maxValueFiles = 200
	maxImages     = 500
	maxValues     = 256 << 10
)

// describe says what a source is and what can be set about it.
func describe(ctx context.Context, job render.Job) (hub.SourceDetails, error) {
	job, kind, name, with, err := chooseTool(ctx, job)
	if err != nil {
		return hub.SourceDetails{}, err
	}
	out := hub.SourceDetails{Type: kind}
	switch kind {
	case render.TypePlugin:
		out.Plugin, err = describePlugin(ctx, job, name, with)
	case render.TypeHelm:
		out.Helm, err = describeChart(ctx, job)
	case render.TypeKustomize:
		out.Kustomize, err = describeKustomization(ctx, job)
	}
	return out, err
}

func describePlugin(ctx context.Context, job render.Job, name string, with hub.PluginSource) (*hub.PluginDetails, error) {
	f, err := job.Files.RunPlugin(ctx, render.PluginAnnounce, name, job.Dir, with)
	if err != nil {
		return nil, err
	}
	out := &hub.PluginDetails{Name: name, Parameters: []hub.PluginAnnouncement{}}
	if err := json.Unmarshal(f.Data, &out.Parameters); err != nil {
		return nil, fmt.Errorf("read parameters of a plugin: %w", err)
	}
	out.Parameters = out.Parameters[:min(len(out.Parameters), maxParameters)]
	return out, nil
}

func describeChart(ctx context.Context, job render.Job) (*hub.HelmDetails, error) {
	chart, values := path.Join(job.Dir, "Chart.yaml"), path.Join(job.Dir, "values.yaml")
	files, err := job.Files.Read(ctx, chart, values)
	if err != nil {
		return nil, err
	}
	out := &hub.HelmDetails{ValueFiles: []string{}, Parameters: []hub.HelmParameter{}}
	var head struct {
		Name string `json:"name"`
	}
	if err := yaml.Unmarshal(files[0].Data, &head); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the file cannot be read: %s", err), chart, "")
	}
	var tree map[string]any
	if err := yaml.Unmarshal(files[1].Data, &tree); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the file cannot be read: %s", err), values, "")
	}
	out.Name = head.Name
	out.Values = string(files[1].Data[:min(len(files[1].Data), maxValues)])
	flatten("", tree, &out.Parameters)
	_, entries, err := job.Files.List(ctx, job.Dir, render.Question{})
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		ext := path.Ext(e.Path)
		if e.Kind == hub.InputFile && strings.Contains(e.Path, "values") && (ext == ".yaml" || ext == ".yml") && len(out.ValueFiles) < maxValueFiles {
			out.ValueFiles = append(out.ValueFiles, e.Path)
		}
	}
	return out, nil
}

// flatten names the values of a chart as parameters do, in order.
func flatten(prefix string, value any, out *[]hub.HelmParameter) {
	if len(*out) >= maxParameters {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			name := strings.ReplaceAll(k, ".", `\.`)
			if prefix != "" {
				name = prefix + "." + name
			}
			flatten(name, v[k], out)
		}
	case []any:
		for i, item := range v {
			flatten(fmt.Sprintf("%s[%d]", prefix, i), item, out)
		}
	case nil:
		*out = append(*out, hub.HelmParameter{Name: prefix})
	case float64:
		*out = append(*out, hub.HelmParameter{Name: prefix, Value: strconv.FormatFloat(v, 'f', -1, 64)})
	default:
		*out = append(*out, hub.HelmParameter{Name: prefix, Value: fmt.Sprint(v)})
	}
}

func describeKustomization(ctx context.Context, job render.Job) (*hub.KustomizeDetails, error) {
	made, err := kustomize.Render(ctx, job)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, o := range made.Objects {
		images(o.Object.Object, found)
	}
	out := slices.Sorted(maps.Keys(found))
	if out == nil {
		out = []string{}
	}
	return &hub.KustomizeDetails{Images: out[:min(len(out), maxImages)]}, nil
}

// images collects the images of containers, wherever these are in an object.
func images(value any, found map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if list, ok := inner.([]any); ok && (key == "containers" || key == "initContainers") {
				for _, c := range list {
					m, _ := c.(map[string]any)
					if image, ok := m["image"].(string); ok && image != "" {
						found[image] = true
					}
				}
				continue
			}
			images(inner, found)
		}
	case []any:
		for _, inner := range v {
			images(inner, found)
		}
	}
}
