package rbac

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Map is the ConfigMap of access policies, and its keys.
const (
	Map          = "argocd-rbac-cm"
	PolicyKey    = "policy.csv"
	DefaultKey   = "policy.default"
	ScopesKey    = "scopes"
	MatchModeKey = "policy.matchMode"
	// OrgKey has the rules of the organisation: what they deny nothing allows.
	OrgKey = "policy.org.csv"
	// TestsKey has expectations that a policy must meet to be saved.
	TestsKey = "policy.tests"
)

// KeyPrefix begins all keys but ScopesKey.
const KeyPrefix = "policy."

// Everyone is the subject of rules in OrgKey that concern every subject.
const Everyone = "*"

// maxExpressions bounds the rules of a policy with regular expressions: unlike
// globs, each costs time at every first check of an object.
const maxExpressions = 1000

// A Policy is what argocd-rbac-cm says.
type Policy struct {
	Rules    []Rule
	Bindings []Binding
	// Org are rules of OrgKey that deny. Those that allow are among Rules.
	Org     []Rule
	Default string // role that everyone has; empty: none
	Regex   bool
	Scopes  []string
	Tests   []Test
}

// IsOverlay reports whether a key is a part of the policy besides PolicyKey.
func IsOverlay(key string) bool {
	return strings.HasPrefix(key, "policy.") && strings.HasSuffix(key, ".csv") && len(key) > len("policy..csv") && key != OrgKey
}

// Read reads the keys of argocd-rbac-cm; those that it does not know are
// skipped. It returns all that it can read, and an error for each part that
// it cannot, which names key and line.
func Read(values map[string]string) (Policy, []error) {
	var p Policy
	var errs []error
	check := func(key string, err error) {
		if err != nil {
			errs = append(errs, fault.With(err, key, ""))
		}
	}
	var err error
	p.Regex, err = ReadMatchMode(values[MatchModeKey])
	check(MatchModeKey, err)
	p.Default, err = ReadDefault(values[DefaultKey])
	check(DefaultKey, err)
	p.Scopes, err = ReadScopes(values[ScopesKey])
	check(ScopesKey, err)
	for _, key := range policyKeys(values) {
		rules, bindings, bad := Parse(key, values[key], p.Regex)
		errs = append(errs, bad...)
		p.Bindings = append(p.Bindings, bindings...)
		for _, r := range rules {
			if key == OrgKey && r.Deny {
				p.Org = append(p.Org, r)
				continue
			}
			if r.Subject == Everyone {
				errs = append(errs, fault.With(fault.New(fault.Invalid, "the subject * is for denials of %s", OrgKey), r.Origin.String(),
					"name a user, a group or a role; what everyone may do is the role of "+DefaultKey))
				continue
			}
			p.Rules = append(p.Rules, r)
		}
	}
	if n := len(p.Rules) + len(p.Org); p.Regex && n > maxExpressions {
		errs = append(errs, fault.With(fault.New(fault.Exceeded, "the policy has %d rules with regular expressions, and may have %d", n, maxExpressions), MatchModeKey, "use globs"))
	}
	var bad []error
	p.Tests, bad = ParseTests(values[TestsKey])
	return p, append(errs, bad...)
}

// policyKeys returns the keys with policy lines, PolicyKey first.
func policyKeys(values map[string]string) []string {
	keys := []string{PolicyKey}
	for key := range values {
		if IsOverlay(key) || key == OrgKey {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys[1:])
	return keys
}

// ReadMatchMode reads the value of MatchModeKey.
func ReadMatchMode(value string) (regex bool, err error) {
	switch value = strings.TrimSpace(value); value {
	case "", "glob":
		return false, nil
	case "regex":
		return true, nil
	}
	return false, fault.With(fault.New(fault.Invalid, "%q is neither glob nor regex", value), "", "")
}

// ReadDefault reads the value of DefaultKey.
func ReadDefault(value string) (string, error) {
	value = strings.TrimSpace(value)
	if strings.ContainsAny(value, "\n,\"") {
		return "", fault.With(fault.New(fault.Invalid, "%q is not the name of one role", value), "", "write it like role:readonly")
	}
	return value, nil
}

// ReadScopes reads the value of ScopesKey, a list in brackets such as
// "[groups, email]". Without a value it is groups.
func ReadScopes(value string) ([]string, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return []string{"groups"}, nil
	}
	inner, open := strings.CutPrefix(value, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !open || !closed {
		return []string{"groups"}, fault.With(fault.New(fault.Invalid, "%q is not a list in brackets", value), "", "write it like [groups, email]")
	}
	var out []string
	for _, s := range strings.Split(inner, ",") {
		s = strings.Trim(strings.TrimSpace(s), `"'`)
		if strings.ContainsAny(s, " \t\n[]{}\"'") {
			return []string{"groups"}, fault.With(fault.New(fault.Invalid, "%q is not the name of a claim", s), "", "write it like [groups, email]")
		}
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// BuiltinRules are those of Argo CD's roles admin and readonly.
func BuiltinRules() []Rule {
	allow := func(role, resource, action, object string) Rule {
		return Rule{Subject: RolePrefix + role, Resource: resource, Action: action, Object: object, Origin: Origin{Source: BuiltIn}}
	}
	out := []Rule{allow("admin", "*", "*", "*")}
	for _, resource := range [...]string{
		"applications", "applicationsets", "certificates", "clusters", "repositories", "write-repositories", "projects", "accounts", "gpgkeys", "logs",
	} {
		out = append(out, allow("readonly", resource, "get", "*"))
	}
	return out
}

// Known reports what a rule names that no release of Argo CD or Capstan has: a
// resource, or an action. Such a rule is kept and matches nothing.
func Known(r Rule) (problem string) {
	if r.Regex {
		return ""
	}
	known := func(pattern string, names []string) bool {
		m := newMatcher(pattern, false)
		return slices.ContainsFunc(names, m.match)
	}
	if !known(r.Resource, Resources()) {
		return "there is no resource " + r.Resource
	}
	verb, _, _ := strings.Cut(r.Action, "/")
	if !known(verb, Actions()) && !known(r.Action, Actions()) {
		return "there is no action " + r.Action
	}
	return ""
}

// Resources are all that rules can name.
func Resources() []string {
	return []string{
		"applications", "applicationsets", "clusters", "projects", "repositories", "write-repositories", "certificates", "accounts", "gpgkeys", "logs",
		"exec", "port-forward", "extensions", "settings", "audit", "tenants",
	}
}

// Actions are all that rules can name, without what follows a slash.
func Actions() []string {
	return []string{"get", "create", "update", "delete", "sync", "rollback", "override", "action", "invoke"}
}
