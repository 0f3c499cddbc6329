package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Sync appends an operation that a person asked for, inside the caller's
// transaction. The caller wakes the cluster after the commit.
func Sync(ctx context.Context, tx Tx, app hub.ApplicationID, req hub.SyncRequest) (hub.Operation, error) {
	c := &change{tx: tx, now: time.Now()}
	a, spec, err := c.one(ctx, app)
	if err != nil {
		return hub.Operation{}, err
	}
	target := a.Status.Target
	if a.Pin != nil {
		target = a.Pin.Bad
	}
	object := "application " + a.Name
	if target == "" {
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "nothing has been rendered for it yet"), object,
			"see its conditions: the repository, path or chart may be wrong")
	}
	if err := c.need(ctx, []hub.SnapshotID{target}); err != nil {
		return hub.Operation{}, err
	}
	revision, revisions, sourceType := a.Status.Revision, a.Status.Revisions, a.Status.SourceType
	if a.Pin != nil {
		// What stands in the status is the pinned snapshot.
		skipped := c.snaps[target]
		revision, revisions, sourceType = a.Pin.Skipped, skipped.Revisions, skipped.SourceType
	}
	if req.Revision != "" && !strings.HasPrefix(c.snaps[target].Revision, req.Revision) && !strings.HasPrefix(revision, req.Revision) {
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "revision %s is not what its targetRevision stands for now", req.Revision), object,
			"set spec.source.targetRevision, or roll back to a revision of its history")
	}
	op := c.operation(a, hub.SyncOperation, c.snaps[target], req.Initiator)
	op.Options, op.Reason = req.Options, req.Reason
	if spec.SyncPolicy != nil {
		op.Options.SyncOptions = append(append([]string{}, spec.SyncPolicy.SyncOptions...), req.Options.SyncOptions...)
	}
	if op.Options.Retry == nil {
		op.Options.Retry = plan.RetryOf(spec, false)
	}
	full := len(op.Options.Resources) == 0 && !op.Options.DryRun
	err = c.move(ctx, move{
		app: a, spec: spec, target: target, accept: full, op: &op, unpin: a.Pin != nil && full,
		revision: revision, revisions: revisions, sourceType: sourceType,
	})
	if err != nil {
		return hub.Operation{}, err
	}
	return c.finish(ctx, app)
}

// Rollback goes back to what a history entry holds and pins it: automation
// skips the present revision until a newer one renders something else.
func Rollback(ctx context.Context, tx Tx, app hub.ApplicationID, entry int64, reason string, options hub.OperationOptions, by hub.Initiator) (hub.Operation, error) {
	c := &change{tx: tx, now: time.Now()}
	a, spec, err := c.one(ctx, app)
	if err != nil {
		return hub.Operation{}, err
	}
	h, err := tx.HistoryEntry(ctx, app, entry)
	if err != nil {
		return hub.Operation{}, err
	}
	if err := c.need(ctx, []hub.SnapshotID{h.Snapshot}); err != nil {
		return hub.Operation{}, err
	}
	snapshot, held := c.snaps[h.Snapshot]
	if !held {
		return hub.Operation{}, fault.With(fault.New(fault.Missing, "history entry %d holds no stored manifests", entry), "application "+a.Name,
			"choose another entry of `capstan app history "+a.Name+"`")
	}
	op := c.operation(a, hub.RollbackOperation, snapshot, by)
	op.Options, op.Reason = options, reason
	if spec.SyncPolicy != nil && len(op.Options.SyncOptions) == 0 {
		op.Options.SyncOptions = spec.SyncPolicy.SyncOptions
	}
	skipped, bad := a.Status.Revision, a.Status.Target
	if a.Pin != nil {
		skipped, bad = a.Pin.Skipped, a.Pin.Bad
	}
	err = c.move(ctx, move{
		app: a, spec: spec, target: snapshot.ID, accept: true, op: &op,
		pin:      &hub.Pin{Snapshot: snapshot.ID, Skipped: skipped, Bad: bad, Reason: reason, By: by.Username, At: c.now},
		revision: snapshot.Revision, revisions: snapshot.Revisions, sourceType: snapshot.SourceType,
		hold: "rolled back to revision " + snapshot.Revision + " by " + by.Username,
	})
	if err != nil {
		return hub.Operation{}, err
	}
	return c.finish(ctx, app)
}

// Terminate asks the agent to end the running operation; a retry is not made.
func Terminate(ctx context.Context, tx Tx, app hub.ApplicationID, by hub.Initiator) (hub.Operation, error) {
	c := &change{tx: tx, now: time.Now()}
	if err := c.load(ctx, []hub.ApplicationID{app}); err != nil {
		return hub.Operation{}, err
	}
	op, running := c.open[app]
	if !running {
		return hub.Operation{}, c.stopRetry(ctx, app)
	}
	op.Options.Retry = nil
	if err := tx.SetOperationRetry(ctx, op.ID, nil, op.Options); err != nil {
		return hub.Operation{}, err
	}
	if err := c.terminate(op, by.Username); err != nil {
		return hub.Operation{}, err
	}
	return op, c.write(ctx)
}

// stopRetry ends an operation that waits for its next try, if there is one.
func (c *change) stopRetry(ctx context.Context, app hub.ApplicationID) error {
	op, there := c.newest[app]
	if !there || op.RetryAt == nil {
		return fault.With(fault.New(fault.Conflict, "no operation is in progress"), "application "+c.apps[app].Name, "")
	}
	op.Options.Retry = nil
	return c.tx.SetOperationRetry(ctx, op.ID, nil, op.Options)
}

// Delete begins the deletion of an application. With cascade its objects go
// first and the application stays visible until they are gone; without, or
// when no cluster ever heard of it, it goes at once and leaves objects alone.
// The clusters to wake are returned.
func Delete(ctx context.Context, tx Tx, app hub.ApplicationID, cascade bool, by hub.Initiator) ([]hub.ClusterID, error) {
	c := &change{tx: tx, now: time.Now()}
	if err := c.load(ctx, []hub.ApplicationID{app}); err != nil {
		return nil, err
	}
	a, there := c.apps[app]
	if !there {
		return nil, fault.New(fault.Missing, "no such application")
	}
	clusters, err := tx.DesiredClusters(ctx, app)
	if err != nil {
		return nil, err
	}
	if op, running := c.open[app]; running {
		if op.Kind == hub.DeleteOperation && cascade {
			return nil, nil // under way already
		}
		if err := tx.EndOperation(ctx, op.ID, hub.Failed, "superseded by the deletion of the application"); err != nil {
			return nil, err
		}
	}
	if !cascade || len(clusters) == 0 {
		c.leave(app, clusters...)
		if err := c.write(ctx); err != nil {
			return nil, err
		}
		return c.touched(), tx.RemoveApplication(ctx, app)
	}
	if err := tx.MarkDeleting(ctx, app, true); err != nil {
		return nil, err
	}
	if err := c.destroy(ctx, a, clusters, by); err != nil {
		return nil, err
	}
	return c.touched(), c.write(ctx)
}

// destroy notes an empty state with tombstones for all objects, and the
// operation that deletes them.
func (c *change) destroy(ctx context.Context, a hub.Application, clusters []hub.ClusterID, by hub.Initiator) error {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	a.Cluster = clusters[0]
	c.leave(a.ID, clusters[1:]...)
	op := c.operation(a, hub.DeleteOperation, hub.Snapshot{}, by)
	op.Options = hub.OperationOptions{Prune: true}
	if spec.SyncPolicy != nil {
		op.Options.SyncOptions = spec.SyncPolicy.SyncOptions
	}
	generation := a.Generation + 1
	op.Fence = generation
	st := c.state(a, spec, generation)
	stones, opened := c.bury(a, hub.Snapshot{})
	st.tombstones = stones
	op.Trace = trace.Parent(ctx)
	c.moved = append(c.moved, moved{st, opened, &op})
	c.targets = append(c.targets, hub.TargetChange{
		Application: a.ID, Target: a.Status.Target, Revision: a.Status.Revision, Revisions: a.Status.Revisions,
		SourceType: a.Status.SourceType, Resources: a.Status.Resources, Generation: generation, Unpin: a.Pin != nil,
	})
	return nil
}

// one loads an application that a person wants an operation for.
func (c *change) one(ctx context.Context, id hub.ApplicationID) (hub.Application, hub.ApplicationSpec, error) {
	if err := c.load(ctx, []hub.ApplicationID{id}); err != nil {
		return hub.Application{}, hub.ApplicationSpec{}, err
	}
	a, there := c.apps[id]
	if !there {
		return a, hub.ApplicationSpec{}, fault.New(fault.Missing, "no such application")
	}
	var running *hub.Operation
	if op, ok := c.open[id]; ok {
		running = &op
	}
	if err := plan.Check(a, running); err != nil {
		return a, hub.ApplicationSpec{}, err
	}
	spec, err := hub.DecodeSpec(a.Spec)
	return a, spec, err
}

func (c *change) operation(a hub.Application, kind hub.OperationKind, s hub.Snapshot, by hub.Initiator) hub.Operation {
	return hub.Operation{
		ID: hub.NewID[hub.OperationID](), Application: a.ID, Cluster: a.Cluster, Kind: kind,
		Snapshot: s.ID, Revision: s.Revision, Initiator: by, Phase: hub.Pending,
		CreatedAt: c.now, Deadline: c.now.Add(plan.DefaultDeadline),
	}
}

// finish writes the change and gives the operation that it made.
func (c *change) finish(ctx context.Context, app hub.ApplicationID) (hub.Operation, error) {
	if err := c.write(ctx); err != nil {
		return hub.Operation{}, err
	}
	for _, op := range c.ops {
		if op.Application == app {
			return op, nil
		}
	}
	return hub.Operation{}, fmt.Errorf("no operation came of the request for application %s", app)
}
