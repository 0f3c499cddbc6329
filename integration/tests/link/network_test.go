package link_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/tunnel"
)

// hubName is a host that only proxies can resolve.
const hubName = "hub.test"

// authority issues certificates for what stands between agents and hub.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test company"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue returns a server certificate for this machine and the hub's name.
func (a authority) issue(t testing.TB) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"localhost", hubName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.key}
}

// middle is something that speaks HTTP between agents and hub.
type middle struct {
	addr string
	mu   sync.Mutex
	seen []*http.Request
	cert [][]*x509.Certificate // that clients presented to it
}

func (m *middle) note(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, r)
	if r.TLS != nil {
		m.cert = append(m.cert, r.TLS.PeerCertificates)
	}
}

// requests returns what it was asked.
func (m *middle) requests() []*http.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

func quietServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
}

// serveOn serves on a listener of its own until the test ends.
func serveOn(t testing.TB, conf *tls.Config, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := quietServer(h)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conf != nil {
			_ = srv.Serve(tls.NewListener(ln, conf))
			return
		}
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return ln.Addr().String()
}

// forward sends requests on to a hub, upgrades too.
func forward(t testing.TB, target string) http.Handler {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := httputil.NewSingleHostReverseProxy(u)
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	p.Transport, p.ErrorLog = tr, log.New(io.Discard, "", 0)
	t.Cleanup(tr.CloseIdleConnections)
	return p
}

// balancer ends TLS with a certificate of its own, as layer 7 load balancers do.
func balancer(t testing.TB, a authority, h http.Handler) *middle {
	t.Helper()
	m := &middle{}
	m.addr = serveOn(t, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.issue(t)}, NextProtos: []string{"http/1.1"}, ClientAuth: tls.RequestClientCert,
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.note(r); h.ServeHTTP(w, r) }))
	return m
}

// refuse answers everything with a status.
func refuse(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// tunnelProxy is an HTTP proxy that knows CONNECT. With credentials it wants
// them; through decides where a host is.
func tunnelProxy(t testing.TB, credentials string, through func(w http.ResponseWriter, client func() net.Conn)) *middle {
	t.Helper()
	m := &middle{}
	m.addr = serveOn(t, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.note(r)
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if credentials != "" && r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(credentials)) {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		through(w, func() net.Conn {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return nil
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
			return c
		})
	}))
	return m
}

// plainProxy forwards bytes to one address.
func plainProxy(t testing.TB, credentials, target string) *middle {
	t.Helper()
	return tunnelProxy(t, credentials, func(w http.ResponseWriter, client func() net.Conn) {
		out, err := net.Dial("tcp", target)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		in := client()
		var both sync.WaitGroup
		for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
			both.Go(func() {
				_, _ = io.Copy(d[0], d[1])
				_ = in.Close()
				_ = out.Close()
			})
		}
		both.Wait()
	})
}

// inspector is a proxy that opens TLS, reads what is inside, and closes it
// again with a certificate of the company.
func inspector(t testing.TB, a authority, target string) *middle {
	t.Helper()
	m := &middle{}
	cert, inside := a.issue(t), forward(t, "https://"+target)
	p := tunnelProxy(t, "", func(_ http.ResponseWriter, client func() net.Conn) {
		ln := &oneConn{conn: tls.Server(client(), &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}, ClientAuth: tls.RequestClientCert,
		}), done: make(chan struct{})}
		_ = quietServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer ln.over()
			m.note(r)
			inside.ServeHTTP(w, r)
		})).Serve(ln)
	})
	m.addr = p.addr
	return m
}

// oneConn is a listener that gives one connection.
type oneConn struct {
	conn net.Conn
	once sync.Once
	end  sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (c net.Conn, err error) {
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) over()          { l.end.Do(func() { close(l.done) }) }
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// picky forwards connections, but resets those whose first message offers
// the link's protocol, as boxes do that know no protocol but HTTP.
func picky(t testing.TB, target string) *middle {
	t.Helper()
	m := &middle{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = ln.Addr().String()
	var live sync.WaitGroup
	live.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			live.Go(func() { m.inspect(in, target) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); live.Wait() })
	return m
}

// narrow forwards connections in pieces of the sizes given, in turn, each of
// which is a packet of its own.
func narrow(t testing.TB, target string, sizes ...int) *middle {
	t.Helper()
	return narrowAt(t, "127.0.0.1", target, sizes...)
}

// narrowAt is narrow at an address of its own; without sizes the pieces are as
// they come.
func narrowAt(t testing.TB, host, target string, sizes ...int) *middle {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	var live sync.WaitGroup
	live.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			live.Go(func() { inPieces(in, target, sizes) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); live.Wait() })
	return &middle{addr: ln.Addr().String()}
}

func inPieces(in net.Conn, target string, sizes []int) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	var both sync.WaitGroup
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			buf := make([]byte, 32<<10)
			for turn := 0; ; turn++ {
				piece := buf
				if len(sizes) > 0 {
					piece = buf[:sizes[turn%len(sizes)]]
				}
				n, err := d[1].Read(piece)
				if n > 0 {
					_, werr := d[0].Write(piece[:n]) // Go sends at once, without gathering
					err = errors.Join(err, werr)
				}
				if err != nil {
					_ = in.Close()
					_ = out.Close()
					return
				}
			}
		})
	}
	both.Wait()
}

func (m *middle) inspect(in net.Conn, target string) {
	defer func() { _ = in.Close() }()
	first := make([]byte, 4096)
	n, err := in.Read(first)
	if err != nil {
		return
	}
	m.note(&http.Request{})
	if containsProtocol(first[:n]) {
		_ = in.(*net.TCPConn).SetLinger(0)
		return
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	_, _ = out.Write(first[:n])
	var both sync.WaitGroup
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(d[0], d[1])
			_ = in.Close()
			_ = out.Close()
		})
	}
	both.Wait()
}

func containsProtocol(hello []byte) bool {
	name := append([]byte{byte(len(tunnel.ControlProtocol))}, tunnel.ControlProtocol...)
	bulk := append([]byte{byte(len(tunnel.BulkProtocol))}, tunnel.BulkProtocol...)
	return indexOf(hello, name) || indexOf(hello, bulk)
}

func indexOf(b, sub []byte) bool {
	for i := 0; i+len(sub) <= len(b); i++ {
		if string(b[i:i+len(sub)]) == string(sub) {
			return true
		}
	}
	return false
}

// viaProxy is an outer layer with a proxy, whose address has a user if given.
func viaProxy(t testing.TB, user string, m *middle) tunnel.ProxyConfig {
	t.Helper()
	at := "http://" + m.addr
	if user != "" {
		at = "http://" + user + "@" + m.addr
	}
	p, err := tunnel.NewProxy(at, "")
	if err != nil {
		t.Fatal(err)
	}
	return tunnel.ProxyConfig{Proxy: p}
}

// dialThrough dials the control lane as an agent would.
func dialThrough(ctx context.Context, t testing.TB, r *replica, addr string, cert *tls.Certificate, change func(*tunnel.DialConfig)) (*tunnel.Session, error) {
	t.Helper()
	pin, err := r.authority.Pin()
	if err != nil {
		t.Fatal(err)
	}
	cfg := tunnel.DialConfig{Lane: tunnel.Control(), Pins: []tunnel.Pin{pin}, Certificate: cert, Log: (&logs{}).logger(), Clock: r.world.hub}
	if change != nil {
		change(&cfg)
	}
	s, err := tunnel.Dial(ctx, addr, cfg)
	if err == nil {
		t.Cleanup(func() { s.Close(errTestOver) })
	}
	return s, err
}
