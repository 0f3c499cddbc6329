package link_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestVersions(t *testing.T) {
	w := newWorld(t)
	w.cfg = func(c *fleet.Config) { c.MinVersion, c.Features = "0.4.0", []string{"paint", tunnel.FeatureProbe} }
	r := w.start()

	t.Run("FT-L14 an agent that is too old is told to upgrade, and users see it", func(t *testing.T) {
		token, _, cluster := w.token(r, r.addr, tenant())
		v, err := w.enrol(token) // its version is no number
		if err != nil {
			t.Fatal(err)
		}
		a := w.run(v, func(c *link.Config) { c.Version = "0.3.9+abc" })
		w.dir.await(func() bool { return len(w.dir.refusals[cluster]) > 0 })
		got := w.dir.refusals[cluster][0]
		if got.Stage != "version" || got.AgentVersion != "0.3.9+abc" || !strings.Contains(got.Message, "needs an upgrade") || !strings.Contains(got.Message, "0.4.0") {
			t.Errorf("the hub notes %+v", got)
		}
		w.dir.await(func() bool {
			return a.State().Problem != nil && strings.Contains(a.State().Problem.Error(), "needs an upgrade") || wake(w)
		})
		a.stop()
	})
	t.Run("FT-L14 one that is too old cannot enrol, and the stage is stored", func(t *testing.T) {
		token, prefix, _ := w.token(r, r.addr, tenant())
		_, err := link.Enroll(t.Context(), token, link.EnrolConfig{Vault: &vault{}, Cluster: someFacts(), Log: w.log.logger(), Version: "v0.1.0-rc.1"})
		if fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "upgrade the agent") {
			t.Errorf("Enroll() = %q", fault.Sentence(err))
		}
		if got := w.dir.stages(prefix); len(got) != 1 || got[0] != "version" {
			t.Errorf("attempts %q", got)
		}
	})
	t.Run("FT-L14 a newer agent works with this hub, and each knows what the other can", func(t *testing.T) {
		token, _, cluster := w.token(r, r.addr, tenant())
		v, err := w.enrol(token)
		if err != nil {
			t.Fatal(err)
		}
		a := w.run(v, func(c *link.Config) { c.Version, c.Features = "99.0.0", []string{"time-travel"} })
		a.sessions.awaitOpened(1)
		w.svc.row(string(cluster), "app", "x")
		w.svc.await(func() bool { return w.svc.acked[string(cluster)] == 1 })
		if !a.Supports("paint") || a.Supports("time-travel") {
			t.Error("the agent does not know the hub's features")
		}
		if !r.Supports(cluster, "time-travel") || r.Supports(cluster, "paint") {
			t.Error("the hub does not know the agent's features")
		}
	})
	t.Run("FT-L14 fields of a newer agent are ignored", func(t *testing.T) {
		cert, v, _ := w.credential(r, tenant())
		req := &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint}
		raw := protowire.AppendTag(nil, 4000, protowire.BytesType)
		req.ProtoReflect().SetUnknown(protowire.AppendString(raw, "from the future"))
		if _, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), req); err != nil {
			t.Errorf("Hello() = %v", err)
		}
	})
	t.Run("FT-L14 a row of an unknown kind is stored, named to the hub, and stops nothing", func(t *testing.T) {
		a := w.join(r, r.addr, tenant(), nil)
		a.sessions.awaitOpened(1)
		name := string(a.cluster)
		w.svc.row(name, "app", "one")
		w.svc.await(func() bool { return w.svc.acked[name] == 1 })
		w.svc.mu.Lock()
		last := w.svc.logs[name][0]
		odd := &linkv1.Row{Seq: 2, Kind: 77, AppId: "app", Body: last.GetBody()}
		odd.Chain = hashchain.Next(last.GetChain(), 2, 77, "app", odd.GetBody())
		w.svc.logs[name] = append(w.svc.logs[name], proto.Clone(odd).(*linkv1.Row))
		w.svc.changed.Broadcast()
		w.svc.mu.Unlock()
		w.svc.row(name, "app", "three")
		w.svc.await(func() bool { return w.svc.acked[name] == 3 })
		w.svc.mu.Lock()
		defer w.svc.mu.Unlock()
		if got := w.svc.unsupported[name]; len(got) != 1 || got[0] != 2 {
			t.Errorf("the agent named rows %v", got)
		}
	})
}

// wake lets a condition that nobody announces be looked at again.
func wake(w *world) bool {
	time.AfterFunc(time.Millisecond, func() { _ = w.dir.do(func() error { return nil }) })
	return false
}

func TestRefusalsAreShown(t *testing.T) {
	w := newWorld(t)
	clock := runtest.NewClock(time.Now())
	w.hub = clock
	r := w.start()
	cert, v, cluster := w.credential(r, tenant())
	hello := func(fingerprint string) {
		_, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: fingerprint, AgentVersion: "1.0.0"})
		if fault.KindOf(err) != fault.Denied {
			t.Errorf("Hello() = %v", err)
		}
	}
	for range 5 {
		hello("clone")
	}
	if got := w.dir.refusals[cluster]; len(got) != 1 || got[0].Stage != "fingerprint" || !strings.Contains(got[0].Message, "cloned") || got[0].Address == "" {
		t.Errorf("SEC-K1 the hub notes %+v, want the clone once", got)
	}
	clock.Advance(time.Minute)
	hello("clone")
	if got := w.dir.refusals[cluster]; len(got) != 2 {
		t.Errorf("a minute later there are %d notes", len(got))
	}
	w.dir.revoke(hub.Revocation{AgentID: v.id.AgentID})
	clock.Wait(hubTimers)
	clock.Advance(2 * time.Second)
	clock.Wait(hubTimers)
	clock.Advance(time.Minute)
	hello(someFacts().Fingerprint)
	if got := w.dir.refusals[cluster]; got[len(got)-1].Stage != "certificate" {
		t.Errorf("SEC-K5 the hub notes %+v of a revoked agent", got[len(got)-1])
	}
}

func TestProbes(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	a := w.join(r, r.addr, tenant(), nil)
	a.sessions.awaitOpened(1)
	cert, err := a.Identity().Certificate()
	if err != nil {
		t.Fatal(err)
	}
	res, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), &linkv1.HelloRequest{Epoch: "doctor", Fingerprint: someFacts().Fingerprint, Probe: true})
	if err != nil || res.GetClusterName() != "demo" || len(res.GetObjectKey()) > 0 || len(res.GetMaskKey()) > 0 {
		t.Errorf("a probe gives %v, %v; want no keys", res, err)
	}
	if w.dir.hellos != 1 || !a.connected(t) || len(a.sessions.opened) != 1 {
		t.Error("FT-L8 a probe replaced the agent that runs")
	}
	if err := call(t.Context(), dialWith(t, r, cert, tunnel.Control()), linkv1.Desired_Follow_FullMethodName); fault.KindOf(err) != fault.Conflict {
		t.Errorf("SEC-D1 after a probe a call = %v", err)
	}
	token, prefix, _ := w.token(r, r.addr, tenant())
	parsed, err := tunnel.ParseJoinToken(token)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e, err := linkv1.NewIdentityClient(dialPlain(t, r)).Enroll(t.Context(), &linkv1.EnrollRequest{Token: string(parsed.Secret), Probe: true})
		if err != nil || e.GetClusterName() != "demo" || len(e.GetChain()) > 0 {
			t.Errorf("SEC-K2 a probe of a token = %v, %v", e, err)
		}
	}
	if _, err := w.enrol(token); err != nil {
		t.Errorf("a token that was probed does not work: %v", err)
	}
	if got := w.dir.stages(prefix); len(got) != 1 {
		t.Errorf("attempts %q", got)
	}
}

func TestWatchdog(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	token, _, _ := w.token(r, r.addr, tenant())
	v, err := w.enrol(token)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	clock := runtest.NewClock(time.Now())
	rep := newReporter("e")
	c, err := link.New(link.Config{
		Vault: v, Cluster: someFacts(), Desired: newInventory(), Reports: rep, Sessions: newListener(), Load: func() link.Load { return link.Load{} },
		Epoch: "e", Log: w.log.logger(), Clock: clock, Random: func() float64 { return 0.5 },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	clock.Wait(2)                // bulk and watchdog
	clock.Advance(5 * time.Hour) // the machine slept
	var passed time.Duration
	for {
		select {
		case err = <-done:
		case <-tick(clock, 30*time.Second):
			passed += 30 * time.Second
			continue
		}
		break
	}
	for range 3 {
		clock.After(time.Hour) // frees the one that waits for the loops
	}
	if passed < 9*time.Minute || passed > 20*time.Minute {
		t.Errorf("FT-L2 the watchdog ended it after %s", passed)
	}
	if fault.KindOf(err) != fault.Offline || !strings.Contains(err.Error(), "has not replied for") {
		t.Errorf("FT-L2 Run() = %v, want the watchdog's reason", err)
	}
	if !strings.Contains(w.log.String(), "watchdog") {
		t.Error("FT-L2 the log has no line of the watchdog")
	}
}

// tick moves a clock once something waits for it, and tells.
func tick(clock *runtest.Clock, d time.Duration) <-chan struct{} {
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		clock.Wait(3) // bulk, watchdog, and the wait before the next attempt
		clock.Advance(d)
	}()
	return moved
}
