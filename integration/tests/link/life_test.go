package link_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// hubTimers is how many timers of a hub wait for its clock when it is at rest.
const hubTimers = 3

// poll moves the clock of the one hub to its next poll, by which it knows what
// was revoked. One that an enrolment has called in between sets its timer late.
func (w *world) poll(clock *runtest.Clock) {
	for !w.dir.polled() {
		clock.Wait(hubTimers)
		clock.Advance(2 * time.Second)
	}
}

// silence moves a clock by more than a session may be silent until that has
// been noticed: what was on its way when the network died may count as a sign
// of life after the first time.
func silence(t *testing.T, clock *runtest.Clock, noticed func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := poll.Until(ctx, func(context.Context) error {
		if noticed() {
			return nil
		}
		clock.Advance(31 * time.Second)
		return errors.New("nobody has noticed the silence")
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRevoke(t *testing.T) {
	for name, by := range map[string]func(link.Identity, *tls.Certificate) hub.Revocation{
		"Agent": func(id link.Identity, _ *tls.Certificate) hub.Revocation { return hub.Revocation{AgentID: id.AgentID} },
		"Certificate": func(_ link.Identity, c *tls.Certificate) hub.Revocation {
			return hub.Revocation{Serial: tunnel.Serial(c.Leaf)}
		},
	} {
		t.Run("SEC-K5 a revoked agent is cut at the next poll, two seconds on, and stays out: "+name, func(t *testing.T) {
			w := newWorld(t)
			clock := runtest.NewClock(time.Now())
			w.hub = clock
			r := w.start()
			a, other := w.join(r, r.addr, tenant(), nil), w.join(r, r.addr, tenant(), nil)
			a.sessions.awaitOpened(1)
			other.sessions.awaitOpened(1)
			cert, err := a.Identity().Certificate()
			if err != nil {
				t.Fatal(err)
			}
			w.dir.revoke(by(a.Identity(), cert))
			w.poll(clock)
			reason := a.sessions.awaitClosed(1)
			if fault.KindOf(reason) != fault.Denied || !strings.Contains(fault.Sentence(reason), "this agent was revoked") {
				t.Errorf("the agent hears %q", reason)
			}
			_, err = linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "e", Fingerprint: someFacts().Fingerprint})
			if fault.KindOf(err) != fault.Denied {
				t.Errorf("Hello() of a revoked agent = %v", err)
			}
			err = call(t.Context(), dialWith(t, r, cert, tunnel.Bulk()), linkv1.Blobs_Fetch_FullMethodName)
			if fault.KindOf(err) != fault.Denied {
				t.Errorf("the bulk lane of a revoked agent = %v", err)
			}
			if !other.connected(t) {
				t.Error("another agent was cut too")
			}
		})
	}
	t.Run("SEC-K5 an agent whose cluster is enrolled again is disconnected at once, without a poll", func(t *testing.T) {
		w := newWorld(t)
		w.hub = runtest.NewClock(time.Now()) // it stands still: nothing is polled
		r := w.start()
		org := tenant()
		a, other := w.join(r, r.addr, org, nil), w.join(r, r.addr, tenant(), nil)
		a.sessions.awaitOpened(1)
		other.sessions.awaitOpened(1)
		fresh, _ := w.dir.invite(t, r.inviter(t, r.addr), org, a.cluster, w.hub.Now().Add(time.Hour))
		if _, err := w.enrol(fresh); err != nil {
			t.Fatal(err)
		}
		if reason := a.sessions.awaitClosed(1); fault.KindOf(reason) != fault.Denied || !strings.Contains(fault.Sentence(reason), "this agent was revoked") {
			t.Errorf("the agent hears %q", reason)
		}
		if !other.connected(t) {
			t.Error("another agent was cut too")
		}
	})
	t.Run("INV-12 before revocations are loaded no agent is admitted", func(t *testing.T) {
		w := newWorld(t)
		first := w.start()
		cert, _, _ := w.credential(first, tenant())
		first.stop()
		w.cfg = func(c *fleet.Config) { c.Revocations = broken{} }
		r := w.start()
		_, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "e", Fingerprint: someFacts().Fingerprint})
		if fault.KindOf(err) != fault.Offline {
			t.Errorf("Hello() = %v, want offline", err)
		}
	})
}

// broken does not tell revocations.
type broken struct{}

func TestSecondAttachment(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	older := w.join(r, r.addr, tenant(), func(c *link.Config) { c.Random = nil })
	first := older.sessions.awaitOpened(1)

	newer := w.run(older.vault, nil)
	newer.cluster = older.cluster
	second := newer.sessions.awaitOpened(1)
	reason := older.sessions.awaitClosed(1)
	if fault.KindOf(reason) != fault.Conflict || !strings.Contains(reason.Error(), "another process with the same agent identity") {
		t.Errorf("FT-L8 the older one hears %q", reason)
	}
	if !strings.Contains(w.log.String(), "two processes use one agent identity") {
		t.Error("FT-L8 the hub did not warn")
	}
	w.dir.await(func() bool { return w.dir.left == 1 })
	w.dir.mu.Lock()
	now := w.dir.connected[older.cluster].Session
	w.dir.mu.Unlock()
	if now != second.GetSessionId() || now == first.GetSessionId() {
		t.Errorf("FT-L4 the late disconnect of the older session left presence at %q", now)
	}

	cert, err := older.Identity().Certificate()
	if err != nil {
		t.Fatal(err)
	}
	hello := func(epoch string) error {
		_, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{Epoch: epoch, Fingerprint: someFacts().Fingerprint})
		return err
	}
	if err := hello(older.reports.epoch); fault.KindOf(err) != fault.Conflict {
		t.Errorf("FT-L8 the older process attached again while the newer is there: %v", err)
	}
	if !newer.connected(t) {
		t.Error("FT-L8 the newer one lost its session to the older")
	}
	newer.stop()
	w.dir.await(func() bool { return w.dir.left == 2 })
	if err := hello(older.reports.epoch); err != nil {
		t.Errorf("the older process may not come back after the newer has gone: %v", err)
	}
}

func TestReconnectOfOneProcess(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), nil)
	for n := 1; n <= 5; n++ {
		a.sessions.awaitOpened(n)
		p.cut()
		if err := a.sessions.awaitClosed(n); fault.KindOf(err) != fault.Offline {
			t.Errorf("the end of session %d is %v", n, err)
		}
	}
	a.sessions.awaitOpened(6)
}

func TestHalfOpen(t *testing.T) {
	w := newWorld(t)
	hubClock, agentClock := runtest.NewClock(time.Now()), runtest.NewClock(time.Now())
	w.hub = hubClock
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), func(c *link.Config) { c.Clock, c.Watchdog = agentClock, -1 })
	hello := a.sessions.awaitOpened(1)
	w.dir.await(func() bool { return w.dir.connected[a.cluster].Session == hello.GetSessionId() })
	hubClock.Wait(hubTimers)
	agentClock.Wait(4) // watch, heartbeat, renewal, bulk

	p.swallow(true)
	t.Run("FT-L2 the hub notices within 30 s", func(t *testing.T) {
		silence(t, hubClock, func() bool {
			w.dir.mu.Lock()
			defer w.dir.mu.Unlock()
			return len(w.dir.connected) == 0
		})
	})
	t.Run("FT-L2 the agent notices within 30 s and reconnects", func(t *testing.T) {
		dials := p.dialled()
		if n := a.sessions.ended(); n > 0 {
			t.Fatal("that the hub has closed its side has reached the agent")
		}
		silence(t, agentClock, func() bool { return a.sessions.ended() > 0 })
		if err := a.sessions.awaitClosed(1); !strings.Contains(err.Error(), "nothing was received") {
			t.Errorf("the session ended with %v", err)
		}
		p.awaitDials(dials + 1)
		p.swallow(false) // the way is clear for new connections
		p.cut()
		a.sessions.awaitOpened(2)
	})
}

func TestSilentHub(t *testing.T) {
	w := newWorld(t)
	agentClock := runtest.NewClock(time.Now())
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), func(c *link.Config) { c.Clock, c.Watchdog = agentClock, -1 })
	a.sessions.awaitOpened(1)
	agentClock.Wait(4)
	p.swallow(true)
	silence(t, agentClock, func() bool { return a.sessions.ended() > 0 })
	err := a.sessions.awaitClosed(1)
	if fault.KindOf(err) != fault.Offline || !strings.Contains(err.Error(), "nothing was received") {
		t.Errorf("FT-L2 the session ended with %v", err)
	}
	p.swallow(false)
	p.cut()
	a.sessions.awaitOpened(2)
}

func TestAttachments(t *testing.T) {
	w := newWorld(t)
	clock := runtest.NewClock(time.Now())
	w.hub = clock
	r := w.start()
	a := w.join(r, r.addr, tenant(), nil)
	hello := a.sessions.awaitOpened(1)
	w.svc.row(string(a.cluster), "app", "x")
	w.svc.await(func() bool { return w.svc.acked[string(a.cluster)] == 1 })
	clock.Wait(hubTimers)
	clock.Advance(5 * time.Second)
	w.dir.await(func() bool { return w.dir.seen[hello.GetSessionId()] == 1 })
	clock.Wait(hubTimers)
	clock.Advance(5 * time.Second) // nothing was received meanwhile
	clock.Wait(hubTimers)
	w.dir.mu.Lock()
	defer w.dir.mu.Unlock()
	if n := w.dir.seen[hello.GetSessionId()]; n > 2 {
		t.Errorf("a silent agent was written %d times", n)
	}
}

func TestRenew(t *testing.T) {
	w := newWorld(t)
	hubClock, agentClock := runtest.NewClock(time.Now()), runtest.NewClock(time.Now())
	w.hub = hubClock
	r := w.start()
	a := w.join(r, r.addr, tenant(), func(c *link.Config) { c.Clock = agentClock })
	a.sessions.awaitOpened(1)
	old, err := a.Identity().Certificate()
	if err != nil {
		t.Fatal(err)
	}
	hubClock.Wait(hubTimers)
	agentClock.Wait(5)

	// Asleep for three days: the session is dead, and half the life of the
	// certificate less a quarter, which Random = 0 makes it, has passed.
	hubClock.Advance(3 * 24 * time.Hour)
	agentClock.Advance(3 * 24 * time.Hour)
	fresh := old
	for n := 2; tunnel.Serial(fresh.Leaf) == tunnel.Serial(old.Leaf); n++ { // mostly one that renews, then one with the new certificate
		a.sessions.awaitOpened(n)
		if fresh, err = a.Identity().Certificate(); err != nil {
			t.Fatal(err)
		}
	}
	if tunnel.PinOf(fresh.Leaf) == tunnel.PinOf(old.Leaf) {
		t.Error("SEC-K5 the key is the old one")
	}
	if saved, _ := a.vault.Load(t.Context()); string(saved.Chain[0]) != string(fresh.Leaf.Raw) {
		t.Error("the new certificate was not saved")
	}
	before, _ := tunnel.ParsePeer(old.Leaf)
	after, _ := tunnel.ParsePeer(fresh.Leaf)
	if before.AgentID != after.AgentID || before.Cluster != after.Cluster || before.Tenant != after.Tenant {
		t.Errorf("the identity changed from %+v to %+v", before, after)
	}
	t.Run("FT-L12 SEC-K5 CLU-05 old and new overlap: the old certificate stays good until it expires", func(t *testing.T) {
		_, err := linkv1.NewSessionClient(dialWith(t, r, old, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "e", Fingerprint: someFacts().Fingerprint})
		if err != nil {
			t.Errorf("Hello() with the old certificate = %v", err)
		}
	})
}

func TestExpiry(t *testing.T) {
	w := newWorld(t)
	clock := runtest.NewClock(time.Now())
	w.hub = clock
	r := w.start()
	cert, _, _ := w.credential(r, tenant())
	hello := func() error {
		_, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "e", Fingerprint: someFacts().Fingerprint})
		return err
	}
	if err := hello(); err != nil {
		t.Fatal(err)
	}
	clock.Wait(hubTimers)
	clock.Advance(7*24*time.Hour + time.Second)
	if err := hello(); fault.KindOf(err) != fault.Unknown || !strings.Contains(fault.Sentence(err), "the agent's certificate was good from") {
		t.Errorf("SEC-J1 Hello() with an expired certificate = %q", fault.Sentence(err))
	}
	w.dir.await(func() bool { return w.dir.left == 1 }) // FT-L12 the open session ended too
	clock.Wait(hubTimers)
	clock.Advance(-9 * 24 * time.Hour)
	if err := hello(); fault.KindOf(err) != fault.Unknown {
		t.Errorf("SEC-K7 Hello() with a certificate of the future = %v", err)
	}
}

func TestHubRestart(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), nil)
	a.sessions.awaitOpened(1)
	w.svc.row(string(a.cluster), "app", "before")
	w.svc.await(func() bool { return w.svc.acked[string(a.cluster)] == 1 })
	r.stop()
	if err := a.sessions.awaitClosed(1); fault.KindOf(err) != fault.Offline {
		t.Errorf("the session ended with %v", err)
	}
	w.svc.row(string(a.cluster), "app", "while it was away")
	a.reports.make(100)

	again := w.start()
	if one, two := mustPin(t, r), mustPin(t, again); one != two {
		t.Fatal("the hub's key changed with the restart: every agent would be lost")
	}
	p.retarget(again.addr)
	a.sessions.awaitOpened(2)
	w.svc.await(func() bool { return w.svc.receipts[string(a.cluster)] == 2 })
	a.reports.await(func() bool { return a.reports.acked == 1 })
	w.dir.await(func() bool { return len(w.dir.connected) == 1 })
}

func mustPin(t *testing.T, r *replica) tunnel.Pin {
	t.Helper()
	p, err := r.authority.Pin()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOutage(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), nil)
	a.sessions.awaitOpened(1)
	w.dir.fail(errors.New("postgres is away; password=hunter2"))
	p.cut()
	a.sessions.awaitClosed(1)
	p.awaitDials(4)
	if s := a.State(); s.Connected {
		t.Error("an agent was let in without its row")
	} else if s.Problem != nil && strings.Contains(s.Problem.Error(), "hunter2") {
		t.Errorf("SEC-C3 the agent hears %v", s.Problem)
	}
	w.dir.fail(nil)
	a.sessions.awaitOpened(2)
}

func TestConfig(t *testing.T) {
	if _, err := link.New(link.Config{}); err == nil || !strings.Contains(err.Error(), "Vault") || !strings.Contains(err.Error(), "Log") {
		t.Errorf("link.New() names not every problem: %v", err)
	}
	if _, err := fleet.New(fleet.Config{Heartbeat: time.Minute, Silence: time.Second}); err == nil || !strings.Contains(err.Error(), "Authority") || !strings.Contains(err.Error(), "two heartbeats") {
		t.Errorf("fleet.New() names not every problem: %v", err)
	}
	w := newWorld(t)
	c, err := link.New(link.Config{Vault: &vault{}, Cluster: someFacts(), Desired: newInventory(), Reports: newReporter("e"), Sessions: newListener(),
		Load: func() link.Load { return link.Load{} }, Epoch: "e", Log: w.log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); fault.KindOf(err) != fault.Missing {
		t.Errorf("Run() without an identity = %v", err)
	}
}

func (broken) RevocationVersion(context.Context) (int64, error) { return 0, errTestOver }

func (broken) Revocations(context.Context, time.Time) ([]hub.Revocation, error) {
	return nil, errTestOver
}

func (broken) MergeRevocations(context.Context, hub.TenantID, []hub.Revocation) error {
	return errTestOver
}
