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
	var err error
	if job.Dir, err = render.Within(".", job.Source.Path); err != nil {
		return "", render.Output{}, fault.With(err, "path", "")
	}
	if job.Source, err = override(ctx, job); err != nil {
		return "", render.Output{}, err
	}
	kind, err := detect(ctx, job)
	if err != nil {
		return "", render.Output{}, err
	}
	var out render.Output
	switch kind {
	case render.TypeHelm:
		out, err = helm.Render(ctx, job)
	case render.TypeKustomize:
		out, err = kustomize.Render(ctx, job)
	default:
		out, err = plain.Render(ctx, job)
	}
	return kind, out, err
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
	explicit, err := declared(job.Source)
	switch {
	case err != nil || explicit != "":
		return explicit, err
	case is(1) || is(2) || is(3):
		return render.TypeKustomize, nil
	case is(4):
		return render.TypeHelm, nil
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
	switch len(blocks) {
	case 0:
		return "", nil
	case 1:
		return blocks[0], nil
	}
	return "", fault.With(fault.New(fault.Invalid, "the source has settings for %s, and can have only one of them", strings.Join(blocks, " and ")),
		"", "remove all but one of helm, kustomize and directory")
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
	out.Ref, out.Name, out.TagPrefix, out.Plugin = s.Ref, s.Name, s.TagPrefix, s.Plugin
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
