package link_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/hashchain"
)

// TestCuts cuts the connection after any number of bytes, again and again,
// while rows come down and reports go up, and restarts hub or agent between.
// In the end nothing is lost, nothing is acknowledged that was not stored,
// and both sides have equal roots.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(&scope{TB: t, rt: rt})
		defer w.t.(*scope).end()
		r := w.start()
		rows := rapid.IntRange(0, 40).Draw(rt, "rows")
		reports := rapid.IntRange(0, 40).Draw(rt, "reports")
		size := rapid.SampledFrom([]int{10, 3000, 20000}).Draw(rt, "report size")
		budgets := rapid.SliceOfN(rapid.IntRange(0, 30000), 0, 8).Draw(rt, "bytes before each cut")
		restarts := rapid.IntRange(0, 2).Draw(rt, "hub restarts")

		token, _, cluster := w.token(r, r.addr, tenant())
		v, err := w.enrol(token)
		if err != nil {
			rt.Fatalf("Enroll() = %v", err)
		}
		p := newProxy(w.t, r.addr, budgets...)
		v.id.Addresses = []string{p.addr()}
		a := w.run(v, nil)
		name := string(cluster)
		for i := range max(rows, reports) {
			if i < rows {
				w.svc.row(name, fmt.Sprintf("app-%d", i%7), fmt.Sprintf("body %d", i))
			}
			if i < reports {
				a.reports.make(size)
			}
		}
		for range restarts {
			r.stop()
			r = w.start()
			p.retarget(r.addr)
			p.cut()
		}

		w.svc.await(func() bool {
			return w.svc.acked[name] == uint64(rows) && (rows == 0 || w.svc.receipts[name] == uint64(rows))
		})
		a.reports.await(func() bool { return a.reports.acked == uint64(reports) })
		a.stop()
		w.verify(rt, a, name, rows, reports)
	})
}

func (w *world) verify(rt *rapid.T, a *agent, cluster string, rows, reports int) {
	if got := a.desired.Cursor().GetSeq(); got != uint64(rows) {
		rt.Errorf("INV-1 the agent has %d of %d rows", got, rows)
	}
	w.svc.mu.Lock() // what was sent twice may still come in
	defer w.svc.mu.Unlock()
	prev := hashchain.First(incarnation)
	for _, row := range a.desired.rows {
		prev = hashchain.Next(prev, row.GetSeq(), int32(row.GetKind()), row.GetAppId(), row.GetBody())
		if string(prev) != string(row.GetChain()) {
			rt.Errorf("INV-8 the chain of hashes is broken at row %d", row.GetSeq())
		}
	}
	if got := len(w.svc.taken[cluster]); got != reports {
		rt.Errorf("FT-L6 the hub has %d of %d reports", got, reports)
	}
	for seq, r := range w.svc.taken[cluster] {
		if len(r.GetApps()) != 1 || r.GetApps()[0].GetAppId() != fmt.Sprint(seq) {
			rt.Errorf("FT-L6 report %d holds %v", seq, r.GetApps())
		}
	}
}

// scope is a test of its own inside a property: what it cleans up is cleaned
// up after each case.
type scope struct {
	testing.TB
	rt    *rapid.T
	clean []func()
}

func (s *scope) Cleanup(fn func())         { s.clean = append(s.clean, fn) }
func (s *scope) Fatal(args ...any)         { s.rt.Fatal(args...) }
func (s *scope) Fatalf(f string, a ...any) { s.rt.Fatalf(f, a...) }
func (s *scope) Errorf(f string, a ...any) { s.rt.Errorf(f, a...) }

func (s *scope) end() {
	for i := len(s.clean) - 1; i >= 0; i-- {
		s.clean[i]()
	}
}
