package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
	"github.com/capstan-cd/capstan/hub/identity"
)

// A batch with an object that the caller may not write says so of that object.
func TestBatchWithForeignItem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	for _, p := range []string{"shop", "bank"} {
		w.call(admin, "POST", "/api/v1/projects", map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": p},
			"spec": map[string]any{"sourceRepos": []string{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}}},
		}).ok(201)
	}
	dev := w.User("acme", "dev")
	w.policy(w.Tenant("acme"), "p, dev, applications, *, shop/*, allow")
	manifestOf := func(project, name string) string {
		return fmt.Sprintf("---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: %s, namespace: argocd}\nspec:\n  project: %s\n"+
			"  source: {repoURL: 'https://git.example.com/a.git', path: x}\n  destination: {server: 'https://kubernetes.default.svc', namespace: shop}\n", name, project)
	}
	for _, dryRun := range []string{"?dryRun=true", ""} {
		t.Run("SEC-D5 an item of a batch that the caller may not write is refused by name, and the answer counts it"+dryRun, func(t *testing.T) {
			var out applied
			w.call(dev, "POST", "/api/v1/apply"+dryRun, manifestOf("shop", "own")+manifestOf("bank", "foreign")).ok(200).into(&out)
			if out.Failed != 1 || len(out.Results) != 2 || out.Results[0].Result != "created" || out.Results[1].Result != "failed" || out.Results[1].Error.Object == "" {
				t.Errorf("the answer is %+v", out)
			}
			w.call(admin, "GET", "/api/v1/applications/argocd/foreign", nil).fails(404)
		})
	}
	w.call(admin, "GET", "/api/v1/applications/argocd/own", nil).ok(200)
}

// Every check of rights comes before other answers: whatever else is wrong with
// a request, somebody without a right reads nothing else.
func TestRightsAreCheckedFirst(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.seed()
	stranger := m.callers[slices.IndexFunc(m.callers, func(c matrixCaller) bool { return c.role == "no-role" })]
	asked := 0
	wrong := map[string]func() option{
		"another version": func() option { return header("If-Match", `"987654"`) },
		"a key":           func() option { return header("Idempotency-Key", fmt.Sprintf("key-%d", asked)) },
		"nothing else":    func() option { return header("X-Odd", "1") },
	}
	t.Run("SEC-D9 whatever else is wrong with a request, without the right it is refused for that, in every order", func(t *testing.T) {
		for _, op := range methods(t) {
			if op.resource == "public" || op.resource == "self" || op.resource == "apply" || op.resource == "stream" {
				continue
			}
			there, _ := m.address(op, stranger)
			missing := strings.NewReplacer("/web", "/none", "/prod", "/none", "/shop", "/none", "/victim", "/none").Replace(there)
			for _, path := range []string{there, missing} {
				for name, o := range wrong {
					a := m.call(stranger.secret, op.verb, path, m.body(op), o())
					asked++
					// A request that cannot be valid for anybody says nothing of what there is.
					invalid := a.status == 400 && (name == "another version" || strings.Contains(string(a.body), "in the address"))
					if a.status != 403 && a.status != 404 && !invalid {
						t.Errorf("%s %s with %s answers %d %s", op.id, path, name, a.status, a.body)
					}
				}
			}
		}
		t.Logf("%d requests", asked)
	})
}

// A secret in an address ends in logs and histories.
func TestNoSecretInAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	t.Run("SEC-F4 a secret in the address signs nobody in, nor does a protocol of a WebSocket", func(t *testing.T) {
		for _, path := range []string{"/api/v1/me", "/api/v1/stream", "/api/v1/applications"} {
			for _, name := range []string{"token", "access_token", "authToken", "argocd.token", "capstan_session", "authorization"} {
				if a := w.call("", "GET", path+"?"+name+"="+admin, nil); a.status != 401 && a.status != 400 {
					t.Errorf("%s with %s answers %d", path, name, a.status)
				}
			}
			a := w.call("", "GET", path, nil, header("Connection", "Upgrade"), header("Upgrade", "websocket"), header("Sec-WebSocket-Version", "13"),
				header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), header("Sec-WebSocket-Protocol", admin), header("Origin", "https://evil.example.com"))
			if a.status != 401 {
				t.Errorf("%s with a WebSocket answers %d", path, a.status)
			}
		}
	})
}

// Many callers at once of what shares memory: sign-ins, rights, settings and
// lists. It is meant to run with -race as well.
func TestThousandCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		free := ratelimit.Rate{PerSecond: 1e6, Burst: 1e6}
		c.Rates = ratelimit.Rates{Address: free, SignIn: free, Caller: free, Tenant: free}
	})
	admin := w.Admin("acme")
	w.User("acme", "alice")
	const callers = 1000
	var mu sync.Mutex
	seen := map[int]int{}
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			var a answer
			switch n % 10 {
			case 0:
				a = w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": fmt.Sprintf("nobody-%d", n), "password": "x"})
			case 1:
				a = w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-rbac-cm": map[string]any{fmt.Sprintf("policy.%d.csv", n%7): "p, alice, applications, get, */*, allow"}}})
			case 2:
				a = w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": fmt.Sprintf("https://git.example.com/r/%d", n%5), "username": "git", "password": "secret"})
			case 3:
				a = w.call(admin, "POST", "/api/v1/users/alice/tokens", map[string]any{})
			case 4:
				a = w.call(admin, "GET", "/api/v1/users/alice/sessions", nil)
			case 5:
				a = w.call(admin, "POST", "/api/v1/applications", application(fmt.Sprintf("a%d", n%20)))
			default:
				a = w.call(admin, "GET", "/api/v1/applications", nil)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[a.status]++
		})
	}
	wg.Wait()
	t.Run("SEC-I2 a thousand callers at once of sign-ins, credentials, settings and lists get answers, and none is a defect", func(t *testing.T) {
		for status, n := range seen {
			if status >= 500 && status != http.StatusServiceUnavailable {
				t.Errorf("%d answers are %d", n, status)
			}
		}
		if seen[200] < callers/4 || seen[401] == 0 {
			t.Errorf("the answers are %v", seen)
		}
		t.Logf("%v", seen)
	})
}

// What one tenant sees does not depend on another one.
func TestNonInterference(t *testing.T) {
	t.Parallel()
	alone := observe(t, newWorld(t), nil)
	var acts int
	beside := observe(t, newWorld(t), func(w *world, step int) {
		hostile := w.Admin("bolt")
		for _, name := range []string{"web", "api", "shop"} {
			w.call(hostile, "POST", "/api/v1/applications", application(name))
			w.call(hostile, "DELETE", "/api/v1/applications/argocd/"+name+"?cascade=false", nil)
			w.call(hostile, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"})
			w.call(hostile, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"url": fmt.Sprintf("https://evil-%d.example.com", step)}}})
			w.call(hostile, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/own", "username": "evil", "password": "evil"})
			w.call(hostile, "POST", "/api/v1/users", map[string]any{"name": "alice", "password": password})
			w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "bolt", "username": "alice", "password": "wrong"})
			acts += 7
		}
	})
	t.Run("ISO-12 the answers to a tenant are the same alone and beside a hostile one", func(t *testing.T) {
		for i := range alone {
			if alone[i] != beside[i] {
				t.Errorf("step %d alone:\n%s\nbeside another tenant:\n%s", i, alone[i], beside[i])
			}
		}
		t.Logf("%d answers are the same, beside %d acts of another tenant", len(alone), acts)
	})
}

var volatile = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z|cp[a-z]_[0-9A-Za-z]+|"(cursor|hash|prev|prefix|etag|resourceVersion)":"[^"]*"|[0-9a-f]{64}|127\.0\.0\.1:\d+`)

// observe returns the answers to a workload of the tenant acme, without what
// differs each time. Between any two requests the other tenant acts.
func observe(t *testing.T, w *world, other func(w *world, step int)) []string {
	t.Helper()
	admin := w.Admin("acme")
	var out []string
	do := func(secret, verb, path string, body any) {
		if other != nil {
			other(w, len(out))
		}
		a := w.call(secret, verb, path, body)
		out = append(out, fmt.Sprintf("%s %s → %d %s", verb, path, a.status, volatile.ReplaceAll(a.body, []byte("…"))))
	}
	do(admin, "POST", "/api/v1/applications", application("web"))
	do(admin, "POST", "/api/v1/applications", application("web"))
	do(admin, "POST", "/api/v1/users", map[string]any{"name": "alice", "password": password})
	do("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "alice", "password": password, "mode": "token"})
	do("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "alice", "password": "wrong"})
	do(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"})
	do(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/own"})
	do(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"url": "https://cd.example.com"}}})
	for _, path := range []string{
		"/api/v1/applications", "/api/v1/applications/argocd/web", "/api/v1/applications/argocd/api", "/api/v1/clusters", "/api/v1/clusters/prod", "/api/v1/projects",
		"/api/v1/repositories", "/api/v1/users", "/api/v1/settings", "/api/v1/usage", "/api/v1/audit", "/api/v1/audit/verify", "/api/v1/tokens", "/api/v1/settings/client",
		"/api/v1/applications/argocd/web/tree", "/api/v1/applications/argocd/web/history", "/api/v1/account/can-i/applications/sync/default/web",
	} {
		do(admin, "GET", path, nil)
	}
	do(admin, "DELETE", "/api/v1/applications/argocd/web?cascade=false", nil)
	do(admin, "GET", "/api/v1/applications", nil)
	return out
}

// What destroys a tenant or lets others into it needs a recent sign-in.
func TestRecentSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, root := w.Admin("acme"), w.User("default", "root", hub.RolePlatformAdmin)
	token := w.token(root, "automation")
	w.Admin("bolt")
	aged := func(tenant, user string) string { return w.agedSession(t, tenant, user, hub.FreshSignIn+time.Minute) }
	oldAdmin, oldRoot := aged("acme", "admin"), aged("default", "root")
	sso := func(value any) map[string]any {
		return map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"oidc.config": value}}}
	}
	const provider = "name: X\nissuer: https://id.example.com\nclientID: capstan\n"
	t.Run("SEC-E12 deletions, exports and setup links of tenants need a recent sign-in, and the refusal is recorded", func(t *testing.T) {
		for _, c := range []struct{ verb, path string }{
			{"DELETE", "/api/v1/tenants/bolt?confirm=bolt"}, {"GET", "/api/v1/tenants/bolt/export"}, {"POST", "/api/v1/tenants/bolt/setup-link"},
		} {
			p := w.call(oldRoot, c.verb, c.path, nil).fails(401)
			if !strings.Contains(p.Message, "within the last 15 minutes") || !strings.Contains(p.Fix, "relogin") {
				t.Errorf("%s says %+v", c.path, p)
			}
		}
		w.call(oldRoot, "GET", "/api/v1/tenants/bolt", nil).ok(200)
		var log struct {
			Items []struct{ Action, Result, Object string }
		}
		w.call(w.User("default", "auditor", hub.RoleTenantAdmin), "GET", "/api/v1/audit?result=denied", nil).ok(200).into(&log)
		if len(log.Items) != 3 {
			t.Errorf("the audit log has %+v", log)
		}
	})
	t.Run("SEC-E12 changes of single sign-on need a recent sign-in; other settings, and what stays as it is, do not", func(t *testing.T) {
		w.call(admin, "PATCH", "/api/v1/settings", sso(provider)).ok(200)
		w.call(oldAdmin, "PATCH", "/api/v1/settings", sso(strings.ReplaceAll(provider, "id.", "evil."))).fails(401)
		w.call(oldAdmin, "PATCH", "/api/v1/settings", sso(nil)).fails(401)
		w.call(oldAdmin, "PATCH", "/api/v1/settings", sso(provider)).ok(200)
		w.call(oldAdmin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"url": "https://cd.example.com"}}}).ok(200)
	})
	t.Run("SEC-E12 a right comes first: without it the age of a sign-in is not looked at", func(t *testing.T) {
		w.call(oldAdmin, "DELETE", "/api/v1/tenants/bolt?confirm=bolt", nil).fails(403)
	})
	t.Run("SEC-E12 a token that was made for it needs no person", func(t *testing.T) {
		w.call(token, "GET", "/api/v1/tenants/bolt/export", nil).ok(200)
	})
	t.Run("SEC-E12 who signs in again may", func(t *testing.T) {
		w.call(root, "DELETE", "/api/v1/tenants/bolt?confirm=bolt", nil).ok(202)
	})
}

// agedSession is a session that began a while ago and is in use.
func (w *world) agedSession(t *testing.T, tenant, name string, age time.Duration) string {
	t.Helper()
	id := w.Tenant(tenant)
	u, _, err := w.Catalog.AccountByName(t.Context(), id, name)
	if err != nil {
		t.Fatal(err)
	}
	secret, now := identity.NewSecret(identity.SessionSecret), time.Now()
	err = w.DB.System().PutSession(t.Context(), hub.Session{Hash: identity.Hash(secret), Tenant: id, User: u.ID, CreatedAt: now.Add(-age), SeenAt: now, ExpiresAt: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}
