// Package dispatch moves what is wanted to the agents and what came of it
// back: it stores rendered snapshots and the operations that plan makes of
// them in one transaction, appends them to the desired log of the cluster, and
// settles operations that have ended. Package dispatch/stream serves that log
// to agents, dispatch/wire is the form of its rows. It never renders, never
// talks to a cluster, and deletes nothing without a tombstone. The daemon runs
// one Dispatcher per replica; catalog asks it for operations inside its own
// transactions. The desired log is the only way in which a cluster is asked to
// change.
package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Keys are the secrets of a tenant that dispatch needs: objects are named
// under Digest and sealed under Object.
type Keys struct {
	Digest [32]byte
	Object [32]byte
}

// Store opens transactions that are bound to a tenant.
type Store interface {
	InTenant(ctx context.Context, tenant hub.TenantID, do func(ctx context.Context, tx Tx) error) error
	Keys(ctx context.Context, tenant hub.TenantID) (Keys, error)
}

// Work is the queue of operations to settle or to try again.
type Work interface {
	// Claim leases up to limit items of a kind and waits for the first one.
	Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error)
	Done(ctx context.Context, items []hub.WorkItem) error
	Later(ctx context.Context, items []hub.WorkItem, due time.Time) error
}

// The kinds of work that dispatch enqueues or claims.
const (
	WorkRefresh = "refresh" // key: application
	WorkOutcome = "outcome" // key: operation
	WorkRetry   = "retry"   // key: operation
)

// Streams serve the desired logs to the agents of this replica.
type Streams interface {
	// Push hints that a cluster's log has grown, and says by what if that is
	// known.
	Push(cluster hub.ClusterID, added *wire.PushedRows)
	// Remember keeps sealed bodies that are about to be stored, so that the rows
	// that need them carry them along.
	Remember(tenant hub.TenantID, objects []hub.SealedObject)
	// Recent returns a sealed body if it was stored lately.
	Recent(tenant hub.TenantID, digest hub.Digest) (sealed []byte, found bool)
}

// A Dispatcher is the stage. Its methods may be used by many goroutines.
type Dispatcher struct {
	store   Store
	work    Work
	streams Streams
	log     *slog.Logger
	changed func(hub.TenantID) // hint that the tenant's feed moved; never nil
}

// New makes a dispatcher. Changed is called after each commit that people may
// want to see; it must not block.
func New(store Store, work Work, streams Streams, changed func(hub.TenantID), log *slog.Logger) *Dispatcher {
	return &Dispatcher{store: store, work: work, streams: streams, log: log, changed: changed}
}

const (
	claimed = 64 // items of work at once
	// batchDelay is how long more work is waited for once some was done: what ends
	// one by one, such as the operations of many agents, is cheaper taken
	// together.
	batchDelay = 40 * time.Millisecond
)

// loopLimit is how long a loop may show no sign of life.
const loopLimit = 90 * time.Second

// Run settles ended operations and starts retries until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	g := lifecycle.NewGroup(ctx)
	g.Go(func(ctx context.Context) error { d.loop(ctx, WorkRetry, d.retry); return nil })
	g.Go(func(ctx context.Context) error { d.loop(ctx, WorkOutcome, d.settle); return nil })
	return g.Wait()
}

func (d *Dispatcher) loop(ctx context.Context, kind string, handle func(context.Context, hub.WorkItem) error) {
	ctx, done := lifecycle.Watch(ctx, kind, loopLimit)
	defer done()
	for ctx.Err() == nil {
		items, err := d.work.Claim(ctx, kind, claimed)
		if err != nil {
			if ctx.Err() == nil {
				d.log.ErrorContext(ctx, "work cannot be claimed", logkey.Kind, kind, logkey.Error, err)
				pause(ctx, time.Second)
			}
			continue
		}
		few := len(items) < claimed
		if kind == WorkOutcome {
			items = d.together(ctx, items)
		}
		for _, item := range items {
			d.one(ctx, item, handle)
		}
		if few {
			pause(ctx, batchDelay)
		}
	}
}

// one handles an item and gives it back. The lease is given back even while
// the replica stops.
func (d *Dispatcher) one(ctx context.Context, item hub.WorkItem, handle func(context.Context, hub.WorkItem) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	lifecycle.Beat(ctx)
	own, end := trace.Start(trace.Resume(ctx, item.Trace), item.Kind, logkey.Tenant, string(item.Tenant), logkey.Operation, item.Key)
	err := lifecycle.Safely(own, item.Kind, func(ctx context.Context) error { return handle(ctx, item) })
	end(err)
	failpoint.Here(failpoint.HubOutcomeAfter)
	if err == nil {
		err = d.work.Done(ctx, []hub.WorkItem{item})
	} else if later := d.work.Later(ctx, []hub.WorkItem{item}, time.Now().Add(min(5*time.Second<<min(item.Attempts, 7), 10*time.Minute))); later != nil {
		d.log.WarnContext(ctx, "work not given back; its lease will run out", logkey.Kind, item.Kind, logkey.Error, later)
	}
	if err != nil {
		d.log.ErrorContext(ctx, "work failed and will be tried again", logkey.Kind, item.Kind, logkey.Tenant, item.Tenant, logkey.Key, item.Key, logkey.Error, err)
	}
}

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
