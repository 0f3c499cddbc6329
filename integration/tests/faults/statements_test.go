package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

// nth does something at the n-th statement of a person's request: statements
// of transactions that may write, from the moment at which it is set.
func nth(n int, act faultproxy.SQLAct) *atomic.Bool {
	var hit atomic.Bool
	var mu sync.Mutex
	seen := 0
	s.SQL.Decide(func(x faultproxy.Statement) faultproxy.SQLAct {
		if x.Role != postgres.AppRole || !x.Tx {
			return faultproxy.SQLAct{}
		}
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen != n {
			return faultproxy.SQLAct{}
		}
		hit.Store(true)
		return act
	})
	return &hit
}

// syncs counts what people have asked for.
func (r *round) syncs() int {
	r.t.Helper()
	conn := database(r.t)
	defer conn.Close(context.WithoutCancel(r.t.Context()))
	var n int
	err := conn.QueryRow(r.t.Context(), "SELECT count(*) FROM operation o JOIN application a ON a.id = o.application_id WHERE a.name = $1 AND NOT coalesce((initiator->>'automated')::boolean, false)", r.name).Scan(&n)
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
	t.Cleanup(func() { s.SQL.Decide(nil) })
	ways := []struct {
		what string
		act  faultproxy.SQLAct
	}{
		{"FT-D1 the connection is cut before", faultproxy.SQLAct{CutBefore: true}},
		{"FT-D2 the answer is lost of", faultproxy.SQLAct{Lose: true}},
		{"FT-D4 the server refuses (40001)", faultproxy.SQLAct{Error: "40001"}},
		{"FT-D4 the server has no connections left at", faultproxy.SQLAct{Error: "53300"}},
		{"FT-D4 the server gives up (statement timeout) at", faultproxy.SQLAct{Error: "57014"}},
		{"FT-D4 the server ends an idle transaction (25P03)", faultproxy.SQLAct{Error: "25P03"}},
	}
	// A soak fails each statement in each way; a short run fails each statement
	// in one way, and so in each way some statements.
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
				s.SQL.Decide(nil)
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
		r.collect()
		r.remove()
		r.collect()
		r.check()
	})
}
