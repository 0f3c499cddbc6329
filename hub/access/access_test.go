package access

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

const tenant = hub.TenantID("0190b2c4-0000-7000-8000-000000000001")

func project(t testing.TB, name string, spec hub.ProjectSpec) hub.Project {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return hub.Project{Meta: hub.Meta{Name: name}, Spec: raw}
}

func index(t testing.TB, p Policy, s Subject) *Index {
	t.Helper()
	r := Compile(tenant, p)
	if len(r.Problems()) > 0 {
		t.Fatal(r.Problems())
	}
	return r.For(s)
}

// csv is a policy of these lines.
func csv(text string) map[string]string { return map[string]string{rbac.PolicyKey: text} }

func TestRoles(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why                      string
		subject                  Subject
		resource, action, object string
		want                     bool
	}{
		"RBAC-13 TenantAdminSyncs": {"an admin may do everything in the tenant", Subject{User: "ann", Roles: []string{"tenant-admin"}}, Applications, Sync, "shop/web", true},
		"RBAC-13 ArgoAdminSyncs":   {"Argo CD's name of the role works too", Subject{User: "ann", Roles: []string{"admin"}}, Applications, Sync, "shop/web", true},
		"TenantAdminNoTenants":     {"tenants are above a tenant's admin", Subject{User: "ann", Roles: []string{"tenant-admin"}}, Tenants, Create, "other", false},
		"PlatformAdminTenants":     {"that is what the role is for", Subject{User: "pat", Roles: []string{"platform-admin"}}, Tenants, Create, "other", true},
		"PlatformAdminNoApps":      {"the platform does not look into tenants", Subject{User: "pat", Roles: []string{"platform-admin"}}, Applications, Get, "shop/web", false},
		"RBAC-13 ReaderReads":      {"readonly reads", Subject{User: "rob", Roles: []string{"readonly"}}, Applications, Get, "shop/web", true},
		"RBAC-13 ReaderNoSync":     {"and nothing else", Subject{User: "rob", Roles: []string{"readonly"}}, Applications, Sync, "shop/web", false},
		"ReaderNoAudit":            {"the audit log is for admins", Subject{User: "rob", Roles: []string{"readonly"}}, Audit, Get, "*", false},
		"NobodyNothing":            {"no role, no right", Subject{User: "nil"}, Applications, Get, "shop/web", false},
		"EmptyNameNothing":         {"a caller without a name is nobody in particular (SEC-E3)", Subject{}, Applications, Get, "shop/web", false},
		"UnknownRoleNothing":       {"a role without rules gives nothing", Subject{User: "x", Roles: []string{"owner"}}, Applications, Get, "shop/web", false},
		"UserNamedLikeARole":       {"account names hold no colon, and without it there is no role", Subject{User: "tenant-admin"}, Applications, Get, "shop/web", false},
		"RoleTextInjection":        {"a role's name is one name", Subject{User: "x", Roles: []string{"readonly, role:tenant-admin"}}, Applications, Sync, "a/b", false},
		"PlatformByUserNameNever":  {"only the account's role counts", Subject{User: "role:platform-admin"}, Tenants, Get, "x", false},
		"PlatformThroughGroupNope": {"groups hold in the tenant alone", Subject{User: "x", Groups: []string{"role:platform-admin"}}, Tenants, Get, "x", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := index(t, Policy{}, c.subject).Check(c.resource, c.action, c.object); got != c.want {
				t.Errorf("Check(%s, %s, %s) = %v: %s", c.resource, c.action, c.object, got, c.why)
			}
		})
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	text := `
# comment
p, role:dev, applications, get, */*, allow
p, role:dev, applications, sync, shop/*, allow
p, role:dev, applications, sync, shop/prod-*, deny
p, role:greedy, *, *, *, allow
g, devs, role:dev
g, eve, role:greedy
g, eve, role:platform-admin
`
	t.Run("RBAC-01 a deny wins over any allow", func(t *testing.T) {
		t.Parallel()
		ix := index(t, Policy{Values: csv(text)}, Subject{User: "dan", Groups: []string{"devs"}})
		if !ix.Check(Applications, Sync, "shop/web") || ix.Check(Applications, Sync, "shop/prod-web") {
			t.Error("the deny of shop/prod-* does not decide")
		}
		both := index(t, Policy{Values: csv(text)}, Subject{User: "dan", Groups: []string{"devs"}, Roles: []string{"tenant-admin"}})
		if both.Check(Applications, Sync, "shop/prod-web") {
			t.Error("an admin role overrides a deny")
		}
		d := ix.Explain(Applications, Sync, "shop/prod-web")
		if d.Allowed || d.Rule.String() != "p, role:dev, applications, sync, shop/prod-*, deny" || d.Rule.Origin.String() != "policy.csv, line 5" {
			t.Errorf("Explain() = %+v, %v", d, d.Rule)
		}
	})
	t.Run("RBAC-16 a star crosses slashes", func(t *testing.T) {
		t.Parallel()
		if !index(t, Policy{Values: csv(text)}, Subject{User: "dan", Groups: []string{"devs"}}).Check(Applications, Get, "shop/team/web") {
			t.Error("*/* does not match shop/team/web")
		}
	})
	t.Run("SEC-D15 no policy of a tenant reaches above the tenant", func(t *testing.T) {
		t.Parallel()
		ix := index(t, Policy{Values: csv(text)}, Subject{User: "eve"})
		if !ix.Check(Applications, Delete, "shop/web") {
			t.Error("the tenant's own rule does not hold")
		}
		if ix.Check(Tenants, Create, "x") {
			t.Error("a tenant's policy made a platform admin")
		}
	})
	t.Run("RBAC-14 PROJ-12 PROJ-14 project roles hold in their project", func(t *testing.T) {
		t.Parallel()
		p := project(t, "shop", hub.ProjectSpec{Roles: []hub.ProjectRole{{
			Name: "dev", Groups: []string{"shoppers"},
			Policies: []string{"p, proj:shop:dev, applications, sync, shop/*, allow"},
		}}})
		ix := index(t, Policy{Projects: []hub.Project{p}}, Subject{User: "sue", Groups: []string{"shoppers"}})
		if !ix.Check(Applications, Sync, "shop/web") || ix.Check(Applications, Sync, "bank/web") {
			t.Error("the role does not hold in its project, or holds outside")
		}
		if !ix.Check(Projects, Get, "shop") || ix.Check(Projects, Get, "bank") {
			t.Error("PROJ-14: who has a role may look at the project, and at no other")
		}
		all, projects := ix.AllowedProjects(Applications, Sync)
		if all || !slices.Equal(projects, []string{"shop"}) {
			t.Errorf("AllowedProjects() = %v, %v", all, projects)
		}
	})
	t.Run("a cluster is checked under all its names", func(t *testing.T) {
		t.Parallel()
		p := Policy{Values: csv("p, role:o, clusters, get, *, allow\np, role:o, clusters, get, https://prod.example.com, deny\ng, dan, role:o")}
		ix := index(t, p, Subject{User: "dan"})
		if ix.CheckAny(Clusters, Get, "prod", "https://prod.example.com") || !ix.CheckAny(Clusters, Get, "dev", "https://dev.example.com") {
			t.Error("a deny by server does not decide")
		}
	})
}

func TestBadPolicies(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"FiveFields":   "p, a, applications, get, */*",
		"BadEffect":    "p, a, applications, get, */*, maybe",
		"EmptySubject": "p, , applications, get, */*, allow",
		"EmptyObject":  "p, a, applications, get, , allow",
		"Neither":      "q, a, b",
		"BareBinding":  "g, a",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, errs := rbac.Parse("policy.csv", "# ok\n"+text, false)
			if len(errs) != 1 {
				t.Fatalf("Parse() = %v, want one error", errs)
			}
			err := errs[0]
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "line 2") {
				t.Errorf("Parse() = %v, want an invalid policy that names line 2", err)
			}
		})
	}
}

func TestBadProjectRoles(t *testing.T) {
	t.Parallel()
	role := func(policies ...string) hub.ProjectSpec {
		return hub.ProjectSpec{Roles: []hub.ProjectRole{{Name: "dev", Policies: policies}}}
	}
	for name, c := range map[string]hub.ProjectSpec{
		"OtherSubject":   role("p, proj:bank:dev, applications, get, shop/*, allow"),
		"RoleSubject":    role("p, role:tenant-admin, applications, get, shop/*, allow"),
		"OtherProject":   role("p, proj:shop:dev, applications, get, bank/*, allow"),
		"AllObjects":     role("p, proj:shop:dev, applications, get, *, allow"),
		"AllResources":   role("p, proj:shop:dev, *, get, shop/*, allow"),
		"Accounts":       role("p, proj:shop:dev, accounts, create, shop/x, allow"),
		"ProjectPrefix":  role("p, proj:shop:dev, applications, get, shopping/*, allow"),
		"BindingInside":  role("g, x, proj:shop:dev"),
		"Twice":          {Roles: []hub.ProjectRole{{Name: "a"}, {Name: "a"}}},
		"BadName":        {Roles: []hub.ProjectRole{{Name: "a:b"}}},
		"EmptyName":      {Roles: []hub.ProjectRole{{Name: ""}}},
		"RoleAsGroup":    {Roles: []hub.ProjectRole{{Name: "a", Groups: []string{"role:tenant-admin"}}}},
		"ProjectAsGroup": {Roles: []hub.ProjectRole{{Name: "a", Groups: []string{"proj:bank:dev"}}}},
	} {
		t.Run("PROJ-21 "+name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := ParseProject("shop", c, false); fault.KindOf(err) != fault.Invalid {
				t.Errorf("ParseProject() = %v, want it refused", err)
			}
			// What got in all the same gives nothing.
			ix := index(t, Policy{Projects: []hub.Project{project(t, "shop", c)}}, Subject{User: "x", Groups: []string{"proj:shop:dev", "role:dev"}})
			if ix.Check(Applications, Get, "bank/web") || ix.Check(Accounts, Create, "shop/x") {
				t.Error("a bad project role gives rights")
			}
		})
	}
}

// A list that looks only where AllowedProjects points misses nothing.
func TestAllowedProjectsMissNothing(t *testing.T) {
	t.Parallel()
	projects := []string{"bank", "shop", "shopping"}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom([]string{"*", "*/*", "shop/*", "sh*", "sh*/*", "?ank/web", "*ing/*", "shop/w*", "bank", "b*k/*", "*/web", "[a-s]hop/*", "[!s]*", "s[h]op*/w*"})
		var text []string
		for range rapid.IntRange(1, 5).Draw(t, "rules") {
			text = append(text, "p, ann, applications, get, "+pattern.Draw(t, "pattern")+", "+rapid.SampledFrom([]string{"allow", "allow", "deny"}).Draw(t, "eft"))
		}
		var made []hub.Project
		for _, p := range projects {
			made = append(made, hub.Project{Meta: hub.Meta{Name: p}, Spec: []byte("{}")})
		}
		ix := Compile(tenant, Policy{Values: csv(strings.Join(text, "\n")), Projects: made}).For(Subject{User: "ann"})
		all, allowed := ix.AllowedProjects(Applications, Get)
		for _, p := range projects {
			for _, app := range []string{"web", "api", "ns/web"} {
				if ix.Check(Applications, Get, p+"/"+app) && !all && !slices.Contains(allowed, p) {
					t.Fatalf("%s/%s may be seen, but AllowedProjects() = %v, %v\n%s", p, app, all, allowed, strings.Join(text, "\n"))
				}
			}
		}
	})
}

func TestCache(t *testing.T) {
	t.Parallel()
	load := func(text string) func(context.Context) (Policy, error) {
		return func(context.Context) (Policy, error) { return Policy{Values: csv(text)}, nil }
	}
	t.Run("a new version is compiled before it is used", func(t *testing.T) {
		t.Parallel()
		c := NewCache()
		first, err := c.Rights(t.Context(), tenant, 1, load("p, ann, applications, get, a/*, allow"))
		if err != nil {
			t.Fatal(err)
		}
		again, _ := c.Rights(t.Context(), tenant, 1, func(context.Context) (Policy, error) { return Policy{}, errors.New("loaded twice") })
		if first != again {
			t.Error("the same version was compiled again")
		}
		second, err := c.Rights(t.Context(), tenant, 2, load(""))
		if err != nil {
			t.Fatal(err)
		}
		ix := second.For(Subject{User: "ann"})
		if ix.Check(Applications, Get, "a/b") {
			t.Error("a revoked right still holds")
		}
		if _, err := c.Rights(t.Context(), tenant, 1, load("p, ann, applications, get, a/*, allow")); err != nil {
			t.Fatal(err)
		}
		newest, _ := c.Rights(t.Context(), tenant, 2, func(context.Context) (Policy, error) { return Policy{}, errors.New("thrown away") })
		if newest != second {
			t.Error("an older transaction replaced the newer rights")
		}
	})
	t.Run("SEC-D10 checks beside 100,000 reloads see one version or the other, and never none", func(t *testing.T) {
		t.Parallel()
		const reloads = 100_000
		c := NewCache()
		texts := []string{"p, ann, applications, get, a/*, allow", "p, ann, applications, get, b/*, allow"}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for v := range int64(reloads) {
					r, err := c.Rights(context.Background(), tenant, v, load(texts[v%2]))
					if err != nil {
						t.Error(err)
						return
					}
					ix := r.For(Subject{User: "ann"})
					if a, b := ix.Check(Applications, Get, "a/x"), ix.Check(Applications, Get, "b/x"); a == b || a != (v%2 == 0) {
						t.Errorf("goroutine %d, version %d: a=%v b=%v", g, v, a, b)
						return
					}
				}
			})
		}
		wg.Wait()
	})
	t.Run("an invalid policy decides nothing", func(t *testing.T) {
		t.Parallel()
		r, err := NewCache().Rights(t.Context(), tenant, 1, load("p, ann, *, *, *, allow\nnonsense"))
		if err != nil {
			t.Fatal(err)
		}
		if problems := r.Problems(); len(problems) != 1 || fault.KindOf(problems[0]) != fault.Invalid {
			t.Errorf("Problems() = %v", problems)
		}
		if r.For(Subject{User: "ann"}).Check(Applications, Get, "a/b") {
			t.Error("a line of it allows something")
		}
	})
}

func TestRuleText(t *testing.T) {
	t.Parallel()
	line := "p, role:a, applications, get, */*, deny"
	rules, _, errs := rbac.Parse("policy.csv", line, false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(line, rules[0].String()); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkCheck(b *testing.B) {
	var text strings.Builder
	for i := range 200 {
		text.WriteString("p, role:a, applications, get, p" + string(rune('a'+i%26)) + "/*, allow\n")
	}
	text.WriteString("g, ann, role:a\n")
	ix := index(b, Policy{Values: csv(text.String())}, Subject{User: "ann"})
	for b.Loop() {
		if !ix.Check(Applications, Get, "pz/web") {
			b.Fatal("denied")
		}
	}
}
