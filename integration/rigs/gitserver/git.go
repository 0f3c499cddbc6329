// Package gitserver runs a real Git server, as GitHub is to a hub: the real
// git over HTTP with or without TLS, over SSH with the real sshd, with
// credentials, webhooks in GitHub's format, counters of requests, and faults
// that a test asks for.
package gitserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// Branch is what a repository starts with.
const Branch = "main"

// bypassHeader carries the secret with which a test itself pushes: past
// credentials, faults and counters.
const bypassHeader = "X-Harness-Bypass"

// Options say how a Git server is run. The zero value is right for tests.
type Options struct {
	// Dir holds the repositories and survives Stop. Empty: a folder of its
	// own, removed by Stop.
	Dir string
	// Address is where to listen. Empty: 127.0.0.1 and a free port.
	Address string
	// TLS serves https, with a certificate of an authority that only
	// Git.CA knows.
	TLS bool
}

// A Server is a running Git server: the real git, over its smart HTTP protocol.
// Its methods may be called by several goroutines.
type Server struct {
	dir     *process.Scratch
	bin     string
	url     string
	ca      *pki.Authority
	bypass  string
	server  *http.Server
	serving chan error
	hooks   sync.WaitGroup // deliveries under way
	ctx     context.Context
	cancel  context.CancelFunc // ends deliveries

	mu    sync.Mutex // guards repos
	repos map[string]*Repository
}

// Start starts a server without repositories. The caller must Stop it.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, errors.New("the program git is not in the PATH: install it, on Debian with: apt-get install git")
	}
	dir, err := process.NewScratch("git", o.Dir)
	if err != nil {
		return nil, fmt.Errorf("prepare the Git server: %w", err)
	}
	g := &Server{dir: dir, bin: bin, bypass: rand.Text(), serving: make(chan error, 1), repos: map[string]*Repository{}}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := g.listen(ctx, o); err != nil {
		return nil, fmt.Errorf("start the Git server: %w", errors.Join(err, g.Stop()))
	}
	return g, nil
}

func (g *Server) listen(ctx context.Context, o Options) error {
	for _, name := range []string{"home", "repositories"} {
		if err := os.MkdirAll(filepath.Join(g.dir.Path, name), 0o700); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(g.dir.Path, "clones")); err != nil { // they know an old address
		return err
	}
	l, err := listenAt(ctx, o.Address)
	if err != nil {
		return err
	}
	g.url = "http://" + l.Addr().String()
	if o.TLS {
		g.url = "https://" + l.Addr().String()
		secured, err := g.secure(l)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		l = secured
	}
	g.server = &http.Server{Handler: http.HandlerFunc(g.serve), ReadHeaderTimeout: 30 * time.Second}
	go func() { g.serving <- g.server.Serve(l) }()
	return nil
}

// listenAt takes an address, or without one a free port, another one if
// someone was faster.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	if address != "" {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	}
	var err error
	for range process.PortAttempts {
		var port int
		if port, err = process.FreePort(); err != nil {
			return nil, err
		}
		var l net.Listener
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
	return nil, err
}

// secure puts TLS in front of a listener.
func (g *Server) secure(l net.Listener) (net.Listener, error) {
	var err error
	if g.ca, err = pki.Open(g.dir.Path); err != nil {
		return nil, err
	}
	pair, err := g.ca.Server("git")
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}), nil
}

// Stop ends the server and everything under way, and removes the folder
// unless the caller chose it. It may be called twice.
func (g *Server) Stop() error {
	if g.dir == nil {
		return nil
	}
	g.cancel()
	var err error
	if g.server != nil {
		err = g.server.Close()
		if served := <-g.serving; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	g.hooks.Wait()
	err = errors.Join(err, g.dir.Close())
	g.dir = nil
	return err
}

// URL is the address of the server, without a path.
func (g *Server) URL() string { return g.url }

// CA is the certificate of the authority behind a server with TLS, in PEM.
func (g *Server) CA() []byte { return g.ca.PEM }

// RepositoryOptions say who may use a repository.
type RepositoryOptions struct {
	Username, Password string // both empty: everyone
}

// Create makes an empty repository, or finds the one that a chosen Dir has
// under that name. Names may have several parts, such as "team/shop".
func (g *Server) Create(ctx context.Context, name string, o RepositoryOptions) (*Repository, error) {
	if !repositoryName.MatchString(name) || strings.Contains(name, "..") {
		return nil, fmt.Errorf("%q is no name for a repository: use letters, digits, dots, dashes and slashes", name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.repos[name] != nil {
		return nil, fmt.Errorf("repository %q is there already", name)
	}
	r := &Repository{
		Name: name, git: g, options: o,
		bare: filepath.Join(g.dir.Path, "repositories", name+".git"), clone: filepath.Join(g.dir.Path, "clones", name),
	}
	if _, err := os.Stat(filepath.Join(r.bare, "HEAD")); err != nil {
		for _, args := range [][]string{
			{"init", "--quiet", "--bare", "--initial-branch=" + Branch, r.bare},
			{"-C", r.bare, "config", "http.receivepack", "true"},
			{"-C", r.bare, "config", "uploadpack.allowFilter", "true"},
			{"-C", r.bare, "config", "uploadpack.allowAnySHA1InWant", "true"},
		} {
			if _, err := g.command(ctx, args...); err != nil {
				return nil, fmt.Errorf("create repository %q: %w", name, err)
			}
		}
	}
	g.repos[name] = r
	return r, nil
}

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

// find is the repository that a path belongs to, and the rest of the path.
func (g *Server) find(path string) (*Repository, string) {
	name, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), ".git/")
	if !ok {
		return nil, ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.repos[name], rest
}

// command runs git apart from the settings of this machine and its users.
func (g *Server) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, g.bin, args...)
	cmd.Env = append(os.Environ(), g.environment()...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		what := strings.ReplaceAll(strings.Join(args, " ")+": "+strings.TrimSpace(complaints.String()), g.bypass, "…")
		return "", fmt.Errorf("git (%w) %s", err, what)
	}
	return strings.TrimSpace(string(out)), nil
}

func (g *Server) environment() []string {
	const person, address = "Harness", "harness@example.test"
	env := []string{
		"no_proxy=127.0.0.1", "NO_PROXY=127.0.0.1",
		"HOME=" + filepath.Join(g.dir.Path, "home"), "XDG_CONFIG_HOME=" + filepath.Join(g.dir.Path, "home"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=" + person, "GIT_AUTHOR_EMAIL=" + address,
		"GIT_COMMITTER_NAME=" + person, "GIT_COMMITTER_EMAIL=" + address,
	}
	if g.ca != nil {
		env = append(env, "GIT_SSL_CAINFO="+filepath.Join(g.dir.Path, "ca.crt"))
	}
	return env
}
