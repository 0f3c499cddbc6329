package source

import (
	"context"
	"slices"
	"sync"

	"github.com/capstan-cd/capstan/hub"
)

// A queue holds claimed items until a worker is free and their tenant has fewer
// running than it may. Items beyond that are not accepted, so that slow servers
// of one tenant do not block others.
type queue struct {
	parallel, perTenant int

	mu      sync.Mutex
	changed *sync.Cond
	waiting []hub.WorkItem
	running map[hub.TenantID]map[string]hub.WorkItem // by key, with the newest lease
	busy    int
}

func newQueue(cfg LoopConfig) *queue {
	q := &queue{parallel: cfg.Parallel, perTenant: cfg.PerTenant, running: map[hub.TenantID]map[string]hub.WorkItem{}}
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

// freeWorkers waits for idle workers and returns their number.
func (q *queue) freeWorkers(ctx context.Context) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	err = q.wait(ctx, func() bool {
		n = q.parallel - q.busy - len(q.waiting)
		return n > 0
	})
	return n, err
}

// add adds items and returns those beyond the share of their tenant. An item
// that is running already was claimed again after its lease ran out: the
// running one goes on under the new lease.
func (q *queue) add(items []hub.WorkItem) (over []hub.WorkItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range items {
		mine := q.running[item.Tenant]
		if _, ok := mine[item.Key]; ok {
			mine[item.Key] = item
			continue
		}
		same := func(w hub.WorkItem) bool { return w.Tenant == item.Tenant && w.Key == item.Key }
		if i := slices.IndexFunc(q.waiting, same); i >= 0 {
			q.waiting[i] = item
			continue
		}
		share := len(mine)
		for _, w := range q.waiting {
			if w.Tenant == item.Tenant {
				share++
			}
		}
		if share >= q.perTenant {
			over = append(over, item)
			continue
		}
		q.waiting = append(q.waiting, item)
	}
	q.changed.Broadcast()
	return over
}

// next waits for an item.
func (q *queue) next(ctx context.Context) (item hub.WorkItem, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.wait(ctx, func() bool { return len(q.waiting) > 0 }); err != nil {
		return item, err
	}
	item = q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	if q.running[item.Tenant] == nil {
		q.running[item.Tenant] = map[string]hub.WorkItem{}
	}
	q.running[item.Tenant][item.Key] = item
	q.busy++
	return item, nil
}

// drain removes and returns the items that no worker has begun.
func (q *queue) drain() []hub.WorkItem {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.waiting
	q.waiting = nil
	return out
}

// newest returns a running item with its newest lease.
func (q *queue) newest(item hub.WorkItem) hub.WorkItem {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now, ok := q.running[item.Tenant][item.Key]; ok {
		return now
	}
	return item
}

func (q *queue) done(item hub.WorkItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	mine := q.running[item.Tenant]
	if delete(mine, item.Key); len(mine) == 0 {
		delete(q.running, item.Tenant)
	}
	q.changed.Broadcast()
}
