package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The carriers of a session.
const (
	CarrierTLS       = "tls"       // the link's TLS straight on TCP
	CarrierWebSocket = "websocket" // the link's TLS inside a WebSocket, inside the TLS of any proxy
)

const (
	webProtocol = "http/1.1"      // offered beside the lane's own protocol
	secondTry   = 5 * time.Second // for the handshake that offers only HTTP
	forgetAfter = 3               // failures after which the remembered carrier is dropped
)

// A ProxyConfig describes the proxies between an agent and its hub. They are
// not trusted: the hub proves its key inside the connection, and no secret is
// sent before that.
type ProxyConfig struct {
	// Proxy returns the HTTP proxy for a hub; nil: there is none.
	Proxy *Proxy
	// Roots are the authorities that may sign a TLS connection which is not the
	// hub's own, such as that of a load balancer or of a TLS-inspecting proxy.
	// Nil: any.
	Roots *x509.CertPool
}

// A Step is one part of a dial that has ended, for diagnosis.
type Step struct {
	Name   string // one of the Step constants
	Detail string // what was found; without secrets
	Err    error  // nil: it succeeded
}

// The steps of a dial, in order. Those of an unused carrier are omitted.
const (
	StepConnect = "connection"
	StepProxy   = "proxy"
	StepTLS     = "outer TLS"
	StepCarrier = "carrier"
	StepLink    = "link TLS"
)

func (c DialConfig) step(name, detail string, err error) {
	if c.Trace != nil {
		c.Trace(Step{Name: name, Detail: detail, Err: err})
	}
}

// ProxyMemory remembers by address whether the network closes handshakes that
// offer more than HTTP. The zero value is empty. It may be used by several
// goroutines.
type ProxyMemory struct {
	mu    sync.Mutex
	hosts map[string]int // address → failures since it was remembered; no entry: none is remembered
}

// webOnly reports whether only HTTP should be offered.
func (l *ProxyMemory) webOnly(address string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.hosts[address]
	return ok
}

// remember records that offering only HTTP works, or may work.
func (l *ProxyMemory) remember(address string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts == nil {
		l.hosts = map[string]int{}
	}
	l.hosts[address] = 0
}

// failed counts a dial with the remembered carrier that failed.
func (l *ProxyMemory) failed(address string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n, ok := l.hosts[address]
	if ok && n+1 >= forgetAfter {
		delete(l.hosts, address)
	} else if ok {
		l.hosts[address] = n + 1
	}
}

// dialCarrier makes one handshake that offers both carriers, and uses the
// negotiated one. If the network closes or refuses that handshake, a second one
// offers only HTTP.
func dialCarrier(ctx context.Context, address string, cfg DialConfig) (*tls.Conn, string, error) {
	if cfg.Memory.webOnly(address) {
		conn, carrier, err := reach(ctx, address, cfg, true)
		if err != nil {
			cfg.Memory.failed(address)
		} else {
			cfg.Memory.remember(address)
		}
		return conn, carrier, err
	}
	conn, carrier, err := reach(ctx, address, cfg, false)
	var cut errHandshake
	if err == nil || !errors.As(err, &cut) || ctx.Err() != nil {
		if errors.As(err, &cut) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cfg.Memory.remember(address) // no time is left; the next dial tries the other carrier
		}
		return conn, carrier, unmark(err)
	}
	limited, cancel := context.WithTimeout(ctx, secondTry)
	defer cancel()
	conn, carrier, second := reach(limited, address, cfg, true)
	if second != nil {
		return nil, "", unmark(better(err, second))
	}
	cfg.Memory.remember(address)
	return conn, carrier, nil
}

// errHandshake marks a failure of the first handshake: another offer may
// succeed.
type errHandshake struct{ error }

func (e errHandshake) Unwrap() error { return e.error }

func unmark(err error) error {
	var h errHandshake
	if errors.As(err, &h) {
		return h.error
	}
	return err
}

// better returns the more informative error: that of the second attempt if it
// passed the handshake.
func better(first, second error) error {
	var h errHandshake
	var key *fault.Error
	if errors.As(first, &key) && key.Kind == fault.Unknown || errors.As(second, &h) {
		return first
	}
	return second
}

// reach makes one connection and returns it after the link's handshake.
func reach(ctx context.Context, address string, cfg DialConfig, webOnly bool) (*tls.Conn, string, error) {
	raw, err := connect(ctx, address, cfg)
	if err != nil {
		return nil, "", err
	}
	tuneSocket(raw)
	conn, carrier, err := handshake(ctx, raw, address, cfg, webOnly)
	if err != nil {
		_ = raw.Close()
		return nil, "", err
	}
	return conn, carrier, nil
}

func handshake(ctx context.Context, raw net.Conn, address string, cfg DialConfig, webOnly bool) (*tls.Conn, string, error) {
	host, _, _ := net.SplitHostPort(address)
	proxy := tls.Client(raw, proxyTLS(host, cfg, webOnly))
	if err := proxy.HandshakeContext(ctx); err != nil {
		err = handshakeFault(err)
		cfg.step(StepTLS, "", err)
		return nil, "", errHandshake{err}
	}
	state := proxy.ConnectionState()
	if state.NegotiatedProtocol == cfg.Lane.Protocol {
		cfg.step(StepCarrier, "the hub answers itself, no WebSocket is needed", nil)
		cfg.step(StepLink, "TLS 1.3, the hub proved its key", nil)
		return proxy, CarrierTLS, nil
	}
	cfg.step(StepTLS, describeProxy(state, cfg.Pins), nil)
	ws, err := upgrade(ctx, proxy, address)
	if err != nil {
		cfg.step(StepCarrier, "", err)
		return nil, "", err
	}
	cfg.step(StepCarrier, "WebSocket", nil)
	inner := tls.Client(ws, linkTLS(host, cfg))
	if err := inner.HandshakeContext(ctx); err != nil {
		err = handshakeFault(err)
		cfg.step(StepLink, "", err)
		return nil, "", err
	}
	cfg.step(StepLink, "TLS 1.3, the hub proved its key", nil)
	return inner, CarrierWebSocket, nil
}

// proxyTLS offers both carriers at once. If the other side selects the lane's
// own protocol, this is the link's handshake and must meet all its rules.
// Otherwise it is the handshake of an HTTP server, which learns nothing about
// the agent.
func proxyTLS(host string, cfg DialConfig, webOnly bool) *tls.Config {
	var direct bool
	c := linkTLS(host, cfg)
	c.MinVersion = tls.VersionTLS12
	c.NextProtos = []string{cfg.Lane.Protocol, webProtocol}
	if webOnly {
		c.NextProtos = []string{webProtocol}
	}
	// The peer's certificate is verified before ours is asked for.
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if cs.NegotiatedProtocol != cfg.Lane.Protocol {
			return verifyProxy(cs, host, cfg)
		}
		if cs.Version < tls.VersionTLS13 {
			return fault.New(fault.Offline, "the TLS handshake of the link came down to a version before 1.3")
		}
		if err := verifyHub(cs, cfg.Pins, cfg.Lane.Protocol); err != nil {
			return err
		}
		direct = true
		return nil
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if !direct || cfg.Certificate == nil {
			return &tls.Certificate{}, nil
		}
		return cfg.Certificate, nil
	}
	return c
}

// verifyProxy verifies the certificate of a server that is not the hub itself,
// if the operator has configured authorities.
func verifyProxy(cs tls.ConnectionState, host string, cfg DialConfig) error {
	if cfg.Proxy.Roots == nil || pinned(cs, cfg.Pins) {
		return nil
	}
	if len(cs.PeerCertificates) == 0 {
		return errProxy(host, errors.New("no certificate"))
	}
	between := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: cfg.Proxy.Roots, Intermediates: between, DNSName: host, CurrentTime: cfg.Clock.Now(),
	})
	if err != nil {
		return errProxy(host, err)
	}
	return nil
}

func errProxy(host string, err error) error {
	return &fault.Error{
		Kind:  fault.Offline,
		Cause: "the certificate in front of the hub is not one that the configured authorities vouch for as " + host,
		Fix:   "add the authority of the load balancer or of the TLS-inspecting proxy to the outer CA file",
		Err:   err,
	}
}

// describeProxy says who terminates the outer TLS.
func describeProxy(cs tls.ConnectionState, pins []Pin) string {
	who := "a server without a certificate"
	switch {
	case pinned(cs, pins):
		who = "the hub itself"
	case len(cs.PeerCertificates) > 0:
		who = "a load balancer or proxy, certificate issued by " + clip(strings.ToValidUTF8(cs.PeerCertificates[0].Issuer.String(), "\uFFFD"))
	}
	return tls.VersionName(cs.Version) + " with " + who
}

// connectFault says in a sentence why there is no connection.
func connectFault(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fault.Wrap(fault.Offline, err, "its name cannot be resolved")
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Offline, err, "it does not answer; a firewall may drop the connection")
	}
	return fault.Wrap(fault.Offline, err, "it cannot be connected to: %s", unreachable(err))
}

// unreachable names the system's cause of a failed connection.
func unreachable(err error) string {
	var number syscall.Errno
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused, nothing listens there or a firewall rejects it"
	case errors.As(err, &number):
		return number.Error()
	}
	return "the network returns no cause"
}

// handshakeFault says in a sentence why there is no handshake.
func handshakeFault(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	var alert tls.AlertError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		return fault.Wrap(fault.Offline, err, "it does not speak TLS")
	case errors.As(err, &alert):
		return fault.Wrap(fault.Offline, err, "it refused the TLS handshake; it may not be a hub, or a proxy stands between")
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Offline, err, "the TLS handshake got no answer")
	case slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}, func(e error) bool { return errors.Is(err, e) }):
		return fault.Wrap(fault.Offline, err, "the connection was cut during the TLS handshake")
	}
	return fault.Wrap(fault.Offline, err, "the TLS handshake failed")
}
