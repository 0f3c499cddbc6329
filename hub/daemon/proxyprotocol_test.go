package daemon

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// second is a header of version 2 for a client over IPv4.
func second(client string, port uint16) string {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x21, 0x11, 0, 12)
	b = append(b, net.ParseIP(client).To4()...)
	b = append(b, 10, 0, 0, 1)
	b = binary.BigEndian.AppendUint16(b, port)
	return string(binary.BigEndian.AppendUint16(b, 443))
}

func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	proxies, err := clientip.ParseProxies([]string{"127.0.0.9"})
	if err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T) *proxyListener {
		t.Helper()
		raw, err := listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := newProxyListener(raw, proxies, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	send := func(t *testing.T, l net.Listener, from, text string) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, head := range map[string]string{
		"version 1": "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", "version 2": second("198.51.100.7", 4711),
	} {
		t.Run("SEC-E8 TM07 a trusted load balancer names the client, "+name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			send(t, l, "127.0.0.9", head+"hello")
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			b := make([]byte, 5)
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" || c.RemoteAddr().String() != "198.51.100.7:4711" {
				t.Errorf("%q from %s, %v", b, c.RemoteAddr(), err)
			}
		})
	}
	t.Run("SEC-E8 a header of any other peer is ignored", func(t *testing.T) {
		t.Parallel()
		l := open(t)
		const head = "PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n"
		send(t, l, "127.0.0.2", head)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		b := make([]byte, len(head))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != head || clientip.Host(c.RemoteAddr().String()) != "127.0.0.2" {
			t.Errorf("%q from %s, %v", b, c.RemoteAddr(), err)
		}
	})
	t.Run("SEC-E8 a trusted load balancer that sends no header is disconnected, and delays no other", func(t *testing.T) {
		t.Parallel()
		l := open(t)
		silent := send(t, l, "127.0.0.9", "")
		wrong := send(t, l, "127.0.0.9", "GET / HTTP/1.1\r\n\r\n")
		send(t, l, "127.0.0.2", "x")
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		for _, c := range []net.Conn{silent, wrong} {
			if b, _ := io.ReadAll(c); len(b) > 0 { // returns only once the other side closes
				t.Errorf("it was answered %q", b)
			}
		}
	})
	t.Run("SEC-E8 TM07 HTTP over TLS on the agents' port sees the client's address as well", func(t *testing.T) {
		t.Parallel()
		l := open(t)
		srv := httptest.NewUnstartedServer(nil)
		srv.StartTLS() // for its certificate
		defer srv.Close()
		split := tunnel.Split(l, tunnel.SplitConfig{Link: &tls.Config{}, HTTP: &tls.Config{Certificates: srv.TLS.Certificates}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- split.Run(ctx) }()
		web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })}
		go func() { _ = web.Serve(split.HTTP()) }()
		c := tls.Client(send(t, l, "127.0.0.9", second("198.51.100.7", 4711)), &tls.Config{InsecureSkipVerify: true})
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || string(b[max(0, len(b)-17):]) != "198.51.100.7:4711" {
			t.Errorf("answer %q, %v", b, err)
		}
		_ = web.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
