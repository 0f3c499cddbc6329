package guard

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// A Proxy is an HTTP proxy that the operator permits repositories to use. It may
// be at an internal address.
type Proxy struct {
	URL string // http or https, with its port, without a user name
	// ByName hands the proxy names of hosts, so that its own filter decides. The
	// operator vouches that it refuses internal addresses. Otherwise the hub
	// looks names up, checks the addresses, and hands over an address.
	ByName bool
}

// Ways are what may be dialled, directly or through proxies. Its zero value
// permits public addresses, and no proxy.
type Ways struct {
	Allowed []netip.Prefix // internal networks that may be dialled nevertheless
	Proxies []Proxy
	RootCAs *x509.CertPool // authorities of proxies over HTTPS; nil: the system's
	// Lookup finds the addresses of a host that is reached through a proxy; nil:
	// the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// A ContextDialer opens connections.
type ContextDialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// ErrProxy means that a proxy does not do what it is asked for. Its text has no
// user name or password.
var ErrProxy = errors.New("the proxy does not connect to the server")

// ErrProxyDenied means that the operator does not permit a proxy.
var ErrProxyDenied = errors.New("the operator of the hub does not permit this proxy")

// ErrProxyLogin means that a proxy asks for another user name or password.
var ErrProxyLogin = errors.New("the proxy refuses the user name and password")

// Via returns a dialer that goes through a proxy, except to the hosts of
// noProxy. Without a proxy it is that of Dialer. The proxy's URL may have a user
// name and password.
func (w Ways) Via(proxy, noProxy string) (ContextDialer, error) {
	direct := Dialer(w.Allowed)
	if proxy == "" {
		return direct, nil
	}
	u, err := url.Parse(proxy)
	if err != nil || u.Host == "" {
		return nil, ErrProxyDenied
	}
	i := slices.IndexFunc(w.Proxies, func(p Proxy) bool { return sameProxy(p.URL, u) })
	if i < 0 {
		return nil, ErrProxyDenied
	}
	bypass := httpproxy.Config{HTTPSProxy: "http://proxy.invalid", NoProxy: noProxy}
	return &proxied{ways: w, proxy: w.Proxies[i], url: u, direct: direct, choose: bypass.ProxyFunc()}, nil
}

// sameProxy reports whether a permitted URL is that of a proxy.
func sameProxy(permitted string, u *url.URL) bool {
	p, err := url.Parse(permitted)
	return err == nil && p.Scheme == u.Scheme && strings.EqualFold(p.Hostname(), u.Hostname()) && proxyPort(p) == proxyPort(u)
}

func proxyPort(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// proxied dials through a proxy with the method CONNECT.
type proxied struct {
	ways   Ways
	proxy  Proxy
	url    *url.URL
	direct *net.Dialer
	choose func(*url.URL) (*url.URL, error)
}

// DialContext opens a connection to an address, which the guard permits, through
// the proxy.
func (p *proxied) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	if p.bypassed(host, port) {
		return p.direct.DialContext(ctx, network, address)
	}
	target, err := p.target(ctx, host, port)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProxy, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends what the proxy delays
	through, err := p.tunnel(conn, target)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the first error counts
		return nil, err
	}
	return through, nil
}

// bypassed reports whether a host is one of noProxy. The rule of the library
// that loopback addresses need no proxy does not count here: the guard has its
// own.
func (p *proxied) bypassed(host, port string) bool {
	via, err := p.choose(&url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)})
	if err != nil {
		return false
	}
	if addr, err := netip.ParseAddr(host); via == nil && err == nil && addr.IsLoopback() {
		return false
	}
	return via == nil && !strings.EqualFold(host, "localhost")
}

// target is what the proxy is asked to connect to.
func (p *proxied) target(ctx context.Context, host, port string) (string, error) {
	g := guard{p.ways.Allowed}
	if addr, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(addr.String(), port), g.check(net.JoinHostPort(addr.String(), port))
	}
	addrs, err := p.lookup(ctx, host)
	if err != nil && p.proxy.ByName {
		return net.JoinHostPort(host, port), nil // only the proxy knows the name
	}
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if err := g.check(net.JoinHostPort(a.String(), port)); err != nil {
			return "", err
		}
	}
	if p.proxy.ByName {
		return net.JoinHostPort(host, port), nil
	}
	return net.JoinHostPort(addrs[0].Unmap().String(), port), nil
}

func (p *proxied) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	find := p.ways.Lookup
	if find == nil {
		find = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	addrs, err := find(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addrs, err
}

// connect opens the connection to the proxy, which the operator permits wherever
// it is.
func (p *proxied) connect(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(p.url.Hostname(), proxyPort(p.url)))
	if err != nil || p.url.Scheme != "https" {
		return conn, err
	}
	secured := tls.Client(conn, &tls.Config{RootCAs: p.ways.RootCAs, ServerName: p.url.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error counts
		return nil, err
	}
	return secured, nil
}

// maxProxyAnswer bounds what a proxy may say before the connection is open.
const maxProxyAnswer = 16 << 10

// tunnel has the proxy connect to the target. Texts of the proxy stay out of
// errors.
func (p *proxied) tunnel(conn net.Conn, target string) (net.Conn, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: capstan\r\n", target, target)
	if user := p.url.User; user != nil {
		password, _ := user.Password()
		request.WriteString("Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n")
	}
	request.WriteString("\r\n")
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProxy, err)
	}
	limited := &io.LimitedReader{R: conn, N: maxProxyAnswer}
	from := bufio.NewReaderSize(limited, maxProxyAnswer)
	res, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("%w: its answer is not HTTP", ErrProxy)
	}
	_ = res.Body.Close() // an answer to CONNECT has none
	switch {
	case res.StatusCode == http.StatusProxyAuthRequired:
		return nil, ErrProxyLogin
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: it answers with status %d", ErrProxy, res.StatusCode)
	case from.Buffered() == 0:
		return conn, nil
	}
	rest, err := from.Peek(from.Buffered())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProxy, err)
	}
	return &begun{conn, strings.NewReader(string(rest))}, nil
}

// begun is a connection of which the first bytes have been read.
type begun struct {
	net.Conn
	first *strings.Reader
}

func (b *begun) Read(p []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(p)
	}
	return b.Conn.Read(p)
}

// ExplainProxy is a sentence about what went wrong with a proxy, and what to do
// about it; empty: the error is about something else.
func ExplainProxy(err error) (sentence, fix string) {
	switch {
	case errors.Is(err, ErrProxyDenied):
		return "the operator of the hub does not permit its proxy", "ask the operator to add the proxy to sources.proxies, or remove it from the repository"
	case errors.Is(err, ErrProxyLogin):
		return "its proxy refuses the user name and password", "set the proxy with another user name and password"
	case errors.Is(err, ErrProxy):
		return "its proxy does not connect to the server", "check that the proxy runs and may connect to the host"
	}
	return "", ""
}
