package diff

import (
	"encoding/json"
	"hash/fnv"
	pathpkg "path"
	"slices"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Rule says which differences of which objects are ignored (DIFF-06).
type Rule struct {
	Group        string // glob; kinds of the core group need the empty one or "*"
	Kind         string // glob
	Name         string // exact; empty: all
	Namespace    string // exact; empty: all
	JSONPointers []string
	JQ           []string // path expressions
	Managers     []string // fields that these managers own in the live state are ignored
}

// Ignore is a set of rules, ready to use. It may be used by several goroutines.
// A nil Ignore has no rules.
type Ignore struct{ rules []compiled }

type compiled struct {
	Rule
	pointers [][]string
	queries  []*gojq.Code
	sum      uint64
}

// NewIgnore reads rules. An error names the rule and what is wrong with it.
func NewIgnore(rules []Rule) (*Ignore, error) {
	out := &Ignore{}
	for _, r := range rules {
		c, err := compileRule(r)
		if err != nil {
			return nil, err
		}
		out.rules = append(out.rules, c)
	}
	return out, nil
}

func compileRule(r Rule) (compiled, error) {
	c := compiled{Rule: r}
	for _, glob := range [...]string{r.Group, r.Kind} {
		if _, err := pathpkg.Match(glob, ""); err != nil {
			return c, fault.New(fault.Invalid, "ignoreDifferences: %q is not a pattern", glob)
		}
	}
	for _, text := range r.JSONPointers {
		p, err := parsePointer(text)
		if err != nil {
			return c, err
		}
		c.pointers = append(c.pointers, p)
	}
	for _, text := range r.JQ {
		q, err := compileJQ(text)
		if err != nil {
			return c, err
		}
		c.queries = append(c.queries, q)
	}
	text, err := json.Marshal([3][]string{r.JSONPointers, r.JQ, r.Managers})
	if err != nil {
		return c, fault.Wrap(fault.Internal, err, "write an ignore rule")
	}
	h := fnv.New64a()
	_, _ = h.Write(text) // hash.Hash never returns an error
	c.sum = h.Sum64()
	return c, nil
}

// Managers returns the managers that rules for an object name; for such objects
// the watch must keep their managedFields.
func (g *Ignore) Managers(k manifest.Key) []string { return g.forObject(k).managers }

// Empty reports whether no rule is for an object.
func (g *Ignore) Empty(k manifest.Key) bool {
	return g == nil || !slices.ContainsFunc(g.rules, func(c compiled) bool { return c.matches(k) })
}

func (c compiled) matches(k manifest.Key) bool {
	like := func(pattern, s string) bool {
		ok, err := pathpkg.Match(pattern, s)
		return err == nil && ok
	}
	return like(c.Group, k.Group) && like(c.Kind, k.Kind) &&
		(c.Name == "" || c.Name == k.Name) && (c.Namespace == "" || c.Namespace == k.Namespace)
}

// A ruleSet is the rules for one object.
type ruleSet struct {
	pointers [][]string
	queries  []*gojq.Code
	managers []string
	sum      uint64
}

func (g *Ignore) forObject(k manifest.Key) ruleSet {
	var s ruleSet
	if g == nil {
		return s
	}
	for _, c := range g.rules {
		if c.matches(k) {
			s.pointers = append(s.pointers, c.pointers...)
			s.queries = append(s.queries, c.queries...)
			s.managers = append(s.managers, c.Managers...)
			s.sum = s.sum*1099511628211 ^ c.sum
		}
	}
	return s
}

func (s ruleSet) empty() bool {
	return len(s.pointers) == 0 && len(s.queries) == 0 && len(s.managers) == 0
}

// hash identifies the rules in a record; 0 means that there are none.
func (s ruleSet) hash() uint64 { return s.sum }

// strip returns the object without what the rules ignore. The object itself is
// not changed; without rules it is returned itself.
func (s ruleSet) strip(o *manifest.Object) (map[string]any, error) {
	if len(s.pointers) == 0 && len(s.queries) == 0 {
		return o.Object, nil
	}
	places, err := s.places(o.Object)
	if err != nil {
		return nil, fault.With(err, manifest.KeyOf(o).Describe(), "")
	}
	return remove(o.Object, places), nil
}

// places returns all places of an object that the rules ignore and that exist.
func (s ruleSet) places(object map[string]any) ([][]any, error) {
	var out [][]any
	for _, p := range s.pointers {
		if place, ok := resolvePointer(object, p); ok {
			out = append(out, place)
		}
	}
	for _, q := range s.queries {
		found, err := runJQ(q, object)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// withoutManaged leaves out paths that an ignored manager owns.
func (s ruleSet) withoutManaged(paths []path, others []Managed) ([]path, error) {
	for _, m := range others {
		if !slices.Contains(s.managers, m.Manager) {
			continue
		}
		tree, err := parseFields(m.Fields)
		if err != nil {
			return nil, err
		}
		paths = slices.DeleteFunc(paths, tree.covers)
	}
	return paths, nil
}

// parsePointer reads a JSON pointer (RFC 6901).
func parsePointer(s string) ([]string, error) {
	rest, ok := strings.CutPrefix(s, "/")
	if !ok || rest == "" {
		return nil, fault.New(fault.Invalid, "ignoreDifferences: %q is not a JSON pointer; write /spec/replicas", s)
	}
	parts := strings.Split(rest, "/")
	for i, p := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
	}
	return parts, nil
}

// resolvePointer finds the place that a pointer names, if it exists.
func resolvePointer(v any, pointer []string) ([]any, bool) {
	place := make([]any, 0, len(pointer))
	for _, step := range pointer {
		switch c := v.(type) {
		case map[string]any:
			next, ok := c[step]
			if !ok {
				return nil, false
			}
			v, place = next, append(place, step)
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(c) {
				return nil, false
			}
			v, place = c[i], append(place, i)
		default:
			return nil, false
		}
	}
	return place, true
}
