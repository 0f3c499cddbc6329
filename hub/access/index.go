package access

import (
	"slices"
	"strings"
	"sync"

	"github.com/capstan-cd/capstan/shared/glob"
)

// An Index answers for one subject at one version of the policy, in well
// under a microsecond once a resource and action were asked about before.
type Index struct {
	projects []string // of the tenant, sorted
	rules    []Rule   // of the subject, in the tenant
	above    []Rule   // of the subject, above tenants

	mu    sync.RWMutex
	cache map[question]*answers
}

type question struct{ resource, action string }

// answers are the object patterns that decide one question.
type answers struct {
	allow, deny patterns
}

// patterns are globs, those with a literal project in front apart.
type patterns struct {
	all     bool                // "*"
	project map[string][]string // "shop/…": by "shop", the whole pattern
	rest    []string
}

// maxQuestions bounds the cache; actions of fine-grained rights are endless.
const maxQuestions = 512

// OfApplication returns the rights with which an application writes the objects
// of the hub that it renders: on the applications of its own project, or, if
// it rules, on all projects and their applications.
func OfApplication(project string, rules bool) *Index {
	ix := &Index{cache: map[question]*answers{}}
	allow := func(resource, object string) {
		for _, action := range [...]string{Get, Create, Update, Delete} {
			ix.rules = append(ix.rules, Rule{Resource: resource, Action: action, Object: object})
		}
	}
	if rules {
		allow(Applications, "*")
		allow(Projects, "*")
		return ix
	}
	allow(Applications, project+"/*")
	return ix
}

// Check reports whether the subject may do the action on the object. The object
// is "project/name" for what belongs to a project ("project/namespace/name"
// for applications outside the namespace argocd), and the name for the rest.
func (ix *Index) Check(resource, action, object string) bool {
	a := ix.answers(resource, action)
	return a.allow.match(object) && !a.deny.match(object)
}

// CheckAny is Check for a thing with several names: one must be allowed and
// none denied.
func (ix *Index) CheckAny(resource, action string, objects ...string) bool {
	a := ix.answers(resource, action)
	return slices.ContainsFunc(objects, a.allow.match) && !slices.ContainsFunc(objects, a.deny.match)
}

// AllowedProjects returns which projects a list has to read: all, or these. It
// may return too many, never too few: each object still needs its own Check.
func (ix *Index) AllowedProjects(resource, action string) (all bool, projects []string) {
	a := ix.answers(resource, action)
	if a.deny.all {
		return false, nil
	}
	if a.allow.everywhere() && len(a.deny.project) == 0 && len(a.deny.rest) == 0 {
		return true, nil
	}
	for _, p := range ix.projects {
		if a.allow.touches(p) && !a.deny.covers(p) {
			projects = append(projects, p)
		}
	}
	// Applications may name a project that does not exist (yet).
	return a.allow.everywhere(), projects
}

// Any reports whether there may be an object at all that the subject may do the
// action on.
func (ix *Index) Any(resource, action string) bool {
	a := ix.answers(resource, action)
	return !a.deny.all && (a.allow.all || len(a.allow.project) > 0 || len(a.allow.rest) > 0)
}

// Explain names the rule that decides: the first deny, else the first allow.
// Without one nothing allows it.
func (ix *Index) Explain(resource, action, object string) (allowed bool, rule string) {
	for _, r := range ix.of(resource) {
		if !r.matches(resource, action, object) {
			continue
		}
		if r.Deny {
			return false, r.String()
		}
		if rule == "" {
			rule = r.String()
		}
	}
	return rule != "", rule
}

// of returns the rules that may speak of a resource. Rights on tenants come
// from above, and from nowhere else.
func (ix *Index) of(resource string) []Rule {
	if resource == Tenants {
		return ix.above
	}
	return ix.rules
}

func (r Rule) matches(resource, action, object string) bool {
	return glob.Match(r.Resource, resource) && glob.Match(r.Action, action) && glob.Match(r.Object, object)
}

func (ix *Index) answers(resource, action string) *answers {
	q := question{resource, action}
	ix.mu.RLock()
	a := ix.cache[q]
	ix.mu.RUnlock()
	if a != nil {
		return a
	}
	a = &answers{}
	for _, r := range ix.of(resource) {
		if !glob.Match(r.Resource, resource) || !glob.Match(r.Action, action) {
			continue
		}
		if r.Deny {
			a.deny.add(r.Object)
		} else {
			a.allow.add(r.Object)
		}
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if len(ix.cache) >= maxQuestions {
		clear(ix.cache)
	}
	ix.cache[q] = a
	return a
}

func (p *patterns) add(pattern string) {
	if pattern == "*" {
		p.all = true
		return
	}
	project, _, slash := strings.Cut(pattern, "/")
	if slash && glob.Literal(project) {
		if p.project == nil {
			p.project = map[string][]string{}
		}
		p.project[project] = append(p.project[project], pattern)
		return
	}
	p.rest = append(p.rest, pattern)
}

func (p *patterns) match(object string) bool {
	if p.all {
		return true
	}
	if len(p.project) > 0 {
		if project, _, slash := strings.Cut(object, "/"); slash {
			for _, pattern := range p.project[project] {
				if glob.Match(pattern, object) {
					return true
				}
			}
		}
	}
	for _, pattern := range p.rest {
		if glob.Match(pattern, object) {
			return true
		}
	}
	return false
}

// everywhere reports whether some pattern reaches into every project.
func (p *patterns) everywhere() bool {
	return p.all || slices.ContainsFunc(p.rest, func(s string) bool {
		return strings.HasPrefix(s, "*/") || strings.HasPrefix(s, "**") || strings.ContainsAny(s, `[{\`)
	})
}

// touches reports whether some pattern could match an object of the project, or
// the project itself.
func (p *patterns) touches(project string) bool {
	if p.all || len(p.project[project]) > 0 {
		return true
	}
	return slices.ContainsFunc(p.rest, func(s string) bool { return glob.Match(s, project) || reaches(s, project+"/") })
}

// covers reports whether some pattern matches all objects of the project.
func (p *patterns) covers(project string) bool {
	return p.all || slices.Contains(p.project[project], project+"/*") || slices.Contains(p.rest, "*/*")
}

// reaches reports whether a glob matches some text that begins with prefix.
func reaches(pattern, prefix string) bool {
	if prefix == "" {
		return true
	}
	if pattern == "" {
		return false
	}
	switch pattern[0] {
	case '*', '[', '{', '\\':
		return true // the star may take the rest of the prefix; the others are not worked out
	case '?', prefix[0]:
		return reaches(pattern[1:], prefix[1:])
	}
	return false
}
