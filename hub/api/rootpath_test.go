package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestRootPath is a hub at https://example.com/capstan, whose proxy keeps the path.
func TestRootPath(t *testing.T) {
	t.Parallel()
	const root = "/capstan"
	w := newWorld(t, func(c *api.Config) {
		c.ExternalURL = "https://example.com" + root
		c.Console = fstest.MapFS{
			"index.html": {Data: []byte(`<meta name="capstan-root" content=""><script src="./assets/app-1a2b.js"></script>`)}, "assets/app-1a2b.js": {Data: []byte("console.log(1)")},
			"docs.html": {Data: []byte("leads there")}, "docs/index.html": {Data: []byte("first")},
		}
	})
	w.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	admin := w.Admin("acme")
	get := func(path string) answer { return w.call("", "GET", path, nil) }
	t.Run("API-01 the API is served under the path, and without it for proxies that cut it", func(t *testing.T) {
		for _, path := range []string{"", root} {
			w.call(admin, "GET", path+"/api/v1/me", nil).ok(200)
			w.call(admin, "POST", path+"/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: team}\n").ok(200)
			w.call(admin, "HEAD", path+"/api/v1/projects", nil).ok(200)
			get(path + "/api/v1/me").fails(401)
			get(path + "/api/v1/nothing").fails(404)
			get(path + "/api/badge?name=x").ok(200)
			get(path + "/docs/").ok(200)
		}
		for _, path := range []string{"/capstanx/api/v1/me", "/x/capstan/api/v1/me", "/capstan/capstan/api/v1/me"} {
			if a := w.call(admin, "GET", path, nil); strings.Contains(string(a.body), "admin") {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	})
	t.Run("API-01 the console has the path in its first page, at every address of it", func(t *testing.T) {
		for _, path := range []string{root + "/", root + "/applications/argocd/web", "/applications", root + "/index.html"} {
			a := get(path).ok(200)
			if !strings.Contains(string(a.body), `content="/capstan"`) || !strings.Contains(string(a.body), `src="/capstan/assets/app-1a2b.js"`) {
				t.Errorf("%s: %s", path, a.body)
			}
		}
		if a := get(root + "/assets/app-1a2b.js").ok(200); string(a.body) != "console.log(1)" {
			t.Errorf("a file: %s", a.body)
		}
		if a := get(root + "?x=1").ok(308); a.header.Get("Location") != "/capstan/?x=1" {
			t.Errorf("without its slash it leads to %s", a.header.Get("Location"))
		}
	})
	t.Run("SEC-H5 API-01 the content security policy permits no address for a base", func(t *testing.T) {
		if policy := get(root + "/").header.Get("Content-Security-Policy"); !strings.Contains(policy, "base-uri 'none'") || strings.Contains(policy, "unsafe") {
			t.Error(policy)
		}
	})
	t.Run("SEC-H4 API-01 the session of a browser is sent to this path alone", func(t *testing.T) {
		a := w.call("", "POST", root+"/api/v1/login", map[string]any{"tenant": "acme", "username": "admin", "password": apitest.Password}, header("Origin", "https://example.com"), header("Sec-Fetch-Site", "same-origin")).ok(200)
		cookie := a.header.Get("Set-Cookie")
		name, rest, _ := strings.Cut(cookie, "=")
		secret, _, _ := strings.Cut(rest, ";")
		if name != "__Secure-capstan_session" || !strings.Contains(cookie, "Path=/capstan;") || !strings.Contains(cookie, "Secure") || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") {
			t.Errorf("the cookie is %q", cookie)
		}
		with := header("Cookie", name+"="+secret)
		w.call("", "GET", root+"/api/v1/me", nil, with).ok(200)
		w.call("", "POST", root+"/api/v1/logout", nil, with, header("Sec-Fetch-Site", "cross-site")).fails(403)
		out := w.call("", "POST", root+"/api/v1/logout", nil, with, header("Sec-Fetch-Site", "same-origin"), header("Origin", "https://example.com")).ok(204)
		if ended := out.header.Get("Set-Cookie"); !strings.Contains(ended, "Path=/capstan;") || !strings.Contains(ended, "Max-Age=0") {
			t.Errorf("signing out sets %q", ended)
		}
	})
	t.Run("API-01 AUTH-09 a sign-in that fails leads to the page under the path", func(t *testing.T) {
		for _, path := range []string{"/auth/login?tenant=acme", "/auth/callback?code=x&state=y"} {
			if to := get(root + path).ok(303).header.Get("Location"); !strings.HasPrefix(to, "/capstan/login?problem=") {
				t.Errorf("%s leads to %s", path, to)
			}
		}
	})
	t.Run("API-01 links that the hub hands out have the path", func(t *testing.T) {
		for what, a := range map[string]answer{
			"setup link":  w.call(w.User("default", "root", "platform-admin"), "POST", root+"/api/v1/tenants", map[string]any{"name": "bolt"}).ok(201),
			"device":      w.call("", "POST", root+"/api/v1/device/code", nil, form("client_id=capstan&tenant=acme")).ok(200),
			"settings":    w.call(admin, "GET", root+"/api/v1/settings/client", nil).ok(200),
			"description": get(root + "/openapi.yaml").ok(200),
		} {
			want := map[string]string{"setup link": "https://example.com/capstan/setup#", "device": `"https://example.com/capstan/device"`, "settings": `"https://example.com/capstan"`, "description": "- url: /capstan\n"}[what]
			if !strings.Contains(string(a.body), want) {
				t.Errorf("%s: %.600s", what, a.body)
			}
		}
		if a := get(root + "/openapi.json").ok(200); !strings.Contains(string(a.body), `"servers":[{"url":"/capstan"}]`) {
			t.Error("the description in JSON has another server")
		}
	})
	t.Run("API-01 a path that begins as an address of the hub is refused", func(t *testing.T) {
		for _, path := range []string{"/api", "/auth/x", "/docs", "/assets", "/scim", "/openapi.yaml"} {
			_, err := api.New(api.Config{ExternalURL: "https://example.com" + path, Console: fstest.MapFS{"assets/a.js": {Data: []byte("1")}}}, api.Parts{Catalog: w.Catalog})
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "path") {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

// form is a body as HTML forms have it.
func form(values string) option {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(values)), int64(len(values))
	}
}
