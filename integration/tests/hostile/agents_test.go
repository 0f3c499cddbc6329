package hostile_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// A stranger is an agent of our own making: it has an agent's identity, and
// none of its manners.
type stranger struct {
	id   link.Identity
	name string // of its cluster
}

// Load and Save keep the identity in memory.
func (a *stranger) Load(context.Context) (link.Identity, error) {
	if len(a.id.Key) == 0 {
		return link.Identity{}, fault.New(fault.Missing, "nothing was saved")
	}
	return a.id, nil
}

func (a *stranger) Save(_ context.Context, id link.Identity) error {
	a.id = id
	return nil
}

// Facts are those of a cluster that there is not.
func (a *stranger) Facts(context.Context) (link.Facts, error) {
	return link.Facts{Fingerprint: "uid-of-" + a.name, KubeVersion: "v1.35.4", APIVersions: []string{"v1"}, Readyz: "ok"}, nil
}

// joinToken makes a join token of a tenant's cluster.
func joinToken(t *testing.T, of *stack.API, cluster string) string {
	t.Helper()
	out, err := of.CLI(within(t, waitLimit), "", "cluster", "enroll", cluster, "--token-only")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// enrol trades a join token for an identity.
func (a *stranger) enrol(t *testing.T, token string) error {
	t.Helper()
	_, err := link.Enroll(within(t, waitLimit), token, link.EnrolConfig{Vault: a, Cluster: a, Log: slog.New(slog.DiscardHandler), Version: "test"})
	return err
}

// newStranger enrols one for a cluster of a tenant.
func newStranger(t *testing.T, of *stack.API, cluster string) *stranger {
	t.Helper()
	a := &stranger{name: cluster}
	if err := a.enrol(t, joinToken(t, of, cluster)); err != nil {
		t.Fatal(err)
	}
	return a
}

// dial opens a session from an address of this machine.
func (a *stranger) dial(t *testing.T, address string) (*tunnel.Session, error) {
	t.Helper()
	var cert *tls.Certificate
	if a.id.Enrolled() {
		var err error
		if cert, err = a.id.Certificate(); err != nil {
			t.Fatal(err)
		}
	}
	pins, err := a.id.PinnedKeys()
	if err != nil {
		t.Fatal(err)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	session, err := tunnel.Dial(within(t, waitLimit), s.Hub.Link, tunnel.DialConfig{
		Lane: tunnel.Control(), Pins: pins, Certificate: cert, Dial: dialer.DialContext, Log: slog.New(slog.DiscardHandler), Clock: lifecycle.System{},
	})
	if err == nil {
		t.Cleanup(func() { session.Close(errTestOver) })
	}
	return session, err
}

var errTestOver = errors.New("the test is over")

// hello says Hello on a session.
func (a *stranger) hello(t *testing.T, session *tunnel.Session, probe bool) error {
	t.Helper()
	cc, err := session.Conn()
	if err != nil {
		return err
	}
	_, err = linkv1.NewSessionClient(cc).Hello(within(t, waitLimit),
		&linkv1.HelloRequest{AgentId: a.id.AgentID, Epoch: "e", Fingerprint: "uid-of-" + a.name, Probe: probe})
	return err
}

// attach dials and says Hello.
func (a *stranger) attach(t *testing.T, address string) (*tunnel.Session, error) {
	t.Helper()
	session, err := a.dial(t, address)
	if err != nil {
		return nil, err
	}
	return session, a.hello(t, session, false)
}

// flood says Hello without end, on as many sessions as that takes, until stop is
// closed, and counts those that were refused as too many.
func (a *stranger) flood(t *testing.T, stop <-chan struct{}, refused *atomic.Int64) {
	t.Helper()
	for over := false; !over; {
		session, err := a.dial(t, "127.0.7.1")
		if err != nil {
			refused.Add(1) // with the connection
		}
		for !over && err == nil {
			if err = a.hello(t, session, true); fault.KindOf(err) == fault.Exceeded {
				refused.Add(1)
				err = nil
			}
			over = closed(stop)
		}
		if session != nil {
			session.Close(errTestOver)
		}
		over = over || closed(stop)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// One agent that says Hello without end keeps no other one out, of no tenant.
func TestAnAgentThatFloods(t *testing.T) {
	hostile, innocent := newStranger(t, evil, "flooding"), newStranger(t, s.API, "innocent")
	var refused atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer func() {
		close(stop)
		wg.Wait()
	}()
	for range 4 {
		wg.Go(func() { hostile.flood(t, stop, &refused) })
	}
	if err := poll.Until(within(t, waitLimit), func(context.Context) error {
		if n := refused.Load(); n < 1000 {
			return fmt.Errorf("%d Hellos were refused", n)
		}
		return nil
	}); err != nil {
		t.Fatalf("SEC-K2 the agent that floods is not slowed down: %v", err)
	}
	t.Run("FT-L13 SEC-K2 INV-7 LD-2 another tenant's agent attaches meanwhile, at its first try", func(t *testing.T) {
		for range 3 {
			if _, err := innocent.attach(t, "127.0.0.1"); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("FT-L13 INV-7 the connected agent of this installation stays connected", func(t *testing.T) {
		if err := s.Connected(within(t, waitLimit), "in-cluster"); err != nil {
			t.Error(err)
		}
	})
}

// Connections that say nothing shut the agents' port for nobody.
func TestIdleConnections(t *testing.T) {
	agent := newStranger(t, s.API, "beside-the-idle")
	for range 1100 {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 8, 1)}}).DialContext(within(t, waitLimit), "tcp", s.Hub.Link)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Run("SEC-I5 FT-W1 agents of other addresses connect at their first attempt", func(t *testing.T) {
		for i := range 4 {
			if _, err := agent.dial(t, fmt.Sprint("127.0.9.", i+1)); err != nil {
				t.Errorf("dial %d: %v", i, err)
			}
		}
	})
	t.Run("SEC-I5 FT-W1 so do browsers that use the port", func(t *testing.T) {
		pins, err := agent.id.PinnedKeys()
		if err != nil || len(pins) == 0 {
			t.Fatal(pins, err)
		}
		dialer := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 9, 5)}}, Config: &tls.Config{InsecureSkipVerify: true}}
		c, err := dialer.DialContext(within(t, waitLimit), "tcp", s.Hub.Link)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 ") {
			t.Errorf("answer %.100q, %v", text, err)
		}
	})
}

// Whoever held a cluster's identity before can take it back from nobody.
func TestAReplacedAgent(t *testing.T) {
	first, token := &stranger{name: "taken-over"}, joinToken(t, s.API, "taken-over")
	if err := first.enrol(t, token); err != nil {
		t.Fatal(err)
	}
	session, err := first.attach(t, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	second := newStranger(t, s.API, "taken-over")
	t.Run("SEC-K5 it is disconnected when its successor enrols", func(t *testing.T) {
		select {
		case <-session.Done():
		case <-within(t, waitLimit).Done():
			t.Error("its session goes on")
		}
	})
	present, err := second.attach(t, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("SEC-K1 SEC-K2 its used join token is refused repeatedly", func(t *testing.T) {
		for range 3 {
			replay := &stranger{name: first.name, id: first.id}
			replay.id.Chain, replay.id.AgentID = nil, "" // as if the answer had been lost
			if err := replay.enrol(t, token); fault.KindOf(err) != fault.Unknown {
				t.Errorf("Enroll() = %v", err)
			}
		}
	})
	t.Run("SEC-K1 SEC-K2 the successor's session continues, and it can reconnect", func(t *testing.T) {
		select {
		case <-present.Done():
			t.Error("its session was ended")
		default:
		}
		if _, err := second.attach(t, "127.0.0.1"); err != nil {
			t.Error(err)
		}
	})
}

// Strangers at many addresses who guess join tokens stop no enrolment.
func TestGuessedJoinTokens(t *testing.T) {
	agent := &stranger{name: "enrols-all-the-same"}
	token := joinToken(t, s.API, agent.name)
	parsed, err := tunnel.ParseJoinToken(token)
	if err != nil {
		t.Fatal(err)
	}
	nobody := &stranger{id: link.Identity{Pins: []string{parsed.Pin.String()}}}
	var limited atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer func() {
		close(stop)
		wg.Wait()
	}()
	for host := range 30 {
		session, err := nobody.dial(t, fmt.Sprint("127.0.10.", host+1))
		if err != nil {
			t.Fatal(err)
		}
		cc, err := session.Conn()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for !closed(stop) {
				_, err := linkv1.NewIdentityClient(cc).Enroll(within(t, waitLimit), &linkv1.EnrollRequest{Token: "guess"})
				if err == nil {
					t.Error("a guessed token is good")
				}
				if fault.KindOf(err) == fault.Exceeded {
					limited.Add(1)
				}
			}
		})
	}
	if err := poll.Until(within(t, waitLimit), func(context.Context) error {
		if n := limited.Load(); n < 600 {
			return fmt.Errorf("%d guesses were refused", n)
		}
		return nil
	}); err != nil {
		t.Fatalf("SEC-K2 those who guess are not slowed down: %v", err)
	}
	t.Run("SEC-K2 INV-7 a cluster enrols meanwhile, at its first attempt", func(t *testing.T) {
		session, err := nobody.dial(t, "127.0.10.200")
		if err != nil {
			t.Fatal(err)
		}
		cc, err := session.Conn()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := linkv1.NewIdentityClient(cc).Enroll(within(t, waitLimit), &linkv1.EnrollRequest{Token: string(parsed.Secret), Probe: true}); err != nil {
			t.Error(err)
		}
		if err := agent.enrol(t, token); err != nil {
			t.Error(err)
		}
	})
}
