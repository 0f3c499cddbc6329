package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/capstan-cd/capstan/shared/fault"
)

// mostAnswer limits the response of a proxy before the tunnel begins, in bytes.
const mostAnswer = 16 << 10

// A Proxy decides which hubs are reached through an HTTP proxy, by the rules of
// HTTPS_PROXY and NO_PROXY. Its address may contain a password, so no formatter
// prints it.
type Proxy struct {
	of func(*url.URL) (*url.URL, error)
}

// NewProxy reads values as in HTTPS_PROXY and NO_PROXY. Without a proxy it
// returns nil. Errors do not repeat the address.
func NewProxy(httpsProxy, noProxy string) (*Proxy, error) {
	if strings.TrimSpace(httpsProxy) == "" {
		return nil, nil
	}
	text := strings.TrimSpace(httpsProxy)
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fault.With(fault.New(fault.Invalid, "the address of the HTTP proxy is not a URL of the form http://host:port or https://host:port"),
			"", "correct HTTPS_PROXY or --https-proxy")
	}
	c := httpproxy.Config{HTTPSProxy: text, NoProxy: noProxy}
	return &Proxy{of: c.ProxyFunc()}, nil
}

// String hides the address, which may contain a password.
func (*Proxy) String() string { return "(HTTP proxy)" }

// For returns the proxy for host:port; nil: there is none.
func (p *Proxy) For(address string) *url.URL {
	if p == nil {
		return nil
	}
	u, err := p.of(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil // NewProxy has checked the values
	}
	return u
}

// addressOf is the proxy's own host:port.
func addressOf(proxy *url.URL) string {
	if proxy.Port() != "" {
		return proxy.Host
	}
	if proxy.Scheme == "https" {
		return net.JoinHostPort(proxy.Hostname(), "443")
	}
	return net.JoinHostPort(proxy.Hostname(), "80")
}

// connect opens the connection to the hub, through the proxy if there is one.
func connect(ctx context.Context, address string, cfg DialConfig) (net.Conn, error) {
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	proxy := cfg.Proxy.Proxy.For(address)
	if proxy == nil {
		raw, err := dial(ctx, "tcp", address)
		if err != nil {
			err = connectFault(err)
			cfg.step(StepConnect, "", err)
			return nil, err
		}
		cfg.step(StepConnect, "connected to "+raw.RemoteAddr().String(), nil)
		return raw, nil
	}
	conn, err := connectProxy(ctx, proxy, address, dial, cfg)
	object := "proxy " + addressOf(proxy)
	if err != nil {
		err = fault.With(err, object, "")
		cfg.step(StepProxy, "", err)
		return nil, err
	}
	cfg.step(StepProxy, object+" opened the way to "+address, nil)
	return conn, nil
}

func connectProxy(ctx context.Context, proxy *url.URL, address string, dial Dialer, cfg DialConfig) (net.Conn, error) {
	raw, err := dial(ctx, "tcp", addressOf(proxy))
	if err != nil {
		return nil, connectFault(err)
	}
	conn := raw
	if proxy.Scheme == "https" {
		t := tls.Client(raw, &tls.Config{
			MinVersion: tls.VersionTLS12, ServerName: proxy.Hostname(), RootCAs: cfg.Proxy.Roots, NextProtos: []string{webProtocol},
		})
		if err := t.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fault.With(fault.Wrap(fault.Offline, err, "the TLS handshake with the proxy itself failed; its certificate may be unknown"),
				"", "add the proxy's authority to the outer CA file, or reach the proxy by http://")
		}
		conn = t
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	through, err := connectThrough(conn, proxy, address)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			return nil, connectFault(ctx.Err())
		}
		return nil, err
	}
	return through, nil
}

// connectThrough sends CONNECT and reads the response.
func connectThrough(conn net.Conn, proxy *url.URL, address string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{"User-Agent": {"capstan-agent"}}}
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return nil, fault.Wrap(fault.Offline, err, "the connection to the proxy was cut")
	}
	limited := &limitedConn{Conn: conn, left: mostAnswer}
	r := bufio.NewReaderSize(limited, smallBuffer)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fault.Wrap(fault.Offline, err, "the server there is not an HTTP proxy, or it closed the connection")
	}
	// The body of a refusal is not read: the connection ends with it.
	if res.StatusCode/100 == 2 {
		limited.left = -1
		return &buffered{Conn: conn, r: r}, nil
	}
	return nil, refusal(res.StatusCode, address, proxy.User != nil)
}

func refusal(status int, address string, credentials bool) error {
	if status != http.StatusProxyAuthRequired {
		return fault.With(fault.New(fault.Offline, "the proxy refuses to connect to %s: %s", address, statusText(status)),
			"", "let the proxy allow CONNECT to the hub, or name the hub in NO_PROXY")
	}
	if credentials {
		return fault.With(fault.New(fault.Offline, "the proxy does not accept the user name and password that it was given (407)"), "", "correct them in HTTPS_PROXY")
	}
	return fault.With(fault.New(fault.Offline, "the proxy requires a user name and a password (407)"), "", "write HTTPS_PROXY as http://user:password@host:port")
}

func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// limitedConn returns an error once too much was read.
type limitedConn struct {
	net.Conn
	left int // -1: no limit
}

func (c *limitedConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, fault.New(fault.Exceeded, "the answer is longer than %d bytes", mostAnswer)
	}
	if c.left > 0 {
		b = b[:min(len(b), c.left)]
	}
	n, err := c.Conn.Read(b)
	if c.left > 0 {
		c.left -= n
	}
	return n, err
}

// buffered first reads what followed the proxy's response.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (c *buffered) Read(b []byte) (int, error) {
	if c.r.Buffered() == 0 {
		return c.Conn.Read(b)
	}
	return c.r.Read(b)
}
