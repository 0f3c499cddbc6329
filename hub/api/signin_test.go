package api_test

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity/sso"
	"github.com/capstan-cd/capstan/integration/rigs/oidc"
)

const clientSecret = "canary-client-secret"

// signInWorld is a hub whose tenant acme signs people in by a provider.
type signInWorld struct {
	*world
	admin    string
	provider *oidc.Provider
}

func newSignInWorld(t *testing.T) *signInWorld {
	t.Helper()
	w := newWorld(t)
	s := &signInWorld{world: w, admin: w.Admin("acme")}
	s.provider = oidc.New(t, oidc.Options{
		Clients: []oidc.Client{{
			ID: "capstan", Secret: clientSecret, Callbacks: []string{w.URL + "/auth/callback", strings.Replace(w.URL, "127.0.0.1", "localhost", 1) + "/auth/callback"},
			AfterOut: []string{w.URL + "/login"},
		}},
		Accounts: map[string]oidc.Claims{
			"alice": {"email": "alice@example.com", "email_verified": true, "name": "Alice", "preferred_username": "alice", "groups": []string{"devs", "role:tenant-admin"}},
			"admin": {"email": "admin@example.com", "email_verified": false, "preferred_username": "admin", "groups": []string{"admin"}},
		},
	})
	s.set(map[string]string{"url": w.URL, "oidc.config": s.config("")})
	w.call(s.admin, "POST", "/api/v1/apply", "apiVersion: v1\nkind: Secret\nmetadata: {name: argocd-secret}\nstringData: {oidc.rig.clientSecret: "+clientSecret+"}\n").ok(200)
	w.call(s.admin, "POST", "/api/v1/apply", `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop}
spec:
  roles:
    - name: dev
      groups: [devs]
      policies: ["p, proj:shop:dev, applications, sync, shop/*, allow"]
`).ok(200)
	return s
}

func (s *signInWorld) config(more string) string {
	return fmt.Sprintf("name: Rig\nissuer: %s\nclientID: capstan\nclientSecret: $oidc.rig.clientSecret\nlogoutURL: %s/session/end?id_token_hint={{token}}&post_logout_redirect_uri={{logoutRedirectURL}}\n%s",
		s.provider.Issuer, s.provider.Issuer, more)
}

func (s *signInWorld) set(values map[string]string) answer {
	s.t.Helper()
	return s.call(s.admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": values}}).ok(200)
}

// signIn signs an account in with a browser of its own, and returns the browser
// and where it ended.
func (s *signInWorld) signIn(account string) (*oidc.Browser, string) {
	s.t.Helper()
	b := oidc.NewBrowser(s.t)
	end, _ := b.SignIn(s.URL+"/auth/login?tenant=acme&return_url=/applications", account, true)
	return b, end
}

// session is the secret of a browser's session; empty: it has none.
func session(t *testing.T, b *oidc.Browser, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range b.Client.Jar.Cookies(u) {
		if k.Name == "capstan_session" {
			return k.Value
		}
	}
	return ""
}

type meAnswer struct {
	Username, Tenant string
	Roles            []string
	Permissions      []struct {
		Resource, Action string
		Projects         []string
	}
}

func (m meAnswer) syncs(project string) bool {
	for _, p := range m.Permissions {
		if p.Resource == "applications" && p.Action == "sync" && slices.Contains(p.Projects, project) {
			return true
		}
	}
	return false
}

func (s *signInWorld) me(secret string) (m meAnswer) {
	s.t.Helper()
	s.call(secret, "GET", "/api/v1/me", nil).ok(200).into(&m)
	return m
}

func TestSignInButton(t *testing.T) {
	t.Parallel()
	s := newSignInWorld(t)
	text := func(tenant string) string {
		var offered struct{ ButtonText string }
		s.call("", "GET", "/api/v1/login/providers?tenant="+tenant, nil).ok(200).into(&offered)
		return offered.ButtonText
	}
	t.Run("UI-18 ui.loginButtonText is the text of the button, for the tenant that has set it", func(t *testing.T) {
		s.Admin("bolt")
		if got := text("acme"); got != "" {
			t.Errorf("without the setting it is %q", got)
		}
		s.set(map[string]string{"ui.loginButtonText": "Sign in with the company's account"})
		if got := text("acme"); got != "Sign in with the company's account" {
			t.Errorf("it is %q", got)
		}
		if text("bolt") != "" || text("nobody") != "" {
			t.Error("another tenant has it")
		}
		s.set(map[string]string{"ui.loginButtonText": strings.Repeat("\u00e9", 300)})
		if got := []rune(text("acme")); len(got) != 80 {
			t.Errorf("a long text has %d characters", len(got))
		}
	})
	t.Run("UI-17 whoever is signed in sees the provider and the groups that policies can name", func(t *testing.T) {
		b, _ := s.signIn("alice")
		var me struct {
			Provider string
			Groups   []string
		}
		s.call(session(t, b, s.URL), "GET", "/api/v1/me", nil).ok(200).into(&me)
		if me.Provider != "oidc" || !slices.Contains(me.Groups, "devs") || slices.Contains(me.Groups, "role:tenant-admin") {
			t.Errorf("it is %+v", me)
		}
		me.Provider, me.Groups = "", nil
		s.call(s.admin, "GET", "/api/v1/me", nil).ok(200).into(&me)
		if me.Provider != "" || len(me.Groups) != 0 {
			t.Errorf("a local account has %+v", me)
		}
	})
}

func TestSignInByOIDC(t *testing.T) {
	t.Parallel()
	s := newSignInWorld(t)
	b, end := s.signIn("alice")
	secret := session(t, b, s.URL)
	t.Run("AUTH-09 a person signs in at the provider and gets a session", func(t *testing.T) {
		if !strings.HasSuffix(end, "/applications") || secret == "" {
			t.Fatalf("the browser ended at %s, with the session %q\n%s", end, secret, tail(s.Log.String()))
		}
		m := s.me(secret)
		if m.Username != "oidc:alice@example.com" || m.Tenant != "acme" || len(m.Roles) != 0 {
			t.Errorf("it is %+v", m)
		}
	})
	t.Run("AUTH-13 a reference to argocd-secret is the client's secret", func(t *testing.T) {
		if secret == "" {
			t.Error("the provider has refused the client")
		}
		if strings.Contains(s.Log.String(), clientSecret) {
			t.Error("the log contains the client's secret")
		}
	})
	t.Run("AUTH-05 groups of the session are subjects of policies", func(t *testing.T) {
		if m := s.me(secret); !m.syncs("shop") {
			t.Errorf("the group devs gives no right: %+v", m.Permissions)
		}
		s.call(secret, "GET", "/api/v1/users", nil).fails(403) // the group role:tenant-admin is no role
	})
	t.Run("AUTH-09 the next sign-in finds the same account", func(t *testing.T) {
		again, _ := s.signIn("alice")
		if m := s.me(session(t, again, s.URL)); m.Username != "oidc:alice@example.com" {
			t.Errorf("it is %+v", m)
		}
	})
	t.Run("AUTH-09 a change of groups takes effect at the next sign-in", func(t *testing.T) {
		if err := s.provider.Set(t.Context(), "alice", oidc.Claims{"email": "alice@example.com", "email_verified": true, "groups": []string{"others"}}); err != nil {
			t.Fatal(err)
		}
		again, _ := s.signIn("alice")
		if s.me(session(t, again, s.URL)).syncs("shop") {
			t.Error("the group is gone, and its rights are not")
		}
	})
	t.Run("AUTH-05 AUTH-07 signing out ends the session and names the provider's sign-out", func(t *testing.T) {
		var out struct{ URL string }
		s.call(secret, "POST", "/api/v1/logout", nil).ok(200).into(&out)
		u, err := url.Parse(out.URL)
		if err != nil || !strings.HasPrefix(out.URL, s.provider.Issuer+"/session/end?") || u.Query().Get("post_logout_redirect_uri") != s.URL+"/login" ||
			len(strings.Split(u.Query().Get("id_token_hint"), ".")) != 3 {
			t.Errorf("the provider's sign-out is %s", out.URL)
		}
		s.call(secret, "GET", "/api/v1/me", nil).fails(401)
	})
	t.Run("AUTH-05 who has no rights reads an empty list of them", func(t *testing.T) {
		again, _ := s.signIn("alice")
		s.call(session(t, again, s.URL), "GET", "/api/v1/me", nil).ok(200).has(t, `"permissions":[`)
	})
	t.Run("SEC-E7 a disabled account loses its session at the next request, and does not sign in", func(t *testing.T) {
		again, _ := s.signIn("alice")
		mine := session(t, again, s.URL)
		s.me(mine)
		s.call(s.admin, "PUT", "/api/v1/users/oidc:alice@example.com", map[string]any{"disabled": true}).ok(200)
		s.call(mine, "GET", "/api/v1/me", nil).fails(401)
		if other, end := s.signIn("alice"); session(t, other, s.URL) != "" || !strings.Contains(end, "problem=refused") {
			t.Errorf("it ended at %s", end)
		}
		s.call(s.admin, "PUT", "/api/v1/users/oidc:alice@example.com", map[string]any{"disabled": false}).ok(200)
	})
	t.Run("RBAC-15 a person of a provider is never the local account of that name", func(t *testing.T) {
		other, _ := s.signIn("admin")
		mine := session(t, other, s.URL)
		if m := s.me(mine); m.Username != "oidc:admin" || len(m.Roles) != 0 {
			t.Errorf("it is %+v", m)
		}
		s.call(mine, "GET", "/api/v1/users", nil).fails(403)
		s.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "oidc:admin", "password": ""}).fails(400)
		s.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "oidc:admin", "password": "x"}).fails(401)
	})
	t.Run("AUTH-09 sign-ins and refusals are in the audit log", func(t *testing.T) {
		log := string(s.call(s.admin, "GET", "/api/v1/audit?limit=200", nil).ok(200).body)
		for _, want := range []string{"oidc:alice@example.com", "the account is disabled"} {
			if !strings.Contains(log, want) {
				t.Errorf("the audit log does not say %q", want)
			}
		}
	})
}

func TestSignInAttacks(t *testing.T) {
	t.Parallel()
	s := newSignInWorld(t)
	begin := s.URL + "/auth/login?tenant=acme"
	// The answer of the provider for somebody, who does not go on.
	caught := func(t *testing.T) (*oidc.Browser, string) {
		b := oidc.NewBrowser(t)
		b.Halts = []string{s.URL + "/auth/callback"}
		at, _ := b.SignIn(begin, "alice", true)
		return b, at
	}
	visit := func(t *testing.T, b *oidc.Browser, address string) string {
		b.Halts = nil
		end, _ := b.SignIn(address, "nobody", true)
		return end
	}
	t.Run("SEC-E4 a code of another browser signs nobody in, and is not used up by it", func(t *testing.T) {
		victim, attacker := oidc.NewBrowser(t), oidc.NewBrowser(t)
		_ = victim
		b, at := caught(t)
		for name, other := range map[string]*oidc.Browser{"without a cookie": oidc.NewBrowser(t), "with its own": attacker} {
			if name == "with its own" {
				other.Halts = []string{s.provider.Issuer}
				other.SignIn(begin, "", true)
			}
			if end := visit(t, other, at); session(t, other, s.URL) != "" || !strings.Contains(end, "problem=state") {
				t.Errorf("%s: it ended at %s", name, end)
			}
		}
		if visit(t, b, at); session(t, b, s.URL) == "" {
			t.Error("the browser that began cannot finish")
		}
	})
	t.Run("SEC-E4 an answer counts once", func(t *testing.T) {
		b, at := caught(t)
		visit(t, b, at)
		first := session(t, b, s.URL)
		b.Client.Jar, _ = cookiejar.New(nil)
		if end := visit(t, b, at); first == "" || session(t, b, s.URL) != "" || !strings.Contains(end, "problem=state") {
			t.Errorf("it ended at %s", end)
		}
	})
	t.Run("SEC-E4 a state that is changed, left out or of another tenant counts for nothing", func(t *testing.T) {
		b, at := caught(t)
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		right := u.Query().Get("state")
		for _, state := range []string{"", "x", right[:len(right)-1] + "A", "AAAA" + right[4:], right + right} {
			q := u.Query()
			q.Set("state", state)
			changed := *u
			changed.RawQuery = q.Encode()
			if end := visit(t, b, changed.String()); session(t, b, s.URL) != "" || !strings.Contains(end, "problem=state") {
				t.Errorf("state %q: it ended at %s", state, end)
			}
		}
	})
	t.Run("SEC-H4 a form from another site signs nobody in", func(t *testing.T) {
		a := s.call("", "POST", "/api/dex/callback", nil, header("Origin", "https://evil.example.com"), header("Sec-Fetch-Site", "cross-site"), header("Cookie", "capstan_session="+s.admin))
		for _, k := range a.header.Values("Set-Cookie") {
			if strings.HasPrefix(k, "capstan_session=") {
				t.Errorf("it sets the cookie %s", k)
			}
		}
	})
	t.Run("SEC-F1 the session of the browser before is not the one after", func(t *testing.T) {
		b, at := caught(t)
		u, _ := url.Parse(s.URL)
		b.Client.Jar.SetCookies(u, []*http.Cookie{{Name: "capstan_session", Value: s.admin, Path: "/"}})
		visit(t, b, at)
		if got := session(t, b, s.URL); got == s.admin || s.me(got).Username != "oidc:alice@example.com" {
			t.Error("the browser keeps the session that it came with")
		}
	})
	t.Run("AUTH-09 who declines comes back to the sign-in page", func(t *testing.T) {
		b := oidc.NewBrowser(t)
		if end, _ := b.SignIn(begin, "alice", false); !strings.Contains(end, "/login?problem=consent") || session(t, b, s.URL) != "" {
			t.Errorf("it ended at %s", end)
		}
	})
	t.Run("SEC-H6 the way back leads nowhere but to the console", func(t *testing.T) {
		for _, back := range []string{
			"https://evil.example.com", "//evil.example.com", "/\\evil.example.com", "\\\\evil.example.com", "http:evil.example.com", "javascript:alert(1)", "data:text/html,x",
			s.URL + ".evil.example.com/", s.URL + "@evil.example.com/", "/\t/evil.example.com", "/\n/evil.example.com", "%2F%2Fevil.example.com", " //evil.example.com", "evil.example.com", "https:///evil.example.com", "///evil.example.com",
		} {
			b := oidc.NewBrowser(t)
			b.Halts = []string{s.provider.Issuer}
			if end, _ := b.SignIn(begin+"&return_url="+url.QueryEscape(back), "", true); !strings.Contains(end, "/login?problem=config") {
				t.Errorf("%q: it ended at %s", back, end)
			}
		}
		for _, back := range []string{"/applications/argocd/web?tab=tree", s.URL + "/settings", ""} {
			b := oidc.NewBrowser(t)
			b.Halts = []string{s.provider.Issuer}
			if end, _ := b.SignIn(begin+"&return_url="+url.QueryEscape(back), "", true); !strings.HasPrefix(end, s.provider.Issuer) {
				t.Errorf("%q: it ended at %s", back, end)
			}
		}
	})
	t.Run("API-16 the ways to sign in are public, with an id and a name and nothing else that is configured", func(t *testing.T) {
		s.call(s.admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{
			"argocd-cm":     map[string]any{"dex.config": "connectors:\n- type: ldap\n  id: staff\n  name: Staff\n  config: {host: 'ldap.example.com:636', bindDN: 'cn=reader', bindPW: $dex.ldap.password, userSearch: {baseDN: 'dc=example', username: uid, idAttr: DN, emailAttr: mail}}\n"},
			"argocd-secret": map[string]any{"dex.ldap.password": "canary-bind"},
		}}).ok(200)
		a := s.call("", "GET", "/api/v1/login/providers?tenant=acme", nil).ok(200)
		var got struct{ Items []map[string]string }
		a.into(&got)
		kinds := map[string]string{}
		for _, p := range got.Items {
			if len(p) != 3 || p["id"] == "" {
				t.Errorf("%v has other fields than id, name and kind", p)
			}
			kinds[p["name"]] = p["kind"]
		}
		if len(kinds) != 2 || kinds["Rig"] != "redirect" || kinds["Staff"] != "password" {
			t.Errorf("the ways are %v", kinds)
		}
		for _, hidden := range []string{"canary", clientSecret, s.provider.Issuer, "ldap.example.com", "cn=reader", "clientID"} {
			if strings.Contains(string(a.body), hidden) {
				t.Errorf("%q is in %s", hidden, a.body)
			}
		}
		if other := s.call("", "GET", "/api/v1/login/providers?tenant=bolt", nil).ok(200); strings.Contains(string(other.body), "Rig") {
			t.Errorf("another tenant has %s", other.body)
		}
		s.set(map[string]string{"dex.config": ""})
	})
	t.Run("SEC-G2 a tenant that is not there has no providers, and begins no sign-in", func(t *testing.T) {
		if got := string(s.call("", "GET", "/api/v1/login/providers?tenant=nobody", nil).ok(200).body); strings.TrimSpace(got) != `{"items":[]}` {
			t.Errorf("it answers %s", got)
		}
		b := oidc.NewBrowser(t)
		if end, _ := b.SignIn(s.URL+"/auth/login?tenant=nobody", "", true); !strings.Contains(end, "problem=config") {
			t.Errorf("it ended at %s", end)
		}
	})
}

func TestSignInAddresses(t *testing.T) {
	t.Parallel()
	s := newSignInWorld(t)
	local := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	t.Run("AUTH-12 an address that is not listed begins no sign-in", func(t *testing.T) {
		b := oidc.NewBrowser(t)
		if end, _ := b.SignIn(local+"/auth/login?tenant=acme", "alice", true); !strings.Contains(end, "/login?problem=config") {
			t.Errorf("it ended at %s", end)
		}
	})
	t.Run("AUTH-12 each listed address signs people in, and another one does not finish its sign-ins", func(t *testing.T) {
		s.set(map[string]string{"additionalUrls": "- " + local + "\n"})
		b := oidc.NewBrowser(t)
		end, _ := b.SignIn(local+"/auth/login?tenant=acme", "alice", true)
		if !strings.HasPrefix(end, local) || session(t, b, local) == "" {
			t.Errorf("it ended at %s", end)
		}
		b = oidc.NewBrowser(t)
		b.Halts = []string{local + "/auth/callback"}
		at, _ := b.SignIn(local+"/auth/login?tenant=acme", "alice", true)
		u, _ := url.Parse(s.URL)
		from, _ := url.Parse(local)
		b.Client.Jar.SetCookies(u, b.Client.Jar.Cookies(from))
		b.Halts = nil
		if end, _ := b.SignIn(strings.Replace(at, local, s.URL, 1), "", true); !strings.Contains(end, "problem=state") || session(t, b, s.URL) != "" {
			t.Errorf("it ended at %s", end)
		}
	})
	t.Run("AUTH-12 an address that is none is refused", func(t *testing.T) {
		p := s.call(s.admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": map[string]string{"additionalUrls": "- https://a\n- b\n"}}}).fails(400)
		if !strings.Contains(p.Message, "line 2") {
			t.Errorf("it says %q", p.Message)
		}
	})
}

func TestSignInSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	set := func(values map[string]any) answer {
		return w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": values}})
	}
	t.Run("AUTH-09 an oidc.config that is wrong is refused with line and cause", func(t *testing.T) {
		for text, want := range map[string]string{
			"issuer: https://a\nclientID: x\nclientSecrt: y\n":       "clientSecret",
			"name: A\nissuer: http://idp.example.com\nclientID: x\n": "line 2",
			"issuer: https://a\n": "clientID",
			"issuer: https://a\nclientID: x\nazure:\n  useWorkloadIdentity: true\n":             "line 4",
			"issuer: https://a\nclientID: x\nrefreshTokenThreshold: soon\n":                     "line 3",
			"issuer: https://a\nclientID: x\nuserInfoPath: https://b\n":                         "line 3",
			"issuer: https://a\nclientID: x\nrootCA: none\n":                                    "line 3",
			"issuer: https://u:p@a\nclientID: x\n":                                              "user name",
			"issuer: [https://a]\nclientID: x\n":                                                "issuer",
			"issuer: https://a\nclientID: x\nrequestedIDTokenClaims: {groups: {esential: 1}}\n": "line 3",
		} {
			if p := set(map[string]any{"oidc.config": text}).fails(400); !strings.Contains(p.Message, want) || !strings.Contains(p.Message, "oidc.config") {
				t.Errorf("%q: %s", text, p.Message)
			}
		}
	})
	t.Run("AUTH-13 a secret that is not stored yet is a warning", func(t *testing.T) {
		a := set(map[string]any{"oidc.config": "issuer: https://a.example.com\nclientID: $oidc.id\nclientSecret: $other:secret\n"}).ok(200)
		for _, want := range []string{"$oidc.id is not stored yet: apply the Secret argocd-secret", "$other:secret is not stored yet: apply the Secret other with the key secret"} {
			if !strings.Contains(string(a.body), want) {
				t.Errorf("%s does not say %q", a.body, want)
			}
		}
		w.call(admin, "POST", "/api/v1/apply", "apiVersion: v1\nkind: Secret\nmetadata: {name: other, labels: {app.kubernetes.io/part-of: argocd}}\nstringData: {secret: canary-other}\n").ok(200)
		var after struct{ Warnings []string }
		set(map[string]any{"url": "https://b.example.com"}).ok(200).into(&after)
		if len(after.Warnings) != 1 || strings.Contains(after.Warnings[0], "$other") {
			t.Errorf("it warns %q", after.Warnings)
		}
		w.call(admin, "POST", "/api/v1/apply", "apiVersion: v1\nkind: Secret\nmetadata: {name: third}\nstringData: {secret: x}\n").has(t, `"result":"failed"`)
	})
	t.Run("AUTH-02 CFG-02 without local sign-ins, those listed and platform admins alone sign in with a password", func(t *testing.T) {
		w.User("acme", "ann", hub.RoleTenantAdmin)
		w.User("acme", "bob", hub.RoleReadOnly)
		w.User("acme", "pat", hub.RolePlatformAdmin)
		login := func(name string) answer {
			return w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": name, "password": password, "mode": "token"})
		}
		login("ann").ok(200)
		if a := set(map[string]any{"admin.enabled": "false", "accounts.bob": "apiKey, login"}).ok(200); !strings.Contains(string(a.body), "local accounts sign in no more") {
			t.Errorf("it does not warn: %s", a.body)
		}
		login("ann").fails(403)
		w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "ann", "password": "wrong"}).fails(401)
		login("bob").ok(200)
		login("pat").ok(200)
		w.call(admin, "GET", "/api/v1/me", nil).ok(200)
	})
}

func TestSignInOfACommandLine(t *testing.T) {
	t.Parallel()
	s := newSignInWorld(t)
	const listens = "http://localhost:18085"
	verifier := strings.Repeat("v", 43)
	code := func(t *testing.T) string {
		b := oidc.NewBrowser(t)
		b.Halts = []string{listens}
		end, _ := b.SignIn(s.URL+"/auth/login?"+url.Values{
			"tenant": {"acme"}, "client": {listens + "/auth/callback?state=mine"}, "code_challenge": {sso.Challenge(verifier)},
		}.Encode(), "alice", true)
		u, err := url.Parse(end)
		if err != nil || u.Query().Get("state") != "mine" || session(t, b, s.URL) != "" {
			t.Fatalf("the browser ended at %s", end)
		}
		return u.Query().Get("code")
	}
	exchange := func(code, verifier string) answer {
		return s.call("", "POST", "/api/v1/login/code", map[string]any{"code": code, "verifier": verifier})
	}
	t.Run("CLI-01 a browser signs a command line in", func(t *testing.T) {
		var in struct{ Token string }
		got := code(t)
		exchange(got, verifier).ok(200).into(&in)
		if m := s.me(in.Token); m.Username != "oidc:alice@example.com" || !m.syncs("shop") {
			t.Errorf("it is %+v", m)
		}
		exchange(got, verifier).fails(401)
	})
	t.Run("SEC-E4 a code without its verifier is worth nothing", func(t *testing.T) {
		got := code(t)
		exchange(got, strings.Repeat("w", 43)).fails(401)
		s.call(got, "GET", "/api/v1/me", nil).fails(401)
		exchange(got, verifier).ok(200)
	})
	t.Run("SEC-H6 a code goes to the browser's machine alone", func(t *testing.T) {
		for _, client := range []string{
			"https://localhost:1/", "http://evil.example.com/", "http://localhost.evil.example.com:1/", "http://127.0.0.1@evil.example.com/", "http://10.0.0.1:1/", "javascript:1", "http://localhost:1/#x", "//localhost:1",
		} {
			b := oidc.NewBrowser(t)
			b.Halts = []string{s.provider.Issuer}
			if end, _ := b.SignIn(s.URL+"/auth/login?"+url.Values{"tenant": {"acme"}, "client": {client}, "code_challenge": {sso.Challenge(verifier)}}.Encode(), "", true); !strings.Contains(end, "problem=config") {
				t.Errorf("%s: it ended at %s", client, end)
			}
		}
	})
}

func (a answer) has(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(string(a.body), text) {
		t.Errorf("%s does not say %s: %s", a.what, text, a.body)
	}
}
