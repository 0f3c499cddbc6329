package generate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A round is one generation of a set.
type round struct {
	set       *Set
	in        Inputs
	limits    Limits
	templates *template.Run
	trees     map[hub.SetRepository]*tree
	watches   []string // of Git hosts
	clusters  []Cluster
	listed    bool // clusters are known
	weight    int  // of all parameters
	truncated bool
}

// params are the parameter sets of a source, without those that its generator
// does not select.
func (r *round) params(ctx context.Context, g *generator, src source) ([]map[string]any, error) {
	all, err := r.evaluate(ctx, src)
	switch {
	case err != nil && len(src.children) > 0:
		return nil, err // it names the child, or the generator
	case err != nil:
		return nil, fmt.Errorf("%s: %w", g.path, err)
	}
	if most := r.limits.parameterSets(); len(all) > most {
		all, r.truncated = all[:most], true
	}
	for _, p := range all {
		if r.weight += template.Weight(p); r.weight > maxParameterBytes {
			return nil, fault.New(fault.Exceeded, "the parameters of the set have more than %d bytes", maxParameterBytes)
		}
	}
	if g.selector == nil {
		return all, nil
	}
	return slices.DeleteFunc(all, func(p map[string]any) bool { return !g.selector.Matches(texts(p)) }), nil
}

func (r *round) evaluate(ctx context.Context, src source) ([]map[string]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch src.kind {
	case kindList:
		return r.list(src)
	case kindClusters:
		return r.clusterParams(ctx, src)
	case kindGit:
		return r.git(ctx, src)
	case kindSCM, kindPulls:
		return r.host(ctx, src)
	case kindDecision:
		return r.decisions(ctx, src)
	case kindPlugin:
		return r.plugin(ctx, src)
	case kindMatrix:
		return r.matrix(ctx, src)
	case kindMerge:
		return r.merge(ctx, src)
	}
	return nil, fault.New(fault.Internal, "no generator %q", src.kind)
}

// of are the parameter sets of a child of a combining generator, whose
// placeholders stand for other parameters; nil: for none.
func (r *round) of(ctx context.Context, g *generator, other map[string]any) ([]map[string]any, error) {
	src := g.sources[0]
	if len(other) > 0 {
		var err error
		if src, err = r.interpolate(src, other); err != nil {
			return nil, fmt.Errorf("%s: %w", g.path, err)
		}
		r.templates.Next()
	}
	return r.params(ctx, g, src)
}

// addValues adds the values of a generator to parameters. A value may have
// placeholders for these, and not for other values.
func (r *round) addValues(params map[string]any, values map[string]string) error {
	if len(values) == 0 {
		return nil
	}
	own := make(map[string]string, len(values))
	for _, k := range sortedKeys(values) {
		filled, err := r.templates.Fill(values[k], params)
		if err != nil {
			return fmt.Errorf("values.%s: %w", k, err)
		}
		own[k] = filled
	}
	r.templates.Next()
	if r.set.spec.GoTemplate {
		params["values"] = own
		return nil
	}
	for k, v := range own {
		params["values."+k] = v
	}
	return nil
}

// texts flattens parameters to what selectors match: dots join the keys of
// nested maps and the positions of lists.
func texts(params map[string]any) map[string]string {
	out := map[string]string{}
	flatten("", params, func(key string, v any) { out[key] = fmt.Sprint(v) })
	return out
}

// flat is texts for templates that know no nested parameters.
func flat(params map[string]any) map[string]any {
	out := map[string]any{}
	flatten("", params, func(key string, v any) { out[key] = fmt.Sprint(v) })
	return out
}

func flatten(prefix string, v any, leaf func(key string, v any)) {
	at := func(key string) string {
		if prefix == "" {
			return key
		}
		return prefix + "." + key
	}
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			flatten(at(k), inner, leaf)
		}
	case map[string]string:
		for k, inner := range v {
			flatten(at(k), inner, leaf)
		}
	case []any:
		for i, inner := range v {
			flatten(at(fmt.Sprint(i)), inner, leaf)
		}
	default:
		leaf(prefix, v)
	}
}

// uses are the repositories that were read.
func (r *round) uses() []hub.SetRepository {
	out := make([]hub.SetRepository, 0, len(r.trees))
	for use := range r.trees {
		out = append(out, use)
	}
	slices.SortFunc(out, func(a, b hub.SetRepository) int {
		if c := strings.Compare(a.URL, b.URL); c != 0 {
			return c
		}
		return strings.Compare(a.Revision, b.Revision)
	})
	return out
}
