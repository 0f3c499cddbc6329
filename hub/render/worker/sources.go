package worker

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/helm"
	"github.com/capstan-cd/capstan/hub/render/kustomize"
	"github.com/capstan-cd/capstan/hub/render/plain"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A renderer makes the objects of one source and returns its type.
type renderer func(ctx context.Context, job render.Job) (string, render.Output, error)

// renderAll renders every source with objects and merges the results (SRC-12: a
// later source has precedence).
func renderAll(ctx context.Context, ask render.Ask, access render.Access, how renderer) ([]render.Object, render.Finished, error) {
	if ask.Describe && len(ask.Sources) > 0 {
		details, err := describe(ctx, render.Job{
			Application: ask.Application, Namespace: ask.Namespace, Source: ask.Sources[0], Files: render.Files{Access: access}, Limits: ask.Limits,
		})
		return nil, render.Finished{SourceType: details.Type, Details: &details}, err
	}
	var all render.Output
	var types []string
	refs := map[string]int{}
	for i, s := range ask.Sources {
		if s.Ref != "" {
			refs[s.Ref] = i
		}
	}
	for i, s := range ask.Sources {
		if render.RefOnly(s) {
			continue
		}
		kind, out, err := how(ctx, render.Job{
			Application: ask.Application, Namespace: ask.Namespace, Index: i, Source: s, Refs: refs,
			Files: render.Files{Access: access, Source: i}, Limits: ask.Limits,
		})
		if err != nil {
			if len(ask.Sources) > 1 {
				err = ofSource(i, s, err)
			}
			return nil, render.Finished{}, err
		}
		all.Objects = append(all.Objects, out.Objects...)
		all.Warnings = append(all.Warnings, out.Warnings...)
		all.Impure = all.Impure || out.Impure
		types = append(types, kind)
	}
	made, warnings, err := render.Assemble(all.Objects, ask.Namespace, ask.Limits)
	if err != nil {
		return nil, render.Finished{}, err
	}
	return made, render.Finished{
		Objects: len(made), SourceType: strings.Join(types, ","), Impure: all.Impure, Warnings: append(all.Warnings, warnings...),
	}, nil
}

func ofSource(i int, s hub.Source, err error) error {
	e, ok := fault.As(err)
	if !ok {
		return err
	}
	c := *e
	c.Object = strings.TrimSuffix(render.SourceName(i, s)+": "+e.Object, ": ")
	return &c
}

// renderSource finds out which renderer a source needs and runs it.
func renderSource(ctx context.Context, job render.Job) (string, render.Output, error) {
	job, kind, name, with, err := chooseTool(ctx, job)
	if err != nil {
		return "", render.Output{}, err
	}
	var out render.Output
	switch kind {
	case render.TypePlugin:
		out, err = renderPlugin(ctx, job, name, with)
	case render.TypeHelm:
		out, err = helm.Render(ctx, job)
	case render.TypeKustomize:
		out, err = kustomize.Render(ctx, job)
	default:
		out, err = plain.Render(ctx, job)
	}
	return kind, out, err
}

// chooseTool finds the directory and the settings of a source, and its type. Of
// a plugin it returns the full name and the block.
func chooseTool(ctx context.Context, job render.Job) (render.Job, string, string, hub.PluginSource, error) {
	var with hub.PluginSource
	var err error
	if job.Dir, err = render.Within(".", job.Source.Path); err != nil {
		return job, "", "", with, fault.With(err, "path", "")
	}
	if job.Source, err = override(ctx, job); err != nil {
		return job, "", "", with, err
	}
	kind, err := detect(ctx, job)
	if err != nil {
		return job, "", "", with, err
	}
	name, with, err := choosePlugin(ctx, job)
	switch {
	case err != nil:
		return job, "", "", with, err
	case name != "":
		return job, render.TypePlugin, name, with, nil
	case kind == render.TypePlugin:
		return job, "", "", with, fault.With(fault.New(fault.Invalid, "no plugin matches the path %q", job.Source.Path), "", "name the plugin in plugin.name")
	}
	return job, kind, "", with, nil
}

// detect follows SRC-14: a block in the spec decides; otherwise a
// kustomization wins over a chart, and what is neither is a directory.
func detect(ctx context.Context, job render.Job) (string, error) {
	stats, err := job.Files.Stat(ctx, job.Dir, path.Join(job.Dir, "kustomization.yaml"), path.Join(job.Dir, "kustomization.yml"),
		path.Join(job.Dir, "Kustomization"), path.Join(job.Dir, "Chart.yaml"))
	if err != nil {
		return "", err
	}
	switch stats[0].Kind {
	case hub.InputMissing:
		return "", fault.With(fault.New(fault.Invalid, "the path %q does not exist in the repository at this revision", job.Source.Path), "", "correct the source's path or targetRevision")
	case hub.InputFile:
		return "", fault.New(fault.Invalid, "the path %q is a file, and must be a directory", job.Source.Path)
	default:
	}
	is := func(i int) bool { return stats[i].Kind == hub.InputFile }
	found, err := declared(job.Source)
	switch {
	case err != nil:
		return "", err
	case found != "":
	case is(1) || is(2) || is(3):
		found = render.TypeKustomize
	case is(4):
		found = render.TypeHelm
	default:
		found = render.TypeDirectory
	}
	return unlessDisabled(ctx, job, found)
}

// unlessDisabled is the type of a source, or a directory if that tool is
// switched off (SRC-15).
func unlessDisabled(ctx context.Context, job render.Job, found string) (string, error) {
	key, ok := map[string]string{render.TypeHelm: hub.HelmEnableKey, render.TypeKustomize: hub.KustomizeEnableKey}[found]
	if !ok {
		return found, nil
	}
	enabled, err := job.Enabled(ctx, key)
	if err != nil || enabled {
		return found, err
	}
	return render.TypeDirectory, nil
}

// declared returns the type that the spec itself names.
func declared(s hub.Source) (string, error) {
	var blocks []string
	if s.Kustomize != nil {
		blocks = append(blocks, render.TypeKustomize)
	}
	if s.Helm != nil {
		blocks = append(blocks, render.TypeHelm)
	}
	if s.Directory != nil {
		blocks = append(blocks, render.TypeDirectory)
	}
	if block, err := s.PluginBlock(); err != nil {
		return "", err
	} else if block != nil {
		blocks = append(blocks, render.TypePlugin)
	}
	switch len(blocks) {
	case 0:
		return "", nil
	case 1:
		return blocks[0], nil
	}
	return "", fault.With(fault.New(fault.Invalid, "the source has settings for %s, and can have only one of them", strings.Join(blocks, " and ")),
		"", "remove all but one of helm, kustomize, directory and plugin")
}

// override applies the files of SRC-16 to the settings of the source. Where
// it comes from cannot be changed by what is in it.
func override(ctx context.Context, job render.Job) (hub.Source, error) {
	names := []string{path.Join(job.Dir, ".argocd-source.yaml"), path.Join(job.Dir, ".argocd-source-"+job.Application+".yaml")}
	files, err := job.Files.Read(ctx, names...)
	if err != nil {
		return hub.Source{}, err
	}
	source := job.Source
	for i, f := range files {
		if !f.Found {
			continue
		}
		if source, err = patch(source, f.Data); err != nil {
			return hub.Source{}, fault.With(fault.Wrap(fault.Invalid, err, "the overrides cannot be read: %s", err), names[i], "")
		}
	}
	return source, nil
}

func patch(s hub.Source, text []byte) (hub.Source, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return s, err
	}
	var into, from map[string]any
	if err := json.Unmarshal(raw, &into); err != nil {
		return s, err
	}
	if err := yaml.Unmarshal(text, &from); err != nil {
		return s, err
	}
	if raw, err = json.Marshal(merge(into, from)); err != nil {
		return s, err
	}
	var out hub.Source
	if err := json.Unmarshal(raw, &out); err != nil {
		return s, err
	}
	out.RepoURL, out.Chart, out.Path, out.TargetRevision = s.RepoURL, s.Chart, s.Path, s.TargetRevision
	out.Ref, out.Name, out.TagPrefix = s.Ref, s.Name, s.TagPrefix
	return out, nil
}

// merge is a JSON merge patch (RFC 7386).
func merge(into, from map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for k, v := range from {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			old, _ := into[k].(map[string]any)
			into[k] = merge(old, v)
		default:
			into[k] = v
		}
	}
	return into
}
