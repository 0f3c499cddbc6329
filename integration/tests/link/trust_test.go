package link_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// quick makes the loops of two replicas fast enough for a test.
func quick(name string) func(*fleet.Config) {
	return func(c *fleet.Config) {
		c.Replica, c.Revocation, c.Batch = name, 20*time.Millisecond, 20*time.Millisecond
	}
}

func (w *world) two() (*replica, *replica) {
	w.t.Helper()
	w.cfg = quick("one")
	one := w.start()
	w.cfg = quick("two")
	return one, w.start()
}

func TestCloneAtAnotherReplica(t *testing.T) {
	w := newWorld(t)
	one, two := w.two()
	a := w.join(one, one.addr, tenant(), nil)
	a.sessions.awaitOpened(1)
	cert, err := a.Identity().Certificate()
	if err != nil {
		t.Fatal(err)
	}
	say := func(r *replica, fingerprint string, probe bool) error {
		c, hangUp := dialOnce(t, r, cert, tunnel.Control())
		defer hangUp()
		_, err := linkv1.NewSessionClient(c).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "clone", Fingerprint: fingerprint, Probe: probe})
		return err
	}
	hello := func(fingerprint string) error {
		for {
			err := say(two, fingerprint, false)
			if fault.KindOf(err) != fault.Offline || t.Context().Err() != nil { // so many of one agent are not all let in
				return err
			}
		}
	}
	t.Run("FT-L9 a clone is refused, and the original is cut at the other replica", func(t *testing.T) {
		if err := hello("clone"); fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "cloned") {
			t.Errorf("Hello() of the clone = %v", err)
		}
		if reason := a.sessions.awaitClosed(1); fault.KindOf(reason) != fault.Denied || !strings.Contains(reason.Error(), "cloned") {
			t.Errorf("the original hears %v", reason)
		}
	})
	t.Run("FT-L9 neither is admitted before an admin has decided", func(t *testing.T) {
		for _, fingerprint := range []string{"clone", someFacts().Fingerprint} {
			if err := hello(fingerprint); fault.KindOf(err) != fault.Denied {
				t.Errorf("Hello() of %q = %v", fingerprint, err)
			}
		}
	})
	t.Run("FT-L9 the one with the identity is admitted, the other one is not and starts no new quarantine", func(t *testing.T) {
		w.dir.endQuarantine(a.cluster, someFacts().Fingerprint, "clone")
		a.stop() // it would wait for half a minute, as would one that comes before the replicas know
		for _, r := range []*replica{one, two} {
			for say(r, someFacts().Fingerprint, true) != nil {
				if t.Context().Err() != nil {
					t.Fatal("the decision is not known")
				}
			}
		}
		back := w.run(a.vault, nil)
		back.sessions.awaitOpened(1)
		if err := hello("clone"); fault.KindOf(err) != fault.Denied {
			t.Errorf("Hello() of the clone = %v", err)
		}
		w.dir.mu.Lock()
		n := len(w.dir.quarantines)
		w.dir.mu.Unlock()
		if n != 0 || !back.connected(t) {
			t.Errorf("%d quarantines, state %+v", n, back.State())
		}
	})
}

func TestReplacedAtAnotherReplica(t *testing.T) {
	w := newWorld(t)
	one, two := w.two()
	older := w.join(one, one.addr, tenant(), func(c *link.Config) { c.Random = nil })
	older.sessions.awaitOpened(1)
	v := &vault{id: older.vault.id}
	v.id.Addresses = []string{two.addr}
	newer := w.run(v, nil)
	newer.sessions.awaitOpened(1)
	reason := older.sessions.awaitClosed(1)
	if fault.KindOf(reason) != fault.Conflict || !strings.Contains(reason.Error(), "another process with the same agent identity") {
		t.Errorf("FT-L8 the older one, at another replica, hears %v", reason)
	}
	if !newer.connected(t) {
		t.Error("FT-L4 the newer one was cut")
	}
}

func TestRevocationsSurviveARestore(t *testing.T) {
	w := newWorld(t)
	w.cfg = quick("one")
	r := w.start()
	org := tenant()
	cert, victim, _ := w.credential(r, org)
	w.dir.revoke(hub.Revocation{Tenant: org, AgentID: victim.id.AgentID, Until: w.hub.Now().Add(time.Hour)})
	out := func() error {
		for {
			c, hangUp := dialOnce(t, r, cert, tunnel.Control())
			_, err := linkv1.NewSessionClient(c).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "e", Fingerprint: someFacts().Fingerprint})
			hangUp()
			busy := fault.KindOf(err) == fault.Offline || fault.KindOf(err) == fault.Exceeded // so many of one address, or one cluster, are not all admitted
			if !busy || t.Context().Err() != nil {
				return err
			}
		}
	}
	for fault.KindOf(out()) != fault.Denied {
		if t.Context().Err() != nil {
			t.Fatal("the revocation is not known")
		}
	}
	witness := w.join(r, r.addr, org, nil)
	shown := witness.sessions.awaitOpened(1).GetRevoked()
	if len(shown) != 1 || shown[0].GetAgentId() != victim.id.AgentID {
		t.Fatalf("the agent was told of %v", shown)
	}
	witness.stop()
	_ = w.dir.do(func() error { w.dir.revoked = nil; w.dir.version += 2; return nil }) // the database of before
	for out() != nil {
		if t.Context().Err() != nil {
			t.Fatal("the revocation is still known")
		}
	}
	t.Run("SEC-K3 what the hub did not sign revokes nobody", func(t *testing.T) {
		bad := &linkv1.Revoked{AgentId: victim.id.AgentID, UntilUnix: shown[0].GetUntilUnix() + 9, Proof: shown[0].GetProof()}
		again := w.run(witness.vault, func(c *link.Config) { c.Revoked = func() []*linkv1.Revoked { return []*linkv1.Revoked{bad} } })
		again.sessions.awaitOpened(1)
		again.stop()
		if err := out(); err != nil {
			t.Errorf("the agent is out: %v", err)
		}
	})
	t.Run("FT-D9 a revocation that an agent knows holds again", func(t *testing.T) {
		again := w.run(witness.vault, func(c *link.Config) { c.Revoked = func() []*linkv1.Revoked { return shown } })
		again.sessions.awaitOpened(1)
		if err := out(); fault.KindOf(err) != fault.Denied {
			t.Errorf("Hello() of the revoked agent = %v", err)
		}
	})
}

type revocations = fleet.Revocations

// gated are revocations that cannot be read before the gate is opened.
type gated struct {
	revocations
	gate chan struct{}
}

func (g gated) RevocationVersion(ctx context.Context) (int64, error) {
	select {
	case <-g.gate:
		return g.revocations.RevocationVersion(ctx)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestHelloWhileTheHubStarts(t *testing.T) {
	w := newWorld(t)
	cert, _, _ := w.credential(w.start(), tenant())
	gate := make(chan struct{})
	w.cfg = func(c *fleet.Config) { c.Revocations = gated{c.Revocations, gate} }
	starting := w.start()
	hello := func(ctx context.Context, c grpc.ClientConnInterface) error {
		_, err := linkv1.NewSessionClient(c).Hello(ctx, &linkv1.HelloRequest{Epoch: "e", Fingerprint: someFacts().Fingerprint})
		return err
	}
	t.Run("SEC-K3 no agent is admitted before revocations are loaded", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := hello(ctx, dialWith(t, starting, cert, tunnel.Control())); err == nil {
			t.Error("Hello() let the agent in")
		}
	})
	t.Run("FT-H6 an agent that connects while the hub starts is admitted once they are", func(t *testing.T) {
		c := dialWith(t, starting, cert, tunnel.Control())
		gotText := make(chan error, 1)
		go func() { gotText <- hello(t.Context(), c) }()
		close(gate)
		if err := <-gotText; err != nil {
			t.Errorf("Hello() = %v", err)
		}
	})
}
