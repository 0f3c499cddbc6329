package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// A method is an operation of the document.
type method struct {
	id, verb, path, resource, action string

	op *openapi3.Operation
}

func methods(t testing.TB) []method {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []method
	for path, item := range doc.Paths.Map() {
		for verb, op := range item.Operations() {
			op.Parameters = append(slices.Clone(item.Parameters), op.Parameters...)
			resource, _ := op.Extensions["x-capstan-resource"].(string)
			action, _ := op.Extensions["x-capstan-action"].(string)
			if resource == "" || action == "" {
				t.Errorf("%s %s says nothing of its rights", verb, path)
			}
			out = append(out, method{op.OperationID, verb, path, resource, action, op})
		}
	}
	slices.SortFunc(out, func(a, b method) int { return strings.Compare(a.id, b.id) })
	return out
}

// streams reports whether an answer of the operation does not end by itself.
func (m method) streams() bool {
	ok := m.op.Responses.Status(200)
	return ok != nil && ok.Value.Content.Get("text/event-stream") != nil
}

// upgrades reports whether an operation becomes a WebSocket, which only GET asks for.
func (m method) upgrades() bool { return m.op.Responses.Status(101) != nil }

// open begins a stream, and ends it once it has begun or was refused.
func (w *world) open(t *testing.T, secret, path string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := w.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return answer{w, "GET " + path, resp.StatusCode, resp.Header, nil}
}

// has reports whether a role has a right.
func has(role, resource, action string) bool {
	grants := roles()[role]
	actions, listed := grants[resource]
	if !listed && resource != access.Tenants { // which no role of a tenant gives rights on
		actions = grants["*"]
	}
	return actions == "*" || slices.Contains(strings.Fields(actions), action)
}

// allowed is who may call an operation: "none", "all", or roles by name; ok is
// false if nothing says so.
func allowed(m method) (who string, ok bool) {
	if row, listed := rights()[m.id]; listed && (row == "none" || row == "all") {
		return row, true
	}
	if !slices.Contains(resources(), m.resource) {
		return "", false // also what needs no right, which is named one by one (SEC-G3)
	}
	var names []string
	for role := range roles() {
		if has(role, m.resource, m.action) {
			names = append(names, role)
		}
	}
	if m.action == access.Update && strings.HasSuffix(m.id, "RoleToken") {
		names = append(names, "role-of-shop") // who has a role makes and ends its tokens
	}
	slices.Sort(names)
	return strings.Join(names, " "), len(names) > 0
}

// A matrixCaller is one kind of caller.
type matrixCaller struct {
	name   string
	secret string
	role   string // of roles; empty: nobody whom the hub knows
	user   string // whose secret it is
	token  bool
}

// matrix is the world of TestRightsMatrix.
type matrix struct {
	*world
	admin   string
	callers []matrixCaller
	ids     map[string]string
	made    int // names that were used
}

func newMatrix(t *testing.T) *matrix {
	w := newWorld(t)
	m := &matrix{world: w, admin: w.Admin("acme")}
	m.callers = []matrixCaller{
		{name: "nobody is signed in"},
		{name: "garbage", secret: "cpt_garbage"},
		{name: "an unknown token", secret: identity.NewSecret(identity.TokenSecret)},
		{name: "a setup link", secret: w.SetupLink("acme", hub.RoleTenantAdmin)},
	}
	signedIn := []struct {
		name, role string
		roles      []string
	}{
		{"nobody", "no-role", nil}, {"reader", "readonly", []string{hub.RoleReadOnly}}, {"shop-dev", "role-of-shop", nil},
		{"admin", "tenant-admin", []string{hub.RoleTenantAdmin}}, {"platform", "platform-admin", []string{hub.RolePlatformAdmin}},
	}
	for _, u := range signedIn {
		session := w.User("acme", u.name, u.roles...)
		m.callers = append(m.callers,
			matrixCaller{"a session of " + u.role, session, u.role, u.name, false},
			matrixCaller{"a token of " + u.role, w.token(session, "matrix"), u.role, u.name, true})
	}
	m.callers = append(m.callers, matrixCaller{name: "an expired session", secret: w.session(t, "acme", "reader", -time.Hour)})
	revoked := w.token(m.admin, "revoked")
	m.revoke(m.admin, "revoked")
	gone := w.User("acme", "gone", hub.RoleTenantAdmin)
	w.call(m.admin, "PUT", "/api/v1/users/gone", map[string]any{"disabled": true}).ok(200)
	frozen := w.Admin("frozen")
	frozenToken := w.token(frozen, "frozen")
	w.sql(t, "UPDATE directory.tenant SET suspended = true WHERE name = 'frozen'")
	m.callers = append(m.callers,
		matrixCaller{name: "a token for SCIM", secret: w.scimToken("acme")}, // which is good for nothing else
		matrixCaller{name: "an unknown token of a role", secret: identity.NewSecret(identity.RoleSecret)},
		matrixCaller{name: "an unknown token of an exchange", secret: identity.NewSecret(identity.GivenSecret)},
		matrixCaller{name: "a revoked token", secret: revoked}, matrixCaller{name: "a disabled account", secret: gone},
		matrixCaller{name: "a session of a suspended tenant", secret: frozen}, matrixCaller{name: "a token of a suspended tenant", secret: frozenToken})
	return m
}

// sql runs statements as the database's superuser, to prepare what no operation
// of the API does.
func (w *world) sql(t *testing.T, statements ...string) {
	t.Helper()
	c := storetest.Connect(t, w.Superuser)
	for _, s := range statements {
		if _, err := c.Exec(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// token makes a personal token of whoever the session belongs to.
func (w *world) token(session, name string) string {
	w.t.Helper()
	var made struct{ Token string }
	w.call(session, "POST", "/api/v1/tokens", map[string]any{"name": name}).ok(201).into(&made)
	return made.Token
}

func (m *matrix) revoke(session, name string) {
	var list struct{ Items []struct{ ID, Name string } }
	m.call(session, "GET", "/api/v1/tokens", nil).ok(200).into(&list)
	for _, k := range list.Items {
		if k.Name == name {
			m.call(session, "DELETE", "/api/v1/tokens/"+k.ID, nil).ok(204)
		}
	}
}

// spare makes a token that may go, and returns its id.
func (m *matrix) spare(session string) string {
	m.revoke(session, "spare")
	var made struct{ Info struct{ ID string } }
	m.call(session, "POST", "/api/v1/tokens", map[string]any{"name": "spare"}).ok(201).into(&made)
	return made.Info.ID
}

// seed makes the things that paths name, in the tenant acme.
func (m *matrix) seed() {
	m.call(m.admin, "POST", "/api/v1/apply", `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop}
spec:
  sourceRepos: ['*']
  destinations: [{server: '*', namespace: '*'}]
  roles:
  - name: dev
    groups: [shop-dev]
    policies:
    - p, proj:shop:dev, applications, get, shop/*, allow
    - p, proj:shop:dev, applications, sync, shop/*, allow
`).ok(200)
	m.setPolicy(m.admin, map[string]any{"policy.csv": "# the first version\n"}).ok(200)
	m.call(m.admin, "POST", "/api/v1/gpgkeys", map[string]any{"keyData": sampleKey()}).ok(200)
	m.call(m.admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	m.call(m.admin, "POST", "/api/v1/applications", application("web", func(s map[string]any) { s["project"] = "shop" }))
	m.call(m.admin, "PUT", "/api/v1/applications/argocd/web/spec", application("web", func(s map[string]any) { s["project"] = "shop" })["spec"]).ok(200)
	m.call(m.admin, "DELETE", "/api/v1/applications/argocd/made?cascade=false", nil)
	m.call(m.admin, "POST", "/api/v1/applicationsets?upsert=true", applicationSet("fleet"))
	m.call(m.admin, "DELETE", "/api/v1/applicationsets/argocd/made?cascade=false", nil)
	m.call(m.admin, "POST", "/api/v1/users", map[string]any{"name": "victim", "password": password, "roles": []string{"readonly"}})
	m.call(m.admin, "DELETE", "/api/v1/users/newcomer", nil)
	var repo struct{ ID string }
	m.call(m.admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/own"}).ok(200).into(&repo)
	m.call(m.admin, "POST", "/api/v1/apply", manifest(m.t, "07-repositories.yaml")).ok(200)
	var templates struct{ Items []struct{ ID string } }
	m.call(m.admin, "GET", "/api/v1/repository-credentials", nil).ok(200).into(&templates)
	m.call(m.admin, "POST", "/api/v1/apply", labelledSecret(m.t, "scm-creds", map[string]string{"token": "x"})).ok(200)
	var deferred struct{ Items []struct{ ID string } }
	m.call(m.admin, "GET", "/api/v1/deferred-credentials", nil).ok(200).into(&deferred)
	m.call(m.admin, "POST", "/api/v1/notifications/templates/app-created/try", map[string]any{"application": "argocd/web", "service": "slack", "send": true}).ok(200)
	m.ids = map[string]string{"deferred-credentials": deferred.Items[0].ID, "repositories": repo.ID, "repository-credentials": templates.Items[0].ID}
}

// address is the path of a thing of the caller's own tenant; ok is false if
// there is none.
func (m *matrix) address(op method, c matrixCaller) (path string, ok bool) {
	path = concrete(op.path, m.ids)
	secret := m.admin
	if op.resource == "self" && c.role != "" {
		secret = c.secret
	}
	for {
		at := strings.Index(path, "{")
		if at < 0 {
			return path + query(requiredQuery(op)), true
		}
		end := at + strings.Index(path[at:], "}") + 1
		value, found := m.first(secret, strings.TrimSuffix(path[:at], "/"))
		if !found {
			return strings.NewReplacer("{", "", "}", "").Replace(path) + query(requiredQuery(op)), false
		}
		path = path[:at] + value + path[end:]
	}
}

// first is the id, or the name, of the first thing of a list.
func (m *matrix) first(secret, list string) (value string, found bool) {
	a := m.call(secret, "GET", list, nil)
	var l struct {
		Items []struct {
			ID, Name string
			Metadata struct{ Name string }
		}
	}
	if a.status != 200 || json.Unmarshal(a.body, &l) != nil || len(l.Items) == 0 {
		return "", false
	}
	for _, v := range []string{l.Items[0].ID, l.Items[0].Name, l.Items[0].Metadata.Name} {
		if v != "" {
			return v, true
		}
	}
	return "", false
}

// SEC-D1: every operation for every kind of caller, on things of its own
// tenant.
func TestRightsMatrix(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	table := rights()
	var problems []string
	cells, stale := 0, true
	for _, op := range methods(t) {
		who, known := allowed(op)
		if !known {
			t.Errorf("operation %s has the right %s %s, of which the tables of the matrix say nothing", op.id, op.resource, op.action)
			continue
		}
		delete(table, op.id)
		for _, c := range m.callers {
			if stale {
				m.seed()
			}
			if c.role != "" && op.id == "logout" {
				c.secret = m.session(t, "acme", c.user, time.Hour)
			}
			path, exists := m.address(op, c)
			if op.id == "deleteTenant" {
				path += "?confirm=acme"
			}
			if c.role != "" && op.id == "deleteToken" {
				path = "/api/v1/tokens/" + m.spare(m.User("acme", c.user))
			}
			var a answer
			if op.streams() {
				a = m.open(t, c.secret, path)
			} else {
				a = m.call(c.secret, op.verb, path, m.body(op))
			}
			cells++
			stale = op.verb != "GET" && a.status < 300
			if problem := checkAnswer(who, c, op, a, exists); problem != "" {
				problems = append(problems, fmt.Sprintf("%s (%s %s) for %s: %s: %s", op.id, op.verb, path, c.name, problem, a.body))
			}
		}
	}
	for id := range table {
		t.Errorf("the table of rights has a row for %s, which is no operation", id)
	}
	t.Logf("%d cells: operations by kinds of callers", cells)
	t.Run("SEC-D1 every operation allows whom the tables name and refuses all others", func(t *testing.T) {
		for _, problem := range problems {
			t.Error(problem)
		}
	})
	t.Run("SEC-D1 every kind of secret is that of a caller of the matrix", func(t *testing.T) {
		text, err := os.ReadFile("../identity/secret.go")
		if err != nil {
			t.Fatal(err)
		}
		kinds := regexp.MustCompile(`Kind\s+=\s+"(\w+)"|\bKind = "(\w+)"`).FindAllStringSubmatch(string(text), -1)
		if len(kinds) < 3 {
			t.Fatalf("found the kinds %v", kinds)
		}
		for _, k := range kinds {
			prefix := k[1] + k[2]
			if !slices.ContainsFunc(m.callers, func(c matrixCaller) bool { return strings.HasPrefix(c.secret, prefix) }) {
				t.Errorf("no caller has a secret of the kind %s", prefix)
			}
		}
	})
}

// checkAnswer says what is wrong with an answer, or nothing.
func checkAnswer(who string, c matrixCaller, op method, a answer, exists bool) string {
	may := who == "none" || (who == "all" && c.role != "") || (c.role != "" && slices.Contains(strings.Fields(who), c.role))
	switch {
	case a.status >= 500 && a.status != 503:
		return fmt.Sprintf("it broke with %d", a.status)
	case op.resource == "public" && (op.action == "login" || op.action == "webhook" || op.action == "setup"):
		return "" // their own proof is what fails
	case !may && c.role == "" && a.status != 401:
		return fmt.Sprintf("it answers %d, want 401", a.status)
	case !may && c.role != "" && a.status != 403 && a.status != 404:
		return fmt.Sprintf("it should be refused, and answers %d", a.status)
	case !may:
		return ""
	case strings.HasPrefix(op.id, "create") && strings.HasSuffix(op.id, "Token") && c.token && a.status == 403:
		return "" // a token makes no tokens
	case a.status == 401 || a.status == 403:
		return fmt.Sprintf("it should be allowed, and answers %d", a.status)
	case a.status == 404 && exists && !strings.Contains(absent, " "+op.id+" "):
		return "it should be found"
	}
	return ""
}

// body is a request of an operation that is valid by the document.
func (m *matrix) body(op method) any {
	if b, listed := bodies()[op.id]; listed {
		return b
	}
	if op.op.RequestBody == nil {
		return nil
	}
	content := op.op.RequestBody.Value.Content.Get("application/json")
	if content == nil {
		return nil
	}
	return sample(content.Schema.Value, 0)
}

// sample is a value that a schema allows: what is required, and no more.
func sample(s *openapi3.Schema, depth int) any {
	switch {
	case s == nil || depth > 8:
		return nil
	case s.Default != nil:
		return s.Default
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AllOf) > 0:
		return sample(s.AllOf[0].Value, depth+1)
	case len(s.OneOf) > 0:
		return sample(s.OneOf[0].Value, depth+1)
	case s.Type.Includes("object"):
		out := map[string]any{}
		for _, name := range s.Required {
			if p := s.Properties[name]; p != nil {
				out[name] = sample(p.Value, depth+1)
			}
		}
		return out
	case s.Type.Includes("array"):
		out := []any{}
		for range s.MinItems {
			out = append(out, sample(s.Items.Value, depth+1))
		}
		return out
	case s.Type.Includes("string"):
		return sampleText(s)
	case s.Type.Includes("integer"), s.Type.Includes("number"):
		if s.Min != nil {
			return *s.Min
		}
		return 1
	case s.Type.Includes("boolean"):
		return false
	}
	return map[string]any{}
}

func sampleText(s *openapi3.Schema) string {
	switch s.Format {
	case "date-time":
		return "2026-01-02T03:04:05Z"
	case "uuid":
		return "0190b2c4-0000-7000-8000-00000000ffff"
	case "uri":
		return "https://example.com/"
	}
	text := "sample"
	for uint64(len(text)) < s.MinLength {
		text += "sample"
	}
	if s.MaxLength != nil && uint64(len(text)) > *s.MaxLength {
		text = text[:*s.MaxLength]
	}
	return text
}

// session makes a session that ends in a time; one of the past is over.
func (w *world) session(t *testing.T, tenant, name string, life time.Duration) string {
	t.Helper()
	ctx := context.Background()
	tt, err := w.DB.System().TenantByName(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	u, _, err := w.Catalog.AccountByName(ctx, tt.ID, name)
	if err != nil {
		t.Fatal(err)
	}
	secret := identity.NewSecret(identity.SessionSecret)
	began := time.Now()
	if life < 0 {
		began = began.Add(life)
	}
	ends := began.Add(life.Abs() - time.Minute)
	if err := w.DB.System().PutSession(ctx, hub.Session{Hash: identity.Hash(secret), Tenant: tt.ID, User: u.ID, CreatedAt: began, SeenAt: began, ExpiresAt: ends}); err != nil {
		t.Fatal(err)
	}
	return secret
}
