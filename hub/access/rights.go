package access

import (
	"slices"
	"strings"
	"sync"

	"github.com/casbin/casbin/v2"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/glob"
)

// A Subject is who asks: an account, its roles, and its groups. Names of
// accounts hold no colon, so an account cannot be named like a role.
type Subject struct {
	User   string
	Roles  []string // of the account: platform-admin, tenant-admin, readonly
	Groups []string
}

// SubjectOf is the subject that a caller is.
func SubjectOf(c hub.Caller) Subject {
	return Subject{User: c.Username, Roles: c.Roles, Groups: c.Groups}
}

func (s Subject) key() string {
	var b strings.Builder
	b.WriteString(s.User)
	for _, list := range [][]string{s.Roles, s.Groups} {
		b.WriteByte(0)
		for _, v := range list {
			b.WriteString(v)
			b.WriteByte(1)
		}
	}
	return b.String()
}

// A Policy is what the rights of a tenant are made of.
type Policy struct {
	Text     string
	Projects []hub.Project
	// RollbackApart means that a rollback needs the right rollback. Without it
	// the right sync is sufficient (ROLL-04).
	RollbackApart bool
}

type domainBinding struct {
	Binding
	domain string
}

// Rights are the compiled rules of one tenant at one version of its policy.
// They never change. Many goroutines may use them.
type Rights struct {
	tenant   string
	projects []string
	rules    []Rule
	bindings []domainBinding
	enforcer *casbin.Enforcer // used under mu: it resolves roles

	mu      sync.Mutex
	indexes map[string]*Index
}

// maxIndexes bounds the number of compiled subjects.
const maxIndexes = 4096

// Compile makes rights of a policy. A project role that violates the rules of
// ParseProject grants nothing; the catalog refuses such a role.
func Compile(tenant hub.TenantID, p Policy) (*Rights, error) {
	r := &Rights{tenant: string(tenant), indexes: map[string]*Index{}}
	r.rules = builtin(r.tenant)
	add := func(rules []Rule, bindings []Binding) {
		for _, rule := range rules {
			rule.domain = r.tenant
			r.rules = append(r.rules, rule)
		}
		for _, b := range bindings {
			r.bindings = append(r.bindings, domainBinding{b, r.tenant})
		}
	}
	rules, bindings, err := Parse(p.Text)
	if err != nil {
		return nil, err
	}
	add(rules, bindings)
	for _, project := range p.Projects {
		r.projects = append(r.projects, project.Name)
		spec, err := hub.DecodeProject(project.Spec)
		if err != nil {
			continue
		}
		if rules, bindings, err = ParseProject(project.Name, spec); err == nil {
			add(rules, bindings)
		}
	}
	if !p.RollbackApart {
		r.rules = append(r.rules, rollbackLikeSync(r.rules)...)
	}
	slices.Sort(r.projects)
	if r.enforcer, err = enforcer(r.rules, r.bindings); err != nil {
		return nil, err
	}
	return r, nil
}

// rollbackLikeSync returns a rule about rollbacks for each rule about syncs:
// what is allowed or denied for one is so for the other.
func rollbackLikeSync(rules []Rule) (out []Rule) {
	for _, rule := range rules {
		if glob.Match(rule.Resource, Applications) && glob.Match(rule.Action, Sync) && !glob.Match(rule.Action, Rollback) {
			rule.Resource, rule.Action = Applications, Rollback
			out = append(out, rule)
		}
	}
	return out
}

// For returns the compiled rights of one subject.
func (r *Rights) For(s Subject) (*Index, error) {
	key := s.key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if ix, ok := r.indexes[key]; ok {
		return ix, nil
	}
	ix, err := r.compile(s)
	if err != nil {
		return nil, err
	}
	if len(r.indexes) >= maxIndexes {
		clear(r.indexes)
	}
	r.indexes[key] = ix
	return ix, nil
}

// compile gathers the rules of everything that the subject is. Roles of the
// account hold in the tenant and above it, groups and bindings of policies in
// the tenant alone.
func (r *Rights) compile(s Subject) (*Index, error) {
	above := map[string]bool{}
	names := append([]string{s.User}, s.Groups...)
	for _, role := range s.Roles {
		names = append(names, rolePrefix+role)
		above[rolePrefix+role] = true
	}
	inTenant, err := r.withRoles(names)
	if err != nil {
		return nil, err
	}
	return &Index{
		projects: r.projects, rules: r.rulesOf(r.tenant, inTenant), above: r.rulesOf(platform, above),
		cache: map[question]*answers{},
	}, nil
}

// withRoles returns subjects and all roles that they have in the tenant.
func (r *Rights) withRoles(names []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, n := range names {
		if n == "" {
			continue
		}
		out[n] = true
		roles, err := r.enforcer.GetImplicitRolesForUser(n, r.tenant)
		if err != nil {
			return nil, err
		}
		for _, role := range roles {
			out[role] = true
		}
	}
	return out, nil
}

// rulesOf returns the rules of these subjects in a domain, in their order.
func (r *Rights) rulesOf(domain string, subjects map[string]bool) []Rule {
	var out []Rule
	for _, rule := range r.rules {
		if rule.domain == domain && subjects[rule.Subject] {
			out = append(out, rule)
		}
	}
	return out
}
