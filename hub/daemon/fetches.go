package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/batch"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

const (
	// quietGather is how long a fetch that found nothing new waits for others
	// that are recorded with it.
	quietGather = 250 * time.Millisecond
	// quietGrace is how long they may be recorded after the replica was stopped.
	quietGrace = 5 * time.Second
)

// fetchWork is the queue of repositories to fetch, as source sees it. What is
// claimed together is loaded together, and fetches that found nothing new are
// recorded together.
type fetchWork struct {
	queue *queue
	db    *store.DB
	log   *slog.Logger
	quiet *batch.Batcher[quietFetch, bool]

	stopped  chan struct{} // nothing is waited for any more
	settling sync.WaitGroup

	mu      sync.Mutex
	claimed map[parentKey]*claimed
}

// claimed are the repositories of one tenant that were claimed together. The
// first one that is begun loads all of them.
type claimed struct {
	tenant   hub.TenantID
	want     []hub.RepositoryID
	load     sync.Once
	found    map[hub.RepositoryID]hub.DueRepository
	settings map[string]string
	err      error
}

// A quietFetch is a fetch that found the refs that are stored.
type quietFetch struct {
	item hub.WorkItem
	next time.Time
}

func newFetchWork(q *queue, db *store.DB, log *slog.Logger) *fetchWork {
	w := &fetchWork{queue: q, db: db, log: log, stopped: make(chan struct{}), claimed: map[parentKey]*claimed{}}
	w.quiet = batch.New(w.finishQuiet).After(w.gather)
	return w
}

// run runs the loop that fetches, and waits for what is recorded after it.
func (w *fetchWork) run(ctx context.Context, loop func(context.Context) error) error {
	err := loop(ctx)
	close(w.stopped)
	w.settling.Wait()
	return err
}

func (w *fetchWork) Claim(ctx context.Context, room func() (int, []hub.TenantID), freed <-chan struct{}) ([]hub.WorkItem, error) {
	items, err := w.queue.ClaimWithin(ctx, hub.WorkFetch, room, freed)
	w.mu.Lock()
	defer w.mu.Unlock()
	together := map[hub.TenantID]*claimed{}
	for _, item := range items {
		if !hub.ValidID(item.Key) {
			continue
		}
		c := together[item.Tenant]
		if c == nil {
			c = &claimed{tenant: item.Tenant}
			together[item.Tenant] = c
		}
		c.want = append(c.want, hub.RepositoryID(item.Key))
		w.claimed[claimKey(item)] = c
	}
	return items, err
}

func claimKey(item hub.WorkItem) parentKey { return parentKey{item.Kind, item.Tenant, item.Key} }

// with returns what an item was claimed with; nil: it is not known.
func (w *fetchWork) with(item hub.WorkItem) *claimed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claimed[claimKey(item)]
}

// forget returns it for the last time.
func (w *fetchWork) forget(item hub.WorkItem) *claimed {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.claimed[claimKey(item)]
	delete(w.claimed, claimKey(item))
	return c
}

// Load returns what was loaded with others. Repositories of charts, of which
// more is read, those that are gone, and what could not be loaded with others
// are loaded singly.
func (w *fetchWork) Load(ctx context.Context, item hub.WorkItem) (hub.Repository, hub.Credential, error) {
	c := w.with(item)
	if c == nil {
		return w.loadOne(ctx, item)
	}
	c.load.Do(func() {
		c.found, c.settings, c.err = w.db.DueRepositories(ctx, c.tenant, c.want, settings.PollKeys())
	})
	if fault.KindOf(c.err) == fault.Offline {
		return hub.Repository{}, hub.Credential{}, c.err
	}
	due, ok := c.found[hub.RepositoryID(item.Key)]
	if !ok || due.Type.Charts() {
		return w.loadOne(ctx, item)
	}
	return due.Repository, due.Credential, due.Err
}

func (w *fetchWork) loadOne(ctx context.Context, item hub.WorkItem) (repo hub.Repository, cred hub.Credential, err error) {
	err = w.db.ReadTenant(ctx, item.Tenant, func(ctx context.Context, t *store.Tenant) error {
		if repo, err = t.Repository(ctx, hub.RepositoryID(item.Key)); err != nil {
			return err
		}
		if cred, err = t.Credential(ctx, repo.ID); err != nil || !repo.Type.Charts() {
			return err
		}
		if repo.Use.Known, err = t.Refs(ctx, repo.ID); err != nil {
			return err
		}
		repo.Use.Targets, err = t.Targets(ctx, repo.ID)
		return err
	})
	return repo, cred, err
}

// Fetched stores the outcome of a fetch. One that only a poll asked for, and
// that found nothing new, is recorded soon, with others: this returns before.
func (w *fetchWork) Fetched(ctx context.Context, item hub.WorkItem, refs []hub.Ref, next time.Time) error {
	w.count(true)
	c := w.forget(item)
	if c == nil || !c.quiet(item, refs) {
		return w.store(ctx, item, refs, "", next)
	}
	if every, jitter, ok := settings.Polling(c.settings); ok {
		next = time.Now().Add(every + time.Duration(rand.Float64()*float64(jitter)))
	}
	w.settling.Go(func() {
		own, end := outlive(ctx, quietGrace)
		defer end()
		err := lifecycle.Safely(own, "fetch", func(ctx context.Context) error { return w.record(ctx, item, refs, next) })
		if err != nil {
			w.log.ErrorContext(own, "fetch not recorded; its lease will run out", logkey.Tenant, item.Tenant, logkey.Repository, item.Key, logkey.Error, err)
		}
	})
	return nil
}

// quiet reports whether a fetch found nothing that anybody waits for.
func (c *claimed) quiet(item hub.WorkItem, refs []hub.Ref) bool {
	due, ok := c.found[hub.RepositoryID(item.Key)]
	return ok && !item.Forced && item.Pushed == (hub.Pushed{}) && !due.Type.Charts() && due.Error == "" && !due.Asked && hub.RefsDigest(refs) == due.Refs
}

// outlive returns a context that ends a while after ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, func()) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return own, func() { stop(); cancel() }
}

// gather waits for fetches to be recorded together.
func (w *fetchWork) gather(context.Context) {
	timer := time.NewTimer(quietGather)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.stopped:
	}
}

// record stores a quiet fetch with others, or alone if there turns out to be
// more to store.
func (w *fetchWork) record(ctx context.Context, item hub.WorkItem, refs []hub.Ref, next time.Time) error {
	done, err := w.quiet.Do(ctx, string(item.Tenant), quietFetch{item, next})
	switch {
	case err != nil:
		w.queue.drop([]hub.WorkItem{item})
		return err
	case !done:
		return w.store(ctx, item, refs, "", next)
	}
	w.queue.leases.release([]hub.WorkItem{item})
	w.queue.noteReturned([]hub.WorkItem{item}, true)
	return nil
}

// finishQuiet records fetches of one tenant, and reports which of them.
func (w *fetchWork) finishQuiet(ctx context.Context, tenant string, fetches []quietFetch) ([]bool, error) {
	all := make([]store.QuietFetch, len(fetches))
	for i, f := range fetches {
		all[i] = store.QuietFetch{Repository: hub.RepositoryID(f.item.Key), Token: f.item.Token, Next: f.next}
	}
	done, again, err := w.db.FinishQuiet(ctx, hub.TenantID(tenant), all, time.Now())
	if err != nil {
		return nil, err
	}
	failpoint.Here(failpoint.HubSourceFetched)
	if again {
		w.queue.notify(hub.WorkFetch)
	}
	out := make([]bool, len(fetches))
	for i, f := range all {
		out[i] = done[f.Repository]
	}
	return out, nil
}

func (w *fetchWork) Failed(ctx context.Context, item hub.WorkItem, sentence string, next time.Time) error {
	w.count(false)
	w.forget(item)
	return w.store(ctx, item, nil, sentence, next)
}

// count counts a fetch that has ended and is about to be stored.
func (w *fetchWork) count(ok bool) {
	failpoint.Here(failpoint.HubSourceListed)
	if w.queue.metrics != nil {
		w.queue.metrics.Fetched(ok)
	}
}

func (w *fetchWork) store(ctx context.Context, item hub.WorkItem, refs []hub.Ref, sentence string, next time.Time) error {
	ctx = trace.Resume(ctx, item.Trace)
	refreshes := false
	err := w.db.InTenant(ctx, item.Tenant, func(ctx context.Context, t *store.Tenant) error {
		held, err := t.Held(ctx, item.Kind, map[string]int64{item.Key: item.Token})
		if err == nil && !held[item.Key] {
			// What this replica saw may be older than what is stored now.
			err = fault.New(fault.Conflict, "another replica has taken the repository over")
		}
		if err != nil {
			return err
		}
		if _, err = t.Fetched(ctx, hub.RepositoryID(item.Key), refs, time.Now(), sentence, item.Forced); err != nil {
			return err
		}
		w.queue.continued(ctx, t)
		t.Enqueued(func(kind, _ string) { refreshes = refreshes || kind == hub.WorkRefresh })
		if sentence == "" {
			if next, err = asTenantWants(ctx, t, next, item.Forced); err != nil {
				return err
			}
		}
		return t.Enqueue(ctx, item.Kind, item.Key, next, false)
	})
	failpoint.Here(failpoint.HubSourceFetched)
	if err != nil && fault.KindOf(err) != fault.Missing {
		w.queue.drop([]hub.WorkItem{item})
		return err
	}
	if refreshes {
		w.queue.notify(hub.WorkRefresh)
	}
	return w.queue.Done(ctx, []hub.WorkItem{item}) // it is there again for the next look
}

// asTenantWants delays the refreshes of a fetch, unless a person asked for it,
// and returns when the tenant wants the next one; otherwise it is when the hub
// does.
func asTenantWants(ctx context.Context, t *store.Tenant, otherwise time.Time, asked bool) (time.Time, error) {
	values, err := t.SettingValues(ctx, hub.SettingsMap, slices.Concat(settings.PollKeys(), settings.JitterKeys()))
	if err != nil {
		return otherwise, fmt.Errorf("read how often repositories are looked at: %w", err)
	}
	if most, threshold := settings.RefreshJitter(values); most > 0 && !asked {
		spreadRefreshes(t, most, threshold)
	}
	every, jitter, ok := settings.Polling(values)
	if !ok {
		return otherwise, nil
	}
	return time.Now().Add(every + time.Duration(rand.Float64()*float64(jitter))), nil
}

// spreadRefreshes delays the refreshes of a transaction at random, if they are
// more than the threshold.
func spreadRefreshes(t *store.Tenant, most time.Duration, threshold int) {
	n := 0
	t.Enqueued(func(kind, _ string) {
		if kind == hub.WorkRefresh {
			n++
		}
	})
	if n > threshold {
		t.DelayWork(hub.WorkRefresh, func() time.Duration { return time.Duration(rand.Float64() * float64(most)) })
	}
}

func (w *fetchWork) Later(ctx context.Context, item hub.WorkItem, due time.Time) error {
	w.forget(item)
	return w.queue.Later(ctx, []hub.WorkItem{item}, due)
}

func (w *fetchWork) Done(ctx context.Context, item hub.WorkItem) error {
	w.forget(item)
	return w.queue.Done(ctx, []hub.WorkItem{item})
}
