package git_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

const secret = "c4n4ry-s3cret"

func web(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestFetchErrors(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	s.Set("right", nil)
	open := gittest.New(t)
	open.Repo("empty")
	origin := open.Repo("full")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	status := func(code int) string {
		return web(t, func(w http.ResponseWriter, r *http.Request) {
			_, pass, _ := r.BasicAuth()
			http.Error(w, "you sent "+pass+r.Header.Get("Authorization"), code)
		}) + "/repo"
	}
	good := hub.Credential{Username: "bob", Password: secret}
	cases := map[string]struct {
		url  string
		cred hub.Credential
		kind fault.Kind
		want string // part of the sentence
	}{
		"a path that is not there":      {open.HTTP.URL + "/nothing", good, fault.Missing, "knows no such repository"},
		"a wrong password":              {s.HTTP.URL + "/repo", good, fault.Invalid, "does not accept the credentials"},
		"no password":                   {s.HTTP.URL + "/repo", hub.Credential{}, fault.Invalid, "asks for credentials and none are stored"},
		"a wrong bearer token":          {s.HTTP.URL + "/repo", hub.Credential{BearerToken: secret}, fault.Invalid, "does not accept the credentials"},
		"no right to read":              {status(403), good, fault.Invalid, "forbids access"},
		"FT-G2 rate limit":              {status(429), good, fault.Offline, "slow down"},
		"FT-G2 500":                     {status(500), good, fault.Offline, "answers with the error 500"},
		"FT-G2 502":                     {status(502), good, fault.Offline, "answers with the error 502"},
		"418":                           {status(418), good, fault.Invalid, "status 418"},
		"FT-G2 a web page with 200":     {web(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>login</html>") }), good, fault.Invalid, "not as a Git server"},
		"an empty repository":           {open.HTTP.URL + "/empty", good, fault.Invalid, "is empty"},
		"nobody listens":                {"http://" + runtest.Refusing(t) + "/repo", good, fault.Offline, "refuses the connection"},
		"no such host":                  {"http://no-such-host.invalid/repo", good, fault.Offline, "host name cannot be"},
		"plain HTTP behind https":       {strings.Replace(open.HTTP.URL, "http:", "https:", 1) + "/full", good, fault.Invalid, "does not speak TLS"},
		"a password over SSH":           {"ssh://127.0.0.1/repo", good, fault.Invalid, "a password or token opens no repository over SSH"},
		"SEC-A9 a file":                 {"file://" + origin.Path, good, fault.Invalid, "cannot be parsed"},
		"SEC-A9 a file with a host":     {"file://localhost" + origin.Path, good, fault.Invalid, `scheme "file" are not supported`},
		"git://":                        {"git://127.0.0.1/repo", good, fault.Invalid, `scheme "git" are not supported`},
		"not a URL":                     {"http://[::1", good, fault.Invalid, "cannot be parsed"},
		"SEC-C3 user information in it": {strings.Replace(open.HTTP.URL, "http://", "http://bob:"+secret+"@", 1) + "/nothing", good, fault.Missing, "knows no such repository"},
		"SEC-A6 a private address":      {"http://10.255.255.1/repo", good, fault.Invalid, "loopback, link-local or private"},
		"SEC-A6 cloud metadata":         {"http://169.254.169.254/latest", good, fault.Invalid, "loopback, link-local or private"},
		"SEC-A6 IPv6 loopback":          {"http://[::1]:" + strings.Split(open.HTTP.URL, ":")[2] + "/full", good, fault.Invalid, "loopback, link-local or private"},
		"SEC-A6 any address":            {"http://[::]/full", good, fault.Invalid, "loopback, link-local or private"},
		"SEC-A6 IPv4 inside IPv6":       {"http://[::ffff:10.0.0.1]/full", good, fault.Invalid, "loopback, link-local or private"},
		"SEC-A6 decimal IPv4":           {"http://2130706433/full", good, fault.Offline, "host name cannot be"},
		"SEC-A6 redirect to an internal": {web(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/x/info/refs", http.StatusFound)
		}), good, fault.Invalid, "loopback, link-local or private"},
		"redirect to a web page": {web(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }), good, fault.Invalid, "not"},
		"redirect in a circle":   {web(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) }), good, fault.Invalid, "redirects in a way"},
		"half a listing": {web(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, "001e# service=git-upload-pack\n000000ff1234")
		}), good, fault.Offline, "broke off"},
		"garbage for a listing": {web(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, "001e# service=git-upload-pack\n0000", "0015this is no listing", "0000")
		}), good, fault.Offline, "cannot be understood"},
		"SEC-B12 a length that is none": {web(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, "001e# service=git-upload-pack\n0000", "zzzz\x00\xff\xfe")
		}), good, fault.Offline, "the Git server 127.0.0.1:"},
		"SEC-B12 a line that ends before it begins": {web(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, "001e# service=git-upload-pack\n0000", "0001")
		}), good, fault.Offline, "cannot be understood"},
		"the connection is cut": {web(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), good, fault.Offline, "broke off"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := gittest.NewMirrors(t, git.Config{})
			repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), Tenant: tenant, URL: c.url}
			refs, err := m.Fetch(gittest.Context(t), tenant, repo, c.cred)
			if fault.KindOf(err) != c.kind || refs != nil {
				t.Fatalf("Fetch(%s) = %v, kind %q, %v; want kind %q", c.url, refs, fault.KindOf(err), err, c.kind)
			}
			sentence := fault.Sentence(err)
			if !strings.Contains(sentence, c.want) {
				t.Errorf("sentence %q lacks %q", sentence, c.want)
			}
			message, _ := fault.As(err)
			if message.Fix == "" || !strings.HasPrefix(message.Object, "repository ") {
				t.Errorf("object %q, fix %q", message.Object, message.Fix)
			}
			if strings.Contains(sentence+err.Error(), secret) {
				t.Errorf("SEC-C3 the error holds the credential: %v", err)
			}
		})
	}
}

func TestFetchTLS(t *testing.T) {
	t.Parallel()
	s := gittest.Start(t, (*httptest.Server).StartTLS)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	repo := origin.Hub()

	t.Run("SEC-E5 an unknown authority is refused", func(t *testing.T) {
		t.Parallel()
		_, err := gittest.NewMirrors(t, git.Config{}).Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "signed by an authority") {
			t.Errorf("Fetch() = %v", err)
		}
	})
	for name, bad := range pki.BadServers(t) {
		t.Run("SEC-E5 a certificate "+name+" is refused before a request, unless insecure is set", func(t *testing.T) {
			t.Parallel()
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM([]byte(bad.Authority))
			m := gittest.NewMirrors(t, git.Config{RootCAs: pool})
			repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), Tenant: tenant, URL: bad.URL + "/app.git"}
			cred := hub.Credential{Username: "bob", Password: secret}
			if _, err := m.Fetch(gittest.Context(t), tenant, repo, cred); err == nil || bad.Requests.Load() != 0 {
				t.Errorf("Fetch() = %v, and the server got %d requests", err, bad.Requests.Load())
			}
			repo.Insecure = true
			if _, err := m.Fetch(gittest.Context(t), tenant, repo, cred); err == nil || bad.Requests.Load() == 0 {
				t.Errorf("with insecure, Fetch() = %v, and the server got %d requests", err, bad.Requests.Load())
			}
		})
	}
	t.Run("CRED-08 insecure skips the check, and only while it is set", func(t *testing.T) {
		t.Parallel()
		m := gittest.NewMirrors(t, git.Config{})
		loose := repo
		loose.Insecure = true
		if _, err := m.Fetch(gittest.Context(t), tenant, loose, hub.Credential{}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); err == nil {
			t.Error("the check stays off")
		}
	})
	t.Run("CRED-08 an authority of the operator", func(t *testing.T) {
		t.Parallel()
		pool := x509.NewCertPool()
		pool.AddCert(s.HTTP.Certificate())
		m := gittest.NewMirrors(t, git.Config{RootCAs: pool})
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); err != nil {
			t.Error(err)
		}
		other := repo
		other.ID, other.URL = hub.NewID[hub.RepositoryID](), strings.Replace(repo.URL, "127.0.0.1", "127.0.0.2", 1)
		if _, err := m.Fetch(gittest.Context(t), tenant, other, hub.Credential{}); err == nil || strings.Contains(fault.Sentence(err), "something went wrong") {
			t.Errorf("a certificate for another host: %v", err)
		}
	})
}

func TestFetchCredentials(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app.git")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	repo := origin.Hub()
	s.Set(secret, nil)
	m := gittest.NewMirrors(t, git.Config{})

	t.Run("CRED-05 user name and password", func(t *testing.T) {
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{Username: "bob", Password: secret}); err != nil {
			t.Error(err)
		}
	})
	t.Run("CRED-05 the user name of the repository beside a stored password", func(t *testing.T) {
		named := repo
		named.Username = "bob"
		if _, err := m.Fetch(gittest.Context(t), tenant, named, hub.Credential{Password: secret}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a password that is no longer right is noticed though refs are the same", func(t *testing.T) {
		s.Set("changed", nil)
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{Username: "bob", Password: secret}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Fetch() = %v", err)
		}
	})
	t.Run("CRED-06 a bearer token", func(t *testing.T) {
		s.Set("", func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Authorization") == "Bearer "+secret {
				return false
			}
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{BearerToken: secret}); err != nil {
			t.Error(err)
		}
	})
	t.Run("SEC-A6 credentials do not follow a redirect to another host", func(t *testing.T) {
		var got []string
		thief := web(t, func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Authorization")) })
		s.Set("", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, thief+r.URL.String(), http.StatusFound)
			return true
		})
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{Username: "bob", Password: secret}); err == nil {
			t.Error("want an error")
		}
		if len(got) == 0 || strings.Join(got, "") != "" {
			t.Errorf("the other host was sent %q", got)
		}
	})
	t.Run("a redirect to where the repository moved", func(t *testing.T) {
		s.Set("", func(w http.ResponseWriter, r *http.Request) bool {
			if rest, ok := strings.CutPrefix(r.URL.Path, "/old"); ok {
				http.Redirect(w, r, "/app"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
				return true
			}
			return false
		})
		moved := repo
		moved.ID, moved.URL = hub.NewID[hub.RepositoryID](), s.HTTP.URL+"/old"
		if got := gittest.Fetched(t, m, moved); got["HEAD"] == "" {
			t.Errorf("refs = %v", got)
		}
	})
}

func TestFetchLimits(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	var noise strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&noise, "%x", uint32(i)*2654435761)
	}
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": noise.String(), "g": "x"})
	origin.Git("", "branch", "other")
	repo := origin.Hub()
	for name, cfg := range map[string]git.Config{
		"SEC-B12 bytes of a pack":    {MaxBytes: 100_000},
		"SEC-B12 bytes in memory":    {MaxBytes: 1000},
		"SEC-B12 inflated bytes":     {MaxBytes: 80_000},
		"SEC-B12 bytes of a listing": {MaxListBytes: 100},
		"SEC-B12 refs":               {MaxRefs: 1},
		"SEC-B12 objects":            {MaxObjects: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := gittest.NewMirrors(t, cfg)
			refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
			if fault.KindOf(err) != fault.Exceeded || refs != nil || !strings.Contains(fault.Sentence(err), "limit") {
				t.Errorf("Fetch() = %v, %v", refs, err)
			}
		})
	}
}

func TestFetchTimesOut(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	first := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	repo := origin.Hub()
	dir := t.TempDir()
	unhurried := gittest.NewMirrors(t, git.Config{Dir: dir})
	gittest.Fetched(t, unhurried, repo)
	gittest.CloseMirrors(t, unhurried)
	m := gittest.NewMirrors(t, git.Config{Dir: dir, FetchTimeout: 500 * time.Millisecond})
	hang := func(part string) {
		s.Set("", func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, part) {
				return false
			}
			if part == "/git-upload-pack" {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				fmt.Fprint(w, "0008NAK\n")
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			return true
		})
	}
	t.Run("SEC-B12 a transfer that stalls", func(t *testing.T) {
		origin.Commit("refs/heads/main", "next", gittest.Files{"f": "y"})
		hang("/git-upload-pack")
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "did not answer within 500ms") {
			t.Errorf("Fetch() = %v", err)
		}
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); !strings.Contains(fault.Sentence(err), "did not answer within 1s") {
			t.Errorf("FT-G6 the second try should get more time: %v", err)
		}
	})
	t.Run("the end of the caller's context is no fault of the repository", func(t *testing.T) {
		hang("/info/refs")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if _, err := m.Fetch(ctx, tenant, repo, hub.Credential{}); err == nil || fault.KindOf(err) != fault.Internal {
			t.Errorf("Fetch() = %v", err)
		}
	})
	t.Run("nor is it while objects are sent", func(t *testing.T) {
		hang("/git-upload-pack")
		patient := gittest.NewMirrors(t, git.Config{})
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if _, err := patient.Fetch(ctx, tenant, repo, hub.Credential{}); err == nil || fault.KindOf(err) != fault.Internal {
			t.Errorf("Fetch() = %v", err)
		}
		hang("/info/refs")
	})
	t.Run("SEC-B12 a listing that stalls", func(t *testing.T) {
		quick := gittest.NewMirrors(t, git.Config{ListTimeout: 50 * time.Millisecond})
		if _, err := quick.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "did not answer within 50ms") {
			t.Errorf("Fetch() = %v", err)
		}
	})
	t.Run("INV-1 existing state stays, and everything works afterwards", func(t *testing.T) {
		s.Set("", nil)
		if got := gittest.Content(t, m, repo, first, "f"); got != "x" {
			t.Errorf("f = %q", got)
		}
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		for err != nil && strings.Contains(fault.Sentence(err), "did not answer within") { // git is slow to start
			refs, err = m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
		}
		if got := gittest.ByName(refs); err != nil || gittest.Content(t, m, repo, got["HEAD"], "f") != "y" {
			t.Errorf("refs = %v, %v", got, err)
		}
	})
}

func TestAllowedNetworks(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	m := gittest.NewMirrors(t, git.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if _, err := m.Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{}); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "loopback") {
		t.Errorf("SEC-A6 Fetch() = %v, want the loopback address refused", err)
	}
	if s.Lists.Load() != 0 {
		t.Error("SEC-A6 the server was asked")
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]git.Config{
		"no folder":       {},
		"relative folder": {Dir: "state"},
		"negative time":   {Dir: "/x", ListTimeout: -1},
		"negative limit":  {Dir: "/x", MaxBytes: -1},
		"bad network":     {Dir: "/x", AllowedNetworks: []netip.Prefix{{}}},
	} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("%s: Validate() = nil", name)
		}
	}
}

func TestIdentifiersAreNotPaths(t *testing.T) {
	t.Parallel()
	m := gittest.NewMirrors(t, git.Config{})
	for _, id := range []string{"", "..", "../../etc", "018f3c6e-0000-7000-8000-00000000000/", "a"} {
		repo := hub.Repository{ID: hub.RepositoryID(id), URL: "http://127.0.0.1:1/x"}
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("SEC-A2 repository %q: %v", id, err)
		}
		if err := m.Remove(gittest.Context(t), hub.TenantID(id), hub.NewID[hub.RepositoryID]()); fault.KindOf(err) != fault.Invalid {
			t.Errorf("SEC-A2 tenant %q: %v", id, err)
		}
	}
}
