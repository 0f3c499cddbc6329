package source_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// A gitServer is a real git http-backend over HTTP on the loopback address.
type gitServer struct {
	tb       testing.TB
	dir      string
	http     *httptest.Server
	lists    atomic.Int64
	packs    atomic.Int64
	sent     atomic.Int64 // bytes of packs
	conns    atomic.Int64
	spent    atomic.Int64 // nanoseconds in git's own programs
	mu       sync.Mutex
	password string                                                   // user "bob"; empty: none needed
	before   func(w http.ResponseWriter, r *http.Request) (done bool) // may answer instead
}

func newGitServer(tb testing.TB) *gitServer {
	tb.Helper()
	return startGitServer(tb, (*httptest.Server).Start)
}

func startGitServer(tb testing.TB, start func(*httptest.Server)) *gitServer {
	tb.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		tb.Fatalf("git is needed: %v", err)
	}
	s := &gitServer{tb: tb, dir: tb.TempDir()}
	backend := &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:    append(gitEnv(s.dir), "GIT_PROJECT_ROOT="+s.dir, "GIT_HTTP_EXPORT_ALL=1"),
		Stderr: io.Discard,
		Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		before, password := s.before, s.password
		s.mu.Unlock()
		if before != nil && before(w, r) {
			return
		}
		if user, pass, _ := r.BasicAuth(); password != "" && (user != "bob" || pass != password) {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "denied "+pass, http.StatusUnauthorized)
			return
		}
		defer func(begin time.Time) { s.spent.Add(int64(time.Since(begin))) }(time.Now())
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			s.lists.Add(1)
			backend.ServeHTTP(w, r)
			return
		}
		s.packs.Add(1)
		backend.ServeHTTP(&countingWriter{ResponseWriter: w, n: &s.sent}, r)
	}))
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	start(s.http)
	tb.Cleanup(s.http.Close)
	return s
}

type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n.Add(int64(len(p)))
	return w.ResponseWriter.Write(p)
}

func (s *gitServer) set(password string, before func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.password, s.before = password, before
}

func gitEnv(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Alma", "GIT_AUTHOR_EMAIL=alma@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=Alma", "GIT_COMMITTER_EMAIL=alma@example.com", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z",
	}
}

// A gitRepo is a bare repository on the server.
type gitRepo struct {
	*gitServer
	name string
	path string
}

// repo makes an empty repository; the name may end in .git.
func (s *gitServer) repo(name string) *gitRepo {
	s.tb.Helper()
	r := &gitRepo{s, name, filepath.Join(s.dir, name)}
	if out, err := exec.Command("git", "init", "--quiet", "--bare", "--initial-branch=main", r.path).CombinedOutput(); err != nil {
		s.tb.Fatalf("git init: %v: %s", err, out)
	}
	return r
}

// git runs git in the repository and gives its output without the last line end.
func (r *gitRepo) git(stdin string, args ...string) string {
	r.tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = r.path, gitEnv(r.dir), strings.NewReader(stdin)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		r.tb.Fatalf("git %v: %v: %s", args, err, errOut.String())
	}
	return strings.TrimSpace(string(out))
}

// files are what a commit changes: content by path. A key may start with a
// mode, as in "120000 link"; "160000 sub" takes a commit; "-" removes.
type files map[string]string

// commit puts a commit upon a ref and gives its name.
func (r *gitRepo) commit(ref, message string, change files) string {
	r.tb.Helper()
	return r.commitOn(ref, "", message, change)
}

func (r *gitRepo) commitOn(ref, from, message string, change files) string {
	r.tb.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "commit %s\nauthor Alma <alma@example.com> 1767323045 +0000\ncommitter Alma <alma@example.com> 1767323045 +0000\n", ref)
	fmt.Fprintf(&b, "data %d\n%s\n", len(message), message)
	if from == "" {
		out, err := r.try("rev-parse", "--verify", "--quiet", ref)
		if err == nil {
			from = out
		}
	}
	if from != "" && from != "none" {
		fmt.Fprintf(&b, "from %s\n", from)
	}
	for name, content := range change {
		mode, path, found := strings.Cut(name, " ")
		if !found || len(mode) != 6 {
			mode, path = "100644", name
		}
		switch {
		case content == "-":
			fmt.Fprintf(&b, "D %s\n", path)
		case mode == "160000":
			fmt.Fprintf(&b, "M 160000 %s %s\n", content, path)
		default:
			fmt.Fprintf(&b, "M %s inline %s\ndata %d\n%s\n", mode, path, len(content), content)
		}
	}
	r.git(b.String(), "fast-import", "--quiet", "--force")
	return r.git("", "rev-parse", ref)
}

func (r *gitRepo) try(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.path, gitEnv(r.dir)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// hub is the repository as the hub knows it.
func (r *gitRepo) hub() hub.Repository {
	r.tb.Helper()
	url, err := hub.NormalizeRepoURL(r.http.URL + "/" + r.name)
	if err != nil {
		r.tb.Fatal(err)
	}
	return hub.Repository{ID: hub.NewID[hub.RepositoryID](), Tenant: tenant, URL: url, Type: "git"}
}

const tenant = hub.TenantID("018f3c6e-0000-7000-8000-000000000001")

// noCredentials is for repositories that are open to all.
type noCredentials struct{}

func (noCredentials) Credential(context.Context, hub.TenantID, hub.RepositoryID) (hub.Credential, error) {
	return hub.Credential{}, nil
}

func (noCredentials) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return "", nil
}

func (noCredentials) HostKeys(context.Context, hub.TenantID) ([]hub.HostKey, error) { return nil, nil }

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// newMirrors makes mirrors that are closed when the test ends.
func newMirrors(tb testing.TB, cfg source.Config) *source.Mirrors {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	if cfg.AllowedNetworks == nil {
		cfg.AllowedNetworks = loopback()
	}
	if cfg.ListTimeout == 0 {
		cfg.ListTimeout = answerTimeout
	}
	m, err := source.New(cfg, noCredentials{}, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closeMirrors(tb, m) })
	return m
}

func closeMirrors(tb testing.TB, m *source.Mirrors) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Run(ctx); err != nil {
		tb.Errorf("Run() = %v", err)
	}
}

// answerTimeout is how long a repository may take to answer, unless a test is about
// that: a busy machine takes long to start a program of git or an SSH session.
const answerTimeout = 2 * time.Minute

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// fetched fetches without credentials and gives the refs by name.
func fetched(tb testing.TB, m *source.Mirrors, repo hub.Repository) map[string]string {
	tb.Helper()
	list, err := m.Fetch(testContext(tb), tenant, repo, hub.Credential{})
	if err != nil {
		tb.Fatalf("Fetch() = %v", err)
	}
	return byName(list)
}

func byName(list []hub.Ref) map[string]string {
	out := map[string]string{}
	for _, r := range list {
		out[r.Name] = r.Commit
	}
	return out
}

// content reads a file of a commit.
func content(tb testing.TB, m *source.Mirrors, repo hub.Repository, commit, name string) string {
	tb.Helper()
	t, err := m.Tree(testContext(tb), tenant, repo, commit)
	if err != nil {
		tb.Fatalf("Tree(%s) = %v", commit, err)
	}
	data, err := t.ReadFile(name)
	if err != nil {
		tb.Fatalf("ReadFile(%q) = %v", name, err)
	}
	return string(data)
}
