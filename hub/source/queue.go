package source

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// A queue holds claimed items until a worker takes them. It says how many may be
// claimed, so that no tenant has more than its share and slow servers of one
// tenant do not block others.
type queue struct {
	parallel, perTenant int
	freed               chan struct{} // there is more room than at the last look

	mu      sync.Mutex
	changed *sync.Cond
	waiting []hub.WorkItem
	running []*run
	claimed time.Time // the last time
	pending bool      // freed will be notified
}

// A run is an item that a worker has taken.
type run struct {
	item  hub.WorkItem // with the newest lease
	ended bool         // its outcome is being recorded, which ends its lease
}

// gather is the least time between two claims while room is short: what becomes
// due at short intervals is claimed together.
const gather = 30 * time.Millisecond

func newQueue(cfg LoopConfig) *queue {
	q := &queue{parallel: cfg.Parallel, perTenant: cfg.PerTenant, freed: make(chan struct{}, 1)}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// wait blocks until ready returns true or ctx ends. The caller holds the lock.
func (q *queue) wait(ctx context.Context, ready func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})
	defer stop()
	for ctx.Err() == nil && !ready() {
		q.changed.Wait()
	}
	return ctx.Err()
}

// room returns how many items may be claimed, whatever their tenants are, and
// the tenants that have their share already.
func (q *queue) room() (limit int, busy []hub.TenantID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit = min(q.parallel-len(q.running)-len(q.waiting), q.perTenant)
	for tenant, n := range q.shares() {
		if n < q.perTenant {
			limit = min(limit, q.perTenant-n)
		} else {
			busy = append(busy, tenant)
		}
	}
	return max(limit, 0), busy
}

// shares is how much of each tenant runs or waits. The caller holds the lock.
func (q *queue) shares() map[hub.TenantID]int {
	out := map[hub.TenantID]int{}
	for _, r := range q.running {
		out[r.item.Tenant]++
	}
	for _, w := range q.waiting {
		out[w.Tenant]++
	}
	return out
}

// add adds claimed items. One that is running already was claimed again after
// its lease ran out: the running one goes on under the new lease. One whose
// outcome is being recorded became due again, and waits for a worker.
func (q *queue) add(items []hub.WorkItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claimed = time.Now()
	for _, item := range items {
		same := func(w hub.WorkItem) bool { return w.Tenant == item.Tenant && w.Key == item.Key }
		if i := slices.IndexFunc(q.running, func(r *run) bool { return !r.ended && same(r.item) }); i >= 0 {
			q.running[i].item = item
			continue
		}
		if i := slices.IndexFunc(q.waiting, same); i >= 0 {
			q.waiting[i] = item
			continue
		}
		q.waiting = append(q.waiting, item)
	}
	q.changed.Broadcast()
}

// next waits for an item.
func (q *queue) next(ctx context.Context) (*run, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.wait(ctx, func() bool { return len(q.waiting) > 0 }); err != nil {
		return nil, err
	}
	r := &run{item: q.waiting[0]}
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.running = append(q.running, r)
	return r, nil
}

// drain removes and returns the items that no worker has begun.
func (q *queue) drain() []hub.WorkItem {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.waiting
	q.waiting = nil
	return out
}

// end returns the item of a run with its newest lease, for its outcome to be
// recorded. From then on the item can be claimed for another run.
func (q *queue) end(r *run) hub.WorkItem {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.ended = true
	return r.item
}

// done takes a run out. If nothing could be claimed for its tenant or at all,
// that can be tried again, soon after the last claim.
func (q *queue) done(r *run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	short := len(q.running)+len(q.waiting) >= q.parallel || q.shares()[r.item.Tenant] >= q.perTenant
	if i := slices.Index(q.running, r); i >= 0 {
		q.running = slices.Delete(q.running, i, i+1)
	}
	q.changed.Broadcast()
	if short && !q.pending {
		q.pending = true
		time.AfterFunc(time.Until(q.claimed.Add(gather)), q.free)
	}
}

// free notifies the claim that waits, or the next one.
func (q *queue) free() {
	q.mu.Lock()
	q.pending = false
	q.mu.Unlock()
	select {
	case q.freed <- struct{}{}:
	default: // one is waiting
	}
}
