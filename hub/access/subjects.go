package access

import (
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/shared/rbac"
)

// Subjects returns the users and groups that policies and projects name, sorted.
// Roles and the subject * are left out.
func (r *Rights) Subjects() []string {
	out := map[string]bool{}
	for _, name := range r.set.Subjects() {
		if name != rbac.Everyone && !rbac.IsRole(name) {
			out[name] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// RolesOf returns the roles that a user or group has, directly or through others,
// sorted. Nobody has a role by being called like one.
func (r *Rights) RolesOf(name string) []string {
	out := []string{}
	if name == "" || name == rbac.Everyone || rbac.IsRole(name) {
		return out
	}
	for _, role := range r.set.Roles(name) {
		if role != name {
			out = append(out, role)
		}
	}
	slices.Sort(out)
	return out
}

// A Question is about an action on a resource.
type Question struct{ Resource, Action string }

// Questions returns what is worth asking of a policy: what the product asks, and
// fine-grained actions that rules name without wildcards.
func (r *Rights) Questions() []Question {
	crud := []string{Get, Create, Update, Delete}
	out := map[Question]bool{}
	add := func(resource string, actions ...string) {
		for _, action := range actions {
			out[Question{resource, action}] = true
		}
	}
	add(Applications, append(slices.Clone(crud), Sync, Rollback, Override)...)
	for _, resource := range [...]string{ApplicationSets, Projects, Repositories, WriteRepositories, Clusters, Certificates, GPGKeys, Accounts} {
		add(resource, crud...)
	}
	add(Logs, Get)
	add(Exec, Create)
	add(PortForward, Create)
	add(Extensions, "invoke")
	add(Audit, Get)
	add(Settings, Get, Update)
	for _, action := range r.set.Actions() {
		add(Applications, action)
	}
	return slices.Collect(maps.Keys(out))
}
