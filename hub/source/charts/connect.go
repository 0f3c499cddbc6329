package charts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

const maxRedirects = 10

// A Connection reaches one repository. Its credential goes to the repository's
// own host and to no other, unless Access says so.
type Connection struct {
	cfg     *Config
	http    *http.Client
	access  Access
	address string
	host    string
	own     *http.Transport // made for this repository; nil: the shared one
	pause   atomic.Int64    // how long the server asked to wait with its last answer, as a time.Duration
}

// Close releases the connection.
func (c *Connection) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Open prepares a connection to the repository with a normalised address, and
// contacts nobody yet.
func (c *Client) Open(address string, access Access) (*Connection, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address %q cannot be parsed", repourl.Redact(address))
	}
	conn := &Connection{cfg: &c.cfg, access: access, address: address, host: u.Host}
	transport := c.transport
	if access.Insecure || access.Authorities != "" || access.Credential.TLSClientCert != "" || access.Credential.Proxy != "" {
		if conn.own, err = c.ownTransport(access); err != nil {
			return nil, fault.With(err, address, "")
		}
		transport = conn.own
	}
	conn.http = &http.Client{Transport: secure{transport, conn, u.Scheme == "https" || u.Scheme == "oci" && !access.PlainHTTP}, CheckRedirect: redirect}
	return conn, nil
}

func (c *Client) ownTransport(access Access) (*http.Transport, error) {
	t := c.transport.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: access.Insecure} //nolint:gosec // the tenant has set it, for this repository
	if cred := access.Credential; cred.Proxy != "" {
		dialer, err := guard.Ways{Allowed: c.cfg.AllowedNetworks, Proxies: c.cfg.Proxies}.Via(cred.Proxy, cred.NoProxy)
		if err != nil {
			return nil, explain("the repository", err)
		}
		t.DialContext = dialer.DialContext
	}
	if access.Authorities != "" {
		pool := x509.NewCertPool() // only these count for the host, as for Git
		if !pool.AppendCertsFromPEM([]byte(access.Authorities)) {
			return nil, fault.With(fault.New(fault.Invalid, "the certificates that are stored for the host cannot be read"), "", "store them again as PEM")
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if cred := access.Credential; cred.TLSClientCert != "" {
		pair, err := tls.X509KeyPair([]byte(cred.TLSClientCert), []byte(cred.TLSClientKey))
		if err != nil {
			return nil, fault.With(fault.New(fault.Invalid, "the client certificate of the repository cannot be used"), "", "store certificate and key again as PEM")
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// secure refuses requests without TLS where the repository has it. A registry
// may name the server that issues tokens, and gets the password there.
type secure struct {
	http.RoundTripper
	conn *Connection
	only bool
}

func (s secure) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.only && req.URL.Scheme != "https" {
		return nil, fault.New(fault.Invalid, "its server leads from https to http")
	}
	res, err := s.RoundTripper.RoundTrip(req)
	if err == nil {
		s.conn.pause.Store(int64(guard.RetryAfter(res, s.conn.cfg.Now())))
	}
	return res, err
}

func redirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fault.New(fault.Invalid, "its server redirects more than %d times", maxRedirects)
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return fault.New(fault.Invalid, "its server redirects to an address that is neither http nor https")
	case via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https":
		return fault.New(fault.Invalid, "its server redirects from https to http")
	}
	req.Header.Del("Referer") // the address may hold a secret
	if !sameServer(via[0].URL, req.URL) {
		req.Header.Del("Authorization") // net/http keeps it for other ports and for names below the first one
	}
	return nil
}

// sameServer reports whether two addresses are of one server. One that leads
// from http to https on the same host is.
func sameServer(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if u.Port() == "80" && u.Scheme == "http" || u.Port() == "443" && u.Scheme == "https" {
			return ""
		}
		return u.Port()
	}
	return strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// authorize adds the credential to a request to the repository's own host, or
// to another one over TLS that its index names if the application wants it.
func (c *Connection) authorize(req *http.Request, anywhere bool) {
	cred := c.access.Credential
	switch {
	case req.URL.Host != c.host && (!anywhere || req.URL.Scheme != "https"):
	case cred.BearerToken != "":
		req.Header.Set("Authorization", "Bearer "+cred.BearerToken)
	case cred.Username != "" || cred.Password != "":
		req.SetBasicAuth(cred.Username, cred.Password)
	}
}

// explain returns why something of a repository could not be read. It repeats
// no text of the network's own errors: they hold the address as it was sent.
func explain(what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", what, context.Canceled)
	}
	const again = "it is retried automatically"
	var refused *fault.Error
	var timeout net.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &refused):
		return fault.With(fault.New(refused.Kind, "%s cannot be read: %s", what, refused.Cause), "", refused.Fix)
	case errors.Is(err, guard.ErrProxyDenied), errors.Is(err, guard.ErrProxyLogin), errors.Is(err, guard.ErrProxy):
		return fault.With(fault.New(fault.Invalid, "%s cannot be read through its proxy: the proxy is not permitted, or refuses", what), "",
			"correct proxy and noProxy of the repository, or let the operator add the proxy to sources.proxies")
	case source.Blocked(err):
		return fault.With(fault.New(fault.Invalid, "%s cannot be read: the address leads into an internal network", what), "",
			"use a public address, or let the operator add the network to sources.allowPrivate")
	case errors.As(err, &dns) && dns.IsNotFound:
		return fault.With(fault.New(fault.Offline, "%s cannot be read: the host cannot be found", what), "", "check the host name in the address")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fault.With(fault.New(fault.Offline, "%s cannot be read: the server did not answer in time", what), "", again)
	case untrusted(err):
		return fault.With(fault.New(fault.Offline, "%s cannot be read: the certificate of the server is not trusted", what), "",
			"store its authority with `capstan cert add-tls`, or use a certificate of the server that the hub trusts")
	}
	return fault.With(fault.New(fault.Offline, "%s cannot be read: the server cannot be reached", what), "", again)
}

func untrusted(err error) bool {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid)
}

// answered is the error of a status, with the wait that the server asks for.
func (c *Connection) answered(what string, status int) error {
	err := answered(what, status)
	wait := time.Duration(c.pause.Load())
	e, ok := fault.As(err)
	if !ok || wait == 0 {
		return err
	}
	out := *e
	out.Kind, out.Fix, out.RetryAfter = fault.Offline, "it is retried automatically, once the time is over that the server asks for", wait
	return &out
}

// answered explains a status that is not the one that was hoped for.
func answered(what string, status int) error {
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		return fault.With(fault.New(fault.Invalid, "%s does not exist (status %d)", what, status), "", "correct the address, the chart's name or its version")
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.With(fault.Wrap(fault.Invalid, ErrRefused, "the server refuses %s (status %d)", what, status), "", "register the repository with a user name and password that may read it")
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return fault.With(fault.New(fault.Offline, "the server answers with status %d for %s", status, what), "", "it is retried automatically")
	}
	return fault.With(fault.New(fault.Invalid, "the server answers with status %d for %s", status, what), "", "correct the address of the repository")
}
