package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Work is where the loop finds repositories that are due, and leaves what it
// found. The daemon provides it from the store.
type Work interface {
	// Claim leases repositories that are due, tenants in turn, and waits for the
	// first one. Each attempt asks room how many there is room for, and skips
	// the tenants that are busy; freed is notified when there is more room.
	Claim(ctx context.Context, room func() (limit int, busy []hub.TenantID), freed <-chan struct{}) ([]hub.WorkItem, error)
	// Load reads the repository of an item and its credential. The error is
	// fault.Missing once the repository is gone.
	Load(ctx context.Context, item hub.WorkItem) (hub.Repository, hub.Credential, error)
	// Fetched replaces the refs of the repository, clears its error, releases
	// the lease, and makes the repository due again at next.
	Fetched(ctx context.Context, item hub.WorkItem, refs []hub.Ref, next time.Time) error
	// Failed stores why the repository could not be fetched and leaves its
	// refs as they are; lease and next as above.
	Failed(ctx context.Context, item hub.WorkItem, sentence string, next time.Time) error
	// Later releases the lease and makes the item due again; nothing is stored.
	Later(ctx context.Context, item hub.WorkItem, due time.Time) error
	// Done removes the item from the queue.
	Done(ctx context.Context, item hub.WorkItem) error
}

// LoopConfig sets how often and how many at once. Zero values mean the
// defaults.
type LoopConfig struct {
	Parallel  int           // repositories fetched at the same time; default 8
	PerTenant int           // of one tenant, so that slow servers of one do not hold up the others; default half of Parallel
	Interval  time.Duration // between two listings of a repository, plus or minus a fifth; default 3 min
	First     time.Duration // wait after the first failure, doubled after each further one; default 5 s
	Most      time.Duration // longest wait after a failure; default 10 min, and never less than Interval
}

func (c LoopConfig) withDefaults() LoopConfig {
	c.Parallel = max(cmp.Or(c.Parallel, 8), 1)
	c.PerTenant = max(cmp.Or(c.PerTenant, (c.Parallel+1)/2), 1)
	c.Interval = cmp.Or(c.Interval, 3*time.Minute)
	c.First = cmp.Or(c.First, 5*time.Second)
	c.Most = max(cmp.Or(c.Most, 10*time.Minute), c.Interval)
	return c
}

// A Loop fetches repositories as they become due: after a webhook at once,
// otherwise at intervals. Many replicas may run one each.
type Loop struct {
	cfg     LoopConfig
	work    Work
	sources *Registry
	clock   lifecycle.Clock
	log     *slog.Logger
	queue   *queue

	mu       sync.Mutex
	failures map[hub.RepositoryID]int // in a row
	hosts    map[tenantHost]time.Time // that asked to wait, and until when
}

// NewLoop makes a loop; Run starts it.
func NewLoop(cfg LoopConfig, work Work, sources *Registry, clock lifecycle.Clock, log *slog.Logger) *Loop {
	cfg = cfg.withDefaults()
	return &Loop{cfg: cfg, work: work, sources: sources, clock: clock, log: log, queue: newQueue(cfg), failures: map[hub.RepositoryID]int{}, hosts: map[tenantHost]time.Time{}}
}

// loopLimit is how long one step of the loop may show no sign of life.
const loopLimit = 90 * time.Second

// Run fetches until ctx ends, then returns nil. A repository that cannot be
// fetched is recorded as such and never stops the loop.
func (l *Loop) Run(ctx context.Context) error {
	g := lifecycle.NewGroup(ctx)
	g.Go(l.claim)
	for range l.cfg.Parallel {
		g.Go(l.worker)
	}
	err := g.Wait()
	l.giveBack(ctx)
	return err
}

// giveBack ends the leases of what was claimed and not begun.
func (l *Loop) giveBack(ctx context.Context) {
	for _, item := range l.queue.drain() {
		if err := l.leave(ctx, item, l.clock.Now()); err != nil {
			l.log.WarnContext(ctx, "fetch not released; its lease will expire", logkey.Tenant, item.Tenant, logkey.Repository, item.Key, logkey.Error, err)
		}
	}
}

// leave releases an item, also while the replica stops, so that another one can
// claim it.
func (l *Loop) leave(ctx context.Context, item hub.WorkItem, due time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return l.work.Later(ctx, item, due)
}

// claim fills the queue.
func (l *Loop) claim(ctx context.Context) error {
	failed := func(err error, wait time.Duration) {
		l.log.ErrorContext(ctx, "fetch work cannot be claimed", logkey.Error, err, logkey.Wait, wait)
	}
	return lifecycle.Loop(ctx, l.clock, lifecycle.Backoff{}, failed, func(ctx context.Context) error {
		items, err := l.work.Claim(ctx, l.queue.room, l.queue.freed)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		l.queue.add(items)
		return nil
	})
}

// worker fetches repositories of the queue.
func (l *Loop) worker(ctx context.Context) error {
	ctx, done := lifecycle.Watch(ctx, "fetch", loopLimit)
	defer done()
	for {
		lifecycle.Rest(ctx) // until there is something to fetch
		r, err := l.queue.next(ctx)
		if err != nil {
			return nil
		}
		item := r.item
		lifecycle.Beat(ctx)
		err = lifecycle.Safely(ctx, "fetch", func(ctx context.Context) error { return l.one(ctx, r, item) })
		if defect := (*lifecycle.PanicError)(nil); errors.As(err, &defect) {
			err = errors.Join(err, l.failed(ctx, l.queue.end(r), defect))
		}
		l.queue.done(r)
		if err != nil && ctx.Err() == nil {
			l.log.ErrorContext(ctx, "fetch not recorded; its lease will run out", logkey.Tenant, item.Tenant, logkey.Repository, item.Key, logkey.Error, err)
		}
	}
}

// one fetches the repository of an item and records the outcome.
func (l *Loop) one(ctx context.Context, r *run, item hub.WorkItem) error {
	repo, cred, err := l.work.Load(ctx, item)
	if fault.KindOf(err) == fault.Missing {
		return l.repositoryDeleted(ctx, l.queue.end(r))
	}
	if ctx.Err() != nil {
		return l.leave(ctx, l.queue.end(r), l.clock.Now())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("load: %w", err), l.work.Later(ctx, l.queue.end(r), l.clock.Now().Add(l.cfg.First)))
	}
	if until := l.waitsFor(item, repo); !until.IsZero() {
		return l.leave(ctx, l.queue.end(r), until.Add(time.Duration(rand.Float64()*float64(spreadAfter))))
	}
	ctx, end := trace.Start(trace.Resume(ctx, item.Trace), "fetch", logkey.Tenant, string(item.Tenant), logkey.Repository, item.Key)
	refs, listed, err := l.fetch(ctx, item, repo, cred)
	end(err)
	item = l.queue.end(r)
	item.Trace = trace.Parent(ctx)
	if ctx.Err() != nil {
		return l.leave(ctx, item, l.clock.Now()) // the replica stops: another one can claim it at once
	}
	if err != nil {
		l.slowDown(item.Tenant, repo, err)
		return l.failed(ctx, item, err)
	}
	l.count(repo.ID, false)
	next := listed.Add(lifecycle.Spread(l.cfg.Interval, 0.2, rand.Float64()))
	if err := l.work.Fetched(ctx, item, refs, next); err != nil {
		return fmt.Errorf("store refs: %w", err)
	}
	return nil
}

// fetch fetches the branch of a push event, if there is one, and everything
// otherwise. Listed is when all refs were last listed: pushes do not put the
// next listing off.
func (l *Loop) fetch(ctx context.Context, item hub.WorkItem, repo hub.Repository, cred hub.Credential) (refs []hub.Ref, listed time.Time, err error) {
	kind, err := l.sources.Of(repo)
	if err != nil {
		return nil, time.Time{}, err
	}
	if pushed, ok := kind.(PushFetcher); ok && item.Pushed.Ref != "" && !item.Forced {
		return pushed.FetchPushed(ctx, item.Tenant, repo, cred, item.Pushed, l.clock.Now().Add(-l.cfg.Interval))
	}
	refs, err = kind.Fetch(ctx, item.Tenant, repo, cred)
	return refs, l.clock.Now(), err
}

func (l *Loop) repositoryDeleted(ctx context.Context, item hub.WorkItem) error {
	l.count(hub.RepositoryID(item.Key), false)
	if err := l.sources.Remove(ctx, item.Tenant, hub.RepositoryID(item.Key)); err != nil {
		l.log.WarnContext(ctx, "mirror not removed", logkey.Repository, item.Key, logkey.Error, err)
	}
	return l.work.Done(ctx, item)
}

// failed records a failure. The waits grow, with jitter, from First to Most.
func (l *Loop) failed(ctx context.Context, item hub.WorkItem, err error) error {
	n := l.count(hub.RepositoryID(item.Key), true)
	wait := min(l.cfg.First<<min(n-1, 20), l.cfg.Most)
	wait = max(lifecycle.Spread(wait, 0.2, rand.Float64()), asked(err))
	level := slog.LevelInfo
	switch {
	case fault.KindOf(err) == fault.Internal:
		level = slog.LevelError
	case errors.Is(err, ErrImpostor):
		level = slog.LevelWarn
	}
	l.log.Log(ctx, level, "repository not fetched", logkey.Tenant, item.Tenant, logkey.Repository, item.Key, logkey.Attempt, n, logkey.Wait, wait, logkey.Error, err)
	if err := l.work.Failed(ctx, item, fault.Sentence(err), l.clock.Now().Add(wait)); err != nil {
		return fmt.Errorf("store failure: %w", err)
	}
	return nil
}

// count counts failures in a row.
func (l *Loop) count(repo hub.RepositoryID, failed bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !failed {
		delete(l.failures, repo)
		return 0
	}
	l.failures[repo]++
	return l.failures[repo]
}
