package pki

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A BadServer is a server on loopback whose certificate a client must refuse.
type BadServer struct {
	*httptest.Server
	Authority string // which a client trusts for it, in PEM
	Requests  *atomic.Int64
}

// BadServers starts one server for each thing that can be wrong with the
// certificate of a server. They count the requests that reach them.
func BadServers(tb testing.TB) map[string]BadServer {
	tb.Helper()
	open := func(name string) *Authority {
		a, err := Open(tb.TempDir())
		if err != nil {
			tb.Fatalf("make the authority %s: %v", name, err)
		}
		return a
	}
	trusted, stranger := open("trusted"), open("stranger")
	now := time.Now()
	server := func(change func(*x509.Certificate)) *x509.Certificate {
		c := &x509.Certificate{
			Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			NotBefore:   now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		}
		change(c)
		return c
	}
	out := map[string]BadServer{}
	for name, c := range map[string]struct {
		by   *Authority
		cert *x509.Certificate
	}{
		"of an unknown authority":   {stranger, server(func(*x509.Certificate) {})},
		"for another host":          {trusted, server(func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"git.example.com"} })},
		"whose name is in CN alone": {trusted, server(func(c *x509.Certificate) { c.IPAddresses = nil })},
		"that has expired":          {trusted, server(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour) })},
		"that is not valid yet":     {trusted, server(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour) })},
		"for clients only":          {trusted, server(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })},
	} {
		pair, err := c.by.sign(c.cert)
		if err != nil {
			tb.Fatalf("sign a certificate %s: %v", name, err)
		}
		out[name] = serve(tb, pair, string(trusted.PEM))
	}
	return out
}

func serve(tb testing.TB, pair KeyPair, authority string) BadServer {
	tb.Helper()
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		tb.Fatal(err)
	}
	s := BadServer{Authority: authority, Requests: &atomic.Int64{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.Requests.Add(1)
		http.Error(w, "a server that must not be asked", http.StatusTeapot)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that end, as they must
	s.StartTLS()
	tb.Cleanup(s.Close)
	return s
}
