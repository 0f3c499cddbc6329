package secrets

import (
	"slices"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// Marked returns the fields that an object itself marks as secret, with the
// values that it has: a plugin of the hub has put them there.
func Marked(o *manifest.Object) []Leaf {
	var out []Leaf
	for _, path := range manifest.MarkedFields(o) {
		at(o.Object, path, func(value any) any {
			out = append(out, Leaf{Path: named(o.Object, path), Value: value})
			return value
		})
	}
	slices.SortFunc(out, func(a, b Leaf) int { return slices.Compare(a.Path, b.Path) })
	return out
}

// Together returns resolved and marked fields, each field once.
func Together(resolved, marked []Leaf) []Leaf {
	out := slices.Clone(resolved)
	for _, l := range marked {
		if !slices.ContainsFunc(resolved, func(r Leaf) bool { return slices.Equal(r.Path, l.Path) }) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Leaf) int { return slices.Compare(a.Path, b.Path) })
	return out
}
