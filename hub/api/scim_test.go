package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity"
)

// scim sends a request as an identity provider.
func (w *world) scim(token, method, path string, body any, options ...option) answer {
	w.t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, w.URL+"/scim/v2"+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/scim+json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, o := range options {
		o(r)
	}
	resp, err := w.Client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{w, method + " " + path, resp.StatusCode, resp.Header, text}
}

// refused checks that an answer is an error in the shape of RFC 7644.
func (a answer) refused(status int, kind string) {
	a.w.t.Helper()
	a.ok(status)
	var e struct {
		Schemas                  []string
		Status, ScimType, Detail string
	}
	a.into(&e)
	if !slices.Equal(e.Schemas, []string{"urn:ietf:params:scim:api:messages:2.0:Error"}) || e.Status != fmt.Sprint(status) || e.ScimType != kind || e.Detail == "" {
		a.w.t.Errorf("%s answers %s", a.what, a.body)
	}
}

func (w *world) scimToken(tenant string) string {
	w.t.Helper()
	var made struct{ Token string }
	w.call(w.Admin(tenant), "POST", "/api/v1/scim/tokens", map[string]any{"name": "provider"}).ok(201).into(&made)
	return made.Token
}

type scimResource struct {
	ID, UserName, DisplayName, ExternalID string
	Active                                bool
	Name                                  struct{ GivenName, FamilyName string }
	Emails                                []struct{ Value, Type string }
	Members, Groups                       []struct{ Value, Display string }
	Meta                                  struct{ ResourceType, Version, Location, LastModified string }
}

type scimList struct {
	TotalResults, StartIndex, ItemsPerPage int
	Resources                              []scimResource
}

// user provisions a person, and returns the id.
func (w *world) scimUser(token, name string, more ...map[string]any) scimResource {
	w.t.Helper()
	body := map[string]any{"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:User"}, "userName": name, "externalId": "ext-" + name, "active": true}
	for _, m := range more {
		for k, v := range m {
			body[k] = v
		}
	}
	var u scimResource
	w.scim(token, "POST", "/Users", body).ok(201).into(&u)
	return u
}

func scimPatch(operations ...map[string]any) map[string]any {
	return map[string]any{"schemas": []string{"urn:ietf:params:scim:api:messages:2.0:PatchOp"}, "Operations": operations}
}

func TestSCIMUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.scimToken("acme")
	jane := w.scimUser(token, "Jane@Example.com", map[string]any{
		"name": map[string]any{"givenName": "Jane", "familyName": "Doe"}, "emails": []any{map[string]any{"value": "jane@example.com", "type": "work", "primary": true}},
		"password": "must not be kept",
		"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": map[string]any{"department": "Sales"},
	})
	t.Run("SCIM a user is an account without a password and without roles", func(t *testing.T) {
		var u struct {
			Name, Origin string
			Roles        []string
		}
		w.call(w.Admin("acme"), "GET", "/api/v1/users/jane@example.com", nil).ok(200).into(&u)
		if u.Origin != "scim" || len(u.Roles) != 0 {
			t.Errorf("the account is %+v", u)
		}
		for _, guess := range []string{"must not be kept", ""} {
			if _, a := w.signIn("acme", "jane@example.com", guess); a.status == 200 {
				t.Errorf("the password %q signs in", guess)
			}
		}
		a := w.scim(token, "GET", "/Users/"+jane.ID, nil).ok(200)
		if strings.Contains(string(a.body), "must not") || a.header.Get("ETag") != `W/"1"` || !strings.HasPrefix(a.header.Get("Content-Type"), "application/scim+json") {
			t.Errorf("it is shown as %s with %v", a.body, a.header)
		}
	})
	t.Run("SCIM a name is taken once, in any case, also by a local account", func(t *testing.T) {
		w.scim(token, "POST", "/Users", map[string]any{"userName": "JANE@example.com"}).refused(409, "uniqueness")
		w.scim(token, "POST", "/Users", map[string]any{"userName": "admin"}).refused(409, "uniqueness")
		w.scim(token, "POST", "/Users", map[string]any{"userName": "role:admin"}).refused(400, "invalidValue")
		w.scim(token, "POST", "/Users", map[string]any{"active": true}).refused(400, "invalidValue")
		w.scim(token, "POST", "/Users", []any{}).refused(400, "invalidValue")
	})
	t.Run("SCIM filters compare with eq, joined by and", func(t *testing.T) {
		w.scimUser(token, "ben")
		for filter, want := range map[string]int{
			`userName eq "jane@EXAMPLE.com"`: 1, `userName Eq "ben" and active eq true`: 1, `externalId eq "ext-ben"`: 1, `userName eq "ben" and externalId eq "ext-x"`: 0,
			`emails[type eq "work"].value eq "JANE@example.com"`: 1, `emails.value eq "nobody"`: 0, `userName eq "ben" and userName eq "jane"`: 0, `userName eq ""`: 0,
			`urn:ietf:params:scim:schemas:core:2.0:User:userName eq "ben"`: 1, `active eq "true"`: 2, `id eq "` + jane.ID + `"`: 1, `id eq "not an id"`: 0,
		} {
			var l scimList
			w.scim(token, "GET", "/Users?filter="+escape(filter), nil).ok(200).into(&l)
			if l.TotalResults != want || len(l.Resources) != want {
				t.Errorf("%s finds %d (%d shown), want %d", filter, l.TotalResults, len(l.Resources), want)
			}
		}
		for _, filter := range []string{`userName co "b"`, `userName eq "a" or userName eq "b"`, `password eq "x"`, `userName`, `userName eq "b`, `(userName eq "b")`, `userName eq "a" and`} {
			w.scim(token, "GET", "/Users?filter="+escape(filter), nil).refused(400, "invalidFilter")
		}
	})
	t.Run("SCIM pages", func(t *testing.T) {
		var first, second, beyond scimList
		w.scim(token, "GET", "/Users?count=1", nil).ok(200).into(&first)
		w.scim(token, "GET", "/Users?startIndex=2&count=1", nil).ok(200).into(&second)
		w.scim(token, "GET", "/Users?startIndex=99&count=0", nil).ok(200).into(&beyond)
		if first.TotalResults != 2 || first.ItemsPerPage != 1 || second.StartIndex != 2 || first.Resources[0].ID == second.Resources[0].ID || beyond.TotalResults != 2 || len(beyond.Resources) != 0 {
			t.Errorf("%+v\n%+v\n%+v", first, second, beyond)
		}
		a := w.scim(token, "GET", "/Users?attributes=userName", nil).ok(200)
		if strings.Contains(string(a.body), "emails") || !strings.Contains(string(a.body), jane.ID) {
			t.Errorf("with attributes=userName it answers %s", a.body)
		}
	})
	t.Run("SCIM patches as providers write them", func(t *testing.T) {
		var u scimResource
		w.scim(token, "PATCH", "/Users/"+jane.ID, scimPatch(
			map[string]any{"op": "Replace", "path": "name.givenName", "value": "Joan"},
			map[string]any{"op": "add", "path": `emails[type eq "home"].value`, "value": "joan@home.example"},
			map[string]any{"op": "replace", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department", "value": "Support"},
			map[string]any{"op": "remove", "path": `emails[type eq "work"]`},
			map[string]any{"op": "replace", "value": map[string]any{"displayName": "Joan D."}},
		)).ok(200).into(&u)
		if u.Name.GivenName != "Joan" || u.Name.FamilyName != "Doe" || len(u.Emails) != 1 || u.Emails[0].Value != "joan@home.example" || u.DisplayName != "Joan D." {
			t.Errorf("it is %+v", u)
		}
		if a := w.scim(token, "GET", "/Users/"+jane.ID, nil).ok(200); !strings.Contains(string(a.body), `"department":"Support"`) {
			t.Errorf("it is %s", a.body)
		}
		w.scim(token, "PATCH", "/Users/"+jane.ID, scimPatch(map[string]any{"op": "remove"})).refused(400, "noTarget")
		w.scim(token, "PATCH", "/Users/"+jane.ID, scimPatch(map[string]any{"op": "replace", "path": `emails[type`, "value": "x"})).refused(400, "invalidPath")
		w.scim(token, "PATCH", "/Users/"+jane.ID, scimPatch(map[string]any{"op": "move", "path": "a", "value": "x"})).refused(400, "invalidValue")
		w.scim(token, "PATCH", "/Users/"+jane.ID, scimPatch()).refused(400, "invalidValue")
	})
	t.Run("SCIM ETags: another version is not overwritten, an equal one is not sent", func(t *testing.T) {
		a := w.scim(token, "GET", "/Users/"+jane.ID, nil).ok(200)
		tag := a.header.Get("ETag")
		w.scim(token, "GET", "/Users/"+jane.ID, nil, header("If-None-Match", tag)).ok(304)
		off := scimPatch(map[string]any{"op": "replace", "path": "displayName", "value": "J"})
		w.scim(token, "PATCH", "/Users/"+jane.ID, off, header("If-Match", `W/"0"`)).refused(412, "")
		w.scim(token, "PATCH", "/Users/"+jane.ID, off, header("If-Match", tag)).ok(200)
		w.scim(token, "DELETE", "/Users/"+jane.ID, nil, header("If-Match", tag)).refused(412, "")
	})
	t.Run("SCIM a replaced user keeps its id, and a deleted one is gone with the account", func(t *testing.T) {
		var u scimResource
		w.scim(token, "PUT", "/Users/"+jane.ID, map[string]any{"userName": "joan@example.com", "active": true}).ok(200).into(&u)
		if u.ID != jane.ID || len(u.Emails) != 0 {
			t.Errorf("it is %+v", u)
		}
		w.call(w.Admin("acme"), "GET", "/api/v1/users/joan@example.com", nil).ok(200)
		w.scim(token, "DELETE", "/Users/"+jane.ID, nil).ok(204)
		w.scim(token, "GET", "/Users/"+jane.ID, nil).refused(404, "")
		w.call(w.Admin("acme"), "GET", "/api/v1/users/joan@example.com", nil).fails(404)
	})
	t.Run("SCIM says what it supports", func(t *testing.T) {
		for _, path := range []string{"/ServiceProviderConfig", "/ResourceTypes", "/ResourceTypes/User", "/Schemas", "/Schemas/urn:ietf:params:scim:schemas:core:2.0:Group"} {
			w.scim(token, "GET", path, nil).ok(200)
		}
		w.scim(token, "POST", "/Schemas", map[string]any{}).ok(405)
		w.scim(token, "GET", "/Nothing", nil).refused(404, "")
		w.scim(token, "POST", "/Bulk", map[string]any{}).ok(405)
	})
}

func escape(s string) string {
	return strings.NewReplacer(" ", "%20", `"`, "%22", "[", "%5B", "]", "%5D").Replace(s)
}

func TestSCIMDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.scimToken("acme")
	jane := w.scimUser(token, "jane")
	tenant := w.Tenant("acme")
	w.policy(tenant, "p, ops team, applications, get, */*, allow\np, ops team, clusters, get, *, allow")
	secret, key := identity.NewToken(tenant, hub.UserID(jane.ID), "own")
	w.putToken(tenant, key)
	session := w.sessionOf(tenant, hub.UserID(jane.ID))
	var group scimResource
	w.scim(token, "POST", "/Groups", map[string]any{"displayName": "ops team", "members": []any{map[string]any{"value": jane.ID}}}).ok(201).into(&group)
	t.Run("SCIM SEC-E7 groups count at each request, of sessions and of tokens", func(t *testing.T) {
		for _, s := range []string{secret, session} {
			w.call(s, "GET", "/api/v1/clusters", nil).ok(200)
		}
		w.scim(token, "PATCH", "/Groups/"+group.ID, scimPatch(map[string]any{"op": "Remove", "path": `members[value eq "` + jane.ID + `"]`})).ok(200)
		for _, s := range []string{secret, session} {
			w.call(s, "GET", "/api/v1/clusters", nil).fails(403)
		}
		w.scim(token, "PATCH", "/Groups/"+group.ID, scimPatch(map[string]any{"op": "Add", "path": "members", "value": []any{map[string]any{"value": jane.ID}}})).ok(200)
		w.call(secret, "GET", "/api/v1/clusters", nil).ok(200)
		var u scimResource
		w.scim(token, "GET", "/Users/"+jane.ID, nil).ok(200).into(&u)
		if len(u.Groups) != 1 || u.Groups[0].Display != "ops team" {
			t.Errorf("the user's groups are %+v", u.Groups)
		}
	})
	t.Run("SCIM SEC-E7 a user who is not active is refused at the next request, with sessions and tokens", func(t *testing.T) {
		w.scim(token, "PATCH", "/Users/"+jane.ID, scimPatch(map[string]any{"op": "Replace", "path": "active", "value": "False"})).ok(200)
		for _, s := range []string{secret, session} {
			w.call(s, "GET", "/api/v1/me", nil).fails(401)
		}
		w.scim(token, "PATCH", "/Users/"+jane.ID, scimPatch(map[string]any{"op": "replace", "value": map[string]any{"active": true}})).ok(200)
		w.call(session, "GET", "/api/v1/me", nil).fails(401) // it has ended
		w.call(secret, "GET", "/api/v1/me", nil).ok(200)
		w.scim(token, "DELETE", "/Users/"+jane.ID, nil).ok(204)
		w.call(secret, "GET", "/api/v1/me", nil).fails(401)
	})
	t.Run("SCIM SEC-D4 no group makes an admin: names of roles and of accounts are refused", func(t *testing.T) {
		for name, status := range map[string]int{"role:admin": 400, "role:tenant-admin": 400, "proj:default:x": 400, "": 400, "a,b": 400, "admin": 409} {
			kind := "invalidValue"
			if status == 409 {
				kind = "uniqueness"
			}
			w.scim(token, "POST", "/Groups", map[string]any{"displayName": name}).refused(status, kind)
			w.scim(token, "PATCH", "/Groups/"+group.ID, scimPatch(map[string]any{"op": "replace", "path": "displayName", "value": name})).refused(status, kind)
		}
	})
	t.Run("SCIM SEC-D4 a group that is called like a later account gives no rights of it", func(t *testing.T) {
		eve := w.scimUser(token, "eve")
		w.scim(token, "POST", "/Groups", map[string]any{"displayName": "later", "members": []any{map[string]any{"value": eve.ID}}}).ok(201)
		w.policy(tenant, "p, later, clusters, get, *, allow")
		session := w.sessionOf(tenant, hub.UserID(eve.ID))
		w.call(session, "GET", "/api/v1/clusters", nil).ok(200)
		w.call(w.Admin("acme"), "POST", "/api/v1/users", map[string]any{"name": "later", "password": password}).ok(201)
		w.call(session, "GET", "/api/v1/clusters", nil).fails(403)
	})
	t.Run("SCIM members that come at once are all there", func(t *testing.T) {
		var users []string
		for i := range 4 {
			users = append(users, w.scimUser(token, fmt.Sprint("member", i)).ID)
		}
		var all sync.WaitGroup
		for _, id := range users {
			all.Go(func() {
				w.scim(token, "PATCH", "/Groups/"+group.ID, scimPatch(map[string]any{"op": "add", "path": "members", "value": []any{map[string]any{"value": id}}}))
			})
		}
		all.Wait()
		var g scimResource
		w.scim(token, "GET", "/Groups/"+group.ID, nil).ok(200).into(&g)
		if len(g.Members) != len(users) {
			t.Errorf("there are %d", len(g.Members))
		}
		w.scim(token, "PATCH", "/Groups/"+group.ID, scimPatch(map[string]any{"op": "add", "path": "members", "value": []any{map[string]any{"value": "0190b2c4-0000-7000-8000-000000000001"}}})).refused(400, "invalidValue")
	})
}

func TestSCIMTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, other := w.scimToken("acme"), w.scimToken("bolt")
	jane := w.scimUser(token, "jane")
	var group scimResource
	w.scim(token, "POST", "/Groups", map[string]any{"displayName": "team"}).ok(201).into(&group)
	t.Run("SCIM ISO-5 another tenant's token sees and changes nothing", func(t *testing.T) {
		var l scimList
		for _, path := range []string{"/Users", "/Groups", "/Users?filter=" + escape(`id eq "`+jane.ID+`"`)} {
			if w.scim(other, "GET", path, nil).ok(200).into(&l); l.TotalResults != 0 {
				t.Errorf("%s shows %+v", path, l)
			}
		}
		for _, path := range []string{"/Users/" + jane.ID, "/Groups/" + group.ID} {
			w.scim(other, "GET", path, nil).refused(404, "")
			w.scim(other, "DELETE", path, nil).refused(404, "")
			w.scim(other, "PUT", path, map[string]any{"userName": "x", "displayName": "x"}).refused(404, "")
			w.scim(other, "PATCH", path, scimPatch(map[string]any{"op": "replace", "path": "active", "value": false})).refused(404, "")
		}
		w.scim(other, "POST", "/Groups", map[string]any{"displayName": "team", "members": []any{map[string]any{"value": jane.ID}}}).refused(400, "invalidValue")
		w.scimUser(other, "jane") // names are a tenant's own
		w.scim(token, "GET", "/Users/"+jane.ID, nil).ok(200)
	})
	t.Run("SCIM SEC-E1 a token of SCIM is good for nothing else, and no other is good for SCIM", func(t *testing.T) {
		w.call(token, "GET", "/api/v1/me", nil).fails(401)
		for _, s := range []string{"", "garbage", w.Admin("acme"), identity.NewSecret(identity.SCIMSecret)} {
			w.scim(s, "GET", "/Users", nil).refused(401, "")
		}
	})
	t.Run("SCIM an admin makes and revokes tokens; it is refused at the next request", func(t *testing.T) {
		reader := w.User("acme", "reader", hub.RoleReadOnly)
		w.call(reader, "POST", "/api/v1/scim/tokens", map[string]any{"name": "mine"}).fails(403)
		var list struct {
			Items []struct{ ID, Name, UsedAt, ExpiresAt string }
		}
		w.call(w.Admin("acme"), "GET", "/api/v1/scim/tokens", nil).ok(200).into(&list)
		if len(list.Items) != 1 || list.Items[0].UsedAt == "" || list.Items[0].ExpiresAt == "" {
			t.Fatalf("the list is %+v", list)
		}
		w.call(w.Admin("bolt"), "DELETE", "/api/v1/scim/tokens/"+list.Items[0].ID, nil).fails(404)
		w.call(w.Admin("acme"), "DELETE", "/api/v1/scim/tokens/"+list.Items[0].ID, nil).ok(204)
		w.scim(token, "GET", "/Users", nil).refused(401, "")
	})
	t.Run("SCIM every change is in the audit log with the provider as its actor", func(t *testing.T) {
		a := w.call(w.Admin("acme"), "GET", "/api/v1/audit", nil).ok(200)
		if !strings.Contains(string(a.body), `"actor":"scim:cpm_`) || !strings.Contains(string(a.body), "by SCIM") {
			t.Errorf("it has %s", a.body)
		}
	})
}
