package api_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

// Two tenants with equal names of everything live side by side.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tenant := range []string{"acme", "bolt"} {
		admin := w.Admin(tenant)
		w.call(admin, "POST", "/api/v1/applications", application("web", func(s map[string]any) {
			s["info"] = []any{map[string]any{"name": "owner", "value": tenant}}
		})).ok(201)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
		w.call(admin, "POST", "/api/v1/apply", manifest(t, "15-appproject.yaml")).ok(200)
		w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/same/same", "name": tenant}).ok(200)
	}
	t.Run("ISO-5 every list and object shows the caller's own", func(t *testing.T) {
		for _, c := range []struct{ own, other string }{{"acme", "bolt"}, {"bolt", "acme"}} {
			for _, path := range []string{
				"/api/v1/applications", "/api/v1/applications/argocd/web", "/api/v1/projects", "/api/v1/clusters", "/api/v1/clusters/prod",
				"/api/v1/repositories", "/api/v1/audit", "/api/v1/users", "/api/v1/me",
			} {
				a := w.call(w.Admin(c.own), "GET", path, nil).ok(200)
				if bytes.Contains(a.body, []byte(`"`+c.other+`"`)) {
					t.Errorf("%s of %s shows %s: %s", path, c.own, c.other, a.body)
				}
			}
		}
	})
	t.Run("ISO-5 ids of another tenant are answered like unknown ids", func(t *testing.T) {
		var repos struct{ Items []struct{ ID string } }
		w.call(w.Admin("acme"), "GET", "/api/v1/repositories", nil).ok(200).into(&repos)
		theirs := w.call(w.Admin("bolt"), "GET", "/api/v1/repositories/"+repos.Items[0].ID, nil).fails(404)
		nothing := w.call(w.Admin("bolt"), "GET", "/api/v1/repositories/0190b2c4-0000-7000-8000-00000000ffff", nil).fails(404)
		if strip(theirs.Message) != strip(nothing.Message) {
			t.Errorf("the answers differ: %q and %q", theirs.Message, nothing.Message)
		}
		for _, verb := range []string{"DELETE", "POST"} {
			path := "/api/v1/repositories/" + repos.Items[0].ID
			if verb == "POST" {
				path += "/refresh"
			}
			w.call(w.Admin("bolt"), verb, path, nil).fails(404)
		}
		w.call(w.Admin("acme"), "GET", "/api/v1/repositories/"+repos.Items[0].ID, nil).ok(200)
	})
	t.Run("deleting in one leaves the other", func(t *testing.T) {
		w.call(w.Admin("acme"), "DELETE", "/api/v1/applications/argocd/web", nil).ok(204)
		w.call(w.Admin("acme"), "DELETE", "/api/v1/clusters/prod", nil).ok(204)
		w.call(w.Admin("bolt"), "GET", "/api/v1/applications/argocd/web", nil).ok(200)
		w.call(w.Admin("bolt"), "GET", "/api/v1/clusters/prod", nil).ok(200)
	})
}

func strip(s string) string {
	if i := strings.Index(s, `"`); i >= 0 {
		return s[:i] + s[strings.LastIndex(s, `"`)+1:]
	}
	return s
}

// A member of a project sees and touches that project alone, and cannot tell
// what else there is.
func TestProjectRoles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	for _, p := range []string{"shop", "bank"} {
		w.call(admin, "POST", "/api/v1/apply", fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: %[1]s}
spec:
  sourceRepos: ['*']
  destinations: [{server: '*', namespace: '*'}]
  roles:
  - name: dev
    groups: [%[1]s-dev]
    policies:
    - p, proj:%[1]s:dev, applications, get, %[1]s/*, allow
    - p, proj:%[1]s:dev, applications, sync, %[1]s/*, allow
    - p, proj:%[1]s:dev, applications, create, %[1]s/web-*, allow
    - p, proj:%[1]s:dev, applications, get, %[1]s/secret-*, deny
`, p)).ok(200)
		for _, name := range []string{"web", "api", "secret-1"} {
			w.call(admin, "POST", "/api/v1/applications", application(p+"-"+name, func(s map[string]any) { s["project"] = p })).ok(201)
		}
		w.call(admin, "POST", "/api/v1/applications", application("secret-"+p, func(s map[string]any) { s["project"] = p })).ok(201)
	}
	dev := w.User("acme", "shop-dev") // local accounts are subjects by name
	var l struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	t.Run("RBAC-19 a list shows what may be seen", func(t *testing.T) {
		w.call(dev, "GET", "/api/v1/applications?limit=1", nil).ok(200).into(&l)
		w.call(dev, "GET", "/api/v1/applications", nil).ok(200).into(&l)
		var names []string
		for _, i := range l.Items {
			names = append(names, i.Metadata.Name)
		}
		if got := strings.Join(names, " "); got != "shop-api shop-secret-1 shop-web" {
			t.Errorf("the list is %q", got)
		}
	})
	t.Run("SEC-G2 invisible objects are answered like missing ones", func(t *testing.T) {
		absent := w.call(dev, "GET", "/api/v1/applications/argocd/bank-none", nil).fails(404)
		for _, name := range []string{"bank-web", "secret-shop"} {
			hidden := w.call(dev, "GET", "/api/v1/applications/argocd/"+name, nil).fails(404)
			if strip(hidden.Message) != strip(absent.Message) || hidden.Fix != absent.Fix || hidden.Code != absent.Code {
				t.Errorf("hidden and absent differ: %+v and %+v", hidden, absent)
			}
			for verb, path := range map[string]string{"POST": "/sync", "GET": "/tree", "DELETE": ""} {
				w.call(dev, verb, "/api/v1/applications/argocd/"+name+path, map[string]any{}).fails(404)
			}
		}
		w.call(dev, "GET", "/api/v1/projects/bank", nil).fails(404)
		w.call(dev, "GET", "/api/v1/projects/none", nil).fails(404)
		w.call(dev, "GET", "/api/v1/projects/shop", nil).ok(200)
	})
	t.Run("SEC-G2 creating an invisible existing object is answered like a missing right", func(t *testing.T) {
		taken := w.call(dev, "POST", "/api/v1/applications", application("bank-web", func(s map[string]any) { s["project"] = "bank" })).fails(403)
		free := w.call(dev, "POST", "/api/v1/applications", application("bank-new", func(s map[string]any) { s["project"] = "bank" })).fails(403)
		if taken.Code != free.Code || taken.Cause != free.Cause {
			t.Errorf("the answers differ: %+v and %+v", taken, free)
		}
	})
	t.Run("visible but not permitted is forbidden, with the missing right", func(t *testing.T) {
		p := w.call(dev, "DELETE", "/api/v1/applications/argocd/shop-web", nil).fails(403)
		if !strings.Contains(p.Fix, "applications, delete, shop/shop-web") {
			t.Errorf("the fix is %q", p.Fix)
		}
		w.call(dev, "POST", "/api/v1/applications", application("web-mine", func(s map[string]any) { s["project"] = "shop" })).ok(201)
		w.call(dev, "POST", "/api/v1/applications", application("mine", func(s map[string]any) { s["project"] = "shop" })).fails(403)
		w.call(dev, "GET", "/api/v1/clusters", nil).fails(403)
		w.call(dev, "GET", "/api/v1/audit", nil).fails(403)
	})
	t.Run("SEC-D4 an application cannot be moved into a project without the right there", func(t *testing.T) {
		mover := w.User("acme", "bank-dev")
		w.call(mover, "PUT", "/api/v1/applications/argocd/bank-web", application("bank-web", func(s map[string]any) { s["project"] = "shop" })).fails(403)
	})
	t.Run("SEC-D8 a revoked role is gone at the next request", func(t *testing.T) {
		w.call(dev, "GET", "/api/v1/applications/argocd/shop-web", nil).ok(200)
		w.call(admin, "POST", "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec: {}\n").ok(200)
		w.call(dev, "GET", "/api/v1/applications/argocd/shop-web", nil).fails(404)
	})
}

// A tenant's admin must not become a platform admin, by any road.
func TestPlatformRightsStayAbove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("default")
	platform := w.User("default", "platform", hub.RolePlatformAdmin, hub.RoleTenantAdmin)
	for name, c := range map[string]struct {
		verb, path string
		body       any
	}{
		"MakeOne":       {"POST", "/api/v1/users", map[string]any{"name": "mole", "password": password, "roles": []string{"platform-admin"}}},
		"PromoteSelf":   {"PUT", "/api/v1/users/admin", map[string]any{"roles": []string{"platform-admin", "tenant-admin"}}},
		"TakeOver":      {"PUT", "/api/v1/users/platform", map[string]any{"password": password + "!"}},
		"Demote":        {"PUT", "/api/v1/users/platform", map[string]any{"roles": []string{}}},
		"Disable":       {"PUT", "/api/v1/users/platform", map[string]any{"disabled": true}},
		"Delete":        {"DELETE", "/api/v1/users/platform", nil},
		"CreateTenant":  {"POST", "/api/v1/tenants", map[string]any{"name": "mine"}},
		"NewSetupLink":  {"POST", "/api/v1/tenants/default/setup-link", nil},
		"ListTenants":   {"GET", "/api/v1/tenants", nil},
		"AdminInPolicy": {"POST", "/api/v1/users", map[string]any{"name": "role:platform-admin", "password": password}},
	} {
		if a := w.call(admin, c.verb, c.path, c.body); a.status != 403 && a.status != 400 {
			t.Errorf("%s: status %d: %s", name, a.status, a.body)
		}
	}
	var made struct {
		SetupLink, SetupToken string
		Tenant                struct{ Name string }
	}
	w.call(platform, "POST", "/api/v1/tenants", map[string]any{"name": "fresh", "displayName": "Fresh Ltd"}).ok(201).into(&made)
	if made.SetupLink != "http://capstan.test/setup#"+made.SetupToken || made.Tenant.Name != "fresh" {
		t.Errorf("the new tenant is %+v", made)
	}
	w.call(platform, "POST", "/api/v1/tenants", map[string]any{"name": "fresh"}).fails(409)
	t.Run("FT-U2 a tenant takes the place of one that was lost, by its id, and of none that there is", func(t *testing.T) {
		const lost = "01a218d0-ce1d-7678-bf72-70796eb03725"
		var made struct{ Tenant struct{ ID string } }
		w.call(platform, "POST", "/api/v1/tenants", map[string]any{"name": "lost", "id": strings.ToUpper(lost)}).ok(201).into(&made)
		if made.Tenant.ID != lost {
			t.Errorf("it has the id %s", made.Tenant.ID)
		}
		w.call(platform, "POST", "/api/v1/tenants", map[string]any{"name": "again", "id": lost}).fails(409)
		w.call(platform, "POST", "/api/v1/tenants", map[string]any{"name": "again", "id": "lost"}).fails(400)
		w.call(admin, "POST", "/api/v1/tenants", map[string]any{"name": "again", "id": lost}).fails(403)
		w.call(platform, "GET", "/api/v1/tenants/again", nil).fails(404)
	})
	var check struct {
		Tenant string
		First  bool
	}
	w.call("", "POST", "/api/v1/setup/check", map[string]any{"token": made.SetupToken}).ok(200).into(&check)
	if check.Tenant != "fresh" || !check.First {
		t.Errorf("the setup token is for %+v", check)
	}
	w.call("", "POST", "/api/v1/setup/check", map[string]any{"token": w.SetupLink("default")}).ok(200).into(&check)
	if check.Tenant != "default" || check.First {
		t.Errorf("a setup token of a tenant with accounts is for %+v", check)
	}
	w.call("", "POST", "/api/v1/setup", map[string]any{"token": made.SetupToken, "username": "owner", "password": "short"}).fails(400)
	w.call("", "POST", "/api/v1/setup", map[string]any{"token": made.SetupToken, "username": "owner", "password": password}).ok(200)
	w.call("", "POST", "/api/v1/setup", map[string]any{"token": made.SetupToken, "username": "second", "password": password}).fails(404)
	var projects struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	var in struct{ Token string }
	w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "fresh", "username": "owner", "password": password, "mode": "token"}).ok(200).into(&in)
	w.call(in.Token, "GET", "/api/v1/projects", nil).ok(200).into(&projects)
	if len(projects.Items) != 1 || projects.Items[0].Metadata.Name != "default" {
		t.Errorf("PROJ-19: a new tenant has the projects %+v", projects.Items)
	}
	w.call(in.Token, "DELETE", "/api/v1/projects/default", nil).fails(409)
}
