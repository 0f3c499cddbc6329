// Package signin_test signs people in with an OpenID provider, in a real
// browser, at a hub that runs as a process of its own.
package signin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/ldap"
	"github.com/capstan-cd/capstan/integration/rigs/oidc"
	"github.com/capstan-cd/capstan/integration/rigs/playwright"
	"github.com/capstan-cd/capstan/integration/rigs/saml"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// s is the installation of all tests.
var s *stack.Stack

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "signin", 20*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	build := exec.CommandContext(ctx, "make", "web/dist/index.html")
	build.Dir = filepath.Join("..", "..", "..")
	build.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the console: %w\n%s", err, out)
	}
	s, err = suite.Installed(ctx, dir, stack.Options{Settings: map[string]any{"signIn": map[string]any{"allowPrivate": []string{"127.0.0.0/8"}}}})
	if err != nil {
		return nil, err
	}
	return s.Stop, nil
}

func alice(groups ...string) oidc.Claims {
	return oidc.Claims{"email": "alice@example.com", "email_verified": true, "name": "Alice", "preferred_username": "alice", "groups": groups}
}

// provider starts one that the tenant default signs people in with. The group
// devs may sync the applications of the project default.
func provider(t *testing.T) *oidc.Provider {
	t.Helper()
	p := unconfigured(t)
	brokered := connectors(t)
	for _, manifest := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: argocd-secret}\nstringData: {oidc.rig.clientSecret: a client secret, dex.ldap.bindPW: " + ldap.ReaderPW + "}\n",
		fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm}
data:
  url: %[1]s
  oidc.config: |
    name: Example ID
    issuer: %[2]s
    clientID: capstan
    clientSecret: $oidc.rig.clientSecret
    logoutURL: %[2]s/session/end?id_token_hint={{token}}&post_logout_redirect_uri={{logoutRedirectURL}}
  dex.config: |
%[3]s
`, s.URL(), p.Issuer, brokered),
		team,
	} {
		if _, err := s.API.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// unconfigured starts a provider that no tenant has configured.
func unconfigured(t *testing.T) *oidc.Provider {
	t.Helper()
	return oidc.New(t, oidc.Options{
		Clients: []oidc.Client{{
			ID: "capstan", Secret: "a client secret", Callbacks: []string{s.URL() + "/auth/callback"}, AfterOut: []string{s.URL() + "/login"},
		}},
		Accounts: map[string]oidc.Claims{"alice": alice("devs")},
	})
}

// team is a project that the group devs has a role in.
const team = `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: team}
spec:
  roles:
    - {name: dev, groups: [devs], policies: ["p, proj:team:dev, applications, sync, team/*, allow"]}
`

// TestSetUpPage runs the spec in which an admin sets a provider up, at a tenant
// that has none.
func TestSetUpPage(t *testing.T) {
	p := unconfigured(t)
	alone(t)
	if _, err := s.API.Apply(t.Context(), team); err != nil {
		t.Fatal(err)
	}
	defer alone(t)
	run(t, "sign-in-setup", map[string]playwright.Act{
		"issuer": func(context.Context) (string, error) { return p.Issuer, nil },
	})
}

// alone takes all providers away from the tenant default.
func alone(t *testing.T) {
	t.Helper()
	if _, err := s.API.Apply(t.Context(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {oidc.config: null, dex.config: null}\n"); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyPage runs the spec of the policy and its history.
func TestPolicyPage(t *testing.T) { run(t, "policy", nil) }

// people are those of the directory: jane of the group devs.
const people = `
dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: ou=teams,dc=example,dc=com
objectClass: organizationalUnit
ou: teams

dn: cn=Jane Doe,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
cn: Jane Doe
sn: Doe
uid: jane
mail: jane@example.com
userPassword: jane-password

dn: cn=devs,ou=teams,dc=example,dc=com
objectClass: groupOfNames
cn: devs
member: cn=Jane Doe,ou=people,dc=example,dc=com

`

// connectors starts a SAML provider and an LDAP directory, and returns the
// dex.config for both, indented.
func connectors(t *testing.T) string {
	t.Helper()
	directory := ldap.New(t, people)
	company := saml.New(t, saml.Options{SignAssertion: true, People: map[string]saml.Person{
		"ann": {Name: "ann-id", Attributes: map[string][]string{"mail": {"ann@example.com"}, "name": {"Ann"}, "groups": {"devs"}}},
	}})
	return fmt.Sprintf(`    connectors:
    - type: saml
      id: company
      name: Company
      config:
        ssoURL: %s
        ssoIssuer: %s
        caData: %s
        usernameAttr: name
        emailAttr: mail
        groupsAttr: groups
    - type: ldap
      id: directory
      name: Directory
      config:
        host: %s
        rootCAData: %s
        bindDN: %s
        bindPW: $dex.ldap.bindPW
        userSearch: {baseDN: "ou=people,dc=example,dc=com", filter: (objectClass=inetOrgPerson), username: uid, idAttr: uid, emailAttr: mail, nameAttr: cn}
        groupSearch:
          baseDN: ou=teams,dc=example,dc=com
          nameAttr: cn
          userMatchers: [{userAttr: DN, groupAttr: member}]
`, company.URL, company.Issuer, base64.StdEncoding.EncodeToString(company.Certificate), directory.TLS, base64.StdEncoding.EncodeToString(directory.CA), ldap.ReaderDN)
}

// TestSignInPage runs the spec of the sign-in in a browser.
func TestSignInPage(t *testing.T) {
	p := provider(t)
	run(t, "sign-in", map[string]playwright.Act{
		"leave-the-group": func(ctx context.Context) (string, error) { return "", p.Set(ctx, "alice", alice("others")) },
		"join-the-group":  func(ctx context.Context) (string, error) { return "", p.Set(ctx, "alice", alice("devs")) },
		"disable": func(ctx context.Context) (string, error) {
			return "", s.API.Do(ctx, http.MethodPut, "/api/v1/users/oidc:alice@example.com", map[string]any{"disabled": true}, nil)
		},
	})
}

// run runs a spec of web/e2e, and answers its acts.
func run(t *testing.T, spec string, acts map[string]playwright.Act) {
	t.Helper()
	outside := playwright.Serve(acts)
	defer outside.Close()
	playwright.Run(t, playwright.Options{
		Web: filepath.Join("..", "..", "..", "web"), Specs: spec, Acts: outside,
		Env: []string{"CAPSTAN_URL=" + s.URL(), "CAPSTAN_USER=admin", "CAPSTAN_PASSWORD=" + s.Password()},
	})
}

// FT-W2: who is signed in stays so while the provider is away.
func TestProviderAway(t *testing.T) {
	p := provider(t)
	b := oidc.NewBrowser(t)
	begin := s.URL() + "/auth/login?return_url=/applications"
	if end, _ := b.SignIn(begin, "alice", true); !strings.HasSuffix(end, "/applications") {
		t.Fatalf("it ended at %s", end)
	}
	b.Halts = []string{s.URL() + "/auth/callback"}
	at, _ := b.SignIn(begin, "alice", true)
	p.Stop()
	t.Run("FT-W2 a sign-in fails clearly while the provider is away", func(t *testing.T) {
		b.Halts = nil
		if end, _ := b.SignIn(at, "", true); !strings.Contains(end, "/login?problem=offline") {
			t.Errorf("it ended at %s", end)
		}
	})
	t.Run("FT-W2 sessions go on while the provider is away", func(t *testing.T) {
		resp, err := b.Client.Get(s.URL() + "/api/v1/me")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", resp, err)
		}
		_ = resp.Body.Close()
	})
	t.Run("FT-W2 a setup link signs an admin in while local accounts are switched off", func(t *testing.T) {
		apply := func(value string) {
			if _, err := s.API.Apply(t.Context(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {admin.enabled: "+value+"}\n"); err != nil {
				t.Fatal(err)
			}
		}
		apply(`"false"`)
		defer apply("null")
		link, err := s.SetupLink(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, secret, _ := strings.Cut(link, "#")
		breaker, err := s.SecondAdmin(t.Context(), filepath.Join(t.TempDir(), "cli"), secret)
		if err == nil {
			t.Fatalf("a second account called admin was made: %v", breaker)
		}
		body, _ := json.Marshal(map[string]any{"token": secret, "username": "breakglass", "password": "a long enough password", "mode": "token"})
		resp, err := http.Post(s.URL()+"/api/v1/setup", "application/json", bytes.NewReader(body))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", resp, err)
		}
		_ = resp.Body.Close()
		var log struct {
			Items []struct{ Actor, Action, Result string }
		}
		if err := s.API.Do(t.Context(), http.MethodGet, "/api/v1/audit?limit=50", nil, &log); err != nil {
			t.Fatal(err)
		}
		noted := false
		for _, r := range log.Items {
			noted = noted || r.Actor == "breakglass" && r.Action == "login" && r.Result == "allowed"
		}
		if !noted {
			t.Errorf("the audit log does not say so: %+v", log.Items)
		}
	})
}
