package diff

import "github.com/capstan-cd/capstan/shared/manifest"

// Reduce returns the fields of a live object that the other objects have, too.
// A person who compares them is not shown defaults of the API server, or fields
// that others have set. Items of lists are matched by their names, or by their
// index where they have none. Items that only live has stay whole: they are a
// difference. Others may be nil; if all are, live is returned unchanged.
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
		if maps := only[map[string]any](of); len(maps) > 0 {
			return reduceMap(l, maps)
		}
	case []any:
		if lists := only[[]any](of); len(lists) > 0 {
			return reduceList(l, lists)
		}
	}
	return live
}

// reduceMap returns the entries whose keys other maps have, too.
func reduceMap(live map[string]any, others []map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range live {
		var next []any
		for _, m := range others {
			if w, ok := m[k]; ok {
				next = append(next, w)
			}
		}
		if len(next) > 0 {
			out[k] = reduce(v, next)
		}
	}
	return out
}

// reduceList returns all items, each reduced to its counterparts in other lists.
func reduceList(live []any, others [][]any) []any {
	out := make([]any, len(live))
	for i, item := range live {
		var next []any
		for _, list := range others {
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

func only[T any](of []any) []T {
	var out []T
	for _, v := range of {
		if t, ok := v.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
