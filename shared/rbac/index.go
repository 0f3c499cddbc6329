package rbac

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// An Index answers for one subject by one policy. Many goroutines may use it.
// A check takes well under a microsecond once a resource and action were asked
// about before.
type Index struct {
	projects []string // that there are, sorted
	org      []*line  // denials of the organisation, of the subject
	base     []*line  // of the default role
	own      []*line  // of the subject and its roles

	known atomic.Pointer[map[question]*answers] // replaced as a whole
	mu    sync.Mutex                            // held while it is replaced
}

type question struct{ resource, action string }

// answers are the object patterns that decide one question.
type answers struct {
	org       patterns
	base, own effect

	scope    sync.Once
	all      bool
	projects []string
}

// A effect is what some rules say: some allow and no deny.
type effect struct{ allow, deny patterns }

func (v *effect) match(object string) bool {
	return v.allow.match(object) && !v.deny.match(object)
}

func (v *effect) matchAny(objects []string) bool {
	return slices.ContainsFunc(objects, v.allow.match) && !slices.ContainsFunc(objects, v.deny.match)
}

func (v *effect) any() bool { return v.allow.count > 0 && !v.deny.all }

// maxQuestions bounds what is remembered; fine-grained actions are endless.
const maxQuestions = 512

// NewIndex makes an index of rules of one subject, without a default role and
// without an organisation's.
func NewIndex(rules []Rule, projects []string) *Index {
	ix := &Index{projects: projects}
	for i, r := range rules {
		ix.own = append(ix.own, newLine(r, i))
	}
	return ix
}

// Check reports whether the subject may do the action on the object. The object
// is "project/name" for what belongs to a project ("project/namespace/name"
// for applications outside the namespace argocd), and the name for the rest.
func (ix *Index) Check(resource, action, object string) bool {
	a := ix.answers(resource, action)
	return !a.org.match(object) && (a.base.match(object) || a.own.match(object))
}

// CheckAny is Check for a thing with several names: one must be allowed and
// none denied.
func (ix *Index) CheckAny(resource, action string, objects ...string) bool {
	a := ix.answers(resource, action)
	return !slices.ContainsFunc(objects, a.org.match) && (a.base.matchAny(objects) || a.own.matchAny(objects))
}

// Any reports whether there may be an object at all that the subject may do the
// action on.
func (ix *Index) Any(resource, action string) bool {
	a := ix.answers(resource, action)
	return !a.org.all && (a.base.any() || a.own.any())
}

// AllowedProjects returns which projects a list has to read: all, or these. It
// may return too many, never too few: each object still needs its own Check.
// The caller must not change the result.
func (ix *Index) AllowedProjects(resource, action string) (all bool, projects []string) {
	a := ix.answers(resource, action)
	a.scope.Do(func() { a.all, a.projects = a.reach(ix.projects) })
	return a.all, a.projects
}

func (a *answers) reach(projects []string) (all bool, out []string) {
	if a.org.all {
		return false, nil
	}
	for _, v := range []*effect{&a.base, &a.own} {
		everywhere := v.allow.everywhere() && !v.deny.all
		if everywhere && v.deny.count == 0 && a.org.count == 0 {
			return true, nil
		}
		all = all || everywhere // applications may name a project that does not exist (yet)
	}
	for _, p := range projects {
		if !a.org.covers(p) && (a.base.touches(p) || a.own.touches(p)) {
			out = append(out, p)
		}
	}
	return all, out
}

func (v *effect) touches(project string) bool {
	return v.allow.touches(project) && !v.deny.covers(project)
}

func (ix *Index) answers(resource, action string) *answers {
	q := question{resource, action}
	if known := ix.known.Load(); known != nil {
		if a, ok := (*known)[q]; ok {
			return a
		}
	}
	return ix.find(q)
}

// find sorts the rules that speak of a question.
func (ix *Index) find(q question) *answers {
	a := &answers{}
	for _, l := range ix.org {
		if l.about(q.resource, q.action) {
			a.org.add(l)
		}
	}
	a.org.ready()
	a.base.fill(ix.base, q)
	a.own.fill(ix.own, q)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	next := map[question]*answers{q: a}
	if known := ix.known.Load(); known != nil && len(*known) < maxQuestions {
		for k, v := range *known {
			next[k] = v
		}
	}
	ix.known.Store(&next)
	return a
}

func (v *effect) fill(lines []*line, q question) {
	for _, l := range lines {
		switch {
		case !l.about(q.resource, q.action):
		case l.Deny:
			v.deny.add(l)
		default:
			v.allow.add(l)
		}
	}
	v.allow.ready()
	v.deny.ready()
}

// A Decision is what was decided, and by which rule.
type Decision struct {
	Allowed bool
	Rule    *Rule // nil: no rule allows it
	Layer   Layer
}

// A Layer is which part of a policy has decided.
type Layer string

// The layers, in the order in which they decide.
const (
	Organisation Layer = "organisation" // a denial of policy.org.csv
	DefaultRole  Layer = "default"      // the role of policy.default
	Own          Layer = "subject"      // rules of the subject, its groups and their roles
	NoRule       Layer = "none"
)

// Explain returns the decision and the rule that made it: the first denial of
// the organisation, else an allowance of the default role, else the first
// denial of the subject, else its first allowance.
func (ix *Index) Explain(resource, action string, objects ...string) Decision {
	find := func(lines []*line, deny bool) *Rule {
		for _, l := range lines {
			if l.Deny == deny && l.about(resource, action) && slices.ContainsFunc(objects, l.on) {
				return &l.Rule
			}
		}
		return nil
	}
	if r := find(ix.org, true); r != nil {
		return Decision{false, r, Organisation}
	}
	if r := find(ix.base, false); r != nil && find(ix.base, true) == nil {
		return Decision{true, r, DefaultRole}
	}
	if r := find(ix.own, true); r != nil {
		return Decision{false, r, Own}
	}
	if r := find(ix.own, false); r != nil {
		return Decision{true, r, Own}
	}
	if r := find(ix.base, true); r != nil {
		return Decision{false, r, DefaultRole}
	}
	return Decision{Layer: NoRule}
}

// Same reports whether two indexes certainly answer a question alike.
func (ix *Index) Same(other *Index, resource, action string) bool {
	return ix == other || slices.Equal(ix.Decisive(resource, action), other.Decisive(resource, action))
}

// Decisive returns the rules that speak of a question, as texts: if they are
// equal, so are all answers.
func (ix *Index) Decisive(resource, action string) (out []string) {
	for i, lines := range [][]*line{ix.org, ix.base, ix.own} {
		for _, l := range lines {
			if l.about(resource, action) {
				out = append(out, strconv.Itoa(i)+strconv.FormatBool(l.Deny)+strconv.FormatBool(l.Regex)+l.Within+"\x00"+l.Object)
			}
		}
	}
	return out
}

// Patterns returns what the rules that speak of a question call objects.
func (ix *Index) Patterns(resource, action string) (out []string) {
	for _, lines := range [][]*line{ix.org, ix.base, ix.own} {
		for _, l := range lines {
			if l.about(resource, action) && !slices.Contains(out, l.Object) {
				out = append(out, l.Object)
			}
		}
	}
	return out
}
