package rbac

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/glob"
)

// A Set is a compiled policy. It never changes. Many goroutines may use it.
type Set struct {
	rules    map[string][]*line // by subject
	org      map[string][]*line
	roles    map[string][]string // of subjects and roles
	base     []*line
	projects []string
}

// Options are settings that change what rules mean.
type Options struct {
	// RollbackApart means that a rollback needs the right rollback. Without it
	// the right sync is sufficient.
	RollbackApart bool
	// Inherits means that update and delete of an application include those of
	// its single objects.
	Inherits bool
	// Projects are those that there are, sorted.
	Projects []string
}

// Compile makes a set of a policy, whose rules include the built-in ones.
func Compile(p Policy, o Options) *Set {
	s := &Set{rules: map[string][]*line{}, org: map[string][]*line{}, roles: map[string][]string{}, projects: o.Projects}
	n := 0
	fill := func(into map[string][]*line, rules []Rule) {
		for _, r := range rules {
			into[r.Subject] = append(into[r.Subject], o.lines(r, n)...)
			n++
		}
	}
	fill(s.org, p.Org)
	fill(s.rules, p.Rules)
	for _, b := range p.Bindings {
		s.roles[b.Subject] = append(s.roles[b.Subject], b.Role)
	}
	if p.Default != "" {
		s.base = collectLines(s.rules, s.closure([]string{p.Default}))
	}
	return s
}

// WithoutDefault returns the same policy without a default role.
func (s *Set) WithoutDefault() *Set {
	out := *s
	out.base = nil
	return &out
}

// lines returns a rule and those that follow from it.
func (o Options) lines(r Rule, order int) []*line {
	l := newLine(r, order)
	out := []*line{l}
	also := func(action string) {
		out = append(out, &line{Rule: r, order: order, res: matcher{pattern: "applications"}, act: matcher{pattern: action}, obj: l.obj})
	}
	if !l.res.match("applications") {
		return out
	}
	if !o.RollbackApart && l.act.match("sync") && !l.act.match("rollback") {
		also("rollback")
	}
	for _, action := range [...]string{"update", "delete"} {
		if o.Inherits && l.act.match(action) {
			also(action + "/*")
		}
	}
	return out
}

// maxDepth is how many roles may stand between a subject and a rule, as in
// casbin.
const maxDepth = 10

// closure returns names and all roles that they have, directly or not.
func (s *Set) closure(names []string) []string {
	seen := map[string]bool{}
	var out []string
	next := names
	for depth := 0; depth <= maxDepth && len(next) > 0; depth++ {
		var found []string
		for _, name := range next {
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, name)
			found = append(found, s.roles[name]...)
		}
		next = found
	}
	return out
}

// Roles returns names and all roles that they have.
func (s *Set) Roles(names ...string) []string { return s.closure(names) }

// For returns the rights of a subject that has all of these names. Without
// names it has those of the default role.
func (s *Set) For(names []string) *Index {
	all := s.closure(names)
	org := all
	if !slices.Contains(all, Everyone) {
		org = append(slices.Clone(all), Everyone)
	}
	return &Index{projects: s.projects, org: collectLines(s.org, org), base: s.base, own: collectLines(s.rules, all)}
}

// collectLines returns the rules of some subjects, in order.
func collectLines(rules map[string][]*line, subjects []string) (out []*line) {
	for _, name := range subjects {
		out = append(out, rules[name]...)
	}
	slices.SortStableFunc(out, func(a, b *line) int { return cmp.Compare(a.order, b.order) })
	return out
}

// Subjects returns all that rules and bindings name, roles too, sorted.
func (s *Set) Subjects() []string {
	out := map[string]bool{}
	for _, names := range []map[string][]*line{s.rules, s.org} {
		for name := range names {
			out[name] = true
		}
	}
	for name := range s.roles {
		out[name] = true
	}
	return slices.Sorted(maps.Keys(out))
}

// Actions returns the fine-grained actions on applications that globs name
// literally.
func (s *Set) Actions() []string {
	out := map[string]bool{}
	for _, rules := range []map[string][]*line{s.rules, s.org} {
		for _, lines := range rules {
			for _, l := range lines {
				if l.act.re == nil && l.res.match("applications") && strings.Contains(l.Action, "/") && glob.Literal(l.Action) {
					out[l.Action] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}
