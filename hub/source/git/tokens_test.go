package git_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/accesstoken"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/integration/rigs/connectproxy"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/integration/rigs/issuers"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// tokenWorld is a Git server over TLS that takes tokens of an issuer alone.
type tokenWorld struct {
	issuer *issuers.Server
	server *gittest.Server
	origin *gittest.Repo
	tokens *accesstoken.Issuer
	now    time.Time
	user   string // that came with the last token
	log    strings.Builder
}

func newTokenWorld(t *testing.T, change func(*accesstoken.Config)) (*tokenWorld, *git.Mirrors) {
	t.Helper()
	w := &tokenWorld{issuer: issuers.New(t), now: time.Now()}
	w.issuer.Now = func() time.Time { return w.now }
	w.server = gittest.Start(t, (*httptest.Server).StartTLS)
	w.server.Set("", func(rw http.ResponseWriter, r *http.Request) bool {
		user, token, basic := r.BasicAuth()
		if !basic {
			token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		}
		w.user = user
		if w.issuer.Valid(token) {
			return false
		}
		rw.Header().Set("WWW-Authenticate", "Basic")
		http.Error(rw, "no "+token, http.StatusUnauthorized)
		return true
	})
	if err := os.Mkdir(filepath.Join(w.server.Dir, "team"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.origin = w.server.Repo("team/app")
	w.origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	pool := x509.NewCertPool()
	pool.AddCert(w.server.HTTP.Certificate())
	pool.AddCert(w.issuer.HTTP.Certificate())
	cfg := accesstoken.Config{
		Ways: guard.Ways{Allowed: gittest.Loopback()}, RootCAs: pool, Now: func() time.Time { return w.now },
		AzureEndpoint: w.issuer.HTTP.URL,
	}
	if change != nil {
		change(&cfg)
	}
	w.tokens = accesstoken.New(cfg, nil)
	m, err := git.New(git.Config{Dir: t.TempDir(), AllowedNetworks: gittest.Loopback(), ListTimeout: gittest.AnswerTimeout, RootCAs: pool, Tokens: w.tokens},
		gittest.NoCredentials{}, lifecycle.System{}, slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gittest.CloseMirrors(t, m) })
	return w, m
}

func (w *tokenWorld) app(installation int64) hub.Credential {
	var c hub.Credential
	c.GitHubApp = hub.GitHubApp{ID: issuers.AppID, InstallationID: installation, PrivateKey: w.issuer.PEM(), BaseURL: w.issuer.HTTP.URL + "/api/v3"}
	return c
}

func TestTokens(t *testing.T) {
	t.Parallel()
	asked := func(w *tokenWorld, what string) (n int) {
		for _, a := range w.issuer.Asked() {
			if strings.Contains(a, what) {
				n++
			}
		}
		return n
	}
	fetch := func(t *testing.T, w *tokenWorld, m *git.Mirrors, cred hub.Credential) {
		t.Helper()
		if _, err := m.Fetch(gittest.Context(t), tenant, w.origin.Hub(), cred); err != nil {
			t.Fatalf("Fetch() = %v", err)
		}
	}
	t.Run("CRED-09 a GitHub App is exchanged for a token that may only read, its installation found by the repository", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		fetch(t, w, m, w.app(0))
		if w.user != "x-access-token" || asked(w, "GET /api/v3/repos/team/app/installation") != 1 {
			t.Errorf("user %q, asked %v", w.user, w.issuer.Asked())
		}
	})
	t.Run("CRED-09 with an installation id nothing is searched, and the token is used until shortly before its end", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		for range 3 {
			fetch(t, w, m, w.app(issuers.Installation))
		}
		if n := asked(w, "access_tokens"); n != 1 || asked(w, "/repos/") != 0 {
			t.Errorf("asked %v", w.issuer.Asked())
		}
		w.now = w.now.Add(56 * time.Minute) // five minutes before its end
		fetch(t, w, m, w.app(issuers.Installation))
		if n := asked(w, "access_tokens"); n != 2 {
			t.Errorf("%d tokens, want a second one", n)
		}
	})
	t.Run("CRED-09 a token that was revoked is requested anew after one refusal", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		fetch(t, w, m, w.app(issuers.Installation))
		w.issuer.Revoke()
		if _, err := m.Fetch(gittest.Context(t), tenant, w.origin.Hub(), w.app(issuers.Installation)); err == nil {
			t.Error("a revoked token opened it")
		}
		fetch(t, w, m, w.app(issuers.Installation))
	})
	t.Run("CRED-09(refused) an app that is not installed, a wrong installation, another host", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		elsewhere := w.origin.Hub()
		elsewhere.URL = strings.Replace(elsewhere.URL, "/team/", "/other/", 1)
		host := w.origin.Hub()
		host.URL = strings.Replace(host.URL, "127.0.0.1", "127.0.0.2", 1)
		plain := w.origin.Hub()
		plain.URL = strings.Replace(plain.URL, "https://", "http://", 1)
		for _, c := range []struct {
			repo hub.Repository
			cred hub.Credential
			want string
		}{
			{elsewhere, w.app(0), "is not installed for the repository"},
			{w.origin.Hub(), w.app(1), "has no installation 1"},
			{host, w.app(0), "not at the host of the GitHub App"},
			{plain, w.app(0), "opens no repository without TLS"},
		} {
			_, err := m.Fetch(gittest.Context(t), tenant, c.repo, c.cred)
			if s := fault.Sentence(err); fault.KindOf(err) != fault.Invalid || !strings.Contains(s, c.want) {
				t.Errorf("%s: %q", c.want, s)
			}
		}
	})
	t.Run("CRED-10 the key of a Google service account is exchanged for a token", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		var c hub.Credential
		c.GoogleKey = w.issuer.GoogleKey()
		fetch(t, w, m, c)
		fetch(t, w, m, c)
		if w.user != issuers.Account || asked(w, "POST /token") != 1 {
			t.Errorf("user %q, asked %v", w.user, w.issuer.Asked())
		}
	})
	principal := func(w *tokenWorld) (c hub.Credential) {
		c.Azure = hub.AzureIdentity{ClientID: issuers.AzureClient, ClientSecret: w.issuer.ClientSecret, TenantID: issuers.AzureTenant, Endpoint: w.issuer.HTTP.URL}
		return c
	}
	t.Run("CRED-11 a service principal of Azure is exchanged for a bearer token", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		fetch(t, w, m, principal(w))
		if w.user != "" {
			t.Errorf("user %q came with a bearer token", w.user)
		}
	})
	workload := hub.Credential{Exchanged: hub.Exchanged{Azure: hub.AzureIdentity{Workload: true}}}
	permitted := func(w *tokenWorld, file string, host string) func(*accesstoken.Config) {
		return func(c *accesstoken.Config) {
			c.Workload = accesstoken.Workload{
				Permits: func(_ context.Context, by hub.TenantID) bool { return by == tenant },
				Hosts:   []string{host}, TokenFile: file, ClientID: issuers.AzureClient, TenantID: issuers.AzureTenant,
			}
		}
	}
	t.Run("CRED-11 the hub's identity in Azure serves permitted organisations and hosts alone", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "token")
		w, m := newTokenWorld(t, permitted(nil, file, "127.0.0.1"))
		if err := os.WriteFile(file, []byte(w.issuer.Federated+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		fetch(t, w, m, workload)
		repo := w.origin.Hub()
		if _, err := m.Fetch(gittest.Context(t), "018f3c6e-0000-7000-8000-000000000002", repo, workload); fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "not for this organisation") {
			t.Errorf("SEC-A4 another organisation: %v", err)
		}
		repo.Insecure = true
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, workload); fault.KindOf(err) != fault.Denied {
			t.Errorf("SEC-C3 a server that is not verified: %v", err)
		}
		other, m := newTokenWorld(t, permitted(nil, file, "*.visualstudio.com"))
		if _, err := m.Fetch(gittest.Context(t), tenant, other.origin.Hub(), workload); fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "not for the host 127.0.0.1") {
			t.Errorf("SEC-A6 another host: %v", err)
		}
		if n := len(other.issuer.Asked()); n != 0 {
			t.Errorf("a token was requested for it: %v", other.issuer.Asked())
		}
	})
	t.Run("SEC-C3 what an issuer answers to a wrong identity is in no error and no log", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		wrong := principal(w)
		wrong.Azure.ClientSecret = "canary-of-azure"
		forged := w.app(issuers.Installation)
		forged.GitHubApp.PrivateKey = issuers.New(t).PEM()
		for _, c := range []hub.Credential{wrong, forged} {
			_, err := m.Fetch(gittest.Context(t), tenant, w.origin.Hub(), c)
			if s := fault.Sentence(err); fault.KindOf(err) != fault.Invalid || !strings.Contains(s, "refuses the identity") || strings.Contains(s+err.Error()+w.log.String(), "canary-of-azure") || strings.Contains(err.Error(), "Bearer") {
				t.Errorf("error %v", err)
			}
		}
	})
	t.Run("SEC-A6 the address of an issuer goes through the guard, and a redirect of it is not followed", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, func(c *accesstoken.Config) { c.Ways.Allowed = []netip.Prefix{} })
		if _, err := m.Fetch(gittest.Context(t), tenant, w.origin.Hub(), w.app(0)); !strings.Contains(fault.Sentence(err), "private address") || len(w.issuer.Asked()) != 0 {
			t.Errorf("error %v", err)
		}
		w, m = newTokenWorld(t, nil)
		target := issuers.New(t)
		w.issuer.Override = func(rw http.ResponseWriter, r *http.Request) bool {
			http.Redirect(rw, r, target.HTTP.URL+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		if _, err := m.Fetch(gittest.Context(t), tenant, w.origin.Hub(), w.app(0)); err == nil || len(target.Asked()) != 0 {
			t.Errorf("error %v, the other host was asked %v", err, target.Asked())
		}
	})
	t.Run("FT-G2 an issuer that answers with errors, pages or too much is one sentence, and heals", func(t *testing.T) {
		t.Parallel()
		w, m := newTokenWorld(t, nil)
		for name, answer := range map[string]func(http.ResponseWriter){
			"an error": func(rw http.ResponseWriter) { http.Error(rw, "<html>no", http.StatusBadGateway) },
			"a page":   func(rw http.ResponseWriter) { _, _ = io.WriteString(rw, "<html>welcome</html>") },
			"nothing":  func(http.ResponseWriter) {},
			"no token": func(rw http.ResponseWriter) { _, _ = io.WriteString(rw, `{"token":""}`) },
			"a token of lines": func(rw http.ResponseWriter) {
				_, _ = io.WriteString(rw, `{"token":"a\r\nb","expires_at":"2099-01-01T00:00:00Z"}`)
			},
			"too much": func(rw http.ResponseWriter) { _, _ = io.WriteString(rw, strings.Repeat("x", 1<<20)) },
		} {
			w.issuer.Override = func(rw http.ResponseWriter, _ *http.Request) bool { answer(rw); return true }
			_, err := m.Fetch(gittest.Context(t), tenant, w.origin.Hub(), w.app(issuers.Installation))
			if fault.KindOf(err) != fault.Offline || strings.Contains(fault.Sentence(err), "<html>") {
				t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
			}
		}
		w.issuer.Override = nil
		fetch(t, w, m, w.app(issuers.Installation))
	})
}

func TestProxies(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	port := s.HTTP.URL[strings.LastIndex(s.HTTP.URL, ":"):]
	named := origin.Hub()
	named.URL = "http://git.internal.test" + port + "/app"
	lookup := func(addr string) func(context.Context, string) ([]netip.Addr, error) {
		return func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(addr)}, nil
		}
	}
	t.Run("CRED-12 a permitted proxy is used, with its password, and gets an address that the hub has checked", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		p.User, p.Password = "hub", "canary-of-proxy"
		m := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: p.HTTP.URL}}, Lookup: lookup("127.0.0.1")})
		cred := hub.Credential{Proxy: strings.Replace(p.HTTP.URL, "http://", "http://hub:canary-of-proxy@", 1)}
		if _, err := m.Fetch(gittest.Context(t), tenant, named, cred); err != nil {
			t.Fatal(err)
		}
		if got := p.Asked(); len(got) != 1 || got[0] != "127.0.0.1"+port {
			t.Errorf("the proxy was asked for %v", got)
		}
		cred.Proxy = strings.Replace(p.HTTP.URL, "http://", "http://hub:canary-of-wrong@", 1)
		_, err := m.Fetch(gittest.Context(t), tenant, named, cred)
		if got := fault.Sentence(err); !strings.Contains(got, "its proxy refuses the user name and password") || strings.Contains(err.Error(), "canary") {
			t.Errorf("a wrong password: %v", err)
		}
	})
	t.Run("CRED-12 a proxy by name gets the name, also one that the hub cannot find", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		p.Names["git.internal.test"] = "127.0.0.1"
		m := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: p.HTTP.URL, ByName: true}}, Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, nil }})
		if _, err := m.Fetch(gittest.Context(t), tenant, named, hub.Credential{Proxy: p.HTTP.URL}); err != nil {
			t.Fatal(err)
		}
		if got := p.Asked(); len(got) != 1 || got[0] != "git.internal.test"+port {
			t.Errorf("the proxy was asked for %v", got)
		}
	})
	t.Run("CRED-12 hosts of noProxy are reached directly, and by the guard", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		m := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: p.HTTP.URL}}})
		local := origin.Hub()
		local.URL = "http://localhost" + port + "/app"
		cred := hub.Credential{Proxy: p.HTTP.URL, NoProxy: "git.example.com,other.test"}
		if _, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), cred); err != nil || len(p.Asked()) != 1 {
			t.Errorf("an address that noProxy does not name: %v, asked %v", err, p.Asked())
		}
		direct := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: p.HTTP.URL}}, AllowedNetworks: []netip.Prefix{}})
		gone := origin.Hub()
		gone.URL = "http://10.255.0.1" + port + "/app"
		_, err := direct.Fetch(gittest.Context(t), tenant, gone, hub.Credential{Proxy: p.HTTP.URL, NoProxy: "10.0.0.0/8"})
		if !strings.Contains(fault.Sentence(err), "private address") || len(p.Asked()) != 1 {
			t.Errorf("a direct address: %v, asked %v", err, p.Asked())
		}
	})
	t.Run("CRED-12 a changed proxy is used at the next fetch", func(t *testing.T) {
		t.Parallel()
		first, second := connectproxy.New(t), connectproxy.New(t)
		m := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: first.HTTP.URL}, {URL: second.HTTP.URL}}})
		repo := origin.Hub()
		for _, p := range []*connectproxy.Server{first, second} {
			if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{Proxy: p.HTTP.URL}); err != nil || len(p.Asked()) != 1 {
				t.Errorf("%v, asked %v", err, p.Asked())
			}
		}
	})
	t.Run("SEC-A6 CRED-12(refused) a proxy that the operator does not permit is not dialled", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		for _, permitted := range []string{"", "https://" + strings.TrimPrefix(p.HTTP.URL, "http://"), p.HTTP.URL + "1"} {
			m := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: permitted}}})
			_, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{Proxy: p.HTTP.URL})
			if s := fault.Sentence(err); fault.KindOf(err) != fault.Invalid || !strings.Contains(s, "does not permit its proxy") || len(p.Asked()) != 0 {
				t.Errorf("%q: %v, asked %v", permitted, err, p.Asked())
			}
		}
	})
	t.Run("SEC-A8 CRED-12(refused) the URL of a proxy of a repository over SSH is never a command, an option or a SOCKS proxy", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		w := newSSHWorld(t, git.Config{Proxies: []guard.Proxy{{URL: p.HTTP.URL}}}, "ed25519")
		w.Repo("app.git").Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
		w.key(t, "ed25519")
		made := filepath.Join(t.TempDir(), "made")
		host := strings.TrimPrefix(p.HTTP.URL, "http://")
		for _, proxy := range []string{
			"socks5://" + host, "socks5://" + host + ";touch " + made, "socks5://$(touch " + made + ")", "socks5h://`touch " + made + "`:1080", "socks5://-oProxyCommand=touch%20" + made,
			"http://" + host + ";touch " + made, "http://" + host + "|touch " + made, "http://$(touch${IFS}" + made + "):3128", "http://-oProxyCommand=touch:3128", "http://" + host + "\ntouch " + made, "http://" + host + "\r\n\r\nCONNECT 10.0.0.1:22 HTTP/1.1",
			"-oProxyCommand=touch " + made, "--proxy=" + host, "|touch " + made, "$(touch " + made + ")", "nc -X 5 -x " + host,
		} {
			cred := w.creds.cred
			cred.Proxy = proxy
			_, err := w.m.Fetch(gittest.Context(t), tenant, sshRepository(t, w.ssh.URL("app.git")), cred)
			if s := fault.Sentence(err); fault.KindOf(err) != fault.Invalid || !strings.Contains(s, "does not permit its proxy") {
				t.Errorf("%q: %v", proxy, err)
			}
		}
		if asked, calls := p.Asked(), w.calls(t); len(asked) != 0 || calls != 0 {
			t.Errorf("the proxy was asked for %v, the server %d times", asked, calls)
		}
		p.User, p.Password = "$(touch "+made+")", "'; touch "+made+"\r\nX-Other: 1"
		cred := w.creds.cred
		cred.Proxy = (&url.URL{Scheme: "http", User: url.UserPassword(p.User, p.Password), Host: host}).String()
		if _, err := w.m.Fetch(gittest.Context(t), tenant, sshRepository(t, w.ssh.URL("app.git")), cred); err != nil || len(p.Asked()) != 1 {
			t.Errorf("a user name and password are used as they are: %v, asked %v", err, p.Asked())
		}
		if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a command was run: %v", err)
		}
	})
	t.Run("SEC-A6 no proxy leads to an internal address, by number or by a name that changes", func(t *testing.T) {
		t.Parallel()
		for _, byName := range []bool{false, true} {
			p := connectproxy.New(t)
			for url, addr := range map[string]string{
				"http://127.0.0.1" + port + "/app": "8.8.8.8", "http://169.254.169.254/latest": "8.8.8.8", "http://[::1]/app": "8.8.8.8",
				"http://rebinds.test/app": "127.0.0.1", "http://metadata.test/app": "169.254.169.254", "http://translated.test/app": "64:ff9b::7f00:1",
			} {
				m := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: p.HTTP.URL, ByName: byName}}, AllowedNetworks: []netip.Prefix{}, Lookup: lookup(addr)})
				repo := origin.Hub()
				repo.URL = url
				_, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{Proxy: p.HTTP.URL})
				if !strings.Contains(fault.Sentence(err), "private address") || len(p.Asked()) != 0 {
					t.Errorf("%s: %v, the proxy was asked for %v", url, err, p.Asked())
				}
			}
		}
	})
	t.Run("FT-G2 a proxy that fails, hangs up or answers with a page is one sentence", func(t *testing.T) {
		t.Parallel()
		p := connectproxy.New(t)
		m := gittest.NewMirrors(t, git.Config{Proxies: []guard.Proxy{{URL: p.HTTP.URL}}})
		for name, answer := range map[string]func(http.ResponseWriter){
			"an error": func(rw http.ResponseWriter) { http.Error(rw, "<html>canary", http.StatusBadGateway) },
			"a page": func(rw http.ResponseWriter) {
				rw.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(rw, "<html>canary")
			},
			"the end": func(rw http.ResponseWriter) {
				if c, _, err := http.NewResponseController(rw).Hijack(); err == nil {
					_ = c.Close()
				}
			},
		} {
			p.Override = func(rw http.ResponseWriter, _ *http.Request) bool { answer(rw); return true }
			_, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{Proxy: p.HTTP.URL})
			if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "its proxy does not connect") || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	fails := func(status, times int) (requests *int) {
		requests = new(int)
		s.Set("", func(w http.ResponseWriter, _ *http.Request) bool {
			if *requests++; *requests > times {
				return false
			}
			w.WriteHeader(status)
			return true
		})
		return requests
	}
	t.Run("REPO-11 a listing is tried again at once while the server is not reachable", func(t *testing.T) {
		m := gittest.NewMirrors(t, git.Config{Attempts: 3})
		n := fails(http.StatusServiceUnavailable, 2)
		if _, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{}); err != nil {
			t.Errorf("after %d requests: %v", *n, err)
		}
	})
	t.Run("REPO-11 no more often than it is set, and never after a refusal", func(t *testing.T) {
		n := fails(http.StatusServiceUnavailable, 100)
		m := gittest.NewMirrors(t, git.Config{Attempts: 2})
		if _, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{}); fault.KindOf(err) != fault.Offline || *n != 2 {
			t.Errorf("%d requests: %v", *n, err)
		}
		n = fails(http.StatusForbidden, 100)
		if _, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{}); err == nil || *n != 1 {
			t.Errorf("%d requests: %v", *n, err)
		}
	})
	t.Run("REPO-11 a server that does not answer in the request timeout is one sentence", func(t *testing.T) {
		ended := make(chan struct{})
		t.Cleanup(func() { close(ended) })
		s.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-ended:
			case <-r.Context().Done():
			}
			return true
		})
		m := gittest.NewMirrors(t, git.Config{ListTimeout: 200 * time.Millisecond})
		if _, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{}); !strings.Contains(fault.Sentence(err), "did not answer within 200ms") {
			t.Errorf("error %v", err)
		}
	})
}
