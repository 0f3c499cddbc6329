package diff

import "github.com/capstan-cd/capstan/shared/manifest"

// Reduce returns of a live object what the other objects speak of, so that a
// person who compares it with them is not shown what the API server filled in
// or others have set. Items of lists are found by the names that they have;
// in lists without names each item is reduced to the one at its place. Items
// that only live has stay whole: they are a difference. Others may be nil; if
// all are, live comes back as it is.
func Reduce(live *manifest.Object, others ...*manifest.Object) *manifest.Object {
	var of []any
	for _, o := range others {
		if o != nil {
			of = append(of, o.Object)
		}
	}
	if live == nil || len(of) == 0 {
		return live
	}
	out, _ := reduce(live.Object, of).(map[string]any)
	return &manifest.Object{Object: out}
}

func reduce(live any, of []any) any {
	switch l := live.(type) {
	case map[string]any:
		maps := only[map[string]any](of)
		if len(maps) == 0 {
			return live
		}
		out := map[string]any{}
		for k, v := range l {
			var next []any
			for _, m := range maps {
				if w, ok := m[k]; ok {
					next = append(next, w)
				}
			}
			if len(next) > 0 {
				out[k] = reduce(v, next)
			}
		}
		return out
	case []any:
		lists := only[[]any](of)
		if len(lists) == 0 {
			return live
		}
		out := make([]any, len(l))
		for i, item := range l {
			var next []any
			for _, list := range lists {
				if w, ok := counterpart(item, list, i); ok {
					next = append(next, w)
				}
			}
			if out[i] = item; len(next) > 0 {
				out[i] = reduce(item, next)
			}
		}
		return out
	}
	return live
}

func only[T any](of []any) []T {
	var out []T
	for _, v := range of {
		if t, ok := v.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
