package faults_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/harness"
)

// nth does something at the n-th statement of a person's request: statements
// of transactions that may write, from the moment at which it is set.
func nth(n int, act harness.SQLAct) *atomic.Bool {
	var hit atomic.Bool
	var mu sync.Mutex
	seen := 0
	s.SQL.Judge(func(x harness.Statement) harness.SQLAct {
		if x.Role != harness.AppRole || !x.Tx {
			return harness.SQLAct{}
		}
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen != n {
			return harness.SQLAct{}
		}
		hit.Store(true)
		return act
	})
	return &hit
}

// syncs counts what people have asked for.
func (r *round) syncs() int {
	r.t.Helper()
	var n int
	err := database(r.t).QueryRow(r.t.Context(), "SELECT count(*) FROM operation o JOIN application a ON a.id = o.application_id WHERE a.name = $1 AND NOT coalesce((initiator->>'automated')::boolean, false)", r.name).Scan(&n)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func TestStatementsFail(t *testing.T) {
	r := newRound(t, "statements", 0)
	r.push("one", four)
	r.create(false)
	r.refreshed()
	t.Cleanup(func() { s.SQL.Judge(nil) })
	ways := []struct {
		what string
		act  harness.SQLAct
	}{
		{"FT-D1 the connection is cut before", harness.SQLAct{CutBefore: true}},
		{"FT-D2 the answer is lost of", harness.SQLAct{Lose: true}},
		{"FT-D4 the server refuses (40001)", harness.SQLAct{Error: "40001"}},
		{"FT-D4 the server has no connections left at", harness.SQLAct{Error: "53300"}},
		{"FT-D4 the server gives up (statement timeout) at", harness.SQLAct{Error: "57014"}},
		{"FT-D4 the server ends an idle transaction (25P03)", harness.SQLAct{Error: "25P03"}},
	}
	// A soak hits each statement in each way, a short run hits each statement
	// in one way and each way at some statements.
	step := len(ways)
	if soak {
		step = 1
	}
	for i, way := range ways {
		what, act := way.what, way.act
		t.Run(what+" statements of start-sync: one request, one operation", func(t *testing.T) {
			r.t = t
			statements := 0
			for n := 1 + i%step; n < 100; n += step {
				before := r.syncs()
				hit := nth(n, act)
				r.sync(fmt.Sprintf("%s-%d-%s%s", r.name, n, act.Error, map[bool]string{true: "lose", false: "cut"}[act.Lose]))
				s.SQL.Judge(nil)
				if got := r.syncs() - before; got != 1 {
					t.Errorf("statement %d: %d operations came of one request", n, got)
				}
				r.settled()
				r.rest()
				if !hit.Load() {
					break
				}
				statements++
			}
			t.Logf("%d statements", statements)
			if statements*step < 5 {
				t.Errorf("only %d statements were hit", statements)
			}
		})
	}
	t.Run("INV-1 INV-2 INV-4 INV-8 INV-10 INV-11 after all of them", func(t *testing.T) {
		r.t = t
		r.gather()
		r.remove()
		r.gather()
		r.judge()
	})
}

func TestLinkFails(t *testing.T) {
	t.Cleanup(func() { s.Link.Set(harness.Weather{}) })
	t.Run("FT-L1 FT-L6 the link is cut after every few bytes, delayed and slow, during a whole life", func(t *testing.T) {
		stop := make(chan struct{})
		var over sync.WaitGroup
		cuts := 0
		s.Link.Set(harness.Weather{Delay: time.Millisecond, Jitter: 15 * time.Millisecond})
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
		newRound(t, "cuts", 0).life()
		close(stop)
		over.Wait()
		s.Link.Set(harness.Weather{})
		t.Logf("%d cuts", cuts)
		if cuts == 0 {
			t.Error("nothing was cut")
		}
		atRest(t)
	})
	t.Run("FT-L1 damaged bytes end the session and reach nobody", func(t *testing.T) {
		dials := s.Link.Dials()
		s.Link.Set(harness.Weather{Corrupt: 200})
		s.Link.AwaitDials(dials + 2)
		s.Link.Set(harness.Weather{})
		if err := s.Connected(within(t, patience), clusterName); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("FT-L2 FT-L5 a link that is silently dead is noticed by heartbeats, and a sync that was asked for meanwhile is delivered", func(t *testing.T) {
		r := newRound(t, "half-open", 0)
		r.push("one", four)
		r.create(false)
		r.refreshed()
		dials := s.Link.Dials()
		s.Link.Set(harness.Weather{Swallow: harness.Both})
		r.sync("half-open-sync")
		s.Link.AwaitDials(dials + 1) // the agent gave the dead connection up
		s.Link.Set(harness.Weather{})
		s.Link.Cut() // what was dialled into the hole is as dead
		r.settled()
		r.rest()
		r.gather()
		r.remove()
		r.gather()
		r.judge()
	})
}
