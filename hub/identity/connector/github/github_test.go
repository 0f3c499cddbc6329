package github

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/integration/rigs/providers"
	"github.com/capstan-cd/capstan/shared/fault"
)

func server(t *testing.T) *providers.Server {
	s := providers.New(t)
	s.GitHub = providers.GitHub{
		ID: 583231, Login: "jane", Name: "Jane Doe",
		Emails: []providers.GitHubEmail{{Email: "old@example.com", Verified: true}, {Email: "jane@example.com", Primary: true, Verified: true}, {Email: "jane@corp.example.com", Verified: true}},
		Orgs:   []string{"My-Org", "other"},
		Teams:  []providers.GitHubTeam{{Org: "My-Org", Name: "Platform Team", Slug: "platform-team"}, {Org: "My-Org", Name: "SRE", Slug: "sre"}, {Org: "other", Name: "SRE", Slug: "sre"}},
	}
	return s
}

func config() Config {
	return Config{ClientID: providers.ClientID, ClientSecret: providers.ClientSecret}
}

func request() connector.Request {
	return connector.Request{State: "state-1", Nonce: "nonce-1", Verifier: strings.Repeat("v", 43), Callback: providers.Callback}
}

// signIn signs in as a browser would.
func signIn(t *testing.T, s *providers.Server, cfg Config) (connector.Identity, error) {
	t.Helper()
	c, err := New(cfg, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	to, err := c.Begin(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.Finish(t.Context(), request(), s.SignIn(t, to))
	if err != nil && strings.Contains(err.Error()+fault.Sentence(err), providers.ClientSecret) {
		t.Errorf("%q prints a secret", err)
	}
	return id, err
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	jane := connector.Identity{Subject: "583231", Username: "jane", Name: "Jane Doe", Email: "jane@example.com", EmailVerified: true, Groups: []string{}}
	for name, c := range map[string]struct {
		change func(*Config)
		want   func(*connector.Identity)
	}{
		"knows a person without organizations":   {},
		"takes the login as subject":             {func(c *Config) { c.UseLoginAsID = true }, func(i *connector.Identity) { i.Subject = "jane" }},
		"passes on all teams of an organization": {func(c *Config) { c.Orgs = []Org{{Name: "my-org"}} }, func(i *connector.Identity) { i.Groups = []string{"my-org:Platform Team", "my-org:SRE"} }},
		"passes on only configured teams":        {func(c *Config) { c.Orgs = []Org{{Name: "My-Org", Teams: []string{"SRE", "Owners"}}} }, func(i *connector.Identity) { i.Groups = []string{"My-Org:SRE"} }},
		"names teams by slug":                    {func(c *Config) { c.Orgs, c.TeamNameField = []Org{{Name: "My-Org"}}, "slug" }, func(i *connector.Identity) { i.Groups = []string{"My-Org:platform-team", "My-Org:sre"} }},
		"names teams both ways":                  {func(c *Config) { c.Org, c.TeamNameField = "other", "both" }, func(i *connector.Identity) { i.Groups = []string{"other:SRE", "other:sre"} }},
		"admits by one of several organizations": {func(c *Config) { c.Orgs = []Org{{Name: "elsewhere"}, {Name: "other", Teams: []string{"SRE"}}} }, func(i *connector.Identity) { i.Groups = []string{"other:SRE"} }},
		"passes on everything on request": {func(c *Config) { c.LoadAllGroups = true }, func(i *connector.Identity) {
			i.Groups = []string{"My-Org", "My-Org:Platform Team", "My-Org:SRE", "other", "other:SRE"}
		}},
		"prefers a domain of mail addresses": {func(c *Config) { c.PreferredEmailDomain = "*.example.com" }, func(i *connector.Identity) { i.Email = "jane@corp.example.com" }},
	} {
		t.Run("AUTH-08 GitHub "+name, func(t *testing.T) {
			t.Parallel()
			cfg, want := config(), jane
			if c.change != nil {
				c.change(&cfg)
			}
			if c.want != nil {
				c.want(&want)
			}
			got, err := signIn(t, server(t), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("AUTH-08 GitHub Enterprise Server is asked at its host, and its mail addresses are not verified", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		s.GitHub.Emails = []providers.GitHubEmail{{Email: "jane@example.com", Primary: true}}
		cfg := config()
		cfg.HostName, cfg.RootCAData, cfg.Orgs = "ghe.example.com", s.CA, []Org{{Name: "other"}}
		got, err := signIn(t, s, cfg)
		if err != nil || got.Email != "jane@example.com" || got.EmailVerified || !slices.Equal(got.Groups, []string{"other:SRE"}) {
			t.Fatalf("%+v %v", got, err)
		}
		for _, r := range s.Requests() {
			if !strings.HasPrefix(r, "ghe.example.com/") {
				t.Errorf("it asks %s", r)
			}
		}
	})
	t.Run("AUTH-08 GitHub reads all pages of teams", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		s.GitHub.Teams = nil
		for i := range 350 {
			s.GitHub.Teams = append(s.GitHub.Teams, providers.GitHubTeam{Org: "My-Org", Name: fmt.Sprint("team ", i)})
		}
		cfg := config()
		cfg.Orgs = []Org{{Name: "My-Org"}}
		got, err := signIn(t, s, cfg)
		if err != nil || len(got.Groups) != 350 {
			t.Errorf("%d groups, %v", len(got.Groups), err)
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	orgs := func(c *Config) { c.Orgs = []Org{{Name: "elsewhere"}} }
	answer := func(at string, status int, header http.Header, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != at {
				return false
			}
			for k, v := range header {
				w.Header()[k] = v
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		server func(*providers.Server)
		kind   fault.Kind
		says   string
	}{
		"a person of no organization":        {change: orgs, kind: fault.Denied, says: "in none of the organizations"},
		"a person of no team":                {change: func(c *Config) { c.Orgs = []Org{{Name: "My-Org", Teams: []string{"sre"}}} }, kind: fault.Denied, says: "in none of the organizations"},
		"a public member that is no member":  {change: orgs, server: func(s *providers.Server) { s.GitHub.Foreign = []string{"elsewhere"} }, kind: fault.Denied, says: "in none of the organizations"},
		"an organization that hides members": {change: orgs, server: func(s *providers.Server) { s.GitHub.Restricted = []string{"elsewhere"} }, kind: fault.Denied, says: "approve the OAuth app"},
		"a wrong client secret":              {change: func(c *Config) { c.ClientSecret = "wrong" }, kind: fault.Unknown, says: "client secret"},
		"an unknown person":                  {server: func(s *providers.Server) { s.GitHub.ID = 0 }, kind: fault.Unknown, says: "who the person is"},
		"a rate limit": {server: func(s *providers.Server) {
			s.Override = answer("/user", 403, http.Header{"X-Ratelimit-Remaining": {"0"}}, "{}")
		}, kind: fault.Offline, says: "limit of requests"},
		"too many requests": {server: func(s *providers.Server) { s.Override = answer("/user", 429, http.Header{"Retry-After": {"60"}}, "{}") }, kind: fault.Offline, says: "limit of requests"},
		"a redirect of the API": {server: func(s *providers.Server) {
			s.Override = answer("/user", 302, http.Header{"Location": {"https://evil.example/user"}}, "")
		}, kind: fault.Offline, says: "redirects"},
		"a next page at another host": {change: orgs, server: func(s *providers.Server) {
			s.Override = answer("/user/teams", 200, http.Header{"Link": {`<https://evil.example/user/teams>; rel="next"`}}, "[]")
		}, kind: fault.Offline, says: "another host"},
		"a list without an end": {change: orgs, server: func(s *providers.Server) {
			s.Override = answer("/user/teams", 200, http.Header{"Link": {`<https://api.github.com/user/teams>; rel="next"`}}, "[]")
		}, kind: fault.Denied, says: "pages"},
		"an answer without an end":        {server: func(s *providers.Server) { s.Override = answer("/user", 200, nil, strings.Repeat(" ", 3<<20)) }, kind: fault.Offline, says: "larger than"},
		"an answer that is no JSON":       {server: func(s *providers.Server) { s.Override = answer("/user", 200, nil, "<html>") }, kind: fault.Offline, says: "not the JSON"},
		"a failure of the API":            {server: func(s *providers.Server) { s.Override = answer("/user", 502, nil, "") }, kind: fault.Offline, says: "status 502"},
		"a failure of the token endpoint": {server: func(s *providers.Server) { s.Override = answer("/login/oauth/access_token", 500, nil, "") }, kind: fault.Offline, says: "status 500"},
		"an answer without a token": {server: func(s *providers.Server) {
			s.Override = answer("/login/oauth/access_token", 200, http.Header{"Content-Type": {"application/json"}}, "{}")
		}, kind: fault.Unknown, says: "no access token"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			cfg, s := config(), server(t)
			if c.change != nil {
				c.change(&cfg)
			}
			if c.server != nil {
				c.server(s)
			}
			id, err := signIn(t, s, cfg)
			if kind := fault.KindOf(err); kind != c.kind {
				t.Fatalf("kind %q, want %q: %v %v", kind, c.kind, id, err)
			}
			if !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("%q does not say %q", fault.Sentence(err), c.says)
			}
			for _, r := range s.Requests() {
				if strings.HasPrefix(r, "evil.example") {
					t.Errorf("the token went to %s", r)
				}
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, err := New(config(), s.Client())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(url.Values){
		"no parameters":                    func(v url.Values) { clear(v) },
		"the state of another":             func(v url.Values) { v.Set("state", "other") },
		"no state":                         func(v url.Values) { v.Del("state") },
		"no code":                          func(v url.Values) { v.Del("code") },
		"a code that GitHub does not know": func(v url.Values) { v.Set("code", "guessed") },
		"a person who has cancelled":       func(v url.Values) { v.Del("code"); v.Set("error", "access_denied") },
		"an error with strange signs":      func(v url.Values) { v.Set("error", "x\x00\n<script>") },
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			to, _ := c.Begin(t.Context(), request())
			answer := s.SignIn(t, to)
			change(answer)
			_, err := c.Finish(t.Context(), request(), answer)
			if fault.KindOf(err) != fault.Unknown || strings.ContainsAny(fault.Sentence(err), "\x00\n") {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("refuses a code that was used before", func(t *testing.T) {
		to, _ := c.Begin(t.Context(), request())
		answer := s.SignIn(t, to)
		if _, err := c.Finish(t.Context(), request(), answer); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Finish(t.Context(), request(), answer); fault.KindOf(err) != fault.Unknown {
			t.Errorf("%v", err)
		}
	})
	t.Run("refuses a code of another browser, by PKCE", func(t *testing.T) {
		to, _ := c.Begin(t.Context(), request())
		answer := s.SignIn(t, to)
		other := request()
		other.Verifier = strings.Repeat("w", 43)
		if _, err := c.Finish(t.Context(), other, answer); fault.KindOf(err) != fault.Unknown {
			t.Errorf("%v", err)
		}
	})
}

func TestRevokedToken(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.Override = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/user/emails" {
			s.Revoke()
		}
		return false
	}
	_, err := signIn(t, s, config())
	if fault.KindOf(err) != fault.Unknown || !strings.Contains(fault.Sentence(err), "revoked") {
		t.Errorf("%v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.Override = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/user" {
			return false
		}
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode("secondary rate limit")
		return true
	}
	_, err := signIn(t, s, config())
	if e, ok := fault.As(err); !ok || e.RetryAfter != time.Minute {
		t.Errorf("%v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"no client":                     func(c *Config) { c.ClientID = "" },
		"no client secret":              func(c *Config) { c.ClientSecret = "" },
		"both forms of organizations":   func(c *Config) { c.Org, c.Orgs = "a", []Org{{Name: "b"}} },
		"an organization without name":  func(c *Config) { c.Orgs = []Org{{}} },
		"a URL as host":                 func(c *Config) { c.HostName = "https://ghe.example.com" },
		"a host with another behind it": func(c *Config) { c.HostName = "ghe.example.com@evil.example" },
		"authorities for github.com":    func(c *Config) { c.RootCAData = []byte("x") },
		"authorities that are none":     func(c *Config) { c.HostName, c.RootCAData = "ghe.example.com", []byte("x") },
		"an unknown name of teams":      func(c *Config) { c.TeamNameField = "id" },
		"any domain":                    func(c *Config) { c.PreferredEmailDomain = "example.*" },
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			cfg := config()
			change(&cfg)
			if _, err := New(cfg, &http.Client{Transport: &http.Transport{}}); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
		})
	}
}
