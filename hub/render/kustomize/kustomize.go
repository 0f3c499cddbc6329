// Package kustomize builds a kustomization in memory (rows KUST). It never
// starts git or helm, never fetches anything and never loads a plugin. Charts
// that a kustomization inflates are rendered by package helm, in this process;
// anything else outside the repository is refused by name. The worker calls it.
// Edits of the source's settings are made to a copy of the kustomization.
package kustomize

import (
	"context"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Render builds the kustomization in the source's path.
func Render(ctx context.Context, job render.Job) (render.Output, error) {
	settings := hub.KustomizeSource{}
	if job.Source.Kustomize != nil {
		settings = *job.Source.Kustomize
	}
	if err := checkVersion(ctx, job, settings.Version); err != nil {
		return render.Output{}, err
	}
	options, err := buildOptions(ctx, job, settings.Version)
	if err != nil {
		return render.Output{}, err
	}
	file, text, err := find(ctx, job)
	if err != nil {
		return render.Output{}, err
	}
	files := newFiles(ctx, job.Files)
	files.charts = newInflater(ctx, job, options, settings)
	if edited, err := edit(ctx, job, settings, file, text); err != nil {
		return render.Output{}, fault.With(err, file, "")
	} else if edited != nil {
		files.replaced["/"+file] = edited
	}
	made, err := krusty.MakeKustomizer(krustyOptions(options)).Run(files, path.Join("/", job.Dir))
	if files.refused != nil {
		return render.Output{}, files.refused
	}
	if err != nil {
		return render.Output{}, fault.With(fault.Wrap(fault.Invalid, err, "kustomize: %s", tidy(err)), file, "")
	}
	out, err := objects(job, file, made)
	out.Impure = files.charts.impure
	return out, err
}

// buildOptions are those of the settings: of the build's version if the source
// names one, else those of all builds (KUST-08).
func buildOptions(ctx context.Context, job render.Job, version string) (hub.KustomizeOptions, error) {
	key := hub.KustomizeOptionsOf(version)
	text, err := job.Files.Setting(ctx, key)
	if err != nil {
		return hub.KustomizeOptions{}, err
	}
	options, err := hub.ParseKustomizeOptions(text)
	return options, fault.With(err, hub.SettingsMap+", key "+key, "")
}

// krustyOptions converts the options for kustomize. Plugins and charts are
// always disabled: charts have been rendered when kustomize reads what names
// them.
func krustyOptions(o hub.KustomizeOptions) *krusty.Options {
	out := &krusty.Options{
		Reorder: krusty.ReorderOptionNone, LoadRestrictions: types.LoadRestrictionsRootOnly, PluginConfig: types.DisabledPluginConfig(),
		AddManagedbyLabel: o.ManagedBy,
	}
	if o.LoadAnywhere {
		out.LoadRestrictions = types.LoadRestrictionsNone
	}
	if o.Sorted {
		out.Reorder = krusty.ReorderOptionLegacy
	}
	return out
}

func objects(job render.Job, file string, made resmap.ResMap) (render.Output, error) {
	var out render.Output
	var total int64
	for _, r := range made.Resources() {
		name := file + " (" + r.GetKind() + " " + r.GetName() + ")"
		text, err := r.MarshalJSON()
		if err != nil {
			return out, fault.With(fault.Wrap(fault.Invalid, err, "the object cannot be written"), name, "")
		}
		if total += int64(len(text)); total > job.Limits.OutputBytes {
			return out, fault.With(fault.New(fault.Exceeded, "the objects have more than %d bytes together", job.Limits.OutputBytes), file, "split the application")
		}
		parsed, err := manifest.Parse(name+".json", text, manifest.Limits{
			MaxBytes: job.Limits.OutputBytes, MaxDocs: job.Limits.Objects, MaxDepth: job.Limits.Depth, Strict: true,
		})
		if err != nil {
			return out, named(err, name)
		}
		for _, o := range parsed {
			manifest.RecordKeyOrder(o, r.YNode()) // the JSON above is sorted
			out.Objects = append(out.Objects, render.Rendered{File: file, Object: o})
		}
	}
	return out, nil
}

// named sets the object of an error, and removes what describes text that users
// have not seen.
func named(err error, name string) error {
	e, ok := fault.As(err)
	if !ok {
		return err
	}
	c := *e
	c.Object = name
	return &c
}

// find returns name and text of the kustomization file.
func find(ctx context.Context, job render.Job) (string, []byte, error) {
	var names []string
	for _, n := range konfig.RecognizedKustomizationFileNames() {
		names = append(names, path.Join(job.Dir, n))
	}
	found, err := job.Files.Read(ctx, names...)
	if err != nil {
		return "", nil, err
	}
	for i, f := range found {
		if f.Found {
			return names[i], f.Data, nil
		}
	}
	return "", nil, fault.With(fault.New(fault.Invalid, "there is no kustomization file"), job.Dir, "add kustomization.yaml, or remove the kustomize settings")
}

// checkVersion refuses a version of another line of releases than the one that
// is here, unless the settings list it: its output might be another (KUST-07).
func checkVersion(ctx context.Context, job render.Job, v string) error {
	if v == "" || hub.KustomizeServed(v) {
		return nil
	}
	text, err := job.Files.Setting(ctx, hub.KustomizeVersionsKey)
	if err != nil {
		return err
	}
	listed, err := hub.ParseKustomizeVersions(text)
	if err != nil {
		return fault.With(err, hub.SettingsMap+", key "+hub.KustomizeVersionsKey, "")
	}
	if listed.Has(v) {
		return nil
	}
	if len(v) > mostVersion {
		v = v[:mostVersion] + "…"
	}
	return fault.With(fault.New(fault.Invalid, "there is no Kustomize %q here; manifests are built with %s", v, hub.KustomizeVersion), "kustomize.version",
		"remove kustomize.version, or list the version under "+hub.KustomizeVersionsKey+" of "+hub.SettingsMap+" to have it built with "+hub.KustomizeVersion)
}

// mostVersion is how much of a version is repeated in an error.
const mostVersion = 40

// tidy makes kustomize's words shorter: it sees the repository as a disk, so
// its absolute paths are the repository's.
func tidy(err error) string {
	const most = 1_000
	text := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "'/", "'")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
