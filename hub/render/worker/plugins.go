package worker

import (
	"context"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// choosePlugin returns the full name of the plugin that renders a source, and its
// block. It is empty if none does. A plugin that a block names must match, too,
// if it discovers (CMP-06, CMP-07).
func choosePlugin(ctx context.Context, job render.Job) (string, hub.PluginSource, error) {
	var with hub.PluginSource
	if found, err := declared(job.Source); err != nil || found != "" && found != render.TypePlugin {
		return "", with, err // another block decides
	}
	block, err := job.Source.PluginBlock()
	if err != nil {
		return "", with, err
	}
	if block != nil {
		with = *block
	}
	all, err := job.Files.InstalledPlugins(ctx)
	if err != nil {
		return "", with, err
	}
	if with.Name != "" {
		return with.Name, with, checkNamed(ctx, job, all, with)
	}
	for _, p := range all {
		ok, err := matches(ctx, job, p, with)
		if err != nil {
			return "", with, err
		}
		if ok {
			return p.FullName(), with, nil
		}
	}
	return "", with, nil
}

// checkNamed checks a plugin that is named.
func checkNamed(ctx context.Context, job render.Job, discovering []render.InstalledPlugin, with hub.PluginSource) error {
	digest, err := job.Files.Fact(ctx, render.FactPlugin+with.Name)
	if err != nil {
		return err
	}
	if digest == "" {
		return fault.With(fault.New(fault.Invalid, "there is no plugin %q for this organisation", with.Name),
			"", "capstan plugin list shows the plugins; one with a version is named NAME-VERSION")
	}
	for _, p := range discovering {
		if p.FullName() != with.Name {
			continue
		}
		ok, err := matches(ctx, job, p, with)
		if err == nil && !ok {
			err = fault.With(fault.New(fault.Invalid, "the plugin %s does not match the path %q, because its discovery finds nothing there", with.Name, job.Source.Path),
				"", "correct the path, or have the operator change the plugin's discover")
		}
		return err
	}
	return nil
}

// matches reports whether a plugin discovers the source.
func matches(ctx context.Context, job render.Job, p render.InstalledPlugin, with hub.PluginSource) (bool, error) {
	if p.FileName != "" {
		ok, err := finds(ctx, job, p.FileName)
		if ok || err != nil {
			return ok, err
		}
	}
	if p.Glob != "" {
		ok, err := finds(ctx, job, p.Glob)
		if ok || err != nil {
			return ok, err
		}
	}
	if !p.Command {
		return false, nil
	}
	f, err := job.Files.RunPlugin(ctx, render.PluginMatch, p.FullName(), job.Dir, with)
	return f.Found, err
}

// finds reports whether a file or directory matches a pattern in the path.
func finds(ctx context.Context, job render.Job, pattern string) (bool, error) {
	pattern = path.Clean(strings.TrimPrefix(pattern, "./"))
	if !strings.ContainsAny(pattern, `*?[{\`) {
		name, err := render.Within(job.Dir, pattern)
		if err != nil {
			return false, err
		}
		kind, err := job.Files.Kind(ctx, name)
		return kind == hub.InputFile || kind == hub.InputDir, err
	}
	_, entries, err := job.Files.List(ctx, job.Dir, render.Question{Recurse: strings.Contains(pattern, "/"), Hidden: true})
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if ok, err := doublestar.Match(pattern, e.Path); ok && err == nil {
			return true, nil
		}
	}
	return false, nil
}

// renderPlugin has a plugin make the objects of a source. What it writes is
// read here, in the sandbox.
func renderPlugin(ctx context.Context, job render.Job, name string, with hub.PluginSource) (render.Output, error) {
	f, err := job.Files.RunPlugin(ctx, render.PluginGenerate, name, job.Dir, with)
	if err != nil {
		return render.Output{}, err
	}
	from := "output of plugin " + name
	objects, err := manifest.Parse(from, f.Data, manifest.Limits{
		MaxBytes: job.Limits.OutputBytes, MaxDocs: job.Limits.Objects, MaxDepth: job.Limits.Depth, LastKeyWins: true, Strict: true,
	})
	if err != nil {
		return render.Output{}, err
	}
	var out render.Output
	for _, o := range objects {
		if err := markSecrets(o, f.Secrets); err != nil {
			return render.Output{}, fault.With(err, from, "have the operator correct the plugin, or name variables that are no secrets in its annotation capstan.dev/public-env")
		}
		out.Objects = append(out.Objects, render.Rendered{File: from, Object: o})
	}
	return out, nil
}
