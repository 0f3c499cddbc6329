package gitlab

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/integration/rigs/providers"
	"github.com/capstan-cd/capstan/shared/fault"
)

func server(t *testing.T) *providers.Server {
	s := providers.New(t)
	s.GitLab = providers.GitLab{
		ID: 42, Username: "jane", Name: "Jane Doe", Email: "jane@example.com", State: "active",
		Groups: []string{"shop", "shop/sre", "dev", "developer"}, Owner: []string{"shop"}, Developer: []string{"dev"},
		Inherited: []providers.GitLabGroup{{ID: 1, Path: "shop", Level: 50}, {ID: 2, Path: "shared", Level: 20}, {ID: 3, Path: "hidden"}},
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
	r := connector.Request{State: "state-1", Verifier: strings.Repeat("v", 43), Callback: providers.Callback}
	to, err := c.Begin(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.Finish(t.Context(), r, s.SignIn(t, to))
	if err != nil && strings.Contains(err.Error()+fault.Sentence(err), providers.ClientSecret) {
		t.Errorf("%q prints a secret", err)
	}
	return id, err
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	jane := connector.Identity{
		Subject: "42", Username: "jane", Name: "Jane Doe", Email: "jane@example.com", EmailVerified: true,
		Groups: []string{"shop", "shop/sre", "dev", "developer"},
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   func(*connector.Identity)
	}{
		"passes on groups by full path":    {nil, nil},
		"is asked at its own address":      {func(c *Config) { c.BaseURL = "https://gitlab.example.com/" }, nil},
		"takes the login as subject":       {func(c *Config) { c.UseLoginAsID = true }, func(i *connector.Identity) { i.Subject = "jane" }},
		"passes on only configured groups": {func(c *Config) { c.Groups = []string{"shop/sre", "x"} }, func(i *connector.Identity) { i.Groups = []string{"shop/sre"} }},
		"adds roles": {func(c *Config) { c.GetGroupsPermission = true }, func(i *connector.Identity) {
			i.Groups = append(i.Groups, "shop:owner", "shop/sre:owner", "dev:developer")
		}},
		"reads inherited groups": {func(c *Config) { c.InheritedGroups = true }, func(i *connector.Identity) { i.Groups = []string{"shop", "shared", "hidden"} }},
		"asks for roles in inherited groups": {func(c *Config) { c.InheritedGroups, c.GetGroupsPermission = true, true }, func(i *connector.Identity) {
			i.Groups = []string{"shop", "shared", "hidden", "shop:owner", "shared:reporter"}
		}},
	} {
		t.Run("AUTH-08 GitLab "+name, func(t *testing.T) {
			t.Parallel()
			want := jane
			if c.want != nil {
				c.want(&want)
			}
			got, err := signIn(t, server(t), c.change)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("AUTH-08 GitLab reads all pages of groups", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		for i := range 500 {
			s.GitLab.Inherited = append(s.GitLab.Inherited, providers.GitLabGroup{ID: int64(i + 10), Path: fmt.Sprint("g", i)})
		}
		got, err := signIn(t, s, func(c *Config) { c.InheritedGroups = true })
		if err != nil || len(got.Groups) != 503 {
			t.Errorf("%d groups, %v", len(got.Groups), err)
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		server func(*providers.Server)
		kind   fault.Kind
		says   string
	}{
		"a person of no group":     {change: func(c *Config) { c.Groups = []string{"sho"} }, kind: fault.Denied, says: "none of the groups"},
		"a blocked person":         {server: func(s *providers.Server) { s.GitLab.State = "blocked" }, kind: fault.Denied, says: "blocked"},
		"an unknown person":        {server: func(s *providers.Server) { s.GitLab.Username = "" }, kind: fault.Unknown, says: "who the person is"},
		"a scope that is missing":  {server: func(s *providers.Server) { s.Override = status("/oauth/userinfo", 403) }, kind: fault.Denied, says: "read_user, openid"},
		"a failure of the API":     {server: func(s *providers.Server) { s.Override = status("/api/v4/user", 503) }, kind: fault.Offline, says: "503"},
		"a wrong client secret":    {change: func(c *Config) { c.ClientSecret = "wrong" }, kind: fault.Unknown, says: "client secret"},
		"too many roles to ask":    {change: func(c *Config) { c.InheritedGroups, c.GetGroupsPermission = true, true }, server: many(300), kind: fault.Denied, says: "getGroupsPermission"},
		"more groups than allowed": {change: func(c *Config) { c.InheritedGroups = true }, server: many(connector.MaxGroups), kind: fault.Denied, says: "more than 2000 groups"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			if c.server != nil {
				c.server(s)
			}
			_, err := signIn(t, s, c.change)
			if kind := fault.KindOf(err); kind != c.kind || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("kind %q, want %q: %v", kind, c.kind, err)
			}
		})
	}
}

func many(n int) func(*providers.Server) {
	return func(s *providers.Server) {
		for i := range n {
			s.GitLab.Inherited = append(s.GitLab.Inherited, providers.GitLabGroup{ID: int64(i + 10), Path: fmt.Sprint("g", i)})
		}
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
		"no client":              {ClientSecret: "b"},
		"an address without TLS": {ClientID: "a", ClientSecret: "b", BaseURL: "http://gitlab.example.com"},
		"an address with a name": {ClientID: "a", ClientSecret: "b", BaseURL: "https://gitlab.com@evil.example"},
		"authorities of nobody":  {ClientID: "a", ClientSecret: "b", RootCAData: []byte("x")},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := New(cfg, &http.Client{Transport: &http.Transport{}}); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
		})
	}
}
