package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/run"
)

const (
	// queuePoll is the truth: work that nobody hinted at, such as a retry
	// that becomes due or a row of another replica, is found this late.
	queuePoll  = time.Second
	workLease  = 30 * time.Second
	offlineGap = 2 * time.Second // between looks at a database that is away
	// longestWork is how long a lease is kept up for one item. What takes
	// longer is stuck, and another replica may try.
	longestWork = time.Hour
)

// shared are the kinds of work that have a home: the replica with the mirror.
var shared = []string{hub.WorkFetch, hub.WorkRefresh}

// A queue waits for work of one kind. Hints make it look at once. What it has
// claimed it holds until it is given back, and keeps up the lease meanwhile.
type queue struct {
	system *store.System
	owner  string
	lease  time.Duration
	among  func() []string // replicas that share out work; nil or empty: this one is alone
	closed func() bool     // nothing is claimed any more; nil: never
	beat   func(kind string)

	mu    sync.Mutex
	kinds map[string]chan struct{}
	held  map[itemKey]holding
}

type itemKey struct {
	kind   string
	tenant hub.TenantID
	key    string
}

type holding struct {
	item  hub.WorkItem
	since time.Time
}

func newQueue(system *store.System, owner string) *queue {
	return &queue{
		system: system, owner: owner, lease: workLease, beat: func(string) {},
		kinds: map[string]chan struct{}{}, held: map[itemKey]holding{},
	}
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
	signal := q.signal(kind)
	for {
		q.beat(kind)
		items, err := q.claim(ctx, kind, limit)
		if err != nil && fault.KindOf(err) != fault.Offline {
			return nil, err
		}
		if len(items) > 0 {
			q.hold(items)
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
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (q *queue) claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error) {
	if q.closed != nil && q.closed() {
		return nil, nil
	}
	if q.among != nil && slices.Contains(shared, kind) {
		if among := q.among(); len(among) > 0 {
			return q.system.ClaimShare(ctx, kind, q.owner, among, limit, q.lease)
		}
	}
	return q.system.Claim(ctx, kind, q.owner, limit, q.lease)
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

func keyOf(i hub.WorkItem) itemKey { return itemKey{i.Kind, i.Tenant, i.Key} }

func (q *queue) hold(items []hub.WorkItem) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range items {
		q.held[keyOf(i)] = holding{i, now}
	}
}

// drop lets leases run out that are not given back.
func (q *queue) drop(items []hub.WorkItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range items {
		q.beat(i.Kind)
		if h, ok := q.held[keyOf(i)]; ok && h.item.Token <= i.Token {
			delete(q.held, keyOf(i))
		}
	}
}

// keepUp renews what is held until ctx ends. A lease that was lost meanwhile
// stays lost: what is written under it is refused.
func (q *queue) keepUp(ctx context.Context, clock run.Clock, log *slog.Logger) error {
	failed := func(err error) {
		log.WarnContext(ctx, "leases of work are not renewed; they run out", logkey.Error, err)
	}
	return run.Every(ctx, clock, q.lease/3, 0.1, failed, func(ctx context.Context) error {
		items := q.holdings()
		if len(items) == 0 {
			return nil
		}
		n, err := q.system.Renew(ctx, items, q.lease)
		if err == nil && n < len(items) {
			log.DebugContext(ctx, "leases of work were given back or lost", logkey.Count, len(items)-n)
		}
		return err
	})
}

func (q *queue) holdings() []hub.WorkItem {
	old := time.Now().Add(-longestWork)
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]hub.WorkItem, 0, len(q.held))
	for k, h := range q.held {
		if h.since.Before(old) {
			delete(q.held, k)
			continue
		}
		out = append(out, h.item)
	}
	return out
}
