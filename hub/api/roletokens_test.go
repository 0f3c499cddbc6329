package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

const shopWithRole = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  roles:
  - name: deployer
    policies:
    - p, proj:shop:deployer, applications, get, shop/*, allow
    - p, proj:shop:deployer, applications, create, shop/*, allow
    groups: [member]
`

func TestTokensOfRoles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	member, outsider := w.User("acme", "member"), w.User("acme", "outsider", hub.RoleReadOnly)
	apply := func(text string) answer { return w.call(admin, "POST", "/api/v1/apply", text).ok(200) }
	apply(shopWithRole)
	const path = "/api/v1/projects/shop/roles/deployer/tokens"
	create := func(name string) string {
		t.Helper()
		var made struct{ Token string }
		w.call(admin, "POST", path, map[string]any{"name": name, "expiresIn": "24h"}).ok(201).into(&made)
		return made.Token
	}
	inShop := func(name string) map[string]any {
		return application(name, func(s map[string]any) { s["project"] = "shop" })
	}
	token := create("ci")
	t.Run("PROJ-13 SEC-D6 a token has the rights of its role, as proj:shop:deployer, and no others", func(t *testing.T) {
		var me struct{ Username, Via string }
		w.call(token, "GET", "/api/v1/me", nil).ok(200).into(&me)
		if me.Username != "proj:shop:deployer" || me.Via != "token" {
			t.Errorf("it is %+v", me)
		}
		w.call(token, "POST", "/api/v1/applications", inShop("one")).ok(201)
		w.call(token, "GET", "/api/v1/applications/argocd/one", nil).ok(200)
		w.call(token, "POST", "/api/v1/applications/argocd/one/sync", map[string]any{}).fails(403)
		w.call(token, "POST", "/api/v1/applications", application("two")).fails(403)
		w.call(token, "GET", "/api/v1/projects/shop", nil).ok(200) // PROJ-14
		w.call(token, "GET", "/api/v1/projects/default", nil).fails(404)
		for _, other := range []string{"clusters", "repositories", "users", "audit", "settings", "certificates", "tenants"} {
			if a := w.call(token, "GET", "/api/v1/"+other, nil); a.status != 403 {
				t.Errorf("%s answers %d: %s", other, a.status, a.body)
			}
		}
	})
	t.Run("PROJ-13 SEC-D6 it cannot be used for more: no other token, no password, no account", func(t *testing.T) {
		w.call(token, "POST", path, map[string]any{}).fails(403)
		w.call(token, "POST", "/api/v1/tokens", map[string]any{"name": "more"}).fails(403)
		w.call(token, "PUT", "/api/v1/me/password", map[string]any{"current": password, "new": password}).fails(404)
		w.call(token, "PUT", "/api/v1/me/language", map[string]any{"language": "ja"}).fails(404)
		var list struct{ Items []any }
		w.call(token, "GET", "/api/v1/tokens", nil).ok(200).into(&list)
		if len(list.Items) != 0 {
			t.Errorf("it has tokens: %v", list.Items)
		}
	})
	t.Run("PROJ-13 tokens are listed by id with expiry and last use, also in the project's status", func(t *testing.T) {
		var list struct {
			Items []struct{ Name, ExpiresAt, UsedAt, Prefix string }
		}
		w.call(outsider, "GET", path, nil).ok(200).into(&list)
		if len(list.Items) != 1 || list.Items[0].Name != "ci" || list.Items[0].ExpiresAt == "" || list.Items[0].UsedAt == "" || !strings.HasPrefix(token, list.Items[0].Prefix) {
			t.Errorf("the list is %+v", list)
		}
		var p struct {
			Status struct {
				JWTTokensByRole map[string]struct {
					Items []struct {
						ID       string
						IAT, EXP int64
					}
				}
			}
		}
		w.call(admin, "GET", "/api/v1/projects/shop", nil).ok(200).into(&p)
		if got := p.Status.JWTTokensByRole["deployer"].Items; len(got) != 1 || got[0].ID != "ci" || got[0].EXP-got[0].IAT != 24*3600 {
			t.Errorf("the status is %+v", p.Status)
		}
	})
	t.Run("PROJ-13 a member of the role makes tokens of it, and others who may not change the project do not", func(t *testing.T) {
		w.call(member, "POST", path, map[string]any{}).ok(201)
		w.call(outsider, "POST", path, map[string]any{}).fails(403)
		w.call(outsider, "DELETE", path+"/ci", nil).fails(403)
		w.call(w.User("acme", "blind"), "POST", path, map[string]any{}).fails(404)
		w.call(w.Admin("bolt"), "POST", path, map[string]any{}).fails(404)
		w.call(admin, "POST", "/api/v1/projects/shop/roles/nothing/tokens", map[string]any{}).fails(404)
	})
	t.Run("PROJ-13 a deleted token is refused at the next request", func(t *testing.T) {
		w.call(admin, "DELETE", path+"/ci", nil).ok(204)
		w.call(token, "GET", "/api/v1/me", nil).fails(401)
		w.call(admin, "DELETE", path+"/ci", nil).fails(404)
	})
	t.Run("PROJ-12 PROJ-13 SEC-D8 tokens end with their role, and a role of the same name does not bring them back", func(t *testing.T) {
		token := create("second")
		apply("apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec: {sourceRepos: ['*'], destinations: [{server: '*', namespace: '*'}]}\n")
		w.call(token, "GET", "/api/v1/me", nil).fails(401)
		apply(shopWithRole)
		w.call(token, "GET", "/api/v1/me", nil).fails(401)
	})
	t.Run("PROJ-13 tokens end with their project", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/applications/argocd/one?cascade=false", nil)
		spare := strings.NewReplacer("shop", "spare").Replace(shopWithRole)
		apply(spare)
		var made struct{ Token string }
		w.call(admin, "POST", "/api/v1/projects/spare/roles/deployer/tokens", map[string]any{}).ok(201).into(&made)
		w.call(made.Token, "GET", "/api/v1/me", nil).ok(200)
		w.call(admin, "DELETE", "/api/v1/projects/spare", nil).ok(204)
		apply(spare)
		w.call(made.Token, "GET", "/api/v1/me", nil).fails(401)
	})
	t.Run("PROJ-12 jwtTokens of Argo CD are stored and shown, with a warning, and never accepted", func(t *testing.T) {
		a := apply(shopWithRole + "    jwtTokens: [{iat: 1535390316, id: old}]\n")
		if !strings.Contains(string(a.body), "never accepted") {
			t.Errorf("it says %s", a.body)
		}
		var p struct{ Spec json.RawMessage }
		w.call(admin, "GET", "/api/v1/projects/shop", nil).ok(200).into(&p)
		if !strings.Contains(string(p.Spec), "1535390316") {
			t.Errorf("the spec is %s", p.Spec)
		}
		w.call("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwcm9qOnNob3A6ZGVwbG95ZXIiLCJpYXQiOjE1MzUzOTAzMTYsImp0aSI6Im9sZCJ9.c2ln", "GET", "/api/v1/me", nil).fails(401)
	})
}
