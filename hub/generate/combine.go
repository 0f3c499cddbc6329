package generate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// matrix combines each parameter set of the first generator with each of the
// second, which may have placeholders for the first (AGEN-14).
func (r *round) matrix(ctx context.Context, src source) ([]map[string]any, error) {
	first, err := r.of(ctx, src.children[0], nil)
	if err != nil {
		return nil, err
	}
	var out []map[string]any
	for _, a := range first {
		second, err := r.of(ctx, src.children[1], a)
		if err != nil {
			return nil, err
		}
		for _, b := range second {
			if len(out) == r.limits.parameterSets() {
				r.truncated = true
				return out, nil
			}
			combined, err := r.combine(a, b)
			if err != nil {
				return nil, fmt.Errorf("%s and %s: %w", src.children[0].path, src.children[1].path, err)
			}
			if r.weight += template.Weight(combined); r.weight > maxParameterBytes {
				return nil, fault.New(fault.Exceeded, "the parameters of the set have more than %d bytes", maxParameterBytes)
			}
			out = append(out, combined)
		}
	}
	return out, nil
}

// combine joins parameters of two generators. Of nested parameters the first
// wins; flat ones must be equal.
func (r *round) combine(a, b map[string]any) (map[string]any, error) {
	if r.set.spec.GoTemplate {
		return override(b, a), nil
	}
	out := make(map[string]any, len(a)+len(b))
	for k, v := range a {
		out[k] = fmt.Sprint(v)
	}
	for k, v := range b {
		text := fmt.Sprint(v)
		if other, there := out[k]; there && other != text {
			return nil, fault.New(fault.Invalid, "both have the parameter %q, with different values", k)
		}
		out[k] = text
	}
	return out, nil
}

// merge changes the parameter sets of the first generator by those of the
// others that have the same merge keys (AGEN-15).
func (r *round) merge(ctx context.Context, src source) ([]map[string]any, error) {
	base, err := r.of(ctx, src.children[0], nil)
	if err != nil {
		return nil, err
	}
	at, err := byKeys(src.children[0].path, src.mergeKeys, base)
	if err != nil {
		return nil, err
	}
	for _, g := range src.children[1:] {
		others, err := r.of(ctx, g, nil)
		if err != nil {
			return nil, err
		}
		overrides, err := byKeys(g.path, src.mergeKeys, others)
		if err != nil {
			return nil, err
		}
		for key, i := range overrides {
			if n, there := at[key]; there {
				base[n] = r.overridden(base[n], others[i])
			}
		}
	}
	return base, nil
}

func (r *round) overridden(base, by map[string]any) map[string]any {
	if r.set.spec.GoTemplate {
		return override(base, by)
	}
	out := template.Copy(base).(map[string]any)
	for k, v := range by {
		out[k] = v
	}
	return out
}

// byKeys finds parameter sets by the values of their merge keys.
func byKeys(path string, keys []string, sets []map[string]any) (map[string]int, error) {
	out := make(map[string]int, len(sets))
	for i, p := range sets {
		values := map[string]any{}
		for _, k := range keys {
			values[k] = p[k]
		}
		text, err := json.Marshal(values)
		if err != nil {
			return nil, err
		}
		if _, twice := out[string(text)]; twice {
			return nil, fault.With(fault.New(fault.Invalid, "%s makes two parameter sets with the same merge keys %s", path, text[:min(len(text), 200)]), "",
				"use merge keys whose values are different in each parameter set")
		}
		out[string(text)] = i
	}
	return out, nil
}

// override is a copy of parameters in which those of others replace theirs.
// Nested maps are joined.
func override(base, by map[string]any) map[string]any {
	out := template.Copy(base).(map[string]any)
	for k, v := range by {
		out[k] = joined(out[k], v)
	}
	return out
}

func joined(base, by any) any {
	a, b := nestedMap(base), nestedMap(by)
	if a == nil || b == nil {
		return template.Copy(by)
	}
	_, plainA := base.(map[string]string)
	_, plainB := by.(map[string]string)
	all := override(a, b)
	if !plainA || !plainB {
		return all
	}
	out := make(map[string]string, len(all)) // templates distinguish maps of texts
	for k, v := range all {
		out[k], _ = v.(string)
	}
	return out
}

// nestedMap is a map of parameters; nil: it is none.
func nestedMap(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case map[string]string:
		out := make(map[string]any, len(v))
		for k, s := range v {
			out[k] = s
		}
		return out
	}
	return nil
}
