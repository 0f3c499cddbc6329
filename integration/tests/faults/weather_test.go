package faults_test

import (
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
)

// briefly is the part of a life in which an agent is told the most: a
// deployment, one with prune, and the deletion.
func (r *round) briefly() {
	r.t.Helper()
	r.push("one", four)
	r.create(true)
	r.settled()
	r.push("two", four[:2])
	r.settled()
	r.rest()
	r.collect()
	r.remove()
	r.collect()
	r.check()
}

func TestLinkFails(t *testing.T) {
	t.Cleanup(func() { s.Link.Set(faultproxy.NetworkFaults{}) })
	t.Run("FT-L1 FT-L6 the link is cut after every few bytes, delayed and slow, during a whole lifecycle", func(t *testing.T) {
		stop := make(chan struct{})
		var over sync.WaitGroup
		cuts := 0
		s.Link.Set(faultproxy.NetworkFaults{Delay: time.Millisecond, Jitter: 15 * time.Millisecond})
		over.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(1500 * time.Millisecond):
					cuts += s.Link.Cut()
				}
			}
		})
		if r := newRound(t, "cuts", 0); soak {
			r.life()
		} else {
			r.briefly()
		}
		close(stop)
		over.Wait()
		s.Link.Set(faultproxy.NetworkFaults{})
		t.Logf("%d cuts", cuts)
		if cuts == 0 {
			t.Error("nothing was cut")
		}
		atRest(t)
	})
	t.Run("FT-L1 corrupted bytes end the session and are not processed", func(t *testing.T) {
		dials := s.Link.Dials()
		s.Link.Set(faultproxy.NetworkFaults{Corrupt: 200})
		s.Link.AwaitDials(dials + 2)
		s.Link.Set(faultproxy.NetworkFaults{})
		if err := s.Connected(within(t, waitLimit), clusterName); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("FT-L2 FT-L5 a silent link is detected by heartbeats, and a sync requested meanwhile is delivered", func(t *testing.T) {
		r := newRound(t, "half-open", 0)
		r.push("one", four)
		r.create(false)
		r.refreshed()
		dials := s.Link.Dials()
		s.Link.Set(faultproxy.NetworkFaults{Swallow: faultproxy.Both})
		r.sync("half-open-sync")
		s.Link.AwaitDials(dials + 1) // the agent gave the dead connection up
		s.Link.Set(faultproxy.NetworkFaults{})
		s.Link.Cut() // what was dialled into the hole is as dead
		r.settled()
		r.rest()
		r.collect()
		r.remove()
		r.collect()
		r.check()
	})
}
