package access

import (
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// An Index answers for one subject at one version of the policy. Many
// goroutines may use it.
type Index struct {
	*rbac.Index // in the tenant

	above    *rbac.Index // above tenants
	problems []error
	regex    bool

	visibilityOnce sync.Once
	visibility     string
}

// OfApplication returns the rights with which an application writes the objects
// of the hub that it renders: on the applications of its own project, or, if
// it rules, on all projects and their applications.
func OfApplication(project string, rules bool) *Index {
	var all []Rule
	allow := func(resource, object string) {
		for _, action := range [...]string{Get, Create, Update, Delete} {
			all = append(all, Rule{Resource: resource, Action: action, Object: object, Origin: rbac.Origin{Source: rbac.BuiltIn}})
		}
	}
	if rules {
		allow(Applications, "*")
		allow(ApplicationSets, "*")
		allow(Projects, "*")
	} else {
		allow(Applications, project+"/*")
		allow(ApplicationSets, project+"/*")
	}
	return &Index{Index: rbac.NewIndex(all, nil), above: rbac.NewIndex(nil, nil)}
}

// OfSet returns the rights with which an application set writes applications:
// those of its own project, or of every one if its project is hub.AnyProject.
func OfSet(project string) *Index {
	object := project + "/*"
	if project == hub.AnyProject {
		object = "*"
	}
	var all []Rule
	for _, action := range [...]string{Get, Create, Update, Delete, Sync} {
		all = append(all, Rule{Resource: Applications, Action: action, Object: object, Origin: rbac.Origin{Source: rbac.BuiltIn}})
	}
	return &Index{Index: rbac.NewIndex(all, nil), above: rbac.NewIndex(nil, nil)}
}

// of returns the rules that may speak of a resource. Rights on tenants come
// from above, and from nowhere else.
func (ix *Index) of(resource string) *rbac.Index {
	if resource == Tenants {
		return ix.above
	}
	return ix.Index
}

// Check reports whether the subject may do the action on the object. The object
// is "project/name" for what belongs to a project ("project/namespace/name"
// for applications outside the namespace argocd), and the name for the rest.
func (ix *Index) Check(resource, action, object string) bool {
	return ix.of(resource).Check(resource, action, object)
}

// CheckAny is Check for a thing with several names: one must be allowed and
// none denied.
func (ix *Index) CheckAny(resource, action string, objects ...string) bool {
	return ix.of(resource).CheckAny(resource, action, objects...)
}

// Any reports whether there may be an object at all that the subject may do the
// action on.
func (ix *Index) Any(resource, action string) bool { return ix.of(resource).Any(resource, action) }

// AllowedProjects returns which projects a list has to read: all, or these. It
// may return too many, never too few: each object still needs its own Check.
// The caller must not change the result.
func (ix *Index) AllowedProjects(resource, action string) (all bool, projects []string) {
	return ix.of(resource).AllowedProjects(resource, action)
}

// Explain returns the decision about an object with these names, and the rule
// that made it.
func (ix *Index) Explain(resource, action string, objects ...string) Decision {
	return ix.of(resource).Explain(resource, action, objects...)
}

// Same reports whether two indexes certainly answer a question alike.
func (ix *Index) Same(other *Index, resource, action string) bool {
	return ix.of(resource).Same(other.of(resource), resource, action)
}

// Problems are why the policy allows nothing; nil: it is in force.
func (ix *Index) Problems() []error { return ix.problems }

// Regex reports whether patterns of the policy are regular expressions.
func (ix *Index) Regex() bool { return ix.regex }

// Seen are the resources whose objects the event stream shows.
func Seen() []string {
	return []string{Applications, ApplicationSets, Projects, Clusters, Repositories}
}

// Visibility is a hash of what the subject may see: while it is the same, so is what
// is visible of the same objects.
func (ix *Index) Visibility() string {
	ix.visibilityOnce.Do(func() {
		sum := fnv.New64a()
		for _, resource := range Seen() {
			for _, text := range ix.Decisive(resource, Get) {
				sum.Write([]byte(text))
				sum.Write([]byte{0})
			}
			sum.Write([]byte{1})
		}
		ix.visibility = fmt.Sprintf("%016x", sum.Sum64())
	})
	return ix.visibility
}
