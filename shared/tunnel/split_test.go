package tunnel_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// serveHTTP answers with the protocol that a request came in with.
func serveHTTP(t *testing.T, ln net.Listener) {
	t.Helper()
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	})}
	background(t, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		defer stop()
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
}

func TestSplit(t *testing.T) {
	p := splitPort(t, nil)
	serveHTTP(t, p.HTTP())

	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run("a web client speaks "+name+" on the port of the link", func(t *testing.T) {
			tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: h2}
			defer tr.CloseIdleConnections()
			res, err := (&http.Client{Transport: tr}).Get("https://" + p.addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if body, _ := io.ReadAll(res.Body); string(body) != name {
				t.Errorf("served with %q, want %q", body, name)
			}
		})
	}
	t.Run("a client without TLS gets a hint to use TLS", func(t *testing.T) {
		res, err := http.Get("http://" + p.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "https://") {
			t.Errorf("got %d %q", res.StatusCode, body)
		}
	})
	t.Run("a connection with invalid data is closed without a response", func(t *testing.T) {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "\x00\x01\x02\x03\x04\x05\x06\x07")
		if b, _ := io.ReadAll(c); strings.Contains(string(b), "HTTP") {
			t.Errorf("got %q", b)
		}
	})
	for _, lane := range []tunnel.Lane{tunnel.Control(), tunnel.Bulk()} {
		t.Run("an agent reaches the link on lane "+lane.Name, func(t *testing.T) {
			got := make(chan string, 1)
			go func() {
				c, err := p.Link().Accept()
				if err != nil {
					got <- err.Error()
					return
				}
				got <- c.(*tls.Conn).ConnectionState().NegotiatedProtocol
				_ = c.Close()
			}()
			s, err := tunnel.Dial(t.Context(), p.addr, p.config(lane))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(errTestOver)
			if protocol := <-got; protocol != lane.Protocol {
				t.Errorf("accepted %q, want %q", protocol, lane.Protocol)
			}
		})
	}
}

func TestSplitLimits(t *testing.T) {
	t.Run("SEC-I5 a connection without a finished handshake is closed", func(t *testing.T) {
		p := splitPort(t, func(c *tunnel.SplitConfig) { c.Handshake = 20 * time.Millisecond })
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.ReadAll(c); err != nil { // returns only once the other side closes
			t.Logf("closed with %v", err)
		}
	})
	t.Run("SEC-K2 concurrent handshakes are limited", func(t *testing.T) {
		p := splitPort(t, func(c *tunnel.SplitConfig) { c.Pending = 1; c.Handshake = time.Hour })
		first, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = first.Close() }()
		// Half a hello: the handshake is under way for certain once the
		// second connection, made after it, has been closed.
		_, _ = first.Write([]byte{0x16, 0x03, 0x01})
		second, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = second.Close() }()
		if n, err := bufio.NewReader(second).ReadByte(); err == nil {
			t.Errorf("read %d from a connection beyond the limit", n)
		}
	})
	t.Run("without HTTP only agents are served", func(t *testing.T) {
		p := splitPort(t, func(c *tunnel.SplitConfig) { c.HTTP = nil })
		c, err := tls.Dial("tcp", p.addr, &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			_ = c.Close()
			t.Error("a web client was served")
		}
	})
}

func TestDialErrors(t *testing.T) {
	p := splitPort(t, nil)
	web := splitPort(t, nil) // its key is not pinned

	plain := listen(t)
	go func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
			_ = c.Close()
		}
	}()

	// This one proves the right key and speaks nothing newer than TLS 1.2.
	old := listen(t)
	acceptAll(t, tls.NewListener(old, &tls.Config{
		Certificates: []tls.Certificate{*p.cert}, MaxVersion: tls.VersionTLS12, NextProtos: []string{tunnel.ControlProtocol},
	}))
	// This one proves the right key and knows no link.
	deaf := listen(t)
	acceptAll(t, tls.NewListener(deaf, &tls.Config{Certificates: []tls.Certificate{*p.cert}, MinVersion: tls.VersionTLS13}))

	cases := map[string]struct {
		why  string
		addr string
		want fault.Kind
		says string
	}{
		"SEC-K4 WrongKey":  {"a certificate for the same name is not enough", web.addr, fault.Unknown, "not the hub's"},
		"SEC-K7 Downgrade": {"TLS 1.2 is refused", old.Addr().String(), fault.Offline, "TLS handshake"},
		"NoLink":           {"the key alone does not make it a hub", deaf.Addr().String(), fault.Offline, "link protocol"},
		"NotTLS":           {"another service listens there", plain.Addr().String(), fault.Offline, "TLS"},
		"Nobody":           {"the port is closed", "127.0.0.1:1", fault.Offline, "cannot be connected"},
		"NoName":           {"the name does not exist", "hub.invalid:443", fault.Offline, "name cannot be resolved"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := tunnel.Dial(t.Context(), c.addr, p.config(tunnel.Control()))
			if err == nil {
				s.Close(errTestOver)
				t.Fatalf("Dial() worked: %s", c.why)
			}
			if fault.KindOf(err) != c.want || !strings.Contains(fault.Sentence(err), c.says) || !strings.Contains(fault.Sentence(err), c.addr) {
				t.Errorf("Dial() = %q (%s), want %s with %q: %s", fault.Sentence(err), fault.KindOf(err), c.want, c.says, c.why)
			}
		})
	}
	t.Run("a dial to a silent server ends at the timeout", func(t *testing.T) {
		silent := listen(t)
		cfg := p.config(tunnel.Control())
		cfg.Timeout = 20 * time.Millisecond
		if _, err := tunnel.Dial(t.Context(), silent.Addr().String(), cfg); fault.KindOf(err) != fault.Offline {
			t.Errorf("Dial() = %v, want offline", err)
		}
	})
}

// acceptAll does handshakes and nothing else.
func acceptAll(t *testing.T, ln net.Listener) {
	t.Helper()
	background(t, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
		defer stop()
		for {
			c, err := ln.Accept()
			if err != nil {
				return nil
			}
			_ = c.(*tls.Conn).HandshakeContext(ctx)
			_ = c.Close()
		}
	})
}
