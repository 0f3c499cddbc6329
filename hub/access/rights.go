package access

import (
	"slices"
	"strings"
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// A Subject is who asks. Names of roles among User and Groups count for
// nothing: nobody becomes an admin by a group of that name (SEC-D14).
type Subject struct {
	User   string
	Roles  []string // of the account: platform-admin, tenant-admin, readonly
	Groups []string
	// ProjectRole is the role of a project that a token has, as policies name
	// it: proj:PROJECT:ROLE.
	ProjectRole string
	// Anonymous is somebody who is not signed in and has the default role.
	Anonymous bool
}

// SubjectOf is the subject that a caller is.
func SubjectOf(c hub.Caller) Subject {
	return Subject{User: c.Username, Roles: c.Roles, Groups: c.Groups, ProjectRole: c.ProjectRole, Anonymous: c.Via == hub.ViaAnonymous}
}

func (s Subject) key() string {
	var b strings.Builder
	b.WriteString(s.User)
	b.WriteByte(0)
	b.WriteString(s.ProjectRole)
	if s.Anonymous {
		b.WriteByte(2)
	}
	for _, list := range [][]string{s.Roles, s.Groups} {
		b.WriteByte(0)
		for _, v := range list {
			b.WriteString(v)
			b.WriteByte(1)
		}
	}
	return b.String()
}

// names are all that rules may call the subject. A project's role stands
// alone: what its token may do does not depend on its name.
func (s Subject) names() (names []string) {
	if s.ProjectRole != "" {
		return []string{s.ProjectRole}
	}
	for _, n := range append([]string{s.User}, s.Groups...) {
		if n != "" && n != rbac.Everyone && !rbac.IsRole(n) {
			names = append(names, n)
		}
	}
	for _, role := range s.Roles {
		names = append(names, rbac.RolePrefix+role)
	}
	return names
}

// A Policy is what the rights of a tenant are made of.
type Policy struct {
	// Values are the keys of argocd-rbac-cm.
	Values   map[string]string
	Projects []hub.Project
	// RollbackApart means that a rollback needs the right rollback. Without it
	// the right sync is sufficient (ROLL-04).
	RollbackApart bool
	// Inherits means that update and delete of an application include those of
	// its single objects (RBAC-06).
	Inherits bool
}

// Rights are the compiled rules of one tenant at one version of its policy.
// They never change. Many goroutines may use them.
type Rights struct {
	set      *rbac.Set
	nobody   *rbac.Set // without a default role
	above    []Rule
	projects []string
	tests    []rbac.Test
	problems []error
	doubts   []string
	regex    bool

	mu      sync.Mutex
	indexes map[string]*Index
}

// maxIndexes bounds the number of compiled subjects.
const maxIndexes = 4096

// Compile makes rights of a policy. If a part of it cannot be read, no rule of
// argocd-rbac-cm allows anything, those that deny hold, and tenant admins may
// do no more than repair it: an error never allows more. The same holds for
// a project role that violates the rules of ParseProject.
func Compile(_ hub.TenantID, p Policy) *Rights {
	policy, problems := rbac.Read(p.Values)
	r := &Rights{indexes: map[string]*Index{}, above: abovePlatform(), tests: policy.Tests, problems: problems, regex: policy.Regex}
	for _, project := range p.Projects {
		r.projects = append(r.projects, project.Name)
	}
	slices.Sort(r.projects)
	if len(problems) > 0 {
		policy = refusing(policy)
	} else {
		r.complete(&policy, p.Projects)
	}
	r.set = rbac.Compile(policy, rbac.Options{RollbackApart: p.RollbackApart, Inherits: p.Inherits, Projects: r.projects})
	r.nobody = r.set.WithoutDefault()
	return r
}

// complete adds built-in roles and those of projects, and finds what is odd.
func (r *Rights) complete(policy *rbac.Policy, projects []hub.Project) {
	r.doubt(policy)
	policy.Rules = append(policy.Rules, builtin()...)
	for _, project := range projects {
		spec, err := hub.DecodeProject(project.Spec)
		if err != nil {
			continue
		}
		rules, bindings, errs := parseProject(project.Name, spec, policy.Regex)
		policy.Rules, policy.Bindings = append(policy.Rules, rules...), append(policy.Bindings, bindings...)
		for _, err := range errs {
			r.doubts = append(r.doubts, "project "+project.Name+": a role allows nothing: "+fault.Sentence(err))
		}
	}
	if policy.Default != "" && !slices.ContainsFunc(policy.Rules, func(rule Rule) bool { return rule.Subject == policy.Default }) &&
		!slices.ContainsFunc(policy.Bindings, func(b Binding) bool { return b.Subject == policy.Default }) {
		r.doubts = append(r.doubts, rbac.DefaultKey+": no rule is about "+policy.Default)
	}
}

// doubt notes rules that can match nothing.
func (r *Rights) doubt(policy *rbac.Policy) {
	for _, rule := range slices.Concat(policy.Rules, policy.Org) {
		if problem := rbac.Known(rule); problem != "" {
			r.doubts = append(r.doubts, rule.Origin.String()+": "+problem)
		}
	}
}

// Doubts are sentences on what is odd in a policy that is in force, such as a
// rule about a resource that is none.
func (r *Rights) Doubts() []string { return r.doubts[:min(len(r.doubts), maxDoubts)] }

const maxDoubts = 50

// refusing is what holds while a policy cannot be read.
func refusing(p rbac.Policy) rbac.Policy {
	out := rbac.Policy{Bindings: p.Bindings, Org: p.Org}
	for _, r := range p.Rules {
		if r.Deny {
			out.Rules = append(out.Rules, r)
		}
	}
	for _, action := range [...]string{Get, Update} {
		out.Rules = append(out.Rules, Rule{
			Subject: rbac.RolePrefix + hub.RoleTenantAdmin, Resource: Settings, Action: action, Object: rbac.Map + "/*", Origin: rbac.Origin{Source: rbac.BuiltIn},
		})
	}
	return out
}

// Problems are why the policy allows nothing; nil: it is in force.
func (r *Rights) Problems() []error { return r.problems }

// Regex reports whether patterns are regular expressions.
func (r *Rights) Regex() bool { return r.regex }

// Projects are those of the tenant, sorted.
func (r *Rights) Projects() []string { return r.projects }

// Unmet returns the tests of the policy that it fails. Accounts are the roles of
// local accounts by name.
func (r *Rights) Unmet(accounts map[string][]string) []rbac.Failure {
	return rbac.Run(r.tests, func(names []string) *rbac.Index { return r.named(names, accounts) })
}

// named returns the rights of a subject of a test, which unlike those who sign
// in may be a role itself.
func (r *Rights) named(names []string, accounts map[string][]string) *rbac.Index {
	all := slices.Clone(names)
	if len(names) > 0 { // the others are groups, which may be named like an account
		for _, role := range accounts[names[0]] {
			all = append(all, rbac.RolePrefix+role)
		}
	}
	return r.set.For(all)
}

// ForNames returns the rights of names that may be roles. It is for questions
// about a policy, never for somebody who calls.
func (r *Rights) ForNames(names []string, accounts map[string][]string) *Index {
	return &Index{Index: r.named(names, accounts), above: rbac.NewIndex(nil, nil), problems: r.problems, regex: r.regex}
}

// For returns the compiled rights of one subject.
func (r *Rights) For(s Subject) *Index {
	key := s.key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if ix, ok := r.indexes[key]; ok {
		return ix
	}
	if len(r.indexes) >= maxIndexes {
		clear(r.indexes)
	}
	ix := r.compile(s)
	r.indexes[key] = ix
	return ix
}

// compile gathers the rules of everything that the subject is. Roles of the
// account hold in the tenant and above it, groups and bindings of policies in
// the tenant alone.
func (r *Rights) compile(s Subject) *Index {
	set, names := r.set, s.names()
	if len(names) == 0 && !s.Anonymous {
		set = r.nobody // who has no name is nobody, and has no default role
	}
	var above []Rule
	for _, rule := range r.above {
		if slices.Contains(s.Roles, strings.TrimPrefix(rule.Subject, rbac.RolePrefix)) {
			above = append(above, rule)
		}
	}
	return &Index{Index: set.For(names), above: rbac.NewIndex(above, nil), problems: r.problems, regex: r.regex}
}

// Problem is the sentence of why a policy allows nothing; nil: it is in force.
func Problem(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	return fault.With(fault.New(fault.Denied, "the access policy of the tenant cannot be read, so it allows nothing: %s", fault.Sentence(problems[0])),
		"ConfigMap "+rbac.Map, "a tenant admin corrects it with `capstan settings set --map "+rbac.Map+"`")
}
