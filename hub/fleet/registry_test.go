package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// testConn is a connection over a pipe that nobody speaks on.
func testConn(t *testing.T, p tunnel.Peer, lane tunnel.Lane, epoch string) *conn {
	t.Helper()
	here, there := net.Pipe()
	s, err := tunnel.NewSession(here, tunnel.SessionConfig{Lane: lane, Peer: p, Log: slog.New(slog.DiscardHandler), Clock: lifecycle.System{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(errors.New("the test is over")); _ = there.Close() })
	return &conn{session: s, peer: p, epoch: epoch}
}

func mustAdd(t *testing.T, r *registry, c *conn) *conn {
	t.Helper()
	if err := r.add(c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRegistry(t *testing.T) {
	p := agentPeer()
	r := newRegistry()
	one := mustAdd(t, r, testConn(t, p, tunnel.Control(), "epoch-1"))
	cluster := one.cluster()
	if r.current(cluster) != nil {
		t.Error("a connection counts before Hello")
	}
	if old, ok := r.attach(one); old != nil || !ok || r.current(cluster) != one {
		t.Errorf("attach() = %v, %v", old, ok)
	}
	two := mustAdd(t, r, testConn(t, p, tunnel.Control(), "epoch-1"))
	if old, _ := r.attach(two); old != one || r.mayAttach(cluster, "epoch-1") != nil {
		t.Error("a process may not replace its own connection")
	}
	three := mustAdd(t, r, testConn(t, p, tunnel.Control(), "epoch-2"))
	r.attach(three)
	if fault.KindOf(r.mayAttach(cluster, "epoch-1")) != fault.Conflict {
		t.Error("FT-L8 a process that was replaced may attach again")
	}
	if r.mayAttach(cluster, "epoch-3") != nil {
		t.Error("FT-L8 a new process may not attach")
	}
	bulk := mustAdd(t, r, testConn(t, p, tunnel.Bulk(), ""))
	if with := r.remove(two); with != nil || r.current(cluster) != three {
		t.Error("FT-L4 the end of an old connection touched the new one")
	}
	if with := r.remove(three); len(with) != 1 || with[0] != bulk {
		t.Errorf("the bulk connection does not end with its attachment: %v", with)
	}
	if r.mayAttach(cluster, "epoch-1") != nil {
		t.Error("the older process may not come back after the newer has gone")
	}
	if _, ok := r.attach(three); ok {
		t.Error("a connection that has ended was attached")
	}
	r.remove(one)
	r.remove(bulk)
	if len(r.all()) != 0 || len(r.agents) != 0 || len(r.clusters) != 0 {
		t.Errorf("INV-9 left behind: %d connections, %d agents, %d clusters", len(r.conns), len(r.agents), len(r.clusters))
	}
}

func TestRegistryBounds(t *testing.T) {
	r := newRegistry()
	p := agentPeer()
	for range mostOfAgent {
		mustAdd(t, r, testConn(t, p, tunnel.Control(), "e"))
	}
	if err := r.add(testConn(t, p, tunnel.Bulk(), "e")); err == nil {
		t.Error("FT-L13 an agent may have any number of connections")
	}
	mustAdd(t, r, testConn(t, agentPeer(), tunnel.Control(), "e"))
	for i := range 3 * mostStale {
		c := testConn(t, agentPeer(), tunnel.Control(), fmt.Sprint(i))
		c.peer.Cluster = p.Cluster
		mustAdd(t, r, c)
		r.attach(c)
	}
	if n := len(r.clusters[hub.ClusterID(p.Cluster)].stale); n > mostStale {
		t.Errorf("INV-9 %d replaced processes are remembered", n)
	}
}

func TestPartWhileBusy(t *testing.T) {
	c := testConn(t, agentPeer(), tunnel.Control(), "e")
	c.beats.mu.Lock() // an answer that the agent does not read
	reason := fault.New(fault.Denied, "enough")
	c.part(reason)
	c.part(fault.New(fault.Denied, "later"))
	if !errors.Is(c.ending(), reason) {
		t.Errorf("ending() = %v, want the first reason", c.ending())
	}
	<-c.session.Done() // nothing that the agent does keeps it open
	c.beats.mu.Unlock()
}

// fixed is a set of revocations.
type fixed struct {
	version int64
	all     []hub.Revocation
	err     error
	loads   int
}

func (f *fixed) RevocationVersion(context.Context) (int64, error) { return f.version, f.err }
func (f *fixed) Revocations(context.Context, time.Time) ([]hub.Revocation, error) {
	f.loads++
	return f.all, f.err
}

func TestRevoked(t *testing.T) {
	t.Parallel()
	r := newRevoked()
	p := tunnel.Peer{AgentID: "a", Serial: "1"}
	if fault.KindOf(r.check(p)) != fault.Offline {
		t.Error("INV-12 an agent is let in before revocations are known")
	}
	from := &fixed{err: errors.New("away")}
	if _, err := r.refresh(t.Context(), from, time.Now); err == nil || r.set.Load() != nil {
		t.Error("INV-12 an outage counts as an empty set")
	}
	from.err = nil
	refresh := func() bool {
		moved, err := r.refresh(t.Context(), from, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return moved
	}
	if !refresh() || r.check(p) != nil {
		t.Error("nobody is revoked and the agent is not let in")
	}
	if refresh() || from.loads != 1 {
		t.Errorf("an unchanged version loads the set: %d loads", from.loads)
	}
	for name, v := range map[string]hub.Revocation{"Agent": {AgentID: "a"}, "Serial": {Serial: "1"}} {
		from.version++
		from.all = []hub.Revocation{v}
		if !refresh() || fault.KindOf(r.check(p)) != fault.Denied {
			t.Errorf("SEC-K5 %s: a revoked agent is let in", name)
		}
		if r.check(tunnel.Peer{AgentID: "b", Serial: "2"}) != nil {
			t.Errorf("%s: another agent is not let in", name)
		}
	}
	from.version++
	from.all = []hub.Revocation{{}}
	if refresh(); r.check(tunnel.Peer{}) != nil {
		t.Error("an empty revocation covers something")
	}
}

func TestEnrolLimit(t *testing.T) {
	t.Parallel()
	// guess is an attempt with a token that nobody knows.
	guess := func(l *enrolLimit, address string, now time.Time) error {
		err := l.takeLookup(address, now)
		if err == nil {
			l.unknown(address, now)
		}
		return err
	}
	t.Run("SEC-K2 guessing from one address is slowed down, and IPv6 counts by its /64", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		l := newEnrolLimit()
		for i := range hostBurst {
			if err := guess(l, "192.0.2.1:1000", now); err != nil {
				t.Fatalf("attempt %d: %v", i, err)
			}
		}
		if err := guess(l, "192.0.2.1:2000", now); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("one attempt too many = %v", err)
		}
		if err := guess(l, "192.0.2.2:1000", now); err != nil {
			t.Errorf("another host pays for it: %v", err)
		}
		if err := guess(l, "192.0.2.1:3000", now.Add(time.Minute)); err != nil {
			t.Errorf("a minute later: %v", err)
		}
		for i := range hostBurst {
			_ = guess(l, fmt.Sprintf("[2001:db8::%x]:1", i), now)
		}
		if err := guess(l, "[2001:db8::ffff]:1", now); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("another address of the same /64 = %v", err)
		}
		for i := range 2 * mostHosts {
			_ = guess(l, fmt.Sprintf("[2001:db8:%x::1]:1", i), now)
		}
		if len(l.hosts.buckets) > mostHosts {
			t.Errorf("INV-9 %d hosts are remembered", len(l.hosts.buckets))
		}
	})
	t.Run("SEC-K2 INV-7 many addresses that guess do not stop enrolment", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		l := newEnrolLimit()
		for second := range 30 {
			for host := range 40 {
				for range 10 {
					_ = guess(l, fmt.Sprintf("198.51.100.%d:1", host), now)
				}
			}
			address := fmt.Sprintf("203.0.113.%d:1", second)
			if err := l.takeLookup(address, now); err != nil {
				t.Fatalf("a newcomer after %d s: %v", second, err)
			}
			inv := hub.Invitation{Enrolment: hub.Enrolment{Tenant: "t", ID: hub.EnrolmentID(address)}}
			if err := l.takeKnown(inv, now); err != nil {
				t.Fatalf("one with a token after %d s: %v", second, err)
			}
			now = now.Add(time.Second)
		}
	})
	t.Run("INV-7 a tenant that enrols without end does not reduce the share of others, and one token is bounded", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		l := newEnrolLimit()
		inv := func(tenant hub.TenantID, n int) hub.Invitation {
			return hub.Invitation{Enrolment: hub.Enrolment{Tenant: tenant, ID: hub.EnrolmentID(fmt.Sprint(tenant, n))}}
		}
		for n := range 1000 {
			_ = l.takeKnown(inv("busy", n), now)
		}
		for n := range enrolBurst / 4 {
			if err := l.takeKnown(inv("other", n), now); err != nil {
				t.Fatalf("enrolment %d of another tenant: %v", n, err)
			}
		}
		l = newEnrolLimit()
		var in int
		for range 1000 {
			if l.takeKnown(inv("t", 1), now) == nil {
				in++
			}
		}
		if in != tokenBurst {
			t.Errorf("SEC-K2 one token was tried %d times at once, want %d", in, tokenBurst)
		}
	})
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"": true, "v1.35.4": true, "größe": true, "a b": true,
		"a\nb": false, "a\x1b[0m": false, "a\x00": false, "\xff": false, "\u202e": false, "12345678901": false,
	} {
		if got := plain(s, 10); got != want {
			t.Errorf("SEC-L1 plain(%q) = %v", s, got)
		}
	}
}

func (f *fixed) MergeRevocations(context.Context, hub.TenantID, []hub.Revocation) error { return f.err }
