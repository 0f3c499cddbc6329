package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// queuePoll is the truth: work that nobody hinted at, such as a retry
	// that becomes due or a row of another replica, is found this late.
	queuePoll  = time.Second
	offlineGap = 2 * time.Second // between looks at a database that is away
)

// shared are the kinds of work that have a home: the replica with the mirror.
var shared = []string{hub.WorkFetch, hub.WorkRefresh}

// A queue waits for work of one kind. Hints make it look at once.
type queue struct {
	system *store.System
	owner  string
	among  func() []string   // replicas that share out work; nil or empty: this one is alone
	closed func() bool       // nothing is claimed any more; nil: never
	beat   func(kind string) // the loop of that kind comes round

	mu     sync.Mutex
	kinds  map[string]chan struct{}
	leases *leases
}

func newQueue(system *store.System, owner string) *queue {
	return &queue{system: system, owner: owner, beat: func(string) {}, kinds: map[string]chan struct{}{}, leases: newLeases()}
}

func (q *queue) signal(kind string) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.kinds[kind]
	if !ok {
		c = make(chan struct{}, 1)
		q.kinds[kind] = c
	}
	return c
}

// hint says that work of these kinds may be due.
func (q *queue) hint(kinds ...string) {
	for _, kind := range kinds {
		select {
		case q.signal(kind) <- struct{}{}:
		default: // one is waiting
		}
	}
}

// all hints at every kind: a transaction may have enqueued any.
func (q *queue) all() { q.hint(hub.WorkFetch, hub.WorkRefresh, hub.WorkOutcome, hub.WorkRetry) }

// Claim leases work and waits for the first item. A database that is away is
// waited for: nothing can be done without it, and it is reported elsewhere.
func (q *queue) Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error) {
	return q.ClaimExcept(ctx, kind, limit, func() []hub.TenantID { return nil }, nil)
}

// ClaimExcept is Claim that leaves out the tenants that busy gives, and looks
// again when freed says that these have become fewer.
func (q *queue) ClaimExcept(ctx context.Context, kind string, limit int, busy func() []hub.TenantID, freed <-chan struct{}) ([]hub.WorkItem, error) {
	signal := q.signal(kind)
	for {
		q.beat(kind)
		items, err := q.claim(ctx, kind, limit, busy())
		if err != nil && fault.KindOf(err) != fault.Offline {
			return nil, err
		}
		if len(items) > 0 {
			q.leases.took(items)
			return items, nil
		}
		wait := queuePoll
		if err != nil {
			wait = offlineGap
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-signal:
		case <-freed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (q *queue) claim(ctx context.Context, kind string, limit int, busy []hub.TenantID) ([]hub.WorkItem, error) {
	if q.closed != nil && q.closed() {
		return nil, nil
	}
	if q.among != nil && slices.Contains(shared, kind) {
		if among := q.among(); len(among) > 0 {
			return q.system.ClaimShare(ctx, kind, q.owner, among, limit, q.leases.lease, busy)
		}
	}
	return q.system.ClaimExcept(ctx, kind, q.owner, limit, q.leases.lease, busy)
}

// Done gives items back as finished.
func (q *queue) Done(ctx context.Context, items []hub.WorkItem) error {
	q.drop(items)
	return q.system.Done(ctx, items)
}

// Later gives items back for another try.
func (q *queue) Later(ctx context.Context, items []hub.WorkItem, due time.Time) error {
	q.drop(items)
	return q.system.Later(ctx, items, due)
}

// drop renews the leases of items no more; those that are not given back
// run out.
func (q *queue) drop(items []hub.WorkItem) {
	for _, i := range items {
		q.beat(i.Kind)
	}
	q.leases.gave(items)
}
