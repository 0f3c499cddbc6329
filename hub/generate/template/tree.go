package template

// Tree fills all texts of a value of JSON, and the keys of its maps. Numbers
// and booleans stay as they are (ASET-05).
func (r *Run) Tree(v any, params map[string]any) (any, error) {
	switch v := v.(type) {
	case string:
		return r.Fill(v, params)
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			filled, err := r.Tree(inner, params)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range sortedKeys(v) {
			filled, err := r.Tree(v[k], params)
			if err != nil {
				return nil, err
			}
			key, err := r.Fill(k, params)
			if err != nil {
				return nil, err
			}
			out[key] = filled
		}
		return out, nil
	}
	return v, nil
}

// Copy returns a deep copy of parameters.
func Copy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return copyMap(v, Copy)
	case map[string]string:
		return copyMap(v, func(s string) string { return s })
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = Copy(inner)
		}
		return out
	case []map[string]any:
		out := make([]map[string]any, len(v))
		for i, inner := range v {
			out[i] = copyMap(inner, Copy)
		}
		return out
	}
	return v
}

func copyMap[V any](m map[string]V, each func(V) V) map[string]V {
	if m == nil {
		return nil
	}
	out := make(map[string]V, len(m))
	for k, v := range m {
		out[k] = each(v)
	}
	return out
}
