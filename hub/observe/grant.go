package observe

import (
	"time"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Buckets is the name of a feature: the hub compares hashes of buckets, so an
// agent need not send what is known.
const Buckets = "report-buckets"

// How many bytes an agent may have on the way without an answer: changes, and
// the snapshots that may wait behind them.
const (
	mostCredit  = 1 << 20
	leastCredit = 16 << 10
	prompt      = 100 * time.Millisecond // a report that is stored within this costs no credit
)

// A grant is what one agent may send. It follows how long its own reports take
// to be stored: an agent whose hub is behind gathers more into each report.
type grant struct{ lag time.Duration }

// took records the duration of a report; a single slow one counts for a
// quarter.
func (g *grant) took(d time.Duration) { g.lag += (d - g.lag) / 4 }

func (g *grant) credit() uint64 {
	if g.lag <= prompt {
		return mostCredit
	}
	return max(leastCredit, mostCredit*uint64(prompt)/uint64(g.lag))
}

// on puts what is granted into an answer. Snapshots get half, and nothing
// beyond the least while the hub is far behind.
func (g *grant) on(down *linkv1.ReportDown) *linkv1.ReportDown {
	down.Credit = g.credit()
	down.SnapshotCredit = max(leastCredit, down.Credit/2)
	return down
}

// sums reads the hashes that an agent sends.
func sums(in *linkv1.Sums) *hub.Sums {
	if in == nil {
		return nil
	}
	out := &hub.Sums{First: in.GetFirst(), Second: map[uint8]hub.BucketSums{}}
	for _, s := range in.GetSecond() {
		out.Second[uint8(s.GetBucket())] = hub.BucketSums{Index: s.GetIndex(), Sums: s.GetSums()}
	}
	return out
}

// comparison is the reply to an agent's hashes; nil if it sent none.
func comparison(up *linkv1.ReportUp, found *hub.Comparison) *linkv1.Compare {
	if found == nil {
		return nil
	}
	out := &linkv1.Compare{Snapshot: up.GetSnapshot(), Done: len(found.First) == 0}
	for _, b := range found.First {
		out.First = append(out.First, uint32(b))
	}
	for _, b := range found.Second {
		out.Second = append(out.Second, uint32(b))
	}
	return out
}
