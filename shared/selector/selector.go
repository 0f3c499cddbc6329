// Package selector reads the resources of a selective sync (SYNC-03) and says
// which objects they mean. It does not depend on operations. The hub refuses
// selectors that match no object; the agent selects the objects to apply.
package selector

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/suggest"
)

// A Selector is one resource of a selective sync (SYNC-03).
type Selector struct {
	Text    string       // as it was written
	Exclude bool         // matching objects are excluded
	Key     manifest.Key // "*" matches anything
}

// Parse reads "group:kind:namespace/name" or "group:kind:name", each with a
// leading "!" to exclude matching objects.
func Parse(resources []string) ([]Selector, error) {
	out := make([]Selector, 0, len(resources))
	for _, text := range resources {
		rest, exclude := strings.CutPrefix(text, "!")
		parts := strings.SplitN(rest, ":", 3)
		if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
			return nil, fault.New(fault.Invalid, "%q names no resource; write group:kind:namespace/name or group:kind:name", text)
		}
		s := Selector{Text: text, Exclude: exclude, Key: manifest.Key{Group: parts[0], Kind: parts[1], Namespace: "*", Name: parts[2]}}
		if ns, name, ok := strings.Cut(parts[2], "/"); ok {
			s.Key.Namespace, s.Key.Name = ns, name
		}
		out = append(out, s)
	}
	return out, nil
}

// Matches reports whether the selector matches an object, to select or to
// exclude it.
func (s Selector) Matches(k manifest.Key) bool {
	return like(s.Key.Group, k.Group) && like(s.Key.Kind, k.Kind) && like(s.Key.Namespace, k.Namespace) && like(s.Key.Name, k.Name)
}

// Selects reports whether the selectors select an object: all objects if each
// of them excludes.
func Selects(selectors []Selector, k manifest.Key) bool {
	named, selected := false, false
	for _, s := range selectors {
		if s.Exclude && s.Matches(k) {
			return false
		}
		named = named || !s.Exclude
		selected = selected || !s.Exclude && s.Matches(k)
	}
	return selected || !named
}

func like(pattern, s string) bool { return pattern == "*" || pattern == s }

// Nearest returns the objects that are most similar to a selector, at most
// three, the nearest first.
func (s Selector) Nearest(keys []manifest.Key) []manifest.Key {
	keys = slices.Clone(keys)
	far := make(map[manifest.Key]int, len(keys))
	for _, k := range keys {
		far[k] = s.distance(k)
	}
	slices.SortStableFunc(keys, func(a, b manifest.Key) int {
		if d := far[a] - far[b]; d != 0 {
			return d
		}
		return a.Compare(b)
	})
	return keys[:min(len(keys), 3)]
}

// distance is how much would have to be corrected for a selector to match.
// Another kind counts more than another group or namespace.
func (s Selector) distance(k manifest.Key) int {
	out := edits(s.Key.Name, k.Name)
	if !like(s.Key.Group, k.Group) {
		out++
	}
	if !like(s.Key.Namespace, k.Namespace) {
		out++
	}
	if !strings.EqualFold(s.Key.Kind, k.Kind) {
		out += edits(s.Key.Kind, k.Kind) + 2
	}
	return out
}

// edits counts the letters to correct between two words; "*" is any word.
func edits(a, b string) int {
	if a == "*" {
		return 0
	}
	return suggest.Distance(a, b)
}
