package manifest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// SecretFields is the annotation that says which fields of an object are
// secret, whatever its kind: JSON pointers, one a line. A pointer to a map or
// list means all below it. Such fields are masked wherever the object is shown.
const SecretFields = OwnPrefix + "secret-fields"

// MarkedFields returns the paths of the fields that an object marks as secret.
// Those that say which object it is are left out: they cannot be hidden.
func MarkedFields(o *Object) [][]string {
	text, _ := RawAnnotation(o, SecretFields)
	var out [][]string
	for line := range strings.SplitSeq(text, "\n") {
		pointer, ok := strings.CutPrefix(strings.TrimSpace(line), "/")
		if !ok {
			continue
		}
		path := strings.Split(pointer, "/")
		for i := range path {
			path[i] = strings.ReplaceAll(strings.ReplaceAll(path[i], "~1", "/"), "~0", "~")
		}
		if IsSecret(o) && path[0] == "stringData" { // its normal form has data only
			path[0] = "data"
		}
		if !Identifies(path) {
			out = append(out, path)
		}
	}
	return out
}

// Identifies reports whether a field says which object it is, or marks others.
func Identifies(path []string) bool {
	switch path[0] {
	case "apiVersion", "kind":
		return true
	case "metadata":
		return len(path) == 1 || slices.Contains([]string{"name", "namespace", "generateName", "uid", "ownerReferences"}, path[1]) ||
			path[1] == "annotations" && (len(path) == 2 || strings.HasPrefix(path[2], OwnPrefix))
	}
	return false
}

// MarkSecret adds the fields of some paths to those that an object marks as
// secret.
func MarkSecret(o *Object, paths [][]string) {
	if len(paths) == 0 {
		return
	}
	var lines []string
	for _, path := range append(MarkedFields(o), paths...) {
		var line strings.Builder
		for _, s := range path {
			line.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1"))
		}
		lines = append(lines, line.String())
	}
	slices.Sort(lines)
	all := maps.Clone(o.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	all[SecretFields] = strings.Join(slices.Compact(lines), "\n")
	o.SetAnnotations(all)
}

// maskMarked masks the fields that an object marks as secret, in place.
func maskMarked(o *Object, key []byte) {
	marked := MarkedFields(o)
	for _, path := range marked {
		replace(o.Object, path, func(v any) any { return maskBelow(v, key) })
	}
	if all, ok := metadata(o, "annotations").(map[string]any); ok && len(marked) > 0 && all[LastApplied] != nil {
		all[LastApplied] = masked(key, "", all[LastApplied])
	}
}

// replace replaces the value of a path, if there is one.
func replace(v any, path []string, with func(any) any) {
	head, rest := path[0], path[1:]
	switch v := v.(type) {
	case map[string]any:
		if next, ok := v[head]; ok && len(rest) == 0 {
			v[head] = with(next)
		} else if ok {
			replace(next, rest, with)
		}
	case []any:
		if n, err := strconv.Atoi(head); err == nil && n >= 0 && n < len(v) && len(rest) == 0 {
			v[n] = with(v[n])
		} else if err == nil && n >= 0 && n < len(v) {
			replace(v[n], rest, with)
		}
	}
}

// maskBelow masks each value at and below one. What is masked already stays.
func maskBelow(v any, key []byte) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = maskBelow(v[k], key)
		}
		return v
	case []any:
		for i := range v {
			v[i] = maskBelow(v[i], key)
		}
		return v
	case string:
		if isMask(v) {
			return v
		}
	case nil:
		return nil
	}
	return masked(key, "", v)
}

// isMask reports whether a text has the form of a masked value.
func isMask(text string) bool {
	digits, ok := strings.CutPrefix(text, "hmac:")
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}
