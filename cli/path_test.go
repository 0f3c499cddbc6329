package cli_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/cli"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/integration/rigs/oidc"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// front is a reverse proxy with TLS that passes one path to a hub, unchanged.
type front struct {
	*httptest.Server
	mu      sync.Mutex
	outside []string // requests for something else
	clients int      // requests over connections with a client certificate
}

// newFront starts one, and the hub behind it.
func newFront(t *testing.T) (*front, *apitest.Hub) {
	t.Helper()
	f := &front{}
	var target *url.URL
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		if len(r.TLS.PeerCertificates) > 0 {
			f.clients++
		}
		inside := strings.HasPrefix(r.URL.Path, "/capstan/")
		if !inside {
			f.outside = append(f.outside, r.URL.Path)
		}
		f.mu.Unlock()
		if !inside {
			http.NotFound(w, r)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	f.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients that do not trust it
	f.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	f.StartTLS()
	t.Cleanup(f.Close)
	h := apitest.New(t, func(c *api.Config) { c.ExternalURL = f.URL + "/capstan" })
	var err error
	if target, err = url.Parse(h.URL); err != nil {
		t.Fatal(err)
	}
	return f, h
}

// authority writes the proxy's certificate to a file.
func (f *front) authority(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "front.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// alone uses a configuration of its own.
func alone(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("HOME", dir)
}

func run(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e output
	code = cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(in), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestUnderAPath(t *testing.T) {
	f, h := newFront(t)
	admin := h.Admin("acme")
	alone(t)
	trust := f.authority(t)
	t.Run("API-01 CLI-01 the command line signs in to a hub that has a path, and names the context by it", func(t *testing.T) {
		if code, out, errs := run(t, admin+"\n", "login", f.URL+"/capstan/", "--token-stdin", "--server-crt", trust); code != 0 {
			t.Fatalf("%d %s %s", code, out, errs)
		}
		code, out, errs := run(t, "", "context", "--server-crt", trust)
		if want := strings.TrimPrefix(f.URL, "https://") + "/capstan"; code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s %s", code, out, errs)
		}
		if code, out, errs := run(t, "", "project", "list", "--server-crt", trust); code != 0 || !strings.Contains(out, "default") {
			t.Errorf("%d %s %s", code, out, errs)
		}
	})
	t.Run("API-01 CLI-02 --grpc-web-root-path is the path of an address that has none", func(t *testing.T) {
		for _, path := range []string{"capstan", "/capstan/"} {
			if code, out, errs := run(t, "", "project", "list", "--server", f.URL, "--grpc-web-root-path", path, "--token", admin, "--server-crt", trust); code != 0 || !strings.Contains(out, "default") {
				t.Errorf("%s: %d %s %s", path, code, out, errs)
			}
		}
		if code, _, _ := run(t, "", "project", "list", "--server", f.URL+"/capstan", "--grpc-web-root-path", "other", "--token", admin, "--server-crt", trust); code != 0 {
			t.Errorf("an address with a path: %d", code)
		}
	})
	t.Run("API-01 UX-CLI-6 a device asks for its code under the path", func(t *testing.T) {
		code, _, errs := run(t, "", "login", f.URL+"/capstan", "--tenant", "nobody", "--device", "--server-crt", trust)
		if code != exit.SignIn || !strings.Contains(errs, "--tenant") {
			t.Errorf("%d %s", code, errs)
		}
	})
	t.Run("API-01 AUTH-09 a browser signs the command line in under the path", func(t *testing.T) {
		provider := oidc.New(t, oidc.Options{
			Clients:  []oidc.Client{{ID: "capstan", Secret: "a secret", Callbacks: []string{f.URL + "/capstan/auth/callback"}}},
			Accounts: map[string]oidc.Claims{"alice": {"email": "alice@example.com", "email_verified": true}},
		})
		manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  url: " + f.URL + "/capstan\n  oidc.config: |\n    issuer: " + provider.Issuer + "\n    clientID: capstan\n    clientSecret: a secret\n"
		if code, out, errs := run(t, manifest, "apply", "-f", "-", "--server-crt", trust); code != 0 {
			t.Fatalf("%d %s %s", code, out, errs)
		}
		browser := oidc.NewBrowser(t)
		browser.Client.Transport = f.Client().Transport
		address := regexp.MustCompile(`https://\S+/capstan/auth/login\?\S+`)
		var out, errs output
		var code int
		var done sync.WaitGroup
		done.Go(func() {
			code = cli.Main(t.Context(), []string{"login", f.URL + "/capstan", "--tenant", "acme", "--sso", "--sso-port", "0", "--sso-launch-browser=false", "--server-crt", trust}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		})
		if err := poll.Until(t.Context(), func(context.Context) error {
			if !address.MatchString(errs.String()) {
				return context.DeadlineExceeded
			}
			return nil
		}); err != nil {
			t.Fatal(errs.String())
		}
		browser.SignIn(address.FindString(errs.String()), "alice", true)
		done.Wait()
		if code != 0 || !strings.Contains(errs.String(), "as oidc:alice@example.com (organisation acme)") {
			t.Errorf("%d %s", code, errs.String())
		}
	})
	t.Run("API-01 no request has left the path", func(t *testing.T) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.outside) > 0 {
			t.Errorf("these have: %q", f.outside)
		}
	})
}

func TestJobToken(t *testing.T) {
	f, h := newFront(t)
	h.Admin("acme")
	alone(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("header.claims.signature"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := func(flags ...string) (int, string) {
		code, _, errs := run(t, "", append([]string{"login", f.URL + "/capstan", "--tenant", "acme", "--id-token-file", token}, flags...)...)
		return code, errs
	}
	// What the hub says of the token shows that it was sent.
	sent := func(t *testing.T, flags ...string) {
		t.Helper()
		if code, errs := login(flags...); code != exit.SignIn || strings.Contains(errs, "does not answer") {
			t.Errorf("%q: %d %s", flags, code, errs)
		}
	}
	t.Run("AUTH-11 CLI-02 the token of a job goes to a hub whose certificate is trusted, and to no other", func(t *testing.T) {
		if code, errs := login(); code == 0 || !strings.Contains(errs, "the hub does not answer") || !strings.Contains(errs, "certificate") {
			t.Errorf("%d %s", code, errs)
		}
		sent(t, "--server-crt", f.authority(t))
		sent(t, "--insecure")
	})
	t.Run("AUTH-11 CLI-02 with --client-crt it is sent so", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "client")
		if err := writeAuthority(file, "job"); err != nil {
			t.Fatal(err)
		}
		sent(t, "--insecure", "--client-crt", file+".crt", "--client-crt-key", file+".key")
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.clients == 0 {
			t.Error("the connection had no client certificate")
		}
	})
}
