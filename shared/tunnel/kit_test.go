package tunnel_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestMain(m *testing.M) { runtest.Main(m) }

var errTestOver = errors.New("the test is over")

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// certificate makes a self-signed certificate with a new key.
func certificate(t testing.TB, uris ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(4711), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func serverTLS(c *tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*c}}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// background runs fn until the test ends, and waits for it.
func background(t testing.TB, fn func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("a part in the background: %v", err)
		}
	})
}

// port is a port that is shared, as a hub has it.
type port struct {
	*tunnel.Splitter
	cert *tls.Certificate
	addr string
}

func splitPort(t testing.TB, change func(*tunnel.SplitConfig)) port {
	t.Helper()
	cert := certificate(t)
	cfg := tunnel.SplitConfig{Link: serverTLS(cert), HTTP: serverTLS(cert), Log: quiet()}
	if change != nil {
		change(&cfg)
	}
	ln := listen(t)
	p := port{Splitter: tunnel.Split(ln, cfg), cert: cert, addr: ln.Addr().String()}
	background(t, p.Run)
	return p
}

func (p port) config(lane tunnel.Lane) tunnel.DialConfig {
	return tunnel.DialConfig{Lane: lane, Pins: []tunnel.Pin{tunnel.PinOf(p.cert.Leaf)}, Log: quiet(), Clock: lifecycle.System{}}
}

// pair returns both ends of one session over real TLS. The first is the end
// that dialled.
func pair(t testing.TB, lane tunnel.Lane, peer tunnel.Peer) (agent, hub *tunnel.Session) {
	t.Helper()
	p := splitPort(t, nil)
	accepted := make(chan *tunnel.Session, 1)
	go func() {
		defer close(accepted)
		c, err := p.Link().Accept()
		if err != nil {
			return
		}
		s, err := tunnel.NewSession(c, tunnel.SessionConfig{Lane: lane, Peer: peer, Log: quiet(), Clock: lifecycle.System{}})
		if err == nil {
			accepted <- s
		}
	}()
	agent, err := tunnel.Dial(t.Context(), p.addr, p.config(lane))
	if err != nil {
		t.Fatalf("Dial() = %v", err)
	}
	hub, ok := <-accepted
	if !ok {
		t.Fatal("the session was not accepted")
	}
	t.Cleanup(func() { agent.Close(errTestOver); hub.Close(errTestOver) })
	return agent, hub
}

func system() lifecycle.Clock { return lifecycle.System{} }

// rawLink is a connection whose handshake chose the link, and nothing more.
func rawLink(t testing.TB, p port) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", p.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{tunnel.ControlProtocol}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
