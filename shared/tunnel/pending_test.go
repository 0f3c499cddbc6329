package tunnel_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/shared/tunnel"
)

// from dials from another address of the loopback.
func from(address string) tunnel.Dialer {
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext(ctx, network, to)
	}
}

// idle opens connections that never say anything.
func idle(t *testing.T, addr, address string, n int) []net.Conn {
	t.Helper()
	out := make([]net.Conn, n)
	for i := range out {
		c, err := from(address)(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		out[i] = c
	}
	return out
}

// lines is what is logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func TestIdleHandshakes(t *testing.T) {
	const most = 64
	flooded := func(t *testing.T, sources int) (port, *lines) {
		t.Helper()
		l := &lines{}
		p := splitPort(t, func(c *tunnel.SplitConfig) {
			c.Pending, c.Log = most, slog.New(slog.NewTextHandler(l, nil))
			c.Handshake = 1 << 40 // nothing ends them but what is tested here
		})
		go func() {
			for {
				c, err := p.Link().Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { _ = c.Close() })
			}
		}()
		for i := range sources {
			idle(t, p.addr, net.IPv4(127, 0, 1, byte(i+1)).String(), 3*most/sources)
		}
		return p, l
	}
	dial := func(t *testing.T, p port, address string) error {
		t.Helper()
		cfg := p.config(tunnel.Control())
		cfg.Dial = from(address)
		s, err := tunnel.Dial(t.Context(), p.addr, cfg)
		if err == nil {
			s.Close(errTestOver)
		}
		return err
	}
	t.Run("SEC-I5 FT-W1 idle connections of one address do not block other addresses", func(t *testing.T) {
		p, l := flooded(t, 1)
		for range 20 {
			if err := dial(t, p, "127.0.0.2"); err != nil {
				t.Errorf("Dial() = %v", err)
			}
		}
		if n := l.count("too many handshakes"); n != 1 {
			t.Errorf("%d lines were logged, want one a minute", n)
		}
	})
	t.Run("SEC-I5 idle connections of many addresses do not block others", func(t *testing.T) {
		p, _ := flooded(t, 8)
		for range 20 {
			if err := dial(t, p, "127.0.0.2"); err != nil {
				t.Errorf("Dial() = %v", err)
			}
		}
	})
	t.Run("SEC-I5 an agent behind the address of many idle connections gets in with a retry", func(t *testing.T) {
		p, _ := flooded(t, 1)
		for dial(t, p, "127.0.1.1") != nil && t.Context().Err() == nil {
			continue
		}
	})
	t.Run("FT-L11 of many concurrent handshakes behind one address the first ones finish", func(t *testing.T) {
		p, _ := flooded(t, 1)
		late := idle(t, p.addr, "127.0.1.1", 1)[0]
		if b, err := io.ReadAll(late); len(b) > 0 { // returns only once the other side closes
			t.Errorf("read %q, %v", b, err)
		}
	})
}
