// Package access decides whether a subject may do an action on an object of a
// tenant. Policies are those of Argo CD's ConfigMap argocd-rbac-cm, read by
// shared/rbac, with the roles of accounts and of projects added. It reads no
// store: the catalog passes it what a transaction has read, and calls it inside
// that transaction. A compiled set of rules never changes, a new version
// replaces it as a whole, and its results are those of casbin's Enforce
// with Argo CD's model, which a test compares.
package access

import (
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// Resources that rights are given on.
const (
	Applications = "applications"
	Projects     = "projects"
	Clusters     = "clusters"
	Repositories = "repositories"
	Certificates = "certificates"
	// WriteRepositories are credentials for writing and for generators.
	WriteRepositories = "write-repositories"
	GPGKeys           = "gpgkeys"
	Accounts          = "accounts"
	Audit             = "audit"
	Settings          = "settings"

	// Those of features that this release lacks: policies may name them.
	ApplicationSets = "applicationsets"
	Logs            = "logs"
	Exec            = "exec"
	Extensions      = "extensions"

	// PortForward is the right to connect to ports of an application's pods.
	PortForward = "port-forward"

	// Tenants is the one resource of the platform: no policy of a tenant can
	// give rights on it, only the role platform-admin of an account.
	Tenants = "tenants"
)

// Actions that rights are given for.
const (
	Get      = "get"
	Create   = "create"
	Update   = "update"
	Delete   = "delete"
	Sync     = "sync"
	Rollback = "rollback"
	Override = "override"
	// Action is the right to run actions on live objects; behind it stand
	// /GROUP/KIND/NAME of the action.
	Action = "action"
)

// A Rule is one policy line.
type Rule = rbac.Rule

// A Binding gives a subject a role.
type Binding = rbac.Binding

// A Decision is what was decided, and by which rule.
type Decision = rbac.Decision

// builtin are the rules that every tenant has.
func builtin() []Rule {
	return append(rbac.BuiltinRules(), Rule{
		Subject: rbac.RolePrefix + hub.RoleTenantAdmin, Resource: "*", Action: "*", Object: "*", Origin: rbac.Origin{Source: rbac.BuiltIn},
	})
}

// abovePlatform are the rules about tenants. They hold for roles of accounts alone.
func abovePlatform() []Rule {
	return []Rule{{
		Subject: rbac.RolePrefix + hub.RolePlatformAdmin, Resource: Tenants, Action: "*", Object: "*", Origin: rbac.Origin{Source: rbac.BuiltIn},
	}}
}

// ParseProject returns the rules of a project's roles. A rule must be about the
// role that it stands in, and about objects of the project (PROJ-12, PROJ-21).
// With regex, its patterns are regular expressions.
func ParseProject(name string, spec hub.ProjectSpec, regex bool) ([]Rule, []Binding, error) {
	rules, bindings, errs := parseProject(name, spec, regex)
	if len(errs) > 0 {
		return nil, nil, errs[0]
	}
	return rules, bindings, nil
}

// parseProject returns what it can read of a project's roles. Of one with an
// error these are its denials alone.
func parseProject(name string, spec hub.ProjectSpec, regex bool) (rules []Rule, bindings []Binding, errs []error) {
	seen := map[string]bool{}
	for _, role := range spec.Roles {
		err := checkRoleName(role.Name, seen)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seen[role.Name] = true
		own, bad := projectRules(name, role, regex)
		members, err := projectBindings(name, role)
		if err != nil {
			bad = append(bad, err)
		}
		errs = append(errs, bad...)
		for _, r := range own {
			if len(bad) == 0 || r.Deny {
				rules = append(rules, r)
			}
		}
		bindings = append(bindings, members...)
	}
	return rules, bindings, errs
}

// projectSubject is how policies name a role of a project.
func projectSubject(project, role string) string { return rbac.ProjectPrefix + project + ":" + role }

func checkRoleName(name string, seen map[string]bool) error {
	switch {
	case !roleName(name):
		return fault.New(fault.Invalid, "role name %q is not made of letters, digits, - and _", name)
	case seen[name]:
		return fault.New(fault.Invalid, "role %q is there twice", name)
	}
	return nil
}

// projectRules returns the rules of a role of a project.
func projectRules(project string, role hub.ProjectRole, regex bool) (rules []Rule, errs []error) {
	subject := projectSubject(project, role.Name)
	source := "project " + project + ", role " + role.Name
	all, loose, errs := rbac.Parse(source, strings.Join(role.Policies, "\n"), regex)
	if len(loose) > 0 {
		errs = append(errs, fault.New(fault.Invalid, "role %q has a binding among its policies; name subjects under groups", role.Name))
	}
	for _, r := range all {
		switch {
		case r.Subject != subject:
			errs = append(errs, fault.New(fault.Invalid, "role %q has a rule for %q; its subject must be %q", role.Name, r.Subject, subject))
		case !projectRule(project, r):
			errs = append(errs, fault.New(fault.Invalid, "role %q has a rule for %s %q, which is outside the project; its object must begin with %q",
				role.Name, r.Resource, r.Object, project+"/"))
		default:
			if regex {
				r.Within = project // an expression may match anywhere in an object
			}
			rules = append(rules, r)
		}
	}
	// A subject with a role of a project may read the project (PROJ-14).
	return append(rules, Rule{Subject: subject, Resource: Projects, Action: Get, Object: project, Origin: rbac.Origin{Source: source}}), errs
}

// projectBindings returns who has a role of a project.
func projectBindings(project string, role hub.ProjectRole) (bindings []Binding, err error) {
	for _, group := range role.Groups {
		if group == "" || rbac.IsRole(group) {
			err = fault.New(fault.Invalid, "role %q names %q as a group, which is a role or empty", role.Name, group)
			continue
		}
		bindings = append(bindings, Binding{
			Subject: group, Role: projectSubject(project, role.Name), Origin: rbac.Origin{Source: "project " + project + ", role " + role.Name},
		})
	}
	return bindings, err
}

// projectRule reports whether a rule stays inside its project: a literal name of
// a resource whose objects belong to projects.
func projectRule(project string, r Rule) bool {
	switch r.Resource {
	case Applications, ApplicationSets, Repositories, Clusters, Logs, Exec, PortForward:
		return strings.HasPrefix(r.Object, project+"/")
	case Projects:
		return r.Object == project
	}
	return false
}

func roleName(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
