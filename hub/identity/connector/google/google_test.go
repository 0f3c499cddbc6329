package google

import (
	"fmt"
	"net/http"
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
	s.Google.Subject = "10769150350006150715113082367"
	s.Google.Claims = map[string]any{"name": "Jane Doe", "email": "jane@example.com", "email_verified": true, "hd": "example.com"}
	s.Google.Admin = "admin@example.com"
	s.Google.Groups = map[string][]string{
		"jane@example.com": {"sre@example.com", "all@example.com"},
		"sre@example.com":  {"engineering@example.com"}, "engineering@example.com": {"sre@example.com", "all@example.com"},
	}
	return s
}

func signIn(t *testing.T, s *providers.Server, change func(*Config)) (connector.Identity, error) {
	t.Helper()
	cfg := Config{ClientID: providers.ClientID, ClientSecret: providers.ClientSecret}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	r := connector.Request{State: "state-1", Nonce: "nonce-1", Verifier: strings.Repeat("v", 43), Callback: providers.Callback}
	to, err := c.Begin(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.Finish(t.Context(), r, s.SignIn(t, to))
	if err != nil && strings.Contains(err.Error()+fault.Sentence(err), "canary") {
		t.Errorf("%q prints a secret", err)
	}
	return id, err
}

// withGroups lets a configuration read groups.
func withGroups(s *providers.Server) func(*Config) {
	return func(c *Config) {
		c.ServiceAccountJSON = s.ServiceAccount()
		c.DomainToAdminEmail = map[string]string{"Example.com": "admin@example.com"}
	}
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	jane := connector.Identity{Subject: "10769150350006150715113082367", Username: "jane@example.com", Name: "Jane Doe", Email: "jane@example.com", EmailVerified: true}
	for name, c := range map[string]struct {
		change func(*Config)
		groups bool
		size   int
		want   []string
	}{
		"knows a person":                         {},
		"admits a hosted domain":                 {change: func(c *Config) { c.HostedDomains = []string{"other.example", "example.com"} }},
		"reads groups":                           {groups: true, want: []string{"sre@example.com", "all@example.com"}},
		"reads all pages of groups":              {groups: true, size: 1, want: []string{"sre@example.com", "all@example.com"}},
		"asks on behalf of any domain's admin":   {groups: true, change: func(c *Config) { c.DomainToAdminEmail, c.AdminEmail = nil, "admin@example.com" }, want: []string{"sre@example.com", "all@example.com"}},
		"passes on only configured groups":       {groups: true, change: func(c *Config) { c.Groups = []string{"all@example.com"} }, want: []string{"all@example.com"}},
		"reads groups of groups, also in a ring": {groups: true, change: func(c *Config) { c.FetchTransitiveGroupMembership = true }, want: []string{"sre@example.com", "all@example.com", "engineering@example.com"}},
	} {
		t.Run("AUTH-08 Google "+name, func(t *testing.T) {
			t.Parallel()
			s, want := server(t), jane
			want.Groups = c.want
			s.Google.PageSize = c.size
			got, err := signIn(t, s, func(cfg *Config) {
				if c.groups {
					withGroups(s)(cfg)
				}
				if c.change != nil {
					c.change(cfg)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	claim := func(name string, value any) func(*providers.Server) {
		return func(s *providers.Server) { s.Google.Claims[name] = value }
	}
	for name, c := range map[string]struct {
		change func(*Config)
		groups bool
		server func(*providers.Server)
		kind   fault.Kind
		says   string
	}{
		"a token of another issuer":       {server: claim("iss", "https://evil.example"), kind: fault.Unknown, says: "not valid"},
		"a token for another client":      {server: claim("aud", "other"), kind: fault.Unknown, says: "not valid"},
		"a token of another party":        {server: claim("azp", "other"), kind: fault.Unknown, says: "another client"},
		"an expired token":                {server: claim("exp", time.Now().Add(-time.Hour).Unix()), kind: fault.Unknown, says: "not valid"},
		"a token of the future":           {server: claim("nbf", time.Now().Add(time.Hour).Unix()), kind: fault.Unknown, says: "not valid"},
		"a token of another sign-in":      {server: claim("nonce", "other"), kind: fault.Unknown, says: "another sign-in"},
		"a token without nonce":           {server: claim("nonce", ""), kind: fault.Unknown, says: "another sign-in"},
		"a token of nobody":               {server: claim("sub", ""), kind: fault.Unknown, says: "who the person is"},
		"claims of odd types":             {server: claim("email", []int{1}), kind: fault.Unknown, says: "not valid"},
		"a domain that may not sign in":   {change: func(c *Config) { c.HostedDomains = []string{"corp.example"} }, kind: fault.Denied, says: "hostedDomains"},
		"an account without a domain":     {change: func(c *Config) { c.HostedDomains = []string{"example.com", ""} }, server: claim("hd", ""), kind: fault.Denied, says: "hostedDomains"},
		"a person of no group":            {groups: true, change: func(c *Config) { c.Groups = []string{"x@example.com"} }, kind: fault.Denied, says: "none of the groups"},
		"groups of an unverified mail":    {groups: true, server: claim("email_verified", false), kind: fault.Denied, says: "verified"},
		"an administrator of nothing":     {groups: true, change: func(c *Config) { c.DomainToAdminEmail = map[string]string{"x.example": "a"} }, kind: fault.Denied, says: "domainToAdminEmail"},
		"a delegation that is missing":    {groups: true, server: func(s *providers.Server) { s.Google.Admin = "other@example.com" }, kind: fault.Offline, says: "domain-wide delegation"},
		"an administrator without rights": {groups: true, server: func(s *providers.Server) { s.Override = status("/admin/directory/v1/groups", 403) }, kind: fault.Denied, says: "Admin SDK"},
		"keys that cannot be read":        {server: func(s *providers.Server) { s.Override = status("/oauth2/v3/certs", 500) }, kind: fault.Offline, says: "500"},
		"too many groups to ask": {groups: true, change: func(c *Config) { c.FetchTransitiveGroupMembership = true }, server: func(s *providers.Server) {
			for i := range 300 {
				s.Google.Groups["jane@example.com"] = append(s.Google.Groups["jane@example.com"], fmt.Sprint("g", i, "@example.com"))
			}
		}, kind: fault.Denied, says: "fetchTransitiveGroupMembership"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			if c.server != nil {
				c.server(s)
			}
			_, err := signIn(t, s, func(cfg *Config) {
				if c.groups {
					withGroups(s)(cfg)
				}
				if c.change != nil {
					c.change(cfg)
				}
			})
			if kind := fault.KindOf(err); kind != c.kind || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("kind %q, want %q: %v", kind, c.kind, err)
			}
		})
	}
}

func status(path string, code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == path {
			w.WriteHeader(code)
		}
		return r.URL.Path == path
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no client":                   {ClientSecret: "b"},
		"groups nobody can read":      {ClientID: "a", ClientSecret: "b", Groups: []string{"a@example.com"}},
		"an account without an admin": {ClientID: "a", ClientSecret: "b", ServiceAccountJSON: "{}"},
		"an account that is none":     {ClientID: "a", ClientSecret: "b", ServiceAccountJSON: "canary", AdminEmail: "a@example.com"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := New(cfg, http.DefaultClient); fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "canary") {
				t.Errorf("%v", err)
			}
		})
	}
}
