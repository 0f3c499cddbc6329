package generate

import (
	"github.com/capstan-cd/capstan/hub/generate/template"
)

// wholeField reports whether a field of a template has values of users, which
// are taken as a whole, also if they are empty.
func wholeField(name string) bool { return name == "valuesObject" }

// over is a template of a generator over the main one: what it has no value
// for, or an empty one, is that of the main template (ASET-06). Lists are not
// joined.
func over(own, main map[string]any) map[string]any {
	out := template.Copy(main).(map[string]any)
	for k, v := range own {
		below, above := child(out, k), child(own, k)
		switch {
		case v == nil, emptyValue(v) && !emptyValue(out[k]) && !wholeField(k):
		case above != nil && below != nil && !wholeField(k):
			out[k] = over(above, below)
		default:
			out[k] = template.Copy(v)
		}
	}
	return out
}

// emptyValue reports whether a value counts as not given.
func emptyValue(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case float64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
