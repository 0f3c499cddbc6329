package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/integration/rigs/oidc"
)

type testReport struct {
	ID, State, Account, Subject string
	AccountExists               bool
	Problem                     struct{ Object, Cause, Fix string }
	Claims                      []struct {
		Name   string
		Values []string
	}
	Groups, Ignored, Warnings []string
	Mapped                    []struct {
		Subject string
		Roles   []string
		Named   bool
	}
	Permissions []struct{ Resource, Action string }
}

func (r testReport) claims(name, value string) bool {
	for _, c := range r.Claims {
		if c.Name == name && slices.Contains(c.Values, value) {
			return true
		}
	}
	return false
}

type testBegun struct{ ID, URL, Provider, Callback string }

// begin begins a test sign-in in a browser of its own.
func (s *signInWorld) begin(t *testing.T, body map[string]any) (*oidc.Browser, testBegun) {
	t.Helper()
	b := oidc.NewBrowser(t)
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/api/v1/settings/sign-in/tests", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.admin)
	resp, err := b.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var begun testBegun
	if err := json.NewDecoder(resp.Body).Decode(&begun); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %v %+v\n%s", resp.Status, err, begun, tail(s.Log.String()))
	}
	return b, begun
}

func (s *signInWorld) report(begun testBegun) (r testReport) {
	s.t.Helper()
	s.call(s.admin, "GET", "/api/v1/settings/sign-in/tests/"+begun.ID, nil).ok(200).into(&r)
	return r
}

// tested runs a test sign-in of an account to its end.
func (s *signInWorld) tested(t *testing.T, account string, body map[string]any) (testReport, string) {
	t.Helper()
	b, begun := s.begin(t, body)
	if r := s.report(begun); r.State != "waiting" {
		t.Errorf("before the browser comes back it is %s", r.State)
	}
	end, _ := b.SignIn(begun.URL, account, true)
	if !strings.Contains(end, "/access?tab=sign-in&test="+begun.ID) {
		t.Errorf("it ended at %s", end)
	}
	if mine := session(t, b, s.URL); mine != "" {
		t.Errorf("a test has begun the session %q", mine)
	}
	return s.report(begun), end
}

func (s *signInWorld) users() string {
	s.t.Helper()
	return string(s.call(s.admin, "GET", "/api/v1/users", nil).ok(200).body)
}

func TestSignInTest(t *testing.T) {
	t.Parallel()
	s := newSignInWorld(t)
	stored := s.config("")
	s.set(map[string]string{"oidc.config": ""}) // nobody is offered the provider
	draft := func(config string) map[string]any {
		return map[string]any{"values": map[string]any{"oidc.config": config}}
	}
	refused := func(t *testing.T, body map[string]any, status int, says ...string) {
		t.Helper()
		a := s.call(s.admin, "POST", "/api/v1/settings/sign-in/tests", body)
		if p := a.fails(status); p.Fix == "" && !strings.Contains(p.Cause, "write it like") {
			t.Errorf("it names no fix: %s", a.body)
		}
		for _, text := range says {
			a.has(t, text)
		}
	}
	t.Run("UX-ACC-7 a test sign-in shows claims, groups and the roles that follow, and makes no session and no account", func(t *testing.T) {
		before := s.users()
		r, _ := s.tested(t, "alice", draft(stored))
		if r.State != "passed" || r.Account != "oidc:alice@example.com" || r.AccountExists || !slices.Contains(r.Groups, "devs") {
			t.Fatalf("the report is %+v\n%s", r, tail(s.Log.String()))
		}
		if !r.claims("email", "alice@example.com") {
			t.Errorf("the claims are %+v", r.Claims)
		}
		found := false
		for _, m := range r.Mapped {
			found = found || m.Subject == "devs" && m.Named && slices.Contains(m.Roles, "proj:shop:dev")
		}
		if !found {
			t.Errorf("devs is mapped to %+v", r.Mapped)
		}
		if !slices.Contains(r.Ignored, "role:tenant-admin") {
			t.Errorf("ignored is %v", r.Ignored)
		}
		if !slices.ContainsFunc(r.Permissions, func(p struct{ Resource, Action string }) bool {
			return p.Resource == "applications" && p.Action == "sync"
		}) {
			t.Errorf("the rights are %+v", r.Permissions)
		}
		if after := s.users(); after != before {
			t.Errorf("the accounts were %s and are %s", before, after)
		}
	})
	t.Run("UX-ACC-7 a test leaves the session of the browser as it is", func(t *testing.T) {
		b, begun := s.begin(t, draft(stored))
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		b.Client.Jar.SetCookies(u, []*http.Cookie{{Name: "capstan_session", Value: s.admin, Path: "/"}})
		b.SignIn(begun.URL, "alice", true)
		if got := session(t, b, s.URL); got != s.admin {
			t.Errorf("the session was replaced by %q", got)
		}
	})
	t.Run("SEC-C3 a report and the log hold no token and no secret", func(t *testing.T) {
		b, begun := s.begin(t, draft(stored))
		b.SignIn(begun.URL, "alice", true)
		text := string(s.call(s.admin, "GET", "/api/v1/settings/sign-in/tests/"+begun.ID, nil).ok(200).body)
		for _, never := range []string{clientSecret, "eyJ", "nonce", "at_hash"} {
			if strings.Contains(text, never) || never != "nonce" && strings.Contains(s.Log.String(), never) {
				t.Errorf("%q is printed", never)
			}
		}
	})
	t.Run("UX-ACC-7 a provider that is tested is offered to nobody", func(t *testing.T) {
		var offered struct{ Items []any }
		s.call("", "GET", "/api/v1/login/providers?tenant=acme", nil).ok(200).into(&offered)
		if len(offered.Items) != 0 {
			t.Errorf("the sign-in page offers %v", offered.Items)
		}
	})
	t.Run("UX-ACC-7 a wrong issuer is said before the browser goes anywhere", func(t *testing.T) {
		refused(t, draft(strings.Replace(stored, "issuer: "+s.provider.Issuer, "issuer: "+s.provider.Issuer+"/", 1)), 503, "another issuer", "slash", s.provider.Issuer)
		refused(t, draft(strings.Replace(stored, s.provider.Issuer, "http://127.0.0.1:1", 1)), 503, "refuses the connection")
		refused(t, draft("issuer: x\n"), 400, "oidc.config")
	})
	t.Run("UX-ACC-7 a wrong client secret is said with its fix", func(t *testing.T) {
		wrong := draft(stored)
		wrong["secrets"] = map[string]string{"oidc.rig.clientSecret": "canary-wrong-secret"}
		r, _ := s.tested(t, "alice", wrong)
		if r.State != "failed" || !strings.Contains(r.Problem.Cause, "invalid_client") || !strings.Contains(r.Problem.Fix, "clientSecret") || len(r.Permissions) != 0 {
			t.Errorf("it is %+v", r)
		}
		if strings.Contains(s.Log.String(), "canary-wrong-secret") {
			t.Error("the log has the secret")
		}
	})
	t.Run("UX-ACC-7 a secret that is not stored is named", func(t *testing.T) {
		refused(t, draft(strings.Replace(stored, "$oidc.rig.clientSecret", "$oidc.other", 1)), 400, "$oidc.other", "is not stored")
	})
	t.Run("UX-ACC-7 missing groups are a warning with its fix", func(t *testing.T) {
		r, _ := s.tested(t, "admin", draft(strings.Replace(stored, "name: Rig\n", "name: Rig\nrequestedScopes: [openid, profile, email]\n", 1)))
		if r.State != "passed" || len(r.Groups) != 0 || len(r.Warnings) == 0 || !strings.Contains(r.Warnings[0], "sent no groups") || !strings.Contains(r.Warnings[0], "requestedScopes") {
			t.Errorf("it is %+v", r)
		}
	})
	t.Run("UX-ACC-7 groups that a provider leaves out are a problem with its fix, and the claims are shown", func(t *testing.T) {
		if err := s.provider.Set(t.Context(), "many", oidc.Claims{"preferred_username": "many", "hasgroups": true, "name": "Many"}); err != nil {
			t.Fatal(err)
		}
		config := stored + "requestedIDTokenClaims: {hasgroups: {essential: true}}\n"
		r, _ := s.tested(t, "many", draft(config))
		if r.State != "failed" || !strings.Contains(r.Problem.Cause, "so many groups") || r.Problem.Fix == "" || r.Subject != "many" || len(r.Claims) == 0 {
			t.Errorf("it is %+v", r)
		}
	})
	t.Run("UX-ACC-7 who declines at the provider reads so in the report", func(t *testing.T) {
		b, begun := s.begin(t, draft(stored))
		b.SignIn(begun.URL, "alice", false)
		if r := s.report(begun); r.State != "failed" || !strings.Contains(r.Problem.Cause, "declined") {
			t.Errorf("it is %+v", r)
		}
	})
	t.Run("SEC-E4 a test is finished once, by the browser that began it", func(t *testing.T) {
		b, begun := s.begin(t, draft(stored))
		b.Halts = []string{s.URL + "/auth/callback"}
		at, _ := b.SignIn(begun.URL, "alice", true)
		other := oidc.NewBrowser(t)
		if end, _ := other.SignIn(at, "", true); !strings.Contains(end, "problem=state") {
			t.Errorf("another browser ended at %s", end)
		}
		b.Halts = nil
		if end, _ := b.SignIn(at, "", true); !strings.Contains(end, "test="+begun.ID) {
			t.Errorf("it ended at %s", end)
		}
		if end, _ := b.SignIn(at, "", true); !strings.Contains(end, "problem=state") {
			t.Errorf("the second time it ended at %s", end)
		}
	})
	t.Run("SEC-E4 an answer with another code, state or nonce passes no test", func(t *testing.T) {
		b, begun := s.begin(t, draft(stored))
		b.Halts = []string{s.URL + "/auth/callback"}
		at, _ := b.SignIn(begun.URL, "alice", true)
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("code", "x"+q.Get("code"))
		u.RawQuery = q.Encode()
		b.Halts = nil
		b.SignIn(u.String(), "", true)
		if r := s.report(begun); r.State != "failed" || r.Subject != "" {
			t.Errorf("it is %+v", r)
		}
	})
	t.Run("ISO-1 a report is for who has tested, in their tenant", func(t *testing.T) {
		_, begun := s.begin(t, draft(stored))
		s.call(s.Admin("bolt"), "GET", "/api/v1/settings/sign-in/tests/"+begun.ID, nil).fails(404)
		s.call("", "GET", "/api/v1/settings/sign-in/tests/"+begun.ID, nil).fails(401)
	})
	t.Run("UX-ACC-7 tests are in the audit log", func(t *testing.T) {
		log := string(s.call(s.admin, "GET", "/api/v1/audit?limit=200", nil).ok(200).body)
		for _, want := range []string{"test-sign-in", "as oidc:alice@example.com", "invalid_client"} {
			if !strings.Contains(log, want) {
				t.Errorf("the audit log does not say %q", want)
			}
		}
	})
	t.Run("UX-ACC-7 local accounts sign in with a password, whatever a test or a stored provider says", func(t *testing.T) {
		s.User("acme", "keeper", hub.RoleTenantAdmin)
		s.set(map[string]string{"oidc.config": strings.Replace(stored, s.provider.Issuer, "http://127.0.0.1:1", 1)})
		refused(t, map[string]any{}, 503, "refuses the connection") // what is stored is tested without a draft
		in := func() answer {
			return s.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "keeper", "password": password, "mode": "token"})
		}
		in().ok(200)
		s.set(map[string]string{"admin.enabled": "false", "accounts.keeper": "login"})
		in().ok(200)
		s.set(map[string]string{"admin.enabled": "true"})
	})
	t.Run("SEC-D4 a test needs the right to store what it tests", func(t *testing.T) {
		s.User("acme", "reader", hub.RoleReadOnly)
		secret, _ := s.world.signIn("acme", "reader", password)
		s.call(secret, "POST", "/api/v1/settings/sign-in/tests", draft(stored)).fails(403)
	})
}
