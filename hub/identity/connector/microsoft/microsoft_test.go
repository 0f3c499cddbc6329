package microsoft

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
	s.Microsoft = providers.Microsoft{
		Tenant: "example.com", ID: "87d349ed-44d7-43e1-9a83-5f2406dee5bd", DisplayName: "Jane Doe", PrincipalName: "Jane@example.com", MailNickname: "jane",
		Groups: []providers.MicrosoftGroup{{ID: "id-1", Name: "SRE", Security: true}, {ID: "id-2", Name: "Lunch"}},
	}
	return s
}

func signIn(t *testing.T, s *providers.Server, change func(*Config)) (connector.Identity, error) {
	t.Helper()
	cfg := Config{ClientID: providers.ClientID, ClientSecret: providers.ClientSecret, Tenant: "example.com"}
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
		Subject: "87d349ed-44d7-43e1-9a83-5f2406dee5bd", Username: "Jane@example.com", Name: "Jane Doe", Email: "Jane@example.com", EmailVerified: true,
		Groups: []string{"SRE", "Lunch"},
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   func(*connector.Identity)
	}{
		"names groups":                        {nil, nil},
		"passes on ids of groups":             {func(c *Config) { c.GroupNameFormat = "id" }, func(i *connector.Identity) { i.Groups = []string{"id-1", "id-2"} }},
		"passes on only security groups":      {func(c *Config) { c.OnlySecurityGroups = true }, func(i *connector.Identity) { i.Groups = []string{"SRE"} }},
		"admits by a group and passes on all": {func(c *Config) { c.Groups = []string{"SRE"} }, nil},
		"passes on only configured groups":    {func(c *Config) { c.Groups, c.UseGroupsAsWhitelist = []string{"SRE"}, true }, func(i *connector.Identity) { i.Groups = []string{"SRE"} }},
		"writes mail addresses in lower case": {func(c *Config) { c.EmailToLowercase = true }, func(i *connector.Identity) { i.Email, i.Username = "jane@example.com", "jane@example.com" }},
		"takes another name of the person":    {func(c *Config) { c.PreferredUsername = "mailNickname" }, func(i *connector.Identity) { i.Username = "jane" }},
		"falls back if a name is not there":   {func(c *Config) { c.PreferredUsername = "onPremisesSamAccountName" }, nil},
		"reads no groups of anybody's tenant": {func(c *Config) { c.Tenant = "" }, func(i *connector.Identity) { i.Groups, i.EmailVerified = nil, false }},
	} {
		t.Run("AUTH-08 Microsoft "+name, func(t *testing.T) {
			t.Parallel()
			s, want := server(t), jane
			if c.want != nil {
				c.want(&want)
			}
			if want.Groups == nil {
				s.Microsoft.Tenant = "common"
			}
			got, err := signIn(t, s, c.change)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("AUTH-11 Microsoft reads more groups than a token or one answer has", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		for i := range 1500 {
			s.Microsoft.Groups = append(s.Microsoft.Groups, providers.MicrosoftGroup{ID: fmt.Sprint("g", i), Name: fmt.Sprint("Group ", i), Security: true})
		}
		s.Microsoft.PageSize = 700
		got, err := signIn(t, s, nil)
		if err != nil || len(got.Groups) != 1502 {
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
		"a person of no group":       {change: func(c *Config) { c.Groups = []string{"sre"} }, kind: fault.Denied, says: "none of the groups"},
		"an unknown person":          {server: func(s *providers.Server) { s.Microsoft.ID = "" }, kind: fault.Unknown, says: "who the person is"},
		"permissions nobody granted": {server: func(s *providers.Server) { s.Override = answer("/v1.0/me/getMemberGroups", 403, "{}") }, kind: fault.Denied, says: "Directory.Read.All"},
		"a next page elsewhere": {server: func(s *providers.Server) {
			s.Override = answer("/v1.0/me/getMemberGroups", 200, `{"value":[],"@odata.nextLink":"https://evil.example/x"}`)
		}, kind: fault.Offline, says: "another host"},
		"a list without an end": {server: func(s *providers.Server) {
			s.Override = answer("/v1.0/me/getMemberGroups", 200, `{"value":[],"@odata.nextLink":"https://graph.microsoft.com/v1.0/me/getMemberGroups"}`)
		}, kind: fault.Denied, says: "pages"},
		"a wrong client secret": {change: func(c *Config) { c.ClientSecret = "wrong" }, kind: fault.Unknown, says: "client secret"},
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

func answer(path string, code int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == path {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
		return r.URL.Path == path
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no client":                  {ClientSecret: "b"},
		"a tenant that is a path":    {ClientID: "a", ClientSecret: "b", Tenant: "../x"},
		"groups of anybody's tenant": {ClientID: "a", ClientSecret: "b", Groups: []string{"SRE"}},
		"an unknown format":          {ClientID: "a", ClientSecret: "b", GroupNameFormat: "mail"},
		"an unknown name":            {ClientID: "a", ClientSecret: "b", PreferredUsername: "upn"},
		"an address without TLS":     {ClientID: "a", ClientSecret: "b", GraphURL: "http://graph.example"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := New(cfg, http.DefaultClient); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
		})
	}
}
