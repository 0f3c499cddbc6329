// Package rootpath_test uses a hub that shares its host: a reverse proxy with TLS
// passes one path to it. A real browser, the command line and a Git host come
// through the proxy, which notes every request for another path.
package rootpath_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/oidc"
	"github.com/capstan-cd/capstan/integration/rigs/playwright"
	"github.com/capstan-cd/capstan/integration/rigs/saml"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

const (
	root      = "/tools/capstan"
	cluster   = "in-cluster"
	waitLimit = 3 * time.Minute
)

var (
	s     *stack.Stack // the installation of all tests
	proxy *front
)

// A front is the reverse proxy. It keeps the path.
type front struct {
	*httptest.Server
	mu      sync.Mutex
	target  *url.URL
	outside []string
}

func newFront() *front {
	f := &front{}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // of clients that leave
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, root+"/") && r.URL.Path != root {
			f.mu.Lock()
			f.outside = append(f.outside, r.Method+" "+r.URL.String())
			f.mu.Unlock()
			http.NotFound(w, r)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	f.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	return f
}

// left are the requests for other paths so far.
func (f *front) left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.outside...)
}

// address is that of the hub for everybody.
func (f *front) address() string { return "https://" + f.Listener.Addr().String() + root }

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "rootpath", 20*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	build := exec.CommandContext(ctx, "make", "web/dist/index.html")
	build.Dir = filepath.Join("..", "..", "..")
	build.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the console: %w\n%s", err, out)
	}
	proxy = newFront()
	s, err = suite.Installed(ctx, dir, stack.Options{Clusters: []string{cluster}, Nodes: true, Settings: map[string]any{
		"publicURL": proxy.address(), "signIn": map[string]any{"allowPrivate": []string{"127.0.0.0/8"}},
	}})
	if err != nil {
		return nil, err
	}
	if proxy.target, err = url.Parse(s.Hub.URL); err != nil {
		return nil, err
	}
	proxy.StartTLS()
	return suite.All(func() error { proxy.Close(); return nil }, s.Stop), nil
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

func files(value string) map[string]string {
	return map[string]string{"app/config.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {v: %q}\n", value)}
}

// deploy makes an application whose repository calls the webhook under the path.
func deploy(t *testing.T) *gitserver.Repository {
	t.Helper()
	ctx := within(t)
	repo, err := s.Git.Create(ctx, "shop", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	repo.SetWebhook(gitserver.Webhook{URL: s.Hub.URL + root + "/api/webhook", Secret: s.Hub.Secret()})
	if _, err := repo.Commit(ctx, "Begin", files("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop, namespace: argocd}
spec:
  project: default
  source: {repoURL: %q, path: app, targetRevision: main}
  destination: {name: %s, namespace: default}
  syncPolicy: {automated: {}}
`, repo.URL(), cluster)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Wait(ctx, "shop", stack.Settled); err != nil {
		t.Fatal(err)
	}
	return repo
}

// providers let the tenant sign people in by OpenID Connect and by SAML. The role
// of everybody may read.
func providers(t *testing.T) {
	t.Helper()
	p := oidc.New(t, oidc.Options{
		Clients: []oidc.Client{{
			ID: "capstan", Secret: "a client secret", Callbacks: []string{proxy.address() + "/auth/callback"}, AfterOut: []string{proxy.address() + "/login"},
		}},
		Accounts: map[string]oidc.Claims{"alice": {"email": "alice@example.com", "email_verified": true}},
	})
	company := saml.New(t, saml.Options{SignAssertion: true, People: map[string]saml.Person{
		"ann": {Name: "ann-id", Attributes: map[string][]string{"mail": {"ann@example.com"}, "name": {"Ann"}}},
	}})
	for _, manifest := range []string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-rbac-cm}\ndata: {policy.default: 'role:readonly'}\n",
		fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm}
data:
  url: %[1]s
  oidc.config: |
    name: Example ID
    issuer: %[2]s
    clientID: capstan
    clientSecret: a client secret
    logoutURL: %[2]s/session/end?id_token_hint={{token}}&post_logout_redirect_uri={{logoutRedirectURL}}
  dex.config: |
    connectors:
    - type: saml
      id: company
      name: Company
      config: {ssoURL: %[3]q, ssoIssuer: %[4]q, caData: %[5]s, usernameAttr: name, emailAttr: mail}
`, proxy.address(), p.Issuer, company.URL, company.Issuer, base64.StdEncoding.EncodeToString(company.Certificate)),
	} {
		if _, err := s.API.Apply(within(t), manifest); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBrowser runs web/e2e/root-path.spec.ts.
func TestBrowser(t *testing.T) {
	repo := deploy(t)
	providers(t)
	acts := playwright.Serve(map[string]playwright.Act{
		"push": func(ctx context.Context) (string, error) {
			return repo.Commit(ctx, "Change the shop", files(rand.Text()))
		},
	})
	defer acts.Close()
	playwright.Run(t, playwright.Options{
		Web: filepath.Join("..", "..", "..", "web"), Specs: "root-path", Acts: acts,
		Env: []string{"CAPSTAN_URL=" + proxy.address(), "CAPSTAN_USER=admin", "CAPSTAN_PASSWORD=" + s.Password(), "CAPSTAN_APP=shop"},
	})
	t.Run("API-01 the browser has sent no request outside of the path", func(t *testing.T) {
		if left := proxy.left(); len(left) > 0 {
			t.Errorf("it has: %q", left)
		}
	})
}

// TestCommandLine follows an application through the proxy.
func TestCommandLine(t *testing.T) {
	trust := filepath.Join(t.TempDir(), "front.crt")
	if err := os.WriteFile(trust, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	capstan := func(t *testing.T, in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(within(t), filepath.Join(s.Bin(), "capstan"), append(args, "--server-crt", trust)...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Dir(trust))
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("capstan %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	t.Run("API-01 CLI-01 the command line signs in, applies, follows and reads under the path", func(t *testing.T) {
		capstan(t, s.Password()+"\n", "login", proxy.address(), "--username", "admin", "--password-stdin")
		repo, err := s.Git.Create(within(t), "tools", gitserver.RepositoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Commit(within(t), "Begin", map[string]string{"app/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tools}\n"}); err != nil {
			t.Fatal(err)
		}
		capstan(t, "", "app", "create", "tools", "--repo", repo.URL(), "--path", "app", "--dest-name", cluster, "--dest-namespace", "default", "--sync-policy", "automated")
		capstan(t, "", "app", "wait", "tools", "--sync", "--health") // by the stream of events
		if out := capstan(t, "", "app", "list"); !strings.Contains(out, "tools") {
			t.Error(out)
		}
		if out := capstan(t, "", "app", "open", "tools", "--print-only"); strings.TrimSpace(out) != proxy.address()+"/applications/argocd/tools" {
			t.Errorf("UX-CLI-13 its page in the console is said to be at %s", out)
		}
		capstan(t, "", "app", "delete", "tools", "--yes")
		if left := proxy.left(); len(left) > 0 {
			t.Errorf("it has sent %q", left)
		}
	})
}
