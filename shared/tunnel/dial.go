package tunnel

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// A Dialer opens the TCP connection, to the hub or to the proxy in front of it.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// DialConfig is how an agent reaches a hub.
type DialConfig struct {
	Lane Lane
	// Pins are the keys of which the hub must prove one. Names and authorities
	// of its certificate are ignored.
	Pins []Pin
	// Certificate is the agent's; nil only to enrol.
	Certificate *tls.Certificate
	// Proxy describes the proxies between agent and hub; the zero value: none.
	Proxy ProxyConfig
	// Memory remembers between dials which carrier works; nil: nothing is.
	Memory *ProxyMemory
	// Dial opens connections; nil: TCP.
	Dial Dialer
	// Timeout bounds connection and handshake; zero: 15 s.
	Timeout time.Duration
	// Trace receives each step as it ends; nil: none.
	Trace func(Step)
	Log   *slog.Logger
	Clock lifecycle.Clock
}

// Dial opens a session to the hub at host:port, over a carrier that the network
// permits. Errors say in a sentence at which step it failed: the name, the
// connection, the proxy, the handshake, the upgrade, the key.
func Dial(ctx context.Context, address string, cfg DialConfig) (*Session, error) {
	timeout := cfg.Timeout
	if timeout == 0 {
		timeout = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, carrier, err := dialCarrier(ctx, address, cfg)
	if err != nil {
		return nil, fault.With(err, "hub at "+address, "")
	}
	s, err := NewSession(conn, SessionConfig{
		Lane: cfg.Lane, Dialled: true, Carrier: carrier, Log: cfg.Log, Clock: cfg.Clock,
		// The other side is the hub, not an agent: its calls need no peer.
		Refusal: fault.New(fault.Unknown, "the other side is the hub"),
	})
	if err != nil {
		_ = conn.NetConn().Close()
		return nil, err
	}
	return s, nil
}

// linkTLS is the link's own handshake: TLS 1.3, both sides with their keys.
func linkTLS(host string, cfg DialConfig) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{cfg.Lane.Protocol},
		ServerName: host,
		// The pinned key is the only proof, checked below at every handshake. A
		// publicly trusted certificate is not enough.
		InsecureSkipVerify: true, //nolint:gosec // replaced by VerifyConnection
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyHub(cs, cfg.Pins, cfg.Lane.Protocol)
		},
	}
	if cfg.Certificate != nil {
		// This certificate, whatever authorities the hub names.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cfg.Certificate, nil }
	}
	return c
}

func verifyHub(cs tls.ConnectionState, pins []Pin, protocol string) error {
	if !pinned(cs, pins) {
		return errWrongKey()
	}
	if cs.NegotiatedProtocol != protocol {
		return fault.New(fault.Offline, "the hub does not offer the link protocol %q; it may be older or newer than this agent", protocol)
	}
	return nil
}

// pinned reports whether the other side proved one of the keys.
func pinned(cs tls.ConnectionState, pins []Pin) bool {
	if len(cs.PeerCertificates) == 0 {
		return false
	}
	got := PinOf(cs.PeerCertificates[0])
	var known bool
	for _, p := range pins {
		known = known || subtle.ConstantTimeCompare(p[:], got[:]) == 1
	}
	return known
}

func errWrongKey() error {
	return &fault.Error{
		Kind:  fault.Unknown,
		Cause: "the key it proved is not the hub's: something between intercepts TLS, the address belongs to another server, or the hub has a new key",
		Fix:   "let TLS to the hub pass unmodified; if the hub was reinstalled, create a new join token",
	}
}
