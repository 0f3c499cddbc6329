package tunnel

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/run"
)

// A Dialer opens the connection below TLS. A carrier other than plain TCP,
// such as a WebSocket, is another Dialer.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// DialConfig is how an agent reaches a hub.
type DialConfig struct {
	Lane Lane
	// Pins are the keys of which the hub must prove one. Names and
	// authorities of its certificate mean nothing.
	Pins []Pin
	// Certificate is the agent's; nil only to enrol.
	Certificate *tls.Certificate
	// Dial opens the connection; nil: TCP.
	Dial Dialer
	// Timeout bounds connection and handshake; zero: 15 s.
	Timeout time.Duration
	Log     *slog.Logger
	Clock   run.Clock
}

// Dial opens a session to the hub at host:port. Errors say in a sentence
// how far it came: the name, the connection, the handshake, the key.
func Dial(ctx context.Context, address string, cfg DialConfig) (*Session, error) {
	timeout := cfg.Timeout
	if timeout == 0 {
		timeout = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	object := "hub at " + address

	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	raw, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, fault.With(connectFault(err), object, "")
	}
	tuneSocket(raw)
	host, _, _ := net.SplitHostPort(address)
	conn := tls.Client(raw, clientTLS(host, cfg))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fault.With(handshakeFault(err), object, "")
	}
	s, err := NewSession(conn, SessionConfig{
		Lane: cfg.Lane, Dialled: true, Log: cfg.Log, Clock: cfg.Clock,
		// The other side is the hub, which is no agent: calls that it makes
		// need no peer.
		Refusal: fault.New(fault.Unknown, "the other side is the hub"),
	})
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return s, nil
}

func clientTLS(host string, cfg DialConfig) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{cfg.Lane.Protocol},
		ServerName: host,
		// The pinned key is the whole proof, checked below on every
		// handshake: a certificate that the world trusts is not enough.
		InsecureSkipVerify: true, //nolint:gosec // replaced by VerifyConnection
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyHub(cs, cfg.Pins, cfg.Lane.Protocol)
		},
	}
	if cfg.Certificate != nil {
		// Always this one, whatever authorities the hub names.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cfg.Certificate, nil }
	}
	return c
}

func verifyHub(cs tls.ConnectionState, pins []Pin, protocol string) error {
	if len(cs.PeerCertificates) == 0 {
		return errWrongKey()
	}
	got := PinOf(cs.PeerCertificates[0])
	var known bool
	for _, p := range pins {
		known = known || subtle.ConstantTimeCompare(p[:], got[:]) == 1
	}
	if !known {
		return errWrongKey()
	}
	if cs.NegotiatedProtocol != protocol {
		return fault.New(fault.Offline, "the hub does not offer the link protocol %q; it may be older or newer than this agent", protocol)
	}
	return nil
}

func errWrongKey() error {
	return &fault.Error{
		Kind:  fault.Unknown,
		Cause: "the key it proved is not the hub's: something between intercepts TLS, the address belongs to another server, or the hub has a new key",
		Fix:   "let TLS to the hub pass untouched; if the hub was installed anew, create a new join token",
	}
}

// connectFault says in a sentence why there is no connection.
func connectFault(err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fault.Wrap(fault.Offline, err, "its name cannot be resolved")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(fault.Offline, err, "it does not answer; a firewall may drop the connection")
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("connect: %w", err)
	}
	return fault.Wrap(fault.Offline, err, "it cannot be connected to")
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
		return fmt.Errorf("handshake: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Offline, err, "the TLS handshake got no answer")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(fault.Offline, err, "the connection was cut during the TLS handshake")
	}
	return fault.Wrap(fault.Offline, err, "the TLS handshake went wrong")
}
