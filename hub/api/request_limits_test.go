package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/clientip"
)

func TestBrowserSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Admin("acme")
	w.Client.Jar = jar(t)
	in := w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "admin", "password": password}).ok(200)
	cookie := in.header.Get("Set-Cookie")
	if !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") || bytes.Contains(in.body, []byte("cps_")) {
		t.Errorf("AUTH-05 the session is handed over as %q, %s", cookie, in.body)
	}
	w.call("", "GET", "/api/v1/me", nil).ok(200)
	t.Run("SEC-H4 a write that another site makes a browser send is refused", func(t *testing.T) {
		body := map[string]any{"name": "evil"}
		for name, options := range map[string][]option{
			"CrossSite":     {header("Sec-Fetch-Site", "cross-site"), header("Origin", "https://evil.example.com")},
			"Sibling":       {header("Sec-Fetch-Site", "same-site"), header("Origin", "https://evil.test")},
			"OriginOnly":    {header("Origin", "https://evil.example.com"), header("X-Capstan-Client", "console")},
			"OriginNull":    {header("Origin", "null")},
			"PrefixOrigin":  {header("Origin", "http://capstan.test.evil.example.com")},
			"Silent":        nil,
			"TypedAddress":  {header("Sec-Fetch-Site", "none")},
			"FormLikeLogin": {header("Content-Type", "text/plain")},
		} {
			if a := w.call("", "POST", "/api/v1/clusters/enroll", body, options...); a.status != 403 {
				t.Errorf("%s: status %d: %s", name, a.status, a.body)
			}
		}
		a := w.call("", "POST", "/api/v1/login", map[string]any{"username": "x", "password": "y"}, header("Origin", "https://evil.example.com"))
		if a.status != 403 {
			t.Errorf("signing a browser in from another site: status %d", a.status)
		}
	})
	t.Run("the console's own writes are accepted", func(t *testing.T) {
		w.call("", "POST", "/api/v1/clusters/enroll", map[string]any{"name": "one"}, header("Sec-Fetch-Site", "same-origin"), header("Origin", "http://capstan.test")).ok(201)
		w.call("", "POST", "/api/v1/clusters/enroll", map[string]any{"name": "two"}, header("Origin", w.URL)).ok(201)
		w.call("", "POST", "/api/v1/clusters/enroll", map[string]any{"name": "three"}, header("X-Capstan-Client", "console")).ok(201)
	})
	t.Run("SEC-F1 AUTH-07 signing out ends the session at the hub", func(t *testing.T) {
		var kept []*http.Cookie
		u, _ := http.NewRequest("GET", w.URL, nil)
		kept = w.Client.Jar.Cookies(u.URL)
		w.call("", "POST", "/api/v1/logout", nil, header("Origin", w.URL)).ok(204)
		w.call("", "GET", "/api/v1/me", nil).fails(401)
		w.call("", "GET", "/api/v1/me", nil, func(r *http.Request) { r.AddCookie(kept[0]) }).fails(401)
	})
	t.Run("SEC-H4 with TLS the cookie is bound to the host", func(t *testing.T) {
		tls := newWorld(t, func(c *api.Config) { c.ExternalURL = "https://capstan.example.com" })
		tls.Admin("acme")
		a := tls.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "admin", "password": password}).ok(200)
		if got := a.header.Get("Set-Cookie"); !strings.HasPrefix(got, "__Host-capstan_session=") || !strings.Contains(got, "Secure") || !strings.Contains(got, "Path=/") || strings.Contains(got, "Domain") {
			t.Errorf("the cookie is %q", got)
		}
		if a.header.Get("Strict-Transport-Security") == "" {
			t.Error("no HSTS")
		}
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/", "/applications/argocd/web", "/api/v1/me", "/api/v1/nothing", "/healthz"} {
		a := w.call("", "GET", path, nil)
		csp := a.header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("SEC-H5 %s lacks headers: %v", path, a.header)
		}
	}
	if got := w.call("", "GET", "/api/v1/me", nil).header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("answers of the API may be cached: %q", got)
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("UX-NAV-10 every address shows the application", func(t *testing.T) {
		for _, path := range []string{"/", "/login", "/applications/argocd/web", "/setup"} {
			if a := w.call("", "GET", path, nil).ok(200); !bytes.Contains(a.body, []byte("<title>Capstan</title>")) {
				t.Errorf("%s shows %s", path, a.body)
			}
		}
		if a := w.call("", "GET", "/assets/app-1a2b.js", nil).ok(200); !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("an asset is cached as %q", a.header.Get("Cache-Control"))
		}
	})
	t.Run("SEC-H6 nothing outside is served, and old files are not pages", func(t *testing.T) {
		for _, path := range []string{"/assets/app-old.js", "/../../etc/passwd.txt", "/assets/..%2f..%2fsecret.key", "/%5c..%5cfile.txt", "/api/v1/nothing", "/api/v2", "/api"} {
			if a := w.call("", "GET", path, nil); a.status != 404 && a.status != 301 && a.status != 400 {
				t.Errorf("%s: status %d: %s", path, a.status, a.body)
			}
		}
	})
}

func TestRequestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	t.Run("UX-API-3 every refusal has the same form", func(t *testing.T) {
		w.call("", "GET", "/api/v1/me", nil).fails(401)
		w.call(admin, "GET", "/api/v1/nothing", nil).fails(404)
		w.call(admin, "PATCH", "/api/v1/me", nil).fails(405)
		w.call(admin, "POST", "/api/v1/clusters/enroll", "name: x").fails(400)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "Not a name"}).fails(400)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"nmae": "x"}).fails(400)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "x", "expiresIn": "soon"}).fails(400)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "x", "expiresIn": "99d"}).fails(400)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "x", "server": "ftp://user:pw@x"}).fails(400)
		w.call(admin, "POST", "/api/v1/clusters/enroll", []int{1}).fails(400)
		w.call(admin, "GET", "/api/v1/repositories/..%2f..%2fx", nil).fails(404)
		w.call(admin, "GET", "/api/v1/repositories/%00", nil).fails(404)
		w.call(admin, "GET", "/api/v1/applications/argocd/%00", nil).fails(400)
	})
	t.Run("no refusal repeats a password", func(t *testing.T) {
		p := w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "x", "password": "hunter2"}).fails(400)
		if strings.Contains(p.Message+p.Cause+p.Fix, "hunter2") || !strings.Contains(p.Message, "password") {
			t.Errorf("the error is %+v", p)
		}
		w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://me:hunter2@git.example.com/a b", "password": "hunter2"}).fails(400)
		if strings.Contains(w.Log.String(), "hunter2") {
			t.Error("the log holds it")
		}
	})
	t.Run("API-22 SEC-I1 bodies are bounded, and larger ones for manifests", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/users", map[string]any{"name": strings.Repeat("x", 2<<20), "password": password}).fails(413)
		w.call(admin, "POST", "/api/v1/apply", strings.Repeat("#", 11<<20)).fails(413)
		w.call(admin, "POST", "/api/v1/apply?dryRun=true", "# "+strings.Repeat("x", 2<<20)+"\n"+"apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: large, namespace: argocd}\nspec: {}\n").ok(200)
	})
	t.Run("SEC-I1 a webhook is accepted only with the right signature", func(t *testing.T) {
		for _, path := range []string{"/api/webhook", "/api/v1/webhook"} {
			w.call("", "POST", path, map[string]any{}).fails(401)
			w.call("", "POST", path, map[string]any{}, header("X-Hub-Signature-256", "right")).ok(202)
		}
	})
	t.Run("API-17 probes and the document need no sign-in", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			w.call("", "GET", path, nil).ok(200)
		}
		if a := w.call("", "GET", "/openapi.yaml", nil).ok(200); !bytes.HasPrefix(a.body, []byte("openapi: 3.1.0")) {
			t.Errorf("the document is %.40s", a.body)
		}
		w.call("", "GET", "/api/v1/version", nil).fails(401)
	})
	t.Run("long answers are compressed", func(t *testing.T) {
		a := w.call(admin, "GET", "/api/v1/me", nil, header("Accept-Encoding", "gzip")).ok(200)
		if a.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("the answer is not packed: %v", a.header)
		}
	})
	t.Run("an unreachable database is one clear sentence", func(t *testing.T) {
		away := newWorld(t)
		secret := away.Admin("acme")
		back := away.breakDatabase(t)
		if p := away.call(secret, "GET", "/api/v1/applications", nil).fails(503); !p.Retryable {
			t.Errorf("the error is %+v", p)
		}
		away.call("", "GET", "/readyz", nil).fails(503)
		away.call("", "POST", "/api/v1/login", map[string]any{"username": "x", "password": "y"}).fails(503)
		away.call("", "GET", "/livez", nil).ok(200)
		back()
		away.call(secret, "GET", "/api/v1/applications", nil).ok(200)
	})
}

// breakDatabase takes the database away, and gives what brings it back.
func (w *world) breakDatabase(t *testing.T) func() {
	t.Helper()
	u, err := url.Parse(w.Superuser)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	conn := storetest.Connect(t, u.String())
	run := func(statement string) {
		_, err := conn.Exec(context.Background(), statement)
		for try := 1; err != nil && strings.Contains(err.Error(), "55006") && try < 20; try++ { // backends take their time to end
			_, err = conn.Exec(context.Background(), statement)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
	run("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '" + name + "'")
	run("ALTER DATABASE " + name + " RENAME TO " + name + "_away")
	return func() {
		run("ALTER DATABASE " + name + "_away RENAME TO " + name)
		run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		c.Rates.Caller = ratelimit.Rate{PerSecond: 0.001, Burst: 3}
		c.Rates.SignIn = ratelimit.Rate{PerSecond: 0.001, Burst: 4}
	})
	one, two := w.Admin("acme"), w.User("acme", "two")
	for range 3 {
		w.call(one, "GET", "/api/v1/me", nil).ok(200)
	}
	a := w.call(one, "GET", "/api/v1/me", nil)
	if p := a.fails(429); !p.Retryable || a.header.Get("Retry-After") == "" {
		t.Errorf("SEC-I6 the refusal is %+v", p)
	}
	w.call(two, "GET", "/api/v1/me", nil).ok(200)
	w.call("", "POST", "/api/v1/login", map[string]any{"username": "x", "password": "y"}).fails(401)
	w.call("", "POST", "/api/v1/login", map[string]any{"username": "x", "password": "y"}).fails(401)
	w.call("", "POST", "/api/v1/login", map[string]any{"username": "x", "password": "y"}).fails(429)
}

func TestLoginThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Admin("acme")
	try := func(name, pw string) answer {
		return w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": name, "password": pw, "mode": "token"})
	}
	t.Run("SEC-G1 an unknown name and a wrong password answer alike", func(t *testing.T) {
		wrong, unknown := try("admin", "wrong password").fails(401), try("ghost", "wrong password").fails(401)
		nowhere := w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "nowhere", "username": "admin", "password": password}).fails(401)
		if wrong.Message != unknown.Message || wrong.Fix != unknown.Fix || nowhere.Message != wrong.Message {
			t.Errorf("the answers differ: %+v, %+v, %+v", wrong, unknown, nowhere)
		}
	})
	t.Run("AUTH-06 SEC-E8 after five failures from one address the next attempt is refused unchecked", func(t *testing.T) {
		for range 4 {
			try("admin", "wrong password").fails(401)
		}
		try("admin", password).fails(429)
		for range 5 {
			try("phantom", "wrong password").fails(401)
		}
		if p := try("phantom", "x").fails(429); !strings.Contains(p.Message, "failed sign-ins") {
			t.Errorf("the refusal is %+v", p)
		}
	})
	t.Run("sign-ins and refusals are in the audit log", func(t *testing.T) {
		tenant := w.Tenant("acme")
		results := map[string]int{}
		storetest.In(t, w.DB, tenant, func(ctx context.Context, s *store.Tenant) error {
			records, err := s.Audit(ctx, 0, 1000)
			for _, r := range records {
				if r.Action == "login" {
					results[r.Result]++
				}
			}
			return err
		})
		if results["allowed"] == 0 || results["denied"] < 10 {
			t.Errorf("sign-ins in the log: %v", results)
		}
	})
}

// Strangers who fail with a name close its account to addresses that it does
// not know, and to no other.
func TestSignInFromUnknownAddresses(t *testing.T) {
	t.Parallel()
	proxies, err := clientip.ParseProxies([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *api.Config) { c.TrustedProxies = proxies })
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "rob", "password": password, "roles": []string{"readonly"}}).ok(201)
	try := func(address, pw string) answer {
		return w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "rob", "password": pw, "mode": "token"}, header("X-Forwarded-For", address))
	}
	try("192.0.2.1", password).ok(200)
	for i := range 100 {
		try(fmt.Sprint("203.0.113.", i/4), "a wrong password").fails(401)
	}
	t.Run("AUTH-06 SEC-E8 the owner can sign in from a known address", func(t *testing.T) {
		try("192.0.2.1", password).ok(200)
	})
	t.Run("SEC-E8 elsewhere right and wrong passwords are answered alike", func(t *testing.T) {
		right, wrong := try("198.51.100.7", password).fails(429), try("198.51.100.7", "a wrong password").fails(429)
		if right.Message != wrong.Message || right.Fix != wrong.Fix {
			t.Errorf("the answers are %+v and %+v", right, wrong)
		}
	})
	t.Run("SEC-E8 other accounts are not concerned", func(t *testing.T) {
		w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "admin", "password": password}, header("X-Forwarded-For", "198.51.100.8")).ok(200)
	})
	t.Run("the audit log says that the account was closed to strangers", func(t *testing.T) {
		a := w.call(admin, "GET", "/api/v1/audit?limit=200", nil).ok(200)
		if n := bytes.Count(a.body, []byte("it is closed to all such addresses")); n != 1 {
			t.Errorf("it says so %d times", n)
		}
	})
}

func TestSessionDuration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	lasts := func() time.Duration {
		t.Helper()
		var in struct{ ExpiresAt time.Time }
		before := time.Now()
		w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "admin", "password": password, "mode": "token"}).ok(200).into(&in)
		return in.ExpiresAt.Sub(before).Round(time.Hour)
	}
	if got := lasts(); got != 24*time.Hour {
		t.Errorf("AUTH-05 without the setting a session lasts %s", got)
	}
	w.call(admin, "POST", "/api/v1/apply", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {users.session.duration: 72h}\n").ok(200)
	t.Run("AUTH-05 users.session.duration of the tenant's argocd-cm is how long a session lasts", func(t *testing.T) {
		if got := lasts(); got != 72*time.Hour {
			t.Errorf("a session lasts %s", got)
		}
	})
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "rob", "password": password, "roles": []string{"readonly"}}).ok(201)
	w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "rob", "password": password}).fails(409)
	login := func(pw string) answer {
		return w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "rob", "password": pw, "mode": "token"})
	}
	var in, token struct{ Token string }
	login(password).ok(200).into(&in)
	t.Run("AUTH-04 a token is shown once, works, and can be revoked", func(t *testing.T) {
		var made struct {
			Token string
			Info  struct{ ID, Prefix, ExpiresAt string }
		}
		a := w.call(in.Token, "POST", "/api/v1/tokens", map[string]any{"name": "ci", "expiresIn": "24h"}).ok(201).into(&made)
		token.Token = made.Token
		if made.Info.ExpiresAt == "" || !strings.HasPrefix(made.Token, made.Info.Prefix) {
			t.Errorf("SEC-E6: the token is %s", a.body)
		}
		w.call(made.Token, "GET", "/api/v1/applications", nil).ok(200)
		list := w.call(in.Token, "GET", "/api/v1/tokens", nil).ok(200)
		if bytes.Contains(list.body, []byte(made.Token)) || !bytes.Contains(list.body, []byte("usedAt")) {
			t.Errorf("the list is %s", list.body)
		}
		w.call(made.Token, "POST", "/api/v1/tokens", map[string]any{"name": "child"}).fails(403)
		w.call(in.Token, "POST", "/api/v1/tokens", map[string]any{"name": "ci"}).fails(409)
		w.call(in.Token, "POST", "/api/v1/tokens", map[string]any{"name": "long", "expiresIn": "400d"}).fails(400)
		w.call(admin, "DELETE", "/api/v1/tokens/"+made.Info.ID, nil).fails(404) // not the admin's own
		w.call(in.Token, "DELETE", "/api/v1/tokens/"+made.Info.ID, nil).ok(204)
		w.call(made.Token, "GET", "/api/v1/applications", nil).fails(401)
	})
	t.Run("AUTH-05 a password change asks for the old one and ends the sessions", func(t *testing.T) {
		w.call(in.Token, "PUT", "/api/v1/me/password", map[string]any{"current": "wrong", "new": password + "2"}).fails(400)
		w.call(in.Token, "PUT", "/api/v1/me/password", map[string]any{"current": password, "new": "short"}).fails(400)
		w.call(in.Token, "PUT", "/api/v1/me/password", map[string]any{"current": password, "new": password + "2"}).ok(204)
		w.call(in.Token, "GET", "/api/v1/me", nil).fails(401)
		login(password).fails(401)
		login(password + "2").ok(200).into(&in)
	})
	t.Run("SEC-E7 a disabled account's sessions and tokens are invalid", func(t *testing.T) {
		var made struct{ Token string }
		w.call(in.Token, "POST", "/api/v1/tokens", map[string]any{"name": "left"}).ok(201).into(&made)
		w.call(admin, "PUT", "/api/v1/users/rob", map[string]any{"disabled": true}).ok(200)
		w.call(in.Token, "GET", "/api/v1/me", nil).fails(401)
		w.call(made.Token, "GET", "/api/v1/me", nil).fails(401)
		login(password + "2").fails(401)
	})
	t.Run("users cannot remove their own access", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/users/admin", nil).fails(409)
		w.call(admin, "PUT", "/api/v1/users/admin", map[string]any{"disabled": true}).fails(409)
		w.call(admin, "PUT", "/api/v1/users/admin", map[string]any{"roles": []string{}}).fails(409)
	})
	t.Run("a suspended tenant admits no user", func(t *testing.T) {
		if err := w.DB.System().SetSuspended(context.Background(), w.Tenant("acme"), true); err != nil {
			t.Fatal(err)
		}
		w.call(admin, "GET", "/api/v1/me", nil).fails(401)
		w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "admin", "password": password}).fails(401)
	})
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	key := func(k string) option { return header("Idempotency-Key", k) }
	t.Run("UX-API-2 a repetition has the same answer as the first one", func(t *testing.T) {
		first := w.call(admin, "POST", "/api/v1/applications", application("web"), key("k1")).ok(201)
		again := w.call(admin, "POST", "/api/v1/applications", application("web"), key("k1")).ok(201)
		if !bytes.Equal(first.body, again.body) || again.header.Get("Idempotent-Replay") != "true" {
			t.Errorf("the answers differ:\n%s\n%s", first.body, again.body)
		}
		w.call(admin, "POST", "/api/v1/applications", application("web")).fails(409)
	})
	t.Run("another request under the same key is a conflict", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/applications", application("other"), key("k1")).fails(409)
	})
	t.Run("a refusal is repeated too", func(t *testing.T) {
		first := w.call(admin, "POST", "/api/v1/applications", application("web"), key("k2")).fails(409)
		again := w.call(admin, "POST", "/api/v1/applications", application("web"), key("k2"))
		if again.status != 409 || !bytes.Contains(again.body, []byte(first.Cause)) {
			t.Errorf("the repetition answers %d %s", again.status, again.body)
		}
	})
	t.Run("keys are the caller's own", func(t *testing.T) {
		other := w.User("acme", "second", hub.RoleTenantAdmin)
		w.call(other, "POST", "/api/v1/applications", application("theirs"), key("k1")).ok(201)
	})
	t.Run("a secret that is shown once is not shown again", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}, key("k3")).ok(201)
		again := w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}, key("k3"))
		if again.fails(409); bytes.Contains(again.body, []byte("join-")) {
			t.Errorf("the repetition answers %s", again.body)
		}
	})
}

func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	reader := w.User("acme", "reader", hub.RoleReadOnly)
	w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201)
	w.call(reader, "DELETE", "/api/v1/applications/argocd/web", nil).fails(403)
	w.call(w.User("acme", "blind"), "POST", "/api/v1/applications/argocd/web/sync", map[string]any{}).fails(404)
	w.call(admin, "DELETE", "/api/v1/applications/argocd/web", nil).ok(204)
	var log struct {
		Items []struct {
			Seq                                              int64
			Actor, Action, Resource, Object, Result, Request string
			Detail                                           map[string]any
		}
	}
	w.call(admin, "GET", "/api/v1/audit", nil).ok(200).into(&log)
	found := map[string]bool{}
	for _, r := range log.Items {
		found[strings.Join([]string{r.Actor, r.Action, r.Resource, r.Object, r.Result}, " ")] = true
		if r.Request == "" {
			t.Errorf("record %d names no request", r.Seq)
		}
	}
	t.Run("INV-11 every write and every refused one is there", func(t *testing.T) {
		for _, want := range []string{
			"admin create applications default/web allowed", "reader delete applications default/web denied", "blind sync applications default/web denied",
			"admin delete applications default/web allowed", "admin setup accounts admin allowed",
		} {
			if !found[want] {
				t.Errorf("there is no record %q in %v", want, found)
			}
		}
	})
	t.Run("the chain is complete, and has pages by number", func(t *testing.T) {
		var v struct {
			OK      bool
			Records int64
		}
		w.call(admin, "GET", "/api/v1/audit/verify", nil).ok(200).into(&v)
		if !v.OK || v.Records != log.Items[0].Seq {
			t.Errorf("verify says %+v", v)
		}
		newest := log.Items[0].Seq
		w.call(admin, "GET", "/api/v1/audit?limit=1&before=3", nil).ok(200).into(&log)
		if len(log.Items) != 1 || log.Items[0].Seq != 2 || newest < 3 {
			t.Errorf("the page is %+v", log.Items)
		}
	})
}

func TestBodiesThatFailTheSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, body := range map[string]any{
		"too short": map[string]any{"token": ""},
		"too long":  map[string]any{"token": strings.Repeat("x", 500)},
		"no string": map[string]any{"token": 7},
		"missing":   map[string]any{},
		"unknown":   map[string]any{"token": "x", "more": 1},
	} {
		t.Run("API-22 a body whose value is "+name+" is refused with a sentence, before anybody signed in", func(t *testing.T) {
			w.call("", "POST", "/api/v1/setup/check", body).fails(400)
		})
	}
}
