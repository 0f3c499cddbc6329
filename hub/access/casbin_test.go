package access

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"

	"github.com/capstan-cd/capstan/shared/glob"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// argoModel is Argo CD's model of casbin; the effect is filled in.
const argoModel = `
[request_definition]
r = sub, res, act, obj

[policy_definition]
p = sub, res, act, obj, eft

[role_definition]
g = _, _

[policy_effect]
e = %s

[matchers]
m = g(r.sub, p.sub) && globOrRegexMatch(r.res, p.res, p.sub) && globOrRegexMatch(r.act, p.act, p.sub) && globOrRegexMatch(r.obj, p.obj, p.sub)
`

const (
	someAllowNoDeny = "some(where (p.eft == allow)) && !some(where (p.eft == deny))"
	noDeny          = "!some(where (p.eft == deny))"
)

// enforcer loads rules and bindings into casbin. Built-in roles have globs
// whatever the mode.
func enforcer(t testing.TB, effect string, rules []Rule, bindings []Binding, regex bool) *casbin.Enforcer {
	t.Helper()
	m, err := model.NewModelFromString(fmt.Sprintf(argoModel, effect))
	if err != nil {
		t.Fatal(err)
	}
	e, err := casbin.NewEnforcer(m)
	if err != nil {
		t.Fatal(err)
	}
	e.AddFunction("globOrRegexMatch", func(args ...any) (any, error) {
		value, pattern, subject := args[0].(string), args[1].(string), args[2].(string)
		if regex && !strings.HasPrefix(subject, "builtin ") {
			return regexp.MustCompile(pattern).MatchString(value), nil
		}
		return glob.Match(pattern, value), nil
	})
	var lines, links [][]string
	for _, r := range rules {
		subject := r.Subject
		if r.Source == rbac.BuiltIn {
			subject = "builtin " + subject
			links = append(links, []string{r.Subject, subject})
		}
		line := []string{subject, r.Resource, r.Action, r.Object, r.Effect()}
		if !slices.ContainsFunc(lines, func(l []string) bool { return slices.Equal(l, line) }) {
			lines = append(lines, line)
		}
	}
	for _, b := range bindings {
		links = append(links, []string{b.Subject, b.Role})
	}
	slices.SortFunc(links, slices.Compare)
	links = slices.CompactFunc(links, slices.Equal)
	for _, add := range []func() (bool, error){
		func() (bool, error) { return e.AddPoliciesEx(lines) },
		func() (bool, error) { return e.AddGroupingPoliciesEx(links) },
	} {
		if _, err := add(); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// A pool draws what policies are made of.
type pool struct{ *rand.Rand }

func (p pool) of(all ...string) string { return all[p.IntN(len(all))] }

func (p pool) object(regex bool) string {
	if regex {
		return p.of("shop/.*", "^shop/web$", "bank", ".*", "prod-[0-9]+", "^(shop|bank)/w", "/web$", "é", "[^/]+/[^/]+/web")
	}
	segment := func() string {
		return p.of("shop", "bank", "*", "sh*", "?ank", "web", "prod-*", "*eb", "é", "[a-s]hop", "[!s]ank", "{shop,bank}", "**", "w*b")
	}
	out := []string{segment()}
	for range p.IntN(3) {
		out = append(out, segment())
	}
	return strings.Join(out, "/")
}

func (p pool) rule(regex bool) string {
	resource, action := p.of("applications", "projects", "*", "tenants", "app*", "clusters"), p.of("get", "sync", "*", "action/*", "action/apps/Deployment/restart")
	if regex {
		resource, action = p.of("applications", "projects", ".*", "^app", "clusters"), p.of("get", "sync", ".*", "action/.*", "^action/apps/[^/]+/restart$")
	}
	return strings.Join([]string{"p", p.name(), resource, action, `"` + p.object(regex) + `"`, p.of("allow", "allow", "deny")}, ", ")
}

func (p pool) name() string {
	return p.of("ann", "bob", "devs", "ops", "role:a", "role:b", "role:c", "role:readonly", "role:admin", "role:tenant-admin", "proj:shop:dev")
}

func (p pool) policy() Policy {
	regex := p.IntN(4) == 0
	lines := func(rules, bindings int) string {
		var out []string
		for range p.IntN(rules + 1) {
			out = append(out, p.rule(regex))
		}
		for range p.IntN(bindings + 1) {
			out = append(out, "g, "+p.name()+", "+p.name())
		}
		return strings.Join(out, "\n")
	}
	values := map[string]string{rbac.PolicyKey: lines(10, 6), "policy.more.csv": lines(3, 2)}
	if regex {
		values[rbac.MatchModeKey] = "regex"
	}
	if p.IntN(2) == 0 {
		values[rbac.DefaultKey] = p.of("role:readonly", "role:a", "role:none", "proj:shop:dev")
	}
	if p.IntN(2) == 0 {
		values[rbac.OrgKey] = lines(2, 1)
		if p.IntN(2) == 0 {
			values[rbac.OrgKey] += "\np, *, applications, sync, shop/web, deny"
		}
	}
	return Policy{Values: values, RollbackApart: true}
}

// some returns a few of all.
func (p pool) some(all ...string) (out []string) {
	for _, v := range all {
		if p.IntN(3) == 0 {
			out = append(out, v)
		}
	}
	return out
}

// The index is casbin's Enforce, precomputed (SEC-D14): first the denials of
// the organisation, then the default role, then the subject with all that it is.
//
// The policies are dealt out to shards, which run at once.
func TestIndexEqualsEnforce(t *testing.T) {
	t.Parallel()
	const shards = 8
	seed := rand.Uint64()
	var allowed atomic.Int64
	t.Run("RBAC-01 RBAC-12 SEC-D14 random policies decide as casbin's Enforce does", func(t *testing.T) {
		for shard := range uint64(shards) {
			t.Run(fmt.Sprintf("shard %d", shard), func(t *testing.T) {
				t.Parallel()
				n := shard
				defer func() {
					if t.Failed() {
						t.Logf("with seed %d, policy %d", seed, n)
					}
				}()
				for ; n < randomPolicies; n += shards {
					allowed.Add(int64(compare(t, pool{rand.New(rand.NewPCG(seed, n))}, questionsEach)))
				}
			})
		}
	})
	t.Logf("measured: %d decisions, %d of them allow", randomPolicies*questionsEach, allowed.Load())
	if n := allowed.Load(); n < randomPolicies || n > randomPolicies*(questionsEach-1) {
		t.Errorf("%d of %d decisions allow, which tests little", n, randomPolicies*questionsEach)
	}
}

// compare asks both about one random policy and returns how many answers were
// yes.
func compare(t *testing.T, p pool, questions int) (allowed int) {
	policy := p.policy()
	s := Subject{User: p.of("ann", "bob", "cat"), Roles: p.some("readonly", "tenant-admin", "platform-admin"), Groups: p.some("devs", "ops", "role:a", "proj:shop:dev")}
	ix := index(t, policy, s)
	read, _ := rbac.Read(policy.Values)
	const asker = "asker"
	bindings := slices.Clone(read.Bindings)
	for _, n := range []string{s.User, "devs", "ops"} {
		if n == s.User || slices.Contains(s.Groups, n) {
			bindings = append(bindings, Binding{Subject: asker, Role: n})
		}
	}
	for _, r := range s.Roles {
		bindings = append(bindings, Binding{Subject: asker, Role: rbac.RolePrefix + r})
	}
	rules := append(slices.Clone(read.Rules), builtin()...)
	own := enforcer(t, someAllowNoDeny, rules, bindings, read.Regex)
	org := enforcer(t, noDeny, read.Org, append(slices.Clone(bindings), Binding{Subject: asker, Role: rbac.Everyone}), read.Regex)
	enforce := func(e *casbin.Enforcer, subject, res, act, obj string) bool {
		ok, err := e.Enforce(subject, res, act, obj)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for range questions {
		res, act := p.of("applications", "projects", "clusters"), p.of("get", "sync", "action/apps/Deployment/restart")
		obj := p.of("shop", "shop/web", "bank/web", "shop/ns/web", "bank/prod-1", "é/web", "shop/", "web")
		want := enforce(org, asker, res, act, obj) &&
			(read.Default != "" && enforce(own, read.Default, res, act, obj) || enforce(own, asker, res, act, obj))
		if got := ix.Check(res, act, obj); got != want {
			t.Fatalf("Check(%s, %s, %s) = %v, casbin decides %v\n%v\n%+v", res, act, obj, got, want, policy.Values, s)
		}
		if d := ix.Explain(res, act, obj); d.Allowed != want {
			t.Fatalf("Explain(%s, %s, %s) = %+v, casbin decides %v\n%v\n%+v", res, act, obj, d, want, policy.Values, s)
		}
		if want {
			allowed++
		}
	}
	return allowed
}
