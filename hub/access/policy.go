// Package access decides whether a subject may do an action on an object of a
// tenant. Policies are casbin's, in Argo CD's syntax, with the tenant as
// domain; a deny always wins. It reads no store: the catalog passes it what a
// transaction has read, and calls it inside that transaction. A compiled set of
// rules never changes, a new version replaces it as a whole, and its results
// are those of casbin's Enforce.
package access

import (
	"fmt"
	"strings"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// Resources that rights are given on.
const (
	Applications = "applications"
	Projects     = "projects"
	Clusters     = "clusters"
	Repositories = "repositories"
	Certificates = "certificates"
	GPGKeys      = "gpgkeys"
	Accounts     = "accounts"
	Audit        = "audit"
	Settings     = "settings"
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

// modelText is Argo CD's model with the tenant as domain.
const modelText = `
[request_definition]
r = sub, dom, res, act, obj

[policy_definition]
p = sub, dom, res, act, obj, eft

[role_definition]
g = _, _, _

[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))

[matchers]
m = r.dom == p.dom && g(r.sub, p.sub, r.dom) && glob(r.res, p.res) && glob(r.act, p.act) && glob(r.obj, p.obj)
`

// platform is the domain of rights that are above tenants. It is no tenant's id.
const platform = "platform"

// Names of roles as they stand in policies.
const rolePrefix = "role:"

// builtin are the rules that every tenant has.
func builtin(tenant string) []Rule {
	allow := func(role, domain, res, act, obj string) Rule {
		return Rule{Subject: rolePrefix + role, domain: domain, Resource: res, Action: act, Object: obj}
	}
	return []Rule{
		allow(hub.RolePlatformAdmin, platform, Tenants, "*", "*"),
		allow(hub.RoleTenantAdmin, tenant, "*", "*", "*"),
		allow("admin", tenant, "*", "*", "*"), // Argo CD's name for it
		allow(hub.RoleReadOnly, tenant, Applications, Get, "*"),
		allow(hub.RoleReadOnly, tenant, Projects, Get, "*"),
		allow(hub.RoleReadOnly, tenant, Clusters, Get, "*"),
		allow(hub.RoleReadOnly, tenant, Repositories, Get, "*"),
		allow(hub.RoleReadOnly, tenant, Certificates, Get, "*"),
		allow(hub.RoleReadOnly, tenant, GPGKeys, Get, "*"),
	}
}

// A Rule is one policy line.
type Rule struct {
	Subject  string
	Resource string
	Action   string
	Object   string
	Deny     bool

	domain string
}

// String is the line as it is written in a policy.
func (r Rule) String() string {
	return strings.Join([]string{"p", r.Subject, r.Resource, r.Action, r.Object, r.effect()}, ", ")
}

func (r Rule) effect() string {
	if r.Deny {
		return "deny"
	}
	return "allow"
}

// A Binding binds a role, or a group's rights, to a subject.
type Binding struct {
	Subject string
	Role    string
}

// Parse reads a policy in Argo CD's syntax: lines "p, subject, resource,
// action, object, effect" and "g, subject, role"; empty lines and lines that
// begin with # are skipped. The error names the line.
func Parse(text string) ([]Rule, []Binding, error) {
	var rules []Rule
	var bindings []Binding
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, ",")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		switch {
		case fields[0] == "p":
			rule, err := parseRule(fields)
			if err != nil {
				return nil, nil, fault.With(err, fmt.Sprintf("policy line %d", n+1), "")
			}
			rules = append(rules, rule)
		case fields[0] == "g" && len(fields) == 3 && fields[1] != "" && fields[2] != "":
			bindings = append(bindings, Binding{Subject: fields[1], Role: fields[2]})
		default:
			return nil, nil, fault.With(fault.New(fault.Invalid, "it is neither a rule nor a binding"), fmt.Sprintf("policy line %d", n+1),
				`write "p, subject, resource, action, object, allow" or "g, subject, role"`)
		}
	}
	return rules, bindings, nil
}

func parseRule(fields []string) (Rule, error) {
	if len(fields) != 6 {
		return Rule{}, fault.New(fault.Invalid, "a rule has subject, resource, action, object and effect, and this one has %d fields", len(fields)-1)
	}
	for i, what := range []string{"", "subject", "resource", "action", "object", "effect"} {
		if fields[i] == "" {
			return Rule{}, fault.New(fault.Invalid, "its %s is empty", what)
		}
	}
	for _, pattern := range fields[2:5] {
		if err := glob.Check(pattern); err != nil {
			return Rule{}, err
		}
	}
	if fields[5] != "allow" && fields[5] != "deny" {
		return Rule{}, fault.New(fault.Invalid, "its effect is %q, which is neither allow nor deny", fields[5])
	}
	return Rule{Subject: fields[1], Resource: fields[2], Action: fields[3], Object: fields[4], Deny: fields[5] == "deny"}, nil
}

// ParseProject returns the rules of a project's roles. A rule must be about the
// role that it stands in, and about objects of the project (PROJ-12, PROJ-21).
func ParseProject(name string, spec hub.ProjectSpec) ([]Rule, []Binding, error) {
	var rules []Rule
	var bindings []Binding
	seen := map[string]bool{}
	for _, role := range spec.Roles {
		if !roleName(role.Name) {
			return nil, nil, fault.New(fault.Invalid, "role name %q is not made of letters, digits, - and _", role.Name)
		}
		if seen[role.Name] {
			return nil, nil, fault.New(fault.Invalid, "role %q is there twice", role.Name)
		}
		seen[role.Name] = true
		subject := "proj:" + name + ":" + role.Name
		own, err := projectRules(name, subject, role)
		if err != nil {
			return nil, nil, err
		}
		members, err := projectBindings(subject, role)
		if err != nil {
			return nil, nil, err
		}
		rules, bindings = append(rules, own...), append(bindings, members...)
	}
	return rules, bindings, nil
}

// projectRules returns the rules of a role of a project.
func projectRules(project, subject string, role hub.ProjectRole) ([]Rule, error) {
	rules, loose, err := Parse(strings.Join(role.Policies, "\n"))
	if err != nil {
		return nil, fault.With(err, "role "+role.Name, "")
	}
	if len(loose) > 0 {
		return nil, fault.New(fault.Invalid, "role %q has a binding among its policies; name subjects under groups", role.Name)
	}
	for _, r := range rules {
		if r.Subject != subject {
			return nil, fault.New(fault.Invalid, "role %q has a rule for %q; its subject must be %q", role.Name, r.Subject, subject)
		}
		if !projectRule(project, r) {
			return nil, fault.New(fault.Invalid, "role %q has a rule for %s %q, which is outside the project; its object must begin with %q",
				role.Name, r.Resource, r.Object, project+"/")
		}
	}
	// A subject with a role of a project may read the project (PROJ-14).
	return append(rules, Rule{Subject: subject, Resource: Projects, Action: Get, Object: project}), nil
}

// projectBindings returns who has a role of a project.
func projectBindings(subject string, role hub.ProjectRole) ([]Binding, error) {
	var bindings []Binding
	for _, group := range role.Groups {
		if group == "" || strings.HasPrefix(group, rolePrefix) || strings.HasPrefix(group, "proj:") {
			return nil, fault.New(fault.Invalid, "role %q names %q as a group, which is a role or empty", role.Name, group)
		}
		bindings = append(bindings, Binding{Subject: group, Role: subject})
	}
	return bindings, nil
}

// projectRule reports whether a rule stays inside its project: a literal name of
// a resource whose objects belong to projects.
func projectRule(project string, r Rule) bool {
	switch r.Resource {
	case Applications, "applicationsets", Repositories, Clusters, "logs", "exec":
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

// enforcer loads rules and bindings into casbin.
func enforcer(rules []Rule, bindings []domainBinding) (*casbin.Enforcer, error) {
	m, err := model.NewModelFromString(modelText)
	if err != nil {
		return nil, fmt.Errorf("read the model of access rules: %w", err)
	}
	e, err := casbin.NewEnforcer(m)
	if err != nil {
		return nil, fmt.Errorf("make an enforcer: %w", err)
	}
	e.AddFunction("glob", func(args ...any) (any, error) {
		value, _ := args[0].(string)
		pattern, _ := args[1].(string)
		return glob.Match(pattern, value), nil
	})
	lines := make([][]string, 0, len(rules))
	for _, r := range rules {
		lines = append(lines, []string{r.Subject, r.domain, r.Resource, r.Action, r.Object, r.effect()})
	}
	if err := addAll(lines, e.AddPoliciesEx); err != nil {
		return nil, err
	}
	lines = lines[:0]
	for _, b := range bindings {
		lines = append(lines, []string{b.Subject, b.Role, b.domain})
	}
	if err := addAll(lines, e.AddGroupingPoliciesEx); err != nil {
		return nil, err
	}
	return e, nil
}

func addAll(lines [][]string, add func([][]string) (bool, error)) error {
	if len(lines) == 0 {
		return nil
	}
	if _, err := add(lines); err != nil {
		return fmt.Errorf("load access rules: %w", err)
	}
	return nil
}
