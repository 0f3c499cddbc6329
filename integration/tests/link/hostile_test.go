package link_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/fleet"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// muxFrame is a header of the multiplexer.
func muxFrame(kind byte, flags uint16, stream, length uint32) []byte {
	b := make([]byte, 12)
	b[1] = kind
	binary.BigEndian.PutUint16(b[2:], flags)
	binary.BigEndian.PutUint32(b[4:], stream)
	binary.BigEndian.PutUint32(b[8:], length)
	return b
}

// rawLink is a connection of an agent with a certificate, after the
// handshake, without a multiplexer.
func rawLink(t *testing.T, r *replica, cert *tls.Certificate) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", r.addr, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{tunnel.ControlProtocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// closedByHub waits until the hub has ended a connection.
func closedByHub(t *testing.T, c io.Reader) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestHostileAgent(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	good := w.join(r, r.addr, tenant(), nil)
	good.sessions.awaitOpened(1)
	cert, v, _ := w.credential(r, tenant())
	unharmed := func(t *testing.T) {
		t.Helper()
		w.svc.mu.Lock()
		n := uint64(len(w.svc.logs[string(good.cluster)])) + 1
		w.svc.mu.Unlock()
		w.svc.row(string(good.cluster), "app", fmt.Sprint(n))
		w.svc.await(func() bool { return w.svc.acked[string(good.cluster)] == n })
		if len(good.sessions.opened) != 1 {
			t.Errorf("another agent lost its session: %v", good.sessions.closed)
		}
	}
	raw := map[string]func(*tls.Conn){
		"a frame of 4 GiB on a stream": func(c *tls.Conn) {
			_, _ = c.Write(append(muxFrame(0, 1, 1, 0), muxFrame(0, 0, 1, 1<<32-1)...))
		},
		"a frame larger than the window": func(c *tls.Conn) {
			_, _ = c.Write(append(muxFrame(0, 1, 1, 0), muxFrame(0, 0, 1, 300<<10)...))
		},
		"a million pings that nobody reads the answers of": func(c *tls.Conn) {
			flood := make([]byte, 0, 12*1000)
			for i := range 1000 {
				flood = append(flood, muxFrame(2, 1, 0, uint32(i))...)
			}
			for range 1000 {
				if _, err := c.Write(flood); err != nil {
					return
				}
			}
		},
		"a million streams": func(c *tls.Conn) {
			for i := range 1000 {
				flood := make([]byte, 0, 12*1000)
				for j := range 1000 {
					flood = append(flood, muxFrame(1, 1, uint32(2*(1000*i+j)+1), 0)...)
				}
				if _, err := c.Write(flood); err != nil {
					return
				}
			}
		},
		"the same stream twice": func(c *tls.Conn) { _, _ = c.Write(append(muxFrame(1, 1, 1, 0), muxFrame(1, 1, 1, 0)...)) },
		"another version":       func(c *tls.Conn) { _, _ = c.Write([]byte{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) },
		"noise": func(c *tls.Conn) {
			random := rand.NewChaCha8([32]byte{7})
			b := make([]byte, 64<<10)
			_, _ = random.Read(b)
			b[0] = 7
			_, _ = c.Write(b)
		},
	}
	for name, attack := range raw {
		t.Run("FT-L13 "+name+" ends the connection and harms nobody else", func(t *testing.T) {
			c := rawLink(t, r, cert)
			attack(c)
			closedByHub(t, c)
			unharmed(t)
		})
	}
	t.Run("FT-L13 HTTP/2 that is none ends its stream", func(t *testing.T) {
		s, err := dialThrough(t.Context(), t, r, r.addr, cert, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 * tunnel.Control().MaxStreams {
			c, err := s.Open()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte("GET /secret HTTP/1.1\r\nHost: x\r\n\r\n"))
			_, _ = io.ReadAll(c)
			_ = c.Close()
		}
		unharmed(t)
	})
	t.Run("FT-L13 one that sends requests and never reads delays no other", func(t *testing.T) {
		c := rawLink(t, r, cert)
		// A stream with an HTTP/2 preface and many pings of HTTP/2, whose
		// answers pile up.
		ping := []byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
		body := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)
		for len(body) < 200<<10 {
			body = append(body, ping...)
		}
		_, _ = c.Write(muxFrame(0, 1, 1, uint32(len(body))))
		_, _ = c.Write(body)
		unharmed(t)
	})
	t.Run("FT-L13 garbage for messages is refused call by call", func(t *testing.T) {
		cc := dialWith(t, r, cert, tunnel.Control())
		if _, err := linkv1.NewSessionClient(cc).Hello(t.Context(), &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "x", Fingerprint: someFacts().Fingerprint}); err != nil {
			t.Fatal(err)
		}
		for _, m := range methods() {
			_ = call(t.Context(), cc, m) // no answer matters, as long as there is one
		}
		unharmed(t)
	})
}

func TestAdmission(t *testing.T) {
	w := newWorld(t)
	clock := runtest.NewClock(time.Now())
	w.hub = clock
	w.cfg = func(c *fleet.Config) { c.Admit, c.AdmitBurst = 50, 3 }
	r := w.start()
	cert, v, _ := w.credential(r, tenant())
	hello := func() error {
		_, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(),
			&linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint, Probe: true})
		return err
	}
	for range 3 {
		if err := hello(); err != nil {
			t.Fatal(err)
		}
	}
	var f *fault.Error
	if err := hello(); !errors.As(err, &f) || f.Kind != fault.Exceeded || f.RetryAfter < time.Second {
		t.Errorf("FT-L11 SEC-K2 one agent too many = %+v, want exceeded with a time to come again", err)
	}
	clock.Advance(time.Second)
	if err := hello(); err != nil {
		t.Errorf("a second later: %v", err)
	}
}

func TestHelloFlood(t *testing.T) {
	w := newWorld(t)
	for name, restarted := range map[string]bool{"": false, " after a restart of the hub": true} {
		r := w.start()
		cert, v, _ := w.credential(r, tenant())
		victims := make([]func() error, 5)
		for i := range victims {
			cert, v, _ := w.credential(r, tenant())
			victims[i] = func() error {
				_, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(),
					&linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint})
				return err
			}
		}
		if restarted {
			r.stop()
			r = w.start()
		}
		flood := func(probe bool) (taken, refused int, last error) {
			for taken+refused < 2000 {
				cc, hangUp := dialOnce(t, r, cert, tunnel.Control())
				for {
					_, err := linkv1.NewSessionClient(cc).Hello(t.Context(),
						&linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint, Probe: probe})
					if err != nil && fault.KindOf(err) == fault.Offline || errors.Is(err, io.EOF) {
						break
					}
					if last = err; err == nil {
						taken++
					} else {
						refused++
					}
					if refused%mostOnOneSession == 0 && err != nil {
						break
					}
				}
				hangUp()
			}
			return taken, refused, last
		}
		_, refused, last := flood(true)
		t.Run("FT-L13 SEC-K2 an agent that says Hello without end is slowed down"+name, func(t *testing.T) {
			if fault.KindOf(last) != fault.Exceeded || refused < 1900 {
				t.Errorf("%d of 2000 Hellos were refused, the last with %v", refused, last)
			}
		})
		t.Run("FT-L13 INV-7 agents of other tenants are let in at once"+name, func(t *testing.T) {
			for i, hello := range victims {
				if err := hello(); err != nil {
					t.Errorf("agent %d: %v", i, err)
				}
			}
		})
		r.stop()
	}
}

// mostOnOneSession is how many Hellos the flood has refused on one session.
const mostOnOneSession = 20

func TestRefusedSessionEnds(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	cert, v, _ := w.credential(r, tenant())
	s, err := dialThrough(t.Context(), t, r, r.addr, cert, nil)
	if err != nil {
		t.Fatal(err)
	}
	cc, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	hello := func() error {
		_, err := linkv1.NewSessionClient(cc).Hello(t.Context(), &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint})
		return err
	}
	if err := hello(); err != nil {
		t.Fatal(err)
	}
	t.Run("FT-L13 a second Hello is refused as such, and uses no shared limit", func(t *testing.T) {
		if err := hello(); fault.KindOf(err) != fault.Conflict {
			t.Errorf("Hello() = %v", err)
		}
	})
	t.Run("FT-L13 a session that continues after its refusal is ended", func(t *testing.T) {
		for range 10 {
			if hello() == nil {
				t.Fatal("a Hello was answered")
			}
		}
		<-s.Done() // within the time that a session has to hear why it ends
	})
}
