package diff

import (
	"cmp"
	"slices"
)

// remove returns a copy of an object without the values at the given places.
// Only the maps and lists that contain them are copied.
func remove(object map[string]any, places [][]any) map[string]any {
	out := clone(object)
	sorted := slices.Clone(places)
	slices.SortFunc(sorted, func(a, b []any) int { return -comparePlaces(a, b) }) // items from the end, deeper places first
	sorted = slices.CompactFunc(sorted, func(a, b []any) bool { return comparePlaces(a, b) == 0 })
	for _, p := range sorted {
		if v, ok := removeAt(out, p).(map[string]any); ok {
			out = v
		}
	}
	return out
}

func clone(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// removeAt returns a value without what stands at a place in it.
func removeAt(v any, place []any) any {
	switch c := v.(type) {
	case map[string]any:
		key, ok := place[0].(string)
		if !ok {
			return v
		}
		old, has := c[key]
		if !has {
			return v
		}
		out := clone(c)
		if len(place) == 1 {
			delete(out, key)
		} else {
			out[key] = removeAt(old, place[1:])
		}
		return out
	case []any:
		i, ok := place[0].(int)
		if !ok || i < 0 || i >= len(c) {
			return v
		}
		if len(place) == 1 {
			return slices.Delete(slices.Clone(c), i, i+1)
		}
		out := slices.Clone(c)
		out[i] = removeAt(c[i], place[1:])
		return out
	default:
		return v
	}
}

func comparePlaces(a, b []any) int {
	for i := range min(len(a), len(b)) {
		if n := compareSteps(a[i], b[i]); n != 0 {
			return n
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareSteps(a, b any) int {
	x, xs := a.(string)
	y, ys := b.(string)
	if xs && ys {
		return cmp.Compare(x, y)
	}
	if xs != ys {
		if xs {
			return 1
		}
		return -1
	}
	i, _ := a.(int)
	j, _ := b.(int)
	return cmp.Compare(i, j)
}
