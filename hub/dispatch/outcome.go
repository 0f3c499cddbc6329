package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
)

// settle does what follows from an operation that is over: history, a retry,
// a condition, the end of a deletion, the next revision. Settling twice
// changes nothing.
func (d *Dispatcher) settle(ctx context.Context, item hub.WorkItem) error {
	return d.commit(ctx, item.Tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, error) {
		op, err := tx.Operation(ctx, hub.OperationID(item.Key))
		if fault.KindOf(err) == fault.Missing {
			return nil, nil // its application is gone
		}
		if err != nil {
			return nil, err
		}
		if !op.Phase.Over() {
			return nil, nil
		}
		c := &change{tx: tx, now: time.Now()}
		if err := c.load(ctx, []hub.ApplicationID{op.Application}); err != nil {
			return nil, err
		}
		app, there := c.apps[op.Application]
		if !there {
			return nil, nil
		}
		failpoint.Here(failpoint.HubOutcomeBefore)
		if err := c.settle(ctx, app, op); err != nil {
			return nil, fmt.Errorf("settle operation %s: %w", op.ID, err)
		}
		return c.touched(), nil
	})
}

func (c *change) settle(ctx context.Context, app hub.Application, op hub.Operation) error {
	newest := c.newest[app.ID].ID == op.ID
	switch {
	case op.Kind == hub.DeleteOperation && op.Phase == hub.Succeeded:
		return c.removed(ctx, app)
	case op.Kind == hub.DeleteOperation && newest:
		if err := c.tx.SetCondition(ctx, app.ID, hub.DeletionError, op.Message); err != nil {
			return err
		}
		return c.failed(ctx, app, op)
	case op.Phase == hub.Succeeded:
		return c.succeeded(ctx, app, op, newest)
	case newest:
		return c.failed(ctx, app, op)
	}
	return nil
}

// removed ends a deletion: the objects are gone, the cluster forgets the
// application, and so does the hub.
func (c *change) removed(ctx context.Context, app hub.Application) error {
	clusters, err := c.tx.DesiredClusters(ctx, app.ID)
	if err != nil {
		return err
	}
	c.leave(app.ID, clusters...)
	if err := c.write(ctx); err != nil {
		return err
	}
	failpoint.Here(failpoint.HubRemoveBefore)
	defer failpoint.Here(failpoint.HubRemoveAfter)
	return c.tx.RemoveApplication(ctx, app.ID)
}

func (c *change) succeeded(ctx context.Context, app hub.Application, op hub.Operation, newest bool) error {
	if whole(op.Options) {
		failpoint.Here(failpoint.HubHistoryBefore)
		if err := c.tx.AppendHistory(ctx, historyOf(app, op, c.now)); err != nil {
			return err
		}
		failpoint.Here(failpoint.HubHistoryAfter)
	}
	if !newest {
		return nil
	}
	if slices.ContainsFunc(app.Status.Conditions, func(c hub.Condition) bool { return c.Type == hub.SyncError }) {
		if err := c.tx.SetCondition(ctx, app.ID, hub.SyncError, ""); err != nil {
			return err
		}
	}
	if app.Status.Hold != "" {
		// A revision waited for this operation to end.
		return c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false)
	}
	return nil
}

func historyOf(app hub.Application, op hub.Operation, now time.Time) hub.HistoryEntry {
	h := hub.HistoryEntry{
		Application: app.ID, Operation: op.ID, Snapshot: op.Snapshot, Revision: op.Revision, Revisions: app.Status.Revisions,
		Initiator: op.Initiator, Reason: op.Reason, StartedAt: op.CreatedAt, DeployedAt: now,
	}
	var spec struct {
		Source json.RawMessage `json:"source"`
	}
	if json.Unmarshal(app.Spec, &spec) == nil {
		h.Source = spec.Source
	}
	if op.StartedAt != nil {
		h.StartedAt = *op.StartedAt
	}
	if op.FinishedAt != nil {
		h.DeployedAt = *op.FinishedAt
	}
	return h
}

func (c *change) failed(ctx context.Context, app hub.Application, op hub.Operation) error {
	if op.RetryAt != nil {
		return nil // settled before
	}
	if at, again := plan.RetryAt(op, c.now); again {
		if err := c.tx.SetOperationRetry(ctx, op.ID, &at, op.Options); err != nil {
			return err
		}
		if op.Options.Retry.Refresh {
			// By the time of the next try the target is what the revision stands for.
			if err := c.refetch(ctx, app); err != nil {
				return err
			}
		}
		return c.tx.Enqueue(ctx, WorkRetry, string(op.ID), at, false)
	}
	if op.Initiator.Automated {
		message := fmt.Sprintf("automated sync of revision %s failed and is not tried again until something changes: %s", op.Revision, op.Message)
		if err := c.tx.SetCondition(ctx, app.ID, hub.SyncError, message); err != nil {
			return err
		}
	}
	if app.Status.Hold != "" {
		return c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false)
	}
	return nil
}

// retry makes the next attempt of a failed operation, unless something newer
// has happened to its application. It goes for the target of the moment.
func (d *Dispatcher) retry(ctx context.Context, item hub.WorkItem) error {
	return d.commit(ctx, item.Tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, error) {
		op, err := tx.Operation(ctx, hub.OperationID(item.Key))
		if fault.KindOf(err) == fault.Missing {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		c := &change{tx: tx, now: time.Now()}
		if err := c.load(ctx, []hub.ApplicationID{op.Application}); err != nil {
			return nil, err
		}
		if err := c.again(ctx, op); err != nil {
			return nil, fmt.Errorf("retry operation %s: %w", op.ID, err)
		}
		return c.touched(), nil
	})
}

func (c *change) again(ctx context.Context, op hub.Operation) error {
	app, there := c.apps[op.Application]
	_, running := c.open[op.Application]
	deletes := op.Kind == hub.DeleteOperation
	if !there || running || (app.DeletingAt != nil) != deletes || app.Cluster == "" && !deletes || op.RetryAt == nil || c.newest[app.ID].ID != op.ID {
		return nil
	}
	if deletes {
		return c.deleteAgain(ctx, app, op)
	}
	spec, err := hub.DecodeSpec(app.Spec)
	if err != nil {
		return err
	}
	target := op.Snapshot
	if op.Kind == hub.SyncOperation && op.Options.Override == nil {
		target = app.Status.Target
	}
	if err := c.need(ctx, []hub.SnapshotID{target}); err != nil {
		return err
	}
	next := c.operation(app, op.Kind, c.snaps[target], op.Initiator)
	next.Options, next.Reason, next.Attempt = op.Options, op.Reason, op.Attempt+1
	if next.Options.Asked.IsZero() {
		next.Options.Asked = op.CreatedAt
	}
	next.Deadline = c.now.Add(plan.Timeout(op.Options.SyncOptions))
	if err := c.tx.SetOperationRetry(ctx, op.ID, nil, op.Options); err != nil {
		return err
	}
	if op.Options.Override != nil {
		next.Revision = op.Revision
		if err := c.instead(ctx, app, spec, &next, c.snaps[target]); err != nil {
			return err
		}
		return c.write(ctx)
	}
	full := whole(op.Options)
	err = c.move(ctx, move{
		app: app, spec: spec, target: app.Status.Target, accept: full && target == app.Status.Target, op: &next,
		hold: app.Status.Hold, revision: app.Status.Revision, revisions: app.Status.Revisions, sourceType: app.Status.SourceType,
	})
	if err != nil {
		return err
	}
	return c.write(ctx)
}
