package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A remote is the connection to one repository. It stays open between
// exchanges, which saves a handshake per push.
type remote struct {
	trust    trust
	http     *http.Transport
	git      transport.Transport
	dialer   guard.ContextDialer
	hostKeys hostKeysFunc
}

// A trust is how the two ends of a connection reach and authenticate each other.
// Certificates and keys are PEM.
type trust struct {
	insecure    bool   // any server is accepted
	authorities string // of the server's certificate; empty: the hub's own
	cert, key   string // presented on request; empty: none
	// proxy is the URL of the proxy, empty: none; noProxy the hosts without it.
	proxy, noProxy string
}

// tls is the same as configuration of a TLS client.
func (t trust) tls(cfg Config) (*tls.Config, error) {
	out := &tls.Config{RootCAs: cfg.RootCAs, InsecureSkipVerify: t.insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // set by the user, per repository, and visible
	if t.authorities != "" {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM([]byte(t.authorities)) {
			return nil, fault.With(fault.New(fault.Invalid, "what "+hub.CertificatesMap+" holds for its host is no certificate"), "", "set it to certificates in PEM, or remove the key")
		}
	}
	if t.cert+t.key != "" {
		pair, err := hub.ClientCertificate(t.cert, t.key)
		if err != nil {
			return nil, err
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// newRemote makes the remote of one repository, with connections of its own. It
// shares no credential and no TLS setting with another repository.
func newRemote(cfg Config, t trust, hostKeys hostKeysFunc) (*remote, error) {
	secured, err := t.tls(cfg)
	if err != nil {
		return nil, err
	}
	dialer, err := cfg.ways().Via(t.proxy, t.noProxy)
	if err != nil {
		return nil, err
	}
	r := &remote{trust: t, hostKeys: hostKeys, dialer: dialer}
	r.http = guard.TransportOver(dialer, nil)
	r.http.TLSClientConfig = secured
	r.git = githttp.NewClient(&http.Client{Transport: watched{r.http}})
	return r, nil
}

// session starts one conversation about a repository. The spelling is the
// suffix of the path that the server needs, or, over SSH, the form of the path.
func (r *remote) session(repo hub.Repository, spelling string, cred hub.Credential) (session, error) {
	u, err := url.Parse(repo.URL)
	if err != nil || u.Host == "" {
		return nil, fault.With(fault.New(fault.Invalid, "the repository URL cannot be parsed"), "", "write it like https://git.example.com/team/repository.git")
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
	case "ssh":
		target, err := sshTargetOf(u, spelling, repo, cred)
		if err != nil {
			return nil, err
		}
		return &sshSession{remote: r, target: target}, nil
	default:
		return nil, fault.With(fault.New(fault.Invalid, "repositories with the scheme %q are not supported", u.Scheme), "", "use the repository's https:// URL")
	}
	if cred.SSHPrivateKey != "" && cred.Password == "" && cred.BearerToken == "" && cred.TLSClientCert == "" {
		return nil, fault.With(fault.New(fault.Invalid, "an SSH key opens no repository over HTTP"), "", "use the repository's SSH URL, or set a user name and a token")
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port, _ := strconv.Atoi(u.Port()) // 0: the scheme's own
	s, err := r.git.NewUploadPackSession(&transport.Endpoint{
		Protocol: strings.ToLower(u.Scheme), Host: host, Port: port, Path: u.EscapedPath() + spelling,
	}, auth(cred))
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

// auth is how a credential is shown. A lone password is a token; hosts accept
// any user name with a token, and GitHub documents this one.
func auth(cred hub.Credential) transport.AuthMethod {
	switch {
	case cred.BearerToken != "":
		return &githttp.TokenAuth{Token: cred.BearerToken}
	case cred.Username != "":
		return &githttp.BasicAuth{Username: cred.Username, Password: cred.Password}
	case cred.Password != "":
		return &githttp.BasicAuth{Username: "x-access-token", Password: cred.Password}
	}
	return nil
}

// An exchange is what is known of one request that go-git makes: how much may
// come back, and what really went wrong, which go-git's own errors lose.
type exchange struct {
	limit int64

	mu         sync.Mutex
	status     int
	retryAfter time.Duration // that the last answer asks for
	err        error
}

type exchangeKey struct{}

// begin binds a new exchange to a context.
func begin(ctx context.Context, limit int64) (context.Context, *exchange) {
	x := &exchange{limit: limit}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// exchangeOf is the exchange that a context is bound to. Without one, nothing
// may be read.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

// setError stores the first error.
func (x *exchange) setError(err error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil && !errors.Is(err, io.EOF) {
		x.err = err
	}
	return err
}

// wrong returns the first thing that went wrong, if anything did, and the status
// of the last answer.
func (x *exchange) wrong() (status int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status, x.err
}

// errNotGit means that a web server answered that does not speak Git.
var errNotGit = errors.New("the answer is not one of a Git server")

// watched is an HTTP transport under the rules of an exchange: answers are
// limited after decompression, and a web page does not count as a listing. The
// text of an error is never read, because servers repeat what they were sent.
type watched struct{ next *http.Transport }

func (w watched) RoundTrip(req *http.Request) (*http.Response, error) {
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if x == nil {
		return nil, errors.New("request outside an exchange")
	}
	res, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, x.setError(err)
	}
	x.mu.Lock()
	x.status = res.StatusCode
	x.mu.Unlock()
	x.asks(res)
	switch {
	case res.StatusCode >= 300:
		drain(res.Body)
		res.Body, res.ContentLength = http.NoBody, 0
	case req.Method == http.MethodGet && !isListing(res.Header.Get("Content-Type")):
		drain(res.Body)
		return nil, x.setError(errNotGit)
	default:
		res.Body = &limitedBody{body: res.Body, left: x.limit, x: x}
	}
	return res, nil
}

// drain reads a little of an unused body, so that its connection
// can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 4096))
	_ = body.Close() // nothing was written
}

func isListing(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/x-git-upload-pack-advertisement")
}

// limitedBody ends with a packstore.LimitError where the server goes on too long.
type limitedBody struct {
	body io.ReadCloser
	left int64
	x    *exchange
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.x.setError(packstore.LimitError{What: "the answer has too many bytes", Limit: b.x.limit})
	}
	if err != nil {
		return n, b.x.setError(err)
	}
	return n, nil
}

// Close reads the rest, if there is little of it, so that the connection can be
// reused.
func (b *limitedBody) Close() error {
	_, _ = io.Copy(io.Discard, io.LimitReader(b.body, 4096))
	if err := b.body.Close(); err != nil {
		return fmt.Errorf("close answer: %w", err)
	}
	return nil
}

// timedOut reports whether an error is a deadline that passed.
func timedOut(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
