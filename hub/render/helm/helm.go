// Package helm renders a chart without a release (rows HELM). It loads charts
// and merges values with Helm's own library, and executes templates itself,
// so that it is known what a template reads: files of the chart, answers
// about the cluster, time and random data. It never talks to a cluster or a
// chart repository. The worker calls it. Equal inputs produce equal objects,
// unless the result is marked impure.
package helm

import (
	"context"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Render renders the chart in the source's path.
func Render(ctx context.Context, job render.Job) (render.Output, error) {
	settings := hub.HelmSource{}
	if job.Source.Helm != nil {
		settings = *job.Source.Helm
	}
	ld := &loading{ctx: ctx, job: job}
	root, err := ld.chart(job.Dir)
	if err != nil {
		return render.Output{}, err
	}
	given, err := collect(ctx, job, settings)
	if err != nil {
		return render.Output{}, err
	}
	return ld.render(root, newEvaluator(ctx, job, root), settings, given)
}

// render executes the templates of a chart with the values that were given.
func (l *loading) render(root *loaded, eng *evaluator, settings hub.HelmSource, given map[string]any) (render.Output, error) {
	job := l.job
	ch, err := l.complete(root, given)
	if err != nil {
		return render.Output{}, err
	}
	caps, err := newCapabilities(l.ctx, job.Files, settings, root)
	if err != nil {
		return render.Output{}, err
	}
	if err := caps.suits(ch, job.Dir); err != nil {
		return render.Output{}, err
	}
	values, err := scope(job, settings, ch, given, caps)
	if err != nil {
		return render.Output{}, err
	}
	texts, err := eng.render(ch, values)
	if err != nil {
		return render.Output{}, err
	}
	out, err := objects(job, settings, ch, texts)
	out.Impure = eng.impure
	return out, err
}

// scope puts together what the templates of the top chart see.
func scope(job render.Job, settings hub.HelmSource, ch *chart.Chart, given map[string]any, caps *capabilities) (chartutil.Values, error) {
	name, namespace := settings.ReleaseName, settings.Namespace
	if name == "" {
		name = job.Application
	}
	if namespace == "" {
		namespace = job.Namespace
	}
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValuesWithSchemaValidation(ch, given, release, nil, true)
	if err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the values cannot be put together: %s", strings.TrimSpace(err.Error())), job.Dir, "")
	}
	if own, ok := values["Values"].(chartutil.Values); ok && !settings.SkipSchemaValidation {
		if err := checkValues(job.Dir, ch, own); err != nil {
			return nil, err
		}
	}
	values["Capabilities"] = caps
	return values, nil
}

// A text is one rendered file, under its name in the repository.
type text struct {
	file string
	data []byte
}

// objects reads the objects of all rendered texts and of the chart's
// definitions (HELM-22).
func objects(job render.Job, settings hub.HelmSource, ch *chart.Chart, texts []text) (render.Output, error) {
	var out render.Output
	if !settings.SkipCrds {
		for _, crd := range ch.CRDObjects() {
			texts = append(texts, text{repoName(job.Dir, crd.Filename), crd.File.Data})
		}
	}
	for _, t := range texts {
		parsed, err := t.objects(job)
		if err != nil {
			return out, err
		}
		for _, o := range parsed {
			if settings.SkipTests && isTest(o) {
				continue
			}
			out.Objects = append(out.Objects, render.Rendered{File: t.file, Object: o})
		}
		if len(out.Objects) > job.Limits.Objects {
			return out, fault.New(fault.Exceeded, "the chart makes more than %d objects", job.Limits.Objects)
		}
	}
	return out, nil
}

func (t text) objects(job render.Job) ([]*manifest.Object, error) {
	docs, ok := split(string(t.data), job.Limits.Objects)
	if !ok {
		return nil, fault.With(fault.New(fault.Exceeded, "more than %d documents", job.Limits.Objects), t.file, "")
	}
	parsed, err := manifest.ParseDocuments(t.file, docs, manifest.Limits{
		MaxBytes: job.Limits.OutputBytes, MaxDocs: job.Limits.Objects, MaxDepth: job.Limits.Depth, Strict: true, LastKeyWins: true,
	})
	return parsed, fault.With(err, "", "helm template shows the text that the chart makes")
}

// separator is what Helm accepts as the start of a document. Unlike YAML's it
// needs no end of line: white-space control may leave text behind it.
var separator = regexp.MustCompile(`(?:^|\s*\n)---\s*`)

// split cuts a rendered text into documents as Helm does: without the white
// space around them, with one line break behind. The latter is what the last
// line of a block scalar ends with. It reports false for more than most.
func split(rendered string, most int) ([]string, bool) {
	parts := separator.Split(strings.TrimSpace(rendered), most+2) // the text may begin with a separator
	docs := make([]string, 0, len(parts))
	for _, part := range parts {
		if part = strings.TrimSpace(part); part != "" {
			docs = append(docs, part+"\n")
		}
	}
	return docs, len(docs) <= most
}

func isTest(o *manifest.Object) bool {
	hooks, _ := manifest.RawAnnotation(o, "helm.sh/hook")
	for h := range strings.SplitSeq(hooks, ",") {
		if slices.Contains([]string{"test", "test-success", "test-failure"}, strings.TrimSpace(h)) {
			return true
		}
	}
	return false
}

// repoName turns Helm's name of a template ("web/templates/x.yaml", below the
// name of the chart) into the name of the file in the repository.
func repoName(dir, name string) string {
	_, rest, ok := strings.Cut(name, "/")
	if !ok {
		return path.Join(dir, name)
	}
	return path.Join(dir, rest)
}

// plainJSON returns values as maps and lists of plain types.
func plainJSON(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "it is not a map")
	}
	return out, nil
}
