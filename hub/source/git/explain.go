package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A failure is one exchange that did not work, with what a sentence needs.
type failure struct {
	repo    hub.Repository
	cred    hub.Credential
	status  int           // of the last HTTP answer; 0: there was none
	timeout time.Duration // of the step that failed
	wait    time.Duration // that the server asks for; 0: none
	err     error
}

// explain turns a failure into the one sentence that the repository's owner
// reads. Texts of servers and libraries stay out of it and go to the log.
func (f failure) explain() error {
	if errors.Is(f.err, context.Canceled) {
		return f.err
	}
	err := waiting(f.classify(), f.wait)
	return fault.With(err, "repository "+repourl.Redact(f.repo.URL), "")
}

func (f failure) classify() error {
	f.err = inner(f.err)
	if _, ok := fault.As(f.err); ok {
		return f.err
	}
	for _, step := range []func() error{f.byLimit, f.bySSH, f.byNetwork, f.byTLS, f.byStatus, f.byContent, f.byDisk} {
		if err := step(); err != nil {
			return err
		}
	}
	if f.ours() {
		return fmt.Errorf("fetch %q: %w", repourl.Redact(f.repo.URL), f.err)
	}
	return f.garbage()
}

// ours reports whether an error that no step has explained is about the hub's own
// files or the end of the caller's context. What else goes wrong comes of what
// the server has sent.
func (f failure) ours() bool {
	var path *fs.PathError
	var link *os.LinkError
	var call syscall.Errno
	var bug runtime.Error
	return errors.As(f.err, &path) || errors.As(f.err, &link) || errors.As(f.err, &call) || errors.As(f.err, &bug) ||
		errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded)
}

// garbage is the error of an answer that violates the protocol.
func (f failure) garbage() error {
	host := "the Git server"
	if u, err := url.Parse(f.repo.URL); err == nil && u.Host != "" {
		host += " " + u.Host
	}
	return f.errorf(fault.Offline, "it is retried automatically; check the Git server and the proxies before it", "%s sent an answer that cannot be understood", host)
}

// inner removes the wrappers of go-git that hide what they wrap.
func inner(err error) error {
	for {
		var u *plumbing.UnexpectedError
		var p *plumbing.PermanentError
		switch {
		case errors.As(err, &u):
			err = u.Err
		case errors.As(err, &p):
			err = p.Err
		default:
			return err
		}
	}
}

func (f failure) errorf(kind fault.Kind, fix, format string, args ...any) error {
	return fault.With(fault.Wrap(kind, f.err, format, args...), "", fix)
}

func (f failure) byLimit() error {
	var limit packstore.LimitError
	if errors.As(f.err, &limit) {
		return f.errorf(fault.Exceeded, "make the repository smaller, or ask the operator of the hub for a higher limit", "%s (the limit is %d)", limit.What, limit.Limit)
	}
	return nil
}

func (f failure) byNetwork() error {
	var dns *net.DNSError
	if sentence, fix := guard.ExplainProxy(f.err); sentence != "" {
		kind := fault.Invalid
		if errors.Is(f.err, guard.ErrProxy) {
			kind = fault.Offline
		}
		return f.errorf(kind, fix, "%s", sentence)
	}
	switch {
	case guard.Blocked(f.err):
		return f.errorf(fault.Invalid, "use a public address, or ask the operator of the hub to allow this network", "its host is at a loopback, link-local or private address, which the hub does not connect to")
	case errors.As(f.err, &dns) && dns.IsNotFound:
		return f.errorf(fault.Offline, "check the host name in the repository URL", "its host name cannot be found")
	case errors.As(f.err, &dns):
		return f.errorf(fault.Offline, "it is retried automatically", "its host name cannot be looked up at the moment")
	case errors.Is(f.err, syscall.ECONNREFUSED):
		return f.errorf(fault.Offline, "check host and port in the repository URL, and that the Git server runs", "its host refuses the connection")
	case errors.Is(f.err, syscall.EHOSTUNREACH), errors.Is(f.err, syscall.ENETUNREACH):
		return f.errorf(fault.Offline, "check the network between the hub and the Git server", "its host cannot be reached")
	case timedOut(f.err):
		return f.errorf(fault.Offline, "it is retried automatically; check that the Git server answers in time", "it did not answer within %s", f.timeout)
	}
	return nil
}

func (f failure) byTLS() error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(f.err, &authority):
		return f.errorf(fault.Invalid, "store the authority's certificate for the host: capstan cert add-tls "+f.host()+" --from ca.crt", "its TLS certificate is signed by an authority that the hub does not know")
	case errors.As(f.err, &host):
		return f.errorf(fault.Invalid, "use the host name that the certificate was made for", "its TLS certificate is for another host name")
	case errors.As(f.err, &invalid) && invalid.Reason == x509.Expired:
		return f.errorf(fault.Invalid, "renew the certificate of the Git server", "its TLS certificate has expired or is not valid yet")
	case errors.As(f.err, &invalid):
		return f.errorf(fault.Invalid, "check the certificate of the Git server", "its TLS certificate is not valid")
	case errors.As(f.err, &record), strings.Contains(f.err.Error(), "server gave HTTP response to HTTPS client"):
		return f.errorf(fault.Invalid, "use http:// in the repository URL, or the port that speaks TLS", "its server does not speak TLS at this port")
	case errors.As(f.err, &alert):
		return f.errorf(fault.Invalid, "check the TLS settings of the Git server", "the TLS handshake with its server failed")
	}
	return nil
}

// host is the repository's, for a command that names it.
func (f failure) host() string {
	if u, err := url.Parse(f.repo.URL); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	return "HOST"
}

func (f failure) byStatus() error {
	known := f.cred.Username != "" || !f.cred.Empty()
	switch {
	case f.status == 401 && known, errors.Is(f.err, transport.ErrAuthenticationRequired) && known:
		return f.errorf(fault.Invalid, "correct the user name and the password or token of the repository", "the Git server does not accept the credentials")
	case f.status == 401, errors.Is(f.err, transport.ErrAuthenticationRequired):
		return f.errorf(fault.Invalid, "add a user name and a password or token to the repository, and check its URL", "the Git server asks for credentials and none are stored")
	case f.status == 429, f.status == 403 && f.wait > 0:
		return f.errorf(fault.Offline, "it is retried automatically, less often", "the Git server asks the hub to slow down")
	case f.status == 403:
		return f.errorf(fault.Invalid, "give the account or token the right to read the repository", "the Git server forbids access with these credentials")
	case f.status == 404:
		return f.errorf(fault.Missing, "check the path in the repository URL, and that the credentials may see the repository", "the Git server knows no such repository")
	case f.status >= 300 && f.status < 400:
		return f.errorf(fault.Invalid, "use the address that it redirects to as the repository URL", "the Git server redirects in a way that the hub does not follow")
	case f.status >= 500:
		return f.errorf(fault.Offline, "it is retried automatically; check the Git server", "the Git server answers with the error %d", f.status)
	case f.status >= 400:
		return f.errorf(fault.Invalid, "check the repository URL", "the Git server refuses the request with the status %d", f.status)
	}
	return nil
}

func (f failure) byContent() error {
	var data *packp.ErrUnexpectedData
	var op *net.OpError
	text := f.err.Error()
	switch {
	case errors.Is(f.err, errNotGit):
		return f.errorf(fault.Invalid, "check the repository URL: it should be the one that git clone takes", "its address answers, but not as a Git server")
	case errors.Is(f.err, transport.ErrEmptyRemoteRepository), errors.Is(f.err, packp.ErrEmptyAdvRefs):
		return errEmpty(f.err)
	case errors.Is(f.err, errIncomplete):
		return f.errorf(fault.Offline, "it is retried automatically; run git fsck on the Git server if this stays", "the Git server did not send everything that it lists")
	case strings.Contains(text, "http redirect"):
		return f.errorf(fault.Invalid, "use the address that it redirects to as the repository URL", "the Git server redirects in a way that the hub does not follow")
	case strings.Contains(text, "object-format=sha256"):
		return f.errorf(fault.Invalid, "use a repository with SHA-1 object names", "repositories with SHA-256 object names are not supported")
	case errors.As(f.err, &data), errors.Is(f.err, packfile.ErrMalformedPackFile), errors.Is(f.err, packstore.ErrDamaged), breaksProtocol(f.err):
		return f.garbage()
	case errors.As(f.err, &op), errors.Is(f.err, io.ErrUnexpectedEOF), errors.Is(f.err, io.EOF), errors.Is(f.err, syscall.ECONNRESET):
		return f.errorf(fault.Offline, "it is retried automatically", "the connection to the Git server broke off")
	}
	return nil
}

func (f failure) byDisk() error {
	switch {
	case errors.Is(f.err, syscall.ENOSPC), errors.Is(f.err, syscall.EDQUOT):
		return f.errorf(fault.Offline, "ask the operator of the hub for more room in its state directory", "the hub has no room left for the copy of the repository")
	case errors.Is(f.err, syscall.EROFS), errors.Is(f.err, syscall.EACCES):
		return f.errorf(fault.Offline, "ask the operator of the hub to check its state directory", "the hub cannot write its copy of the repository")
	}
	return nil
}

// errIncomplete means that a listed object did not come.
var errIncomplete = errors.New("the server did not send an object that it listed")

// errProtocol means that an answer violates the protocol.
var errProtocol = errors.New("the answer breaks the protocol")

// breaksProtocol reports whether a server sent what Git does not send.
func breaksProtocol(err error) bool {
	return errors.Is(err, errProtocol) || errors.Is(err, packstore.ErrMalformed)
}

func errEmpty(err error) error {
	return fault.With(fault.Wrap(fault.Invalid, err, "the repository is empty"), "", "push a first commit")
}
