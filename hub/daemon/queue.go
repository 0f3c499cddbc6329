package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/pacing"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/trace"
)

const (
	// queuePoll is the fallback that guarantees progress: work without a
	// notification, such as a due retry or a row of another replica, is found
	// this late.
	queuePoll  = time.Second
	seldomPoll = 10 * time.Second // the same for upgrades, which come seldom; what is put off is hinted at
	offlineGap = 2 * time.Second  // between attempts with an unreachable database
	claimTime  = time.Minute      // timeout of one attempt
	maxParents = 4096             // traces of work that waits, by kind
)

// counts receives work that is claimed and released.
type counts interface {
	Claimed(kind string, n int)
	Finished(kind string, done bool, took time.Duration)
	Fetched(ok bool)
	Reconciled(took time.Duration)
}

// shared are the kinds of work that have a home: the replica with the mirror.
var shared = []string{hub.WorkFetch, hub.WorkRefresh}

// A Queue waits for work of one kind. Notifications make it claim at once.
type queue struct {
	system  *store.System
	owner   string
	metrics counts          // nil: no metrics
	among   func() []string // replicas that share out work; nil or empty: this one is alone
	closed  func() bool     // nothing is claimed any more; nil: never
	pacer   *pacing.Pacer
	mu      sync.Mutex
	kinds   map[string]chan struct{}
	leases  *leases
	leased  map[int64]leasedItem // by lease
	// parents are the traces that enqueued work on this replica. Losing one
	// costs a connection between spans.
	parents map[parentKey]string
	// pushes are what Git hosts have said of repositories that wait to be
	// fetched. Losing one costs a listing.
	pushes map[parentKey]hub.Pushed
}

// leasedItem is when an item was claimed, and what it is.
type leasedItem struct {
	at   time.Time
	kind string
}

type parentKey struct {
	kind   string
	tenant hub.TenantID
	key    string
}

func newQueue(system *store.System, owner string) *queue {
	q := &queue{
		system: system, owner: owner, kinds: map[string]chan struct{}{}, leases: newLeases(),
		leased: map[int64]leasedItem{}, parents: map[parentKey]string{}, pushes: map[parentKey]hub.Pushed{},
	}
	q.pacer = pacing.New(func() { q.notify(hub.WorkRefresh, hub.WorkOutcome) })
	return q
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

// notify says that work of these kinds may be due.
func (q *queue) notify(kinds ...string) {
	for _, kind := range kinds {
		select {
		case q.signal(kind) <- struct{}{}:
		default: // one is waiting
		}
	}
}

// all notifies every kind: a transaction may have enqueued any.
func (q *queue) all() {
	q.notify(hub.WorkFetch, hub.WorkRefresh, hub.WorkOutcome, hub.WorkRetry, hub.WorkUpgrade, hub.WorkBulk, hub.WorkApplicationSet, hub.WorkNotify, hub.WorkDeliver)
}

// follow makes work that was just enqueued continue a trace.
func (q *queue) follow(parent, kind string, tenant hub.TenantID, keys ...string) {
	if parent == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range keys {
		if len(q.parents) < maxParents {
			q.parents[parentKey{kind, tenant, key}] = parent
		}
	}
}

// pushed stores what a Git host has said of a repository until the repository
// is fetched. If several things were pushed, or there are several replicas, it
// stores none: everything is listed.
func (q *queue) pushed(tenant hub.TenantID, id hub.RepositoryID, what hub.Pushed) {
	if q.among != nil && len(q.among()) > 1 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	k := parentKey{hub.WorkFetch, tenant, string(id)}
	if other, ok := q.pushes[k]; ok && other.Ref != what.Ref {
		what.Ref, what.Commit = "", ""
	} else if !ok && len(q.pushes) >= maxParents {
		return
	}
	q.pushes[k] = what
}

// continued makes what a transaction enqueued continue the trace of ctx. It is
// called before the commit, so that nobody claims the work without it.
func (q *queue) continued(ctx context.Context, t *store.Tenant) {
	if parent := trace.Parent(ctx); parent != "" {
		t.Enqueued(func(kind, key string) { q.follow(parent, kind, t.ID(), key) })
	}
}

// Claim leases work and waits for the first item. It waits for an unreachable
// database: nothing can be done without it, and it is reported elsewhere.
func (q *queue) Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error) {
	return q.ClaimWithin(ctx, kind, func() (int, []hub.TenantID) {
		if kind == hub.WorkOutcome {
			return limit, q.pacer.Held(pacing.Feedback)
		}
		return limit, nil
	}, nil)
}

// ClaimWithin is Claim of as many as room returns, without the tenants that are
// busy, and claims again when freed signals that there is more room.
func (q *queue) ClaimWithin(ctx context.Context, kind string, room func() (limit int, busy []hub.TenantID), freed <-chan struct{}) ([]hub.WorkItem, error) {
	signal := q.signal(kind)
	for {
		lifecycle.Beat(ctx)
		if kind == hub.WorkOutcome {
			q.pacer.Wait(ctx, "")
		}
		limit, busy := room()
		items, err := q.claimBounded(ctx, kind, limit, busy)
		if err != nil && fault.KindOf(err) != fault.Offline {
			return nil, err
		}
		if len(items) > 0 {
			q.leases.took(items)
			q.noteLeased(items)
			return items, nil
		}
		wait := queuePoll
		switch {
		case err != nil:
			wait = offlineGap
		case kind == hub.WorkUpgrade:
			wait = seldomPoll
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

// claimBounded is claim with a timeout of its own: it distinguishes a database
// that does not respond from missing work.
func (q *queue) claimBounded(ctx context.Context, kind string, limit int, busy []hub.TenantID) ([]hub.WorkItem, error) {
	own, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	items, err := q.claim(own, kind, limit, busy)
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		return nil, fault.Wrap(fault.Offline, err, "the database does not answer")
	}
	return items, err
}

func (q *queue) claim(ctx context.Context, kind string, limit int, busy []hub.TenantID) ([]hub.WorkItem, error) {
	if limit < 1 || q.closed != nil && q.closed() {
		return nil, nil
	}
	if q.among != nil && slices.Contains(shared, kind) {
		if among := q.among(); len(among) > 0 {
			return q.system.ClaimShare(ctx, kind, q.owner, among, limit, q.leases.lease, busy)
		}
	}
	return q.system.ClaimExcept(ctx, kind, q.owner, limit, q.leases.lease, busy)
}

// noteLeased records when items were claimed and which traces they continue.
func (q *queue) noteLeased(items []hub.WorkItem) {
	if q.metrics != nil {
		q.metrics.Claimed(items[0].Kind, len(items))
	}
	now, begun := time.Now(), 0
	q.mu.Lock()
	defer func() {
		q.mu.Unlock()
		q.pacer.Refreshing(begun)
	}()
	for i := range items {
		k := parentKey{items[i].Kind, items[i].Tenant, items[i].Key}
		items[i].Trace, items[i].Pushed = q.parents[k], q.pushes[k]
		delete(q.parents, k)
		delete(q.pushes, k)
		q.leased[items[i].Token] = leasedItem{now, items[i].Kind}
		if items[i].Kind == hub.WorkRefresh {
			begun++
		}
	}
	for token, t := range q.leased {
		if now.Sub(t.at) > 2*longestHold { // never released
			delete(q.leased, token)
			if t.kind == hub.WorkRefresh {
				begun--
			}
		}
	}
}

func (q *queue) noteReturned(items []hub.WorkItem, done bool) {
	ended := 0
	q.mu.Lock()
	defer func() {
		q.mu.Unlock()
		q.pacer.Refreshing(-ended)
	}()
	for _, item := range items {
		t, ok := q.leased[item.Token]
		delete(q.leased, item.Token)
		if ok && t.kind == hub.WorkRefresh {
			ended++
		}
		if ok && q.metrics != nil {
			q.metrics.Finished(item.Kind, done, time.Since(t.at))
			if item.Kind == hub.WorkRefresh {
				q.metrics.Reconciled(time.Since(t.at))
			}
		}
	}
}

// Done releases items as finished.
func (q *queue) Done(ctx context.Context, items []hub.WorkItem) error {
	q.leases.release(items)
	q.noteReturned(items, true)
	again, err := q.system.Finish(ctx, items)
	if again {
		q.notify(items[0].Kind)
	}
	return err
}

// Later releases items for another attempt.
func (q *queue) Later(ctx context.Context, items []hub.WorkItem, due time.Time) error {
	q.leases.release(items)
	q.noteReturned(items, false)
	now, err := q.system.PutOff(ctx, items, due)
	if now {
		q.notify(items[0].Kind)
	} else if items[0].Kind == hub.WorkUpgrade && err == nil {
		time.AfterFunc(time.Until(due), func() { q.notify(hub.WorkUpgrade) })
	}
	return err
}

// drop renews the leases of items no more; those that are not given back
// run out.
func (q *queue) drop(items []hub.WorkItem) {
	q.leases.release(items)
	q.noteReturned(items, false)
}
