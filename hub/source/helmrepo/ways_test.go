package helmrepo_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/accesstoken"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/hub/source/helmrepo"
	"github.com/capstan-cd/capstan/hub/source/oci"
	"github.com/capstan-cd/capstan/integration/rigs/connectproxy"
	"github.com/capstan-cd/capstan/integration/rigs/issuers"
	"github.com/capstan-cd/capstan/integration/rigs/registry"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A ways is both kinds of sources, behind the same proxies and issuer.
type ways struct {
	charts, artifacts *archives.Source
	issuer            *issuers.Server
}

func newWays(t *testing.T, proxies ...guard.Proxy) ways {
	t.Helper()
	w := ways{issuer: issuers.New(t)}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(chartstest.Authority()))
	pool.AddCert(w.issuer.HTTP.Certificate())
	client := charts.New(charts.Config{AllowedNetworks: loopback(), Proxies: proxies}, nil)
	tokens := accesstoken.New(accesstoken.Config{Ways: guard.Ways{Allowed: loopback(), Proxies: proxies}, RootCAs: pool, AzureEndpoint: w.issuer.HTTP.URL}, nil)
	var err error
	if w.charts, err = archives.New(archives.Config{Dir: t.TempDir(), Tokens: tokens}, helmrepo.New(client, 10*time.Second, time.Now), secrets{nobody}); err != nil {
		t.Fatal(err)
	}
	if w.artifacts, err = archives.New(archives.Config{Dir: t.TempDir(), Tokens: tokens}, oci.New(client, nil, 1<<30), secrets{nobody}); err != nil {
		t.Fatal(err)
	}
	return w
}

// requires has a server demand a user name, and a token of the issuer as its
// password.
func requires(s *chartstest.Server, issuer *issuers.Server, user string) {
	s.All(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/oauth2/exchange" {
			issuer.Exchange(w, r)
			return true
		}
		name, token, _ := r.BasicAuth()
		if name == user && issuer.Valid(token) {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
}

// ofRegistry is a real registry behind a front, with one chart and one artifact.
func ofRegistry(t *testing.T) (front *chartstest.Server, chart, artifact hub.Repository) {
	t.Helper()
	front = chartstest.NewFront(registry.New(t, registry.Options{Plain: true}).Host)
	t.Cleanup(front.Close)
	if _, err := front.Push(t.Context(), "team/charts", "web", "1.0.0", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := front.Registry().Push(t.Context(), "team/app", "1.0.0", chartstest.Files(map[string]string{"a.yaml": "a: 1\n"})); err != nil {
		t.Fatal(err)
	}
	chart = hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: front.OCI("team/charts"), Type: hub.HelmRepository}
	chart.Use.Targets = []hub.Target{{Chart: "web", Revision: "1.0.0"}}
	artifact = hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: front.OCI("team/app"), Type: hub.OCIRepository}
	artifact.Use.Targets = []hub.Target{{Revision: "1.0.0"}}
	return front, chart, artifact
}

func TestExchangedIdentities(t *testing.T) {
	t.Parallel()
	google := func(w ways) (c hub.Credential) { c.GoogleKey = w.issuer.GoogleKey(); return c }
	azure := func(w ways) (c hub.Credential) {
		c.Azure = hub.AzureIdentity{ClientID: issuers.AzureClient, ClientSecret: w.issuer.ClientSecret, TenantID: issuers.AzureTenant}
		return c
	}
	for name, c := range map[string]struct {
		user string
		cred func(ways) hub.Credential
	}{
		"CRED-10 a Google service account":     {"oauth2accesstoken", google},
		"CRED-11 a service principal of Azure": {"00000000-0000-0000-0000-000000000000", azure},
	} {
		t.Run(name+" opens charts and artifacts of a registry, and a refused token is requested anew", func(t *testing.T) {
			t.Parallel()
			w := newWays(t)
			front, chart, artifact := ofRegistry(t)
			requires(front, w.issuer, c.user)
			open := func(cred hub.Credential) error {
				if refs, err := w.charts.Fetch(t.Context(), tenant, chart, cred); err != nil || len(refs) != 1 {
					return fmt.Errorf("chart: %v, %w", refs, err)
				}
				if refs, err := w.artifacts.Fetch(t.Context(), tenant, artifact, cred); err != nil || len(refs) != 1 {
					return fmt.Errorf("artifact: %v, %w", refs, err)
				}
				return nil
			}
			if err := open(c.cred(w)); err != nil {
				t.Fatal(err)
			}
			asked := len(w.issuer.Asked())
			if err := open(c.cred(w)); err != nil || len(w.issuer.Asked()) != asked {
				t.Errorf("%v, the issuer was asked %v", err, w.issuer.Asked())
			}
			w.issuer.Revoke()
			if err := open(c.cred(w)); err == nil {
				t.Error("a revoked token opened it")
			}
			if err := open(c.cred(w)); err != nil || len(w.issuer.Asked()) <= asked {
				t.Errorf("after a refusal: %v, the issuer was asked %v", err, w.issuer.Asked())
			}
			if err := open(hub.Credential{Username: c.user, Password: "wrong"}); err == nil {
				t.Error("a wrong password opened it")
			}
		})
	}
	t.Run("CRED-10 a Google service account opens a chart repository over HTTPS", func(t *testing.T) {
		t.Parallel()
		w := newWays(t)
		server := started(t)
		server.Publish("web", "1.0.0", nil)
		requires(server, w.issuer, "oauth2accesstoken")
		if refs, err := w.charts.Fetch(t.Context(), tenant, following(server, "1.0.0"), google(w)); err != nil || len(refs) != 1 {
			t.Errorf("%v, %v", refs, err)
		}
	})
	t.Run("CRED-11(refused) a registry without TLS, and one that exchanges nothing", func(t *testing.T) {
		t.Parallel()
		w := newWays(t)
		front, _, artifact := ofRegistry(t)
		plain := artifact
		plain.PlainHTTP = true
		if _, err := w.artifacts.Fetch(t.Context(), tenant, plain, azure(w)); !strings.Contains(fault.Sentence(err), "without TLS") || len(w.issuer.Asked()) != 0 {
			t.Errorf("%v, asked %v", err, w.issuer.Asked())
		}
		front.Answer("/oauth2/exchange", http.NotFound)
		if _, err := w.artifacts.Fetch(t.Context(), tenant, artifact, azure(w)); !strings.Contains(fault.Sentence(err), "exchanges no tokens") || strings.Contains(fmt.Sprintf("%+v", err), w.issuer.ClientSecret) {
			t.Errorf("%v", err)
		}
	})
}

func TestProxiesOfCharts(t *testing.T) {
	t.Parallel()
	sources := func(t *testing.T, w ways) map[string]func(cred hub.Credential) error {
		t.Helper()
		server := started(t)
		server.Publish("web", "1.0.0", nil)
		_, chart, artifact := ofRegistry(t)
		fetch := func(s *archives.Source, repo hub.Repository) func(hub.Credential) error {
			return func(cred hub.Credential) error { _, err := s.Fetch(t.Context(), tenant, repo, cred); return err }
		}
		return map[string]func(hub.Credential) error{
			"a chart repository": fetch(w.charts, following(server, "1.0.0")), "charts of a registry": fetch(w.charts, chart), "an artifact": fetch(w.artifacts, artifact),
		}
	}
	t.Run("CRED-12 charts and artifacts come through a permitted proxy, with its password", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"a chart repository", "charts of a registry", "an artifact"} {
			p := connectproxy.New(t)
			p.User, p.Password = "hub", "canary-of-proxy"
			fetch := sources(t, newWays(t, guard.Proxy{URL: p.HTTP.URL}))[name]
			if err := fetch(hub.Credential{Proxy: strings.Replace(p.HTTP.URL, "http://", "http://hub:canary-of-proxy@", 1)}); err != nil || len(p.Asked()) == 0 {
				t.Errorf("%s: %v, the proxy was asked for %v", name, err, p.Asked())
			}
			err := fetch(hub.Credential{Proxy: strings.Replace(p.HTTP.URL, "http://", "http://hub:canary-of-wrong@", 1)})
			if !strings.Contains(fault.Sentence(err), "proxy") || strings.Contains(fmt.Sprintf("%+v", err), "canary") {
				t.Errorf("%s with a wrong password: %v", name, err)
			}
		}
	})
	t.Run("CRED-12 SEC-A6 hosts of noProxy are reached directly, and by the guard", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		w := newWays(t, guard.Proxy{URL: p.HTTP.URL})
		for name, fetch := range map[string]func(hub.Credential) error{
			"a chart repository": func(cred hub.Credential) error {
				repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: "https://10.255.0.1/charts", Type: hub.HelmRepository}
				_, err := w.charts.Fetch(t.Context(), tenant, repo, cred)
				return err
			},
			"an artifact": func(cred hub.Credential) error {
				repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: "oci://10.255.0.1/team/app", Type: hub.OCIRepository}
				_, err := w.artifacts.Fetch(t.Context(), tenant, repo, cred)
				return err
			},
		} {
			if err := fetch(hub.Credential{Proxy: p.HTTP.URL, NoProxy: "10.0.0.0/8"}); !strings.Contains(fault.Sentence(err), "internal network") || len(p.Asked()) != 0 {
				t.Errorf("%s: %v, the proxy was asked for %v", name, err, p.Asked())
			}
		}
	})
	t.Run("SEC-A6 CRED-12(refused) a proxy that the operator does not permit is not dialled", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		for name, fetch := range sources(t, newWays(t)) {
			if err := fetch(hub.Credential{Proxy: p.HTTP.URL}); fault.KindOf(err) != fault.Invalid || len(p.Asked()) != 0 {
				t.Errorf("%s: %v, the proxy was asked for %v", name, err, p.Asked())
			}
		}
	})
	t.Run("CRED-10 CRED-12 the token of an identity is requested through the proxy, too", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		w := newWays(t, guard.Proxy{URL: p.HTTP.URL})
		front, _, artifact := ofRegistry(t)
		requires(front, w.issuer, "oauth2accesstoken")
		cred := hub.Credential{Proxy: p.HTTP.URL}
		cred.GoogleKey = w.issuer.GoogleKey()
		if _, err := w.artifacts.Fetch(t.Context(), tenant, artifact, cred); err != nil {
			t.Fatal(err)
		}
		if asked := strings.Join(p.Asked(), " "); !strings.Contains(asked, strings.TrimPrefix(w.issuer.HTTP.URL, "https://")) || !strings.Contains(asked, strings.TrimPrefix(front.URL, "https://")) {
			t.Errorf("the proxy was asked for %v", p.Asked())
		}
	})
}

func TestServersThatAskToWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		value  string
		want   time.Duration
	}{
		"429 with seconds": {429, "300", 5 * time.Minute}, "403 of a rate limit": {403, "120", 2 * time.Minute}, "503 with seconds": {503, "60", time.Minute},
		"more than an hour is an hour": {429, "999999", time.Hour}, "429 without a time": {429, "", 0}, "a time in another kind of answer": {404, "300", 0},
	} {
		t.Run("FT-G2 charts and artifacts wait as long as their server asks for: "+name, func(t *testing.T) {
			t.Parallel()
			w := newWays(t)
			limited := func(rw http.ResponseWriter, _ *http.Request) bool {
				rw.Header().Set("Retry-After", c.value)
				http.Error(rw, "slow down", c.status)
				return true
			}
			server := started(t)
			front, chart, artifact := ofRegistry(t)
			server.All(limited)
			front.All(limited)
			for of, fetch := range map[string]func() ([]hub.Ref, error){
				"a chart repository": func() ([]hub.Ref, error) {
					return w.charts.Fetch(t.Context(), tenant, following(server, "1.0.0"), hub.Credential{})
				},
				"charts of a registry": func() ([]hub.Ref, error) { return w.charts.Fetch(t.Context(), tenant, chart, hub.Credential{}) },
				"an artifact":          func() ([]hub.Ref, error) { return w.artifacts.Fetch(t.Context(), tenant, artifact, hub.Credential{}) },
			} {
				_, err := fetch()
				if e, ok := fault.As(err); !ok || e.RetryAfter != c.want || c.want > 0 && e.Kind != fault.Offline {
					t.Errorf("%s: %v, want a wait of %v", of, err, c.want)
				}
			}
		})
	}
}
