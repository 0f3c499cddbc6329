package scmaccess_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/generate/scmaccess"
	"github.com/capstan-cd/capstan/hub/source/accesstoken"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/issuers"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
	"github.com/capstan-cd/capstan/shared/fault"
)

// stored is what a tenant has stored.
type stored struct {
	secrets     map[string]map[string]string
	authorities map[string]string
}

func (s stored) GeneratorSecret(_ context.Context, tenant hub.TenantID, name string) (map[string]string, error) {
	v, ok := s.secrets[string(tenant)+"/"+name]
	if !ok {
		return nil, fault.New(fault.Missing, "there is none")
	}
	return v, nil
}

func (s stored) Authorities(_ context.Context, _ hub.TenantID, host string) (string, error) {
	return s.authorities[host], nil
}

func loopback() guard.Ways {
	return guard.Ways{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func TestPermittedAddresses(t *testing.T) {
	t.Parallel()
	store := stored{secrets: map[string]map[string]string{
		"t1/plain": {"token": "x"}, "t1/bound": {"token": "x", "url": "https://git.example.com"}, "t1/github": {"token": "x", "url": "https://github.com/acme"},
		"t1/team": {"token": "x", "project": "shop"}, "t2/other": {"token": "x"},
	}}
	hosts := scmaccess.New(scmaccess.Config{Ways: loopback()}, store, nil, scm.NewCache(scm.Config{}))
	const own = "https://git.example.com/api/v4"
	for name, c := range map[string]struct {
		project string
		allowed string
		enabled string
		kind    string
		base    string
		secrets []string
		want    fault.Kind // empty: permitted
	}{
		"CRED-04 the public host of the kind":                            {base: "https://gitlab.com/api/v4", secrets: []string{"plain"}},
		"SEC-A6 the public host of another kind":                         {base: "https://api.github.com", secrets: []string{"plain"}, want: fault.Denied},
		"SEC-A6 the public host without TLS":                             {base: "http://gitlab.com/api/v4", secrets: []string{"plain"}, want: fault.Denied},
		"SEC-A6 another host":                                            {base: own, secrets: []string{"plain"}, want: fault.Denied},
		"SEC-A6 another host without a token":                            {base: own},
		"SEC-A6 another host that the settings name":                     {base: own, secrets: []string{"plain"}, allowed: "https://a.example, https://git.example.com/"},
		"SEC-A6 another host than the settings name":                     {base: own, allowed: "https://a.example", want: fault.Denied},
		"SEC-A6 another port than the settings name":                     {base: "https://git.example.com:8443", secrets: []string{"plain"}, allowed: "https://git.example.com", want: fault.Denied},
		"SEC-A6 a host that begins like one of the settings":             {base: "https://git.example.com.evil.example", secrets: []string{"plain"}, allowed: "https://git.example.com", want: fault.Denied},
		"SEC-A6 without TLS what the settings name with it":              {base: "http://git.example.com", secrets: []string{"plain"}, allowed: "https://git.example.com", want: fault.Denied},
		"CRED-04 the host of the Secret":                                 {base: own, secrets: []string{"bound"}},
		"CRED-04 the host of the Secret, which the settings do not name": {base: own, secrets: []string{"bound"}, allowed: "https://a.example"},
		"CRED-04 another host than that of the Secret":                   {base: "https://gitlab.com/api/v4", secrets: []string{"bound"}, want: fault.Denied},
		"CRED-04 the API of the host of the Secret":                      {kind: "github", base: "https://api.github.com", secrets: []string{"github"}},
		"CRED-04 a Secret of the set's project":                          {base: "https://gitlab.com/api/v4", secrets: []string{"team"}, project: "shop"},
		"SEC-D11 a Secret of another project":                            {base: "https://gitlab.com/api/v4", secrets: []string{"team"}, project: "bank", want: fault.Denied},
		"SEC-D11 a Secret of a project, for a set of any":                {base: "https://gitlab.com/api/v4", secrets: []string{"team"}, project: "*", want: fault.Denied},
		"SEC-D16 a Secret of another tenant":                             {base: "https://gitlab.com/api/v4", secrets: []string{"other"}, want: fault.Invalid},
		"AGEN-07 the settings switch hosts off":                          {base: "https://gitlab.com/api/v4", enabled: "false", want: fault.Denied},
		"AGEN-07 the settings switch hosts on, as they are already":      {base: "https://gitlab.com/api/v4", enabled: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := map[string]string{hub.SetAllowedHostsKey: c.allowed, hub.SetHostsKey: c.enabled}
			if c.kind == "" {
				c.kind = "gitlab"
			}
			client, err := hosts.Access(scm.Reader{Tenant: "t1"}, c.project, settings).Client(t.Context(), scm.ClientUse{Kind: c.kind, BaseURL: c.base, Secrets: c.secrets})
			if fault.KindOf(err) != c.want || (err == nil) != (client != nil) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	store := stored{secrets: map[string]map[string]string{"t1/plain": {"token": "x", "url": "https://git.example.com"}}, authorities: map[string]string{"git.example.com": "PEM"}}
	a := scmaccess.New(scmaccess.Config{}, store, nil, scm.NewCache(scm.Config{})).Access(scm.Reader{Tenant: "t1"}, "shop", nil)
	for _, c := range []struct{ name, kind, object, key, want string }{
		{"CRED-04 a value of a Secret", scm.SecretKind, "plain", "token", "x"},
		{"CRED-04 a key that is not there", scm.SecretKind, "plain", "password", ""},
		{"CRED-04 what is no token", scm.SecretKind, "plain", "url", ""},
		{"CRED-04 a Secret without the label", scm.SecretKind, "unlabelled", "token", ""},
		{"AGEN-16 an authority of argocd-tls-certs-cm", scm.ConfigMapKind, "argocd-tls-certs-cm", "git.example.com", "PEM"},
		{"AGEN-16 an authority that is not stored", scm.ConfigMapKind, "argocd-tls-certs-cm", "a.example", ""},
		{"AGEN-16 caRef to another ConfigMap (part: refused)", scm.ConfigMapKind, "my-authorities", "ca", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := a.Secret(t.Context(), c.kind, c.object, c.key)
			if got != c.want || (c.want == "") != (fault.KindOf(err) == fault.Invalid) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestGitHubApp lists pull requests with a token that the issuer has made.
func TestGitHubApp(t *testing.T) {
	t.Parallel()
	issuer, host := issuers.New(t), scmhosts.New(t, scmhosts.GitHub)
	secrets := canary.New()
	issuer.Prefix = secrets.Plant("token") + "-"
	pool := x509.NewCertPool()
	pool.AddCert(issuer.HTTP.Certificate())
	pool.AddCert(host.HTTP.Certificate())
	host.Put(scmhosts.Repository{ID: 1, Name: "shop", Default: "main", Branches: []scmhosts.Branch{{Name: "main", SHA: scmhosts.SHA("a")}}, Pulls: []scmhosts.Pull{
		{Number: 3, Title: "Add", Source: "add", Target: "main", SHA: scmhosts.SHA("add"), Author: "ana"},
	}})
	host.Valid = issuer.Valid
	app := map[string]string{"githubAppID": "4711", "githubAppPrivateKey": issuer.PEM(), "url": host.HTTP.URL}
	store := stored{secrets: map[string]map[string]string{
		"t1/app": app, "t1/other": {"githubAppID": "4711", "githubAppPrivateKey": issuer.PEM(), "githubAppEnterpriseBaseUrl": issuer.HTTP.URL + "/api/v3", "url": host.HTTP.URL},
		"t1/broken": {"githubAppID": "x", "url": host.HTTP.URL},
	}}
	// The host is also the API of the app, and passes what is the issuer's to it.
	host.Apps = issuer.HTTP.Config.Handler
	tokens := accesstoken.New(accesstoken.Config{Ways: loopback(), RootCAs: pool}, nil)
	hosts := scmaccess.New(scmaccess.Config{Ways: loopback(), RootCAs: pool}, store, tokens, scm.NewCache(scm.Config{Now: time.Now}))
	list := func(secret string) ([]scm.PullRequest, error) {
		p, err := scm.ParsePullRequests(json.RawMessage(`{"github":{"owner":"acme","repo":"shop","api":"` + host.HTTP.URL + `","appSecretName":"` + secret + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		return p.List(t.Context(), hosts.Access(scm.Reader{Tenant: "t1", Fresh: true}, "shop", nil))
	}
	t.Run("AGEN-16 appSecretName: a token of the installation at the organisation, which is used again", func(t *testing.T) {
		for range 2 {
			if got, err := list("app"); err != nil || len(got) != 1 {
				t.Fatalf("%v, %v", got, err)
			}
		}
		requests := strings.Join(issuer.Asked(), " ")
		if strings.Count(requests, "access_tokens") != 1 || !strings.Contains(requests, "GET /api/v3/orgs/acme/installation") {
			t.Errorf("requests of tokens: %s", requests)
		}
	})
	t.Run("CRED-04 an app of another server, and a Secret without an app", func(t *testing.T) {
		if _, err := list("other"); fault.KindOf(err) != fault.Denied {
			t.Error(err)
		}
		if _, err := list("broken"); fault.KindOf(err) != fault.Invalid {
			t.Error(err)
		}
	})
	t.Run("SEC-D16 an error has no token", func(t *testing.T) {
		issuer.Revoke()
		_, err := list("app")
		if err == nil || len(secrets.Find("error", []byte(err.Error()))) > 0 {
			t.Error(err)
		}
	})
}

func TestGuard(t *testing.T) {
	t.Parallel()
	t.Run("SEC-A6 an internal address is refused, whatever the settings name", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitLab)
		store := stored{secrets: map[string]map[string]string{"t1/creds": {"token": host.Token}}, authorities: map[string]string{"127.0.0.1": host.CA()}}
		for _, permitted := range []bool{false, true} {
			cfg := scmaccess.Config{}
			if permitted {
				cfg.Ways = loopback()
			}
			p, err := scm.ParseProvider(json.RawMessage(`{"gitlab":{"group":"acme","api":"` + host.HTTP.URL + `","tokenRef":{"secretName":"creds","key":"token"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			a := scmaccess.New(cfg, store, nil, scm.NewCache(scm.Config{})).Access(scm.Reader{Tenant: "t1"}, "shop", map[string]string{hub.SetAllowedHostsKey: host.HTTP.URL})
			if _, err = p.Repositories(t.Context(), a); permitted && err != nil || !permitted && (fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "private address")) {
				t.Errorf("permitted %t: %v", permitted, err)
			}
		}
		if n := len(host.Calls()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}
