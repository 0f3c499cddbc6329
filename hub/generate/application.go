package generate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// resourcesFinalizer has an application's objects deleted with it.
const resourcesFinalizer = "resources-finalizer.argocd.argoproj.io"

// addAll adds the applications of a generator to a result.
func (r *round) addAll(ctx context.Context, out *Result, g *generator) error {
	for _, src := range g.sources {
		sets, err := r.params(ctx, g, src)
		if err != nil {
			return err
		}
		for _, params := range sets {
			if len(out.Applications) == r.limits.Applications {
				out.Truncated = true
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			r.templates.Next()
			made, err := r.application(src.merged, params)
			if err != nil {
				out.Problems = append(out.Problems, Problem{Application: made.Meta.Name, Generator: g.path, Message: fault.Sentence(err)})
				continue
			}
			out.Applications = append(out.Applications, made)
		}
	}
	return nil
}

// application fills a template. With an error, the application has no more than
// its name, if that is known.
func (r *round) application(from, params map[string]any) (Generated, error) {
	filled, err := r.fillTemplate(from, params)
	if err != nil {
		return r.nameOnly(from, params), err
	}
	if r.set.spec.TemplatePatch != nil {
		if filled, err = r.patched(filled, params); err != nil {
			return r.nameOnly(from, params), err
		}
	}
	out := Generated{Params: template.Copy(params).(map[string]any)}
	if err := read(filled, &out); err != nil {
		return r.nameOnly(from, params), err
	}
	if err := checkName(out.Meta.Name); err != nil {
		return Generated{}, err // which application was meant is not known
	}
	return out, nil
}

// nameOnly is an application that cannot be made. A patch may change its name,
// so that it has none then.
func (r *round) nameOnly(from, params map[string]any) (out Generated) {
	r.templates.Next()
	pattern, _ := child(from, "metadata")["name"].(string)
	name, err := r.templates.Fill(pattern, params)
	if err == nil && checkName(name) == nil && !r.renames() {
		out.Meta.Name = name
	}
	return out
}

// renames reports whether the patch of the set may change names.
func (r *round) renames() bool {
	return r.set.spec.TemplatePatch != nil && strings.Contains(*r.set.spec.TemplatePatch, "name")
}

// fillTemplate fills a template. Without any parameters Argo CD takes it as it is.
func (r *round) fillTemplate(from, params map[string]any) (map[string]any, error) {
	if len(params) == 0 {
		return template.Copy(from).(map[string]any), nil
	}
	out := make(map[string]any, 2)
	for _, part := range []string{"metadata", "spec"} {
		filled, err := r.templates.Tree(from[part], params)
		if err != nil {
			return nil, fmt.Errorf("template.%s: %w", part, err)
		}
		out[part] = filled
	}
	if err := r.setProject(child(out, "spec"), child(from, "spec"), params); err != nil {
		return nil, err
	}
	meta := child(out, "metadata")
	if meta == nil {
		meta = map[string]any{}
		out["metadata"] = meta
	}
	preserve := r.set.spec.SyncPolicy != nil && r.set.spec.SyncPolicy.PreserveResourcesOnDeletion
	if finalizers, _ := meta["finalizers"].([]any); len(finalizers) == 0 && !preserve {
		meta["finalizers"] = []any{resourcesFinalizer}
	}
	return out, nil
}

// setProject sets the project to that of the template: a key with a placeholder
// may have become the name of the field, too.
func (r *round) setProject(spec, from map[string]any, params map[string]any) error {
	if spec == nil {
		return nil
	}
	delete(spec, "project")
	project, there := from["project"].(string)
	if !there {
		return nil
	}
	filled, err := r.templates.Fill(project, params)
	spec["project"] = filled
	return err
}

// read reads a filled template. What it says of the namespace has no effect.
func read(filled map[string]any, out *Generated) error {
	var meta hub.TemplateMeta
	if err := convert(filled["metadata"], &meta); err != nil {
		return fmt.Errorf("template.metadata: %w", err)
	}
	out.Meta = hub.Meta{Name: meta.Name, Labels: meta.Labels, Annotations: meta.Annotations, Finalizers: meta.Finalizers}
	spec, err := json.Marshal(filled["spec"])
	if err != nil {
		return err
	}
	if err := checkSpec("template.spec", spec); err != nil {
		return err
	}
	out.Spec = spec
	return nil
}

// checkName refuses what is no name of an object.
func checkName(name string) error {
	switch {
	case name == "":
		return fault.With(fault.New(fault.Invalid, "the name of the application is empty"), "", "name a parameter in template.metadata.name that each parameter set has")
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fault.With(fault.New(fault.Invalid, "%q is no name of an application", name[:min(len(name), 100)]), "",
			"use lower-case letters, digits, - and ., with a letter or digit at both ends; the function normalize makes such a name")
	}
	return nil
}

// withoutDuplicates makes problems of all applications that have the name of
// another one (ASET-09).
func withoutDuplicates(r *Result) {
	count := map[string]int{}
	for _, g := range r.Applications {
		count[g.Meta.Name]++
	}
	kept := make([]Generated, 0, len(r.Applications))
	for _, g := range r.Applications {
		n := count[g.Meta.Name]
		if n == 1 {
			kept = append(kept, g)
		}
		if n > 1 {
			r.Problems = append(r.Problems, Problem{Application: g.Meta.Name, Message: fmt.Sprintf("%d parameter sets make an application with the name %s", n, g.Meta.Name)})
			count[g.Meta.Name] = -1 // one problem for all
		}
	}
	r.Applications = kept
}
