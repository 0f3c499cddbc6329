// Package gittest is a real Git server for tests: git's own http-backend over
// HTTP on the loopback address, with repositories that tests commit to.
package gittest

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
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// A Server is a real git http-backend over HTTP on the loopback address.
type Server struct {
	tb       testing.TB
	Dir      string // of the repositories
	HTTP     *httptest.Server
	Lists    atomic.Int64
	Packs    atomic.Int64
	Sent     atomic.Int64 // bytes of packs
	Conns    atomic.Int64
	Spent    atomic.Int64 // nanoseconds in git's own programs
	mu       sync.Mutex
	password string                                                   // user "bob"; empty: none needed
	before   func(w http.ResponseWriter, r *http.Request) (done bool) // may answer instead
}

// New starts a server, which stops when the test ends.
func New(tb testing.TB) *Server {
	tb.Helper()
	return Start(tb, (*httptest.Server).Start)
}

// Start is New with a way to start it, such as with TLS.
func Start(tb testing.TB, start func(*httptest.Server)) *Server {
	tb.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		tb.Fatalf("git is needed: %v", err)
	}
	s := &Server{tb: tb, Dir: tb.TempDir()}
	backend := &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:    append(Env(s.Dir), "GIT_PROJECT_ROOT="+s.Dir, "GIT_HTTP_EXPORT_ALL=1"),
		Stderr: io.Discard,
		Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	s.HTTP = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		defer func(begin time.Time) { s.Spent.Add(int64(time.Since(begin))) }(time.Now())
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			s.Lists.Add(1)
			backend.ServeHTTP(w, r)
			return
		}
		s.Packs.Add(1)
		backend.ServeHTTP(&countingWriter{ResponseWriter: w, n: &s.Sent}, r)
	}))
	s.HTTP.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.HTTP.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.Conns.Add(1)
		}
	}
	start(s.HTTP)
	tb.Cleanup(s.HTTP.Close)
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

// Set sets the password that the server asks for, and what answers before it
// does.
func (s *Server) Set(password string, before func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.password, s.before = password, before
}

// Env is the environment of git, without what the machine has set.
func Env(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Alma", "GIT_AUTHOR_EMAIL=alma@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=Alma", "GIT_COMMITTER_EMAIL=alma@example.com", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z",
	}
}

// A Repo is a bare repository on the server.
type Repo struct {
	*Server
	Name string
	Path string
}

// Repo makes an empty repository; the name may end in .git.
func (s *Server) Repo(name string) *Repo {
	s.tb.Helper()
	r := &Repo{s, name, filepath.Join(s.Dir, name)}
	if out, err := exec.Command("git", "init", "--quiet", "--bare", "--initial-branch=main", r.Path).CombinedOutput(); err != nil {
		s.tb.Fatalf("git init: %v: %s", err, out)
	}
	return r
}

// Git runs git in the repository and gives its output without the last line end.
func (r *Repo) Git(stdin string, args ...string) string {
	r.tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = r.Path, Env(r.Dir), strings.NewReader(stdin)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		r.tb.Fatalf("git %v: %v: %s", args, err, errOut.String())
	}
	return strings.TrimSpace(string(out))
}

// Files are what a commit changes: content by path. A key may start with a
// mode, as in "120000 link"; "160000 sub" takes a commit; "-" removes.
type Files map[string]string

// Commit puts a commit upon a ref and gives its name.
func (r *Repo) Commit(ref, message string, change Files) string {
	r.tb.Helper()
	return r.CommitOn(ref, "", message, change)
}

// CommitOn is Commit upon another commit; "none": upon none.
func (r *Repo) CommitOn(ref, from, message string, change Files) string {
	r.tb.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "commit %s\nauthor Alma <alma@example.com> 1767323045 +0000\ncommitter Alma <alma@example.com> 1767323045 +0000\n", ref)
	fmt.Fprintf(&b, "data %d\n%s\n", len(message), message)
	if from == "" {
		out, err := r.Try("rev-parse", "--verify", "--quiet", ref)
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
	r.Git(b.String(), "fast-import", "--quiet", "--force")
	return r.Git("", "rev-parse", ref)
}

// Try runs git and gives its error back.
func (r *Repo) Try(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.Path, Env(r.Dir)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// Hub is the repository as the hub knows it.
func (r *Repo) Hub() hub.Repository {
	r.tb.Helper()
	url, err := repourl.Normalize(r.HTTP.URL + "/" + r.Name)
	if err != nil {
		r.tb.Fatal(err)
	}
	return hub.Repository{ID: hub.NewID[hub.RepositoryID](), Tenant: Tenant, URL: url, Type: "git"}
}

// Tenant is whose repositories all are, unless a test says another one.
const Tenant = hub.TenantID("018f3c6e-0000-7000-8000-000000000001")

// NoCredentials is for repositories that are open to all.
type NoCredentials struct{}

// Credential is none.
func (NoCredentials) Credential(context.Context, hub.TenantID, hub.RepositoryID) (hub.Credential, error) {
	return hub.Credential{}, nil
}

// Authorities are none.
func (NoCredentials) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return "", nil
}

// HostKeys are none.
func (NoCredentials) HostKeys(context.Context, hub.TenantID) ([]hub.HostKey, error) { return nil, nil }

// Loopback are the networks that tests connect to.
func Loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// NewMirrors makes mirrors that are closed when the test ends.
func NewMirrors(tb testing.TB, cfg git.Config) *git.Mirrors {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	if cfg.AllowedNetworks == nil {
		cfg.AllowedNetworks = Loopback()
	}
	if cfg.ListTimeout == 0 {
		cfg.ListTimeout = AnswerTimeout
	}
	m, err := git.New(cfg, NoCredentials{}, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { CloseMirrors(tb, m) })
	return m
}

// CloseMirrors releases what mirrors hold.
func CloseMirrors(tb testing.TB, m *git.Mirrors) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Run(ctx); err != nil {
		tb.Errorf("Run() = %v", err)
	}
}

// AnswerTimeout is how long a repository may take to answer, unless a test is about
// that: a busy machine takes long to start a program of git or an SSH session.
const AnswerTimeout = 2 * time.Minute

// Context is one with a deadline far away.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// Fetched fetches without credentials and gives the refs by name.
func Fetched(tb testing.TB, m *git.Mirrors, repo hub.Repository) map[string]string {
	tb.Helper()
	list, err := m.Fetch(Context(tb), Tenant, repo, hub.Credential{})
	if err != nil {
		tb.Fatalf("Fetch() = %v", err)
	}
	return ByName(list)
}

// ByName gives refs by name.
func ByName(list []hub.Ref) map[string]string {
	out := map[string]string{}
	for _, r := range list {
		out[r.Name] = r.Commit
	}
	return out
}

// Content reads a file of a commit.
func Content(tb testing.TB, m *git.Mirrors, repo hub.Repository, commit, name string) string {
	tb.Helper()
	t, err := m.Tree(Context(tb), Tenant, repo, commit)
	if err != nil {
		tb.Fatalf("Tree(%s) = %v", commit, err)
	}
	data, err := t.ReadFile(name)
	if err != nil {
		tb.Fatalf("ReadFile(%q) = %v", name, err)
	}
	return string(data)
}
