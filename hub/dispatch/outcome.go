package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// settle does what follows from an operation that is over: history, a retry,
// a condition, the end of a deletion, the next revision. Settling twice
// changes nothing.
func (d *Dispatcher) settle(ctx context.Context, item hub.WorkItem) error {
	_, err := d.settleAll(ctx, item.Tenant, []hub.WorkItem{item})
	return err
}

// together settles what it can in one transaction for each tenant, and gives
// back what has to be settled one by one: what went wrong, and second operations
// of an application.
func (d *Dispatcher) together(ctx context.Context, items []hub.WorkItem) (left []hub.WorkItem) {
	of := map[hub.TenantID][]hub.WorkItem{}
	for _, item := range items {
		of[item.Tenant] = append(of[item.Tenant], item)
	}
	for tenant, mine := range of {
		if len(mine) == 1 {
			left = append(left, mine...)
			continue
		}
		left = append(left, d.share(ctx, tenant, mine)...)
	}
	return left
}

// share settles items of one tenant and gives back those that are left. The
// leases are given back even while the replica stops.
func (d *Dispatcher) share(ctx context.Context, tenant hub.TenantID, items []hub.WorkItem) []hub.WorkItem {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var apart []hub.WorkItem
	err := lifecycle.Safely(ctx, WorkOutcome, func(ctx context.Context) (err error) {
		apart, err = d.settleAll(ctx, tenant, items)
		return err
	})
	failpoint.Here(failpoint.HubOutcomeAfter)
	if err != nil {
		return items
	}
	done := slices.DeleteFunc(items, func(i hub.WorkItem) bool {
		return slices.ContainsFunc(apart, func(a hub.WorkItem) bool { return a.Key == i.Key })
	})
	if err := d.work.Done(ctx, done); err != nil {
		d.log.WarnContext(ctx, "work not given back; its lease will run out", logkey.Kind, WorkOutcome, logkey.Error, err)
	}
	return apart
}

// settleAll settles items of one tenant in one transaction. Of several
// operations of one application all but the first are left to the caller.
func (d *Dispatcher) settleAll(ctx context.Context, tenant hub.TenantID, items []hub.WorkItem) (apart []hub.WorkItem, err error) {
	err = d.commit(ctx, tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, error) {
		var ops []hub.Operation
		var err error
		if ops, apart, err = endedOperations(ctx, tx, items); err != nil || len(ops) == 0 {
			return nil, err
		}
		c := &change{tx: tx, now: time.Now()}
		if err := c.settleEach(ctx, ops); err != nil {
			return nil, err
		}
		return c.touched(), nil
	})
	return apart, err
}

// settleEach settles operations of different applications.
func (c *change) settleEach(ctx context.Context, ops []hub.Operation) error {
	apps := make([]hub.ApplicationID, len(ops))
	for i, op := range ops {
		apps[i] = op.Application
	}
	if err := c.load(ctx, apps); err != nil {
		return err
	}
	for _, op := range ops {
		app, there := c.apps[op.Application]
		if !there {
			continue
		}
		failpoint.Here(failpoint.HubOutcomeBefore)
		if err := c.settle(ctx, app, op); err != nil {
			return fmt.Errorf("settle operation %s: %w", op.ID, err)
		}
	}
	if err := c.remove(ctx); err != nil {
		return err
	}
	return c.record(ctx)
}

// endedOperations reads those of the items that have ended, one of each
// application. Further ones of an application are apart.
func endedOperations(ctx context.Context, tx Tx, items []hub.WorkItem) (ops []hub.Operation, apart []hub.WorkItem, err error) {
	asked := make([]hub.OperationID, len(items))
	for i, item := range items {
		asked[i] = hub.OperationID(item.Key)
	}
	found, err := tx.OperationsByID(ctx, asked)
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[hub.ApplicationID]bool, len(items))
	for _, item := range items {
		op, there := found[hub.OperationID(item.Key)]
		switch {
		case !there: // its application is gone
		case !op.Phase.Over():
		case seen[op.Application]:
			apart = append(apart, item)
		default:
			seen[op.Application] = true
			ops = append(ops, op)
		}
	}
	return ops, apart, nil
}

// record stores the history of what was settled.
func (c *change) record(ctx context.Context) error {
	if len(c.history) == 0 {
		return nil
	}
	failpoint.Here(failpoint.HubHistoryBefore)
	defer failpoint.Here(failpoint.HubHistoryAfter)
	return c.tx.AppendHistory(ctx, c.history)
}

func (c *change) settle(ctx context.Context, app hub.Application, op hub.Operation) error {
	newest := c.newest[app.ID].ID == op.ID
	switch {
	case op.Kind == hub.DeleteOperation && op.Phase == hub.Succeeded:
		c.deleted = append(c.deleted, app.ID)
		return nil
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

// remove writes what was settled and ends the deletions among it: their objects
// are gone, the clusters forget the applications, and so does the hub.
func (c *change) remove(ctx context.Context) error {
	if len(c.deleted) > 0 {
		holders, err := c.tx.Holders(ctx, c.deleted)
		if err != nil {
			return err
		}
		for _, app := range c.deleted {
			c.leave(app, holders[app]...)
		}
	}
	if len(c.moved) > 0 || len(c.deleted) > 0 {
		if err := c.write(ctx); err != nil {
			return err
		}
	}
	if len(c.deleted) == 0 {
		return nil
	}
	failpoint.Here(failpoint.HubRemoveBefore)
	defer failpoint.Here(failpoint.HubRemoveAfter)
	return c.tx.RemoveApplications(ctx, c.deleted)
}

func (c *change) succeeded(ctx context.Context, app hub.Application, op hub.Operation, newest bool) error {
	if isFull(op.Options) {
		revision, revisions := c.deployed(app, op)
		c.history = append(c.history, historyOf(app, op, revision, revisions, c.now))
	}
	if !newest {
		return nil
	}
	if slices.ContainsFunc(app.Status.Conditions, func(c hub.Condition) bool { return c.Type == hub.SyncError }) {
		if err := c.tx.SetCondition(ctx, app.ID, hub.SyncError, ""); err != nil {
			return err
		}
	}
	if op.Options.Prune && app.DeletingAt == nil && wire.Crowded(c.tombstones[app.ID]) {
		// An agent that knows no lists has had the first of them only.
		if err := c.restate(ctx, app); err != nil {
			return err
		}
	}
	if app.Status.Hold != "" {
		// A revision waited for this operation to end.
		return c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false)
	}
	return nil
}

// deployed is the revision that an operation has applied, and one for each of
// several sources. Of a snapshot that several commits gave it is the one that
// the application stands at, as everything else says it.
func (c *change) deployed(app hub.Application, op hub.Operation) (string, []string) {
	if op.Snapshot == app.Status.Target && app.Status.Revision != "" {
		return app.Status.Revision, app.Status.Revisions
	}
	if s, held := c.snaps[op.Snapshot]; held && (s.Revision == op.Revision || len(s.Revisions) > 1) {
		return op.Revision, s.Revisions
	}
	return op.Revision, []string{op.Revision}
}

func historyOf(app hub.Application, op hub.Operation, revision string, revisions []string, now time.Time) hub.HistoryEntry {
	h := hub.HistoryEntry{
		Application: app.ID, Operation: op.ID, Snapshot: op.Snapshot, Revision: revision, Revisions: revisions,
		Initiator: op.Initiator, Reason: op.Reason, StartedAt: op.CreatedAt, DeployedAt: now,
	}
	var spec struct {
		Source  json.RawMessage   `json:"source"`
		Sources []json.RawMessage `json:"sources"`
	}
	if json.Unmarshal(app.Spec, &spec) == nil {
		h.Source = spec.Source
		if several, err := json.Marshal(spec.Sources); err == nil && len(spec.Sources) > 0 {
			h.Source = several
		}
	}
	if op.StartedAt != nil {
		h.StartedAt = *op.StartedAt
	}
	if op.FinishedAt != nil {
		h.DeployedAt = *op.FinishedAt
	}
	return h
}

// failed schedules the next attempt of a failed operation, or notes that there
// is none.
func (c *change) failed(ctx context.Context, app hub.Application, op hub.Operation) error {
	if op.Unblocked { // it was told before the result was
		if err := c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false); err != nil {
			return err
		}
	}
	if op.RetryAt != nil { // settled before, or it was known that it would fail
		return c.tx.Enqueue(ctx, WorkRetry, string(op.ID), *op.RetryAt, false)
	}
	spec, err := hub.DecodeSpec(app.Spec)
	if err != nil {
		return err
	}
	if at, again := plan.RetryAt(op, c.windows(app, spec), c.now); again {
		return c.scheduleRetry(ctx, app, op, at)
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

// scheduleRetry sets when a failed operation is tried again, and refreshes the
// application if its retry block says so: by then the target is what the
// revision stands for.
func (c *change) scheduleRetry(ctx context.Context, app hub.Application, op hub.Operation, at time.Time) error {
	if err := c.tx.SetOperationRetry(ctx, op.ID, &at, op.Options); err != nil {
		return err
	}
	if op.Options.Retry.Refresh {
		if err := c.refetch(ctx, app); err != nil {
			return err
		}
	}
	return c.tx.Enqueue(ctx, WorkRetry, string(op.ID), at, false)
}

// retry makes the next attempt of a failed operation, unless something newer
// has happened to its application.
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
		err = c.retry(ctx, op)
		if wire.IsOversize(err) { // it would be so at every further try
			return nil, c.giveUp(ctx, op, err)
		}
		if err != nil {
			return nil, fmt.Errorf("retry operation %s: %w", op.ID, err)
		}
		return c.touched(), nil
	})
}

// giveUp ends the attempts of an operation.
func (c *change) giveUp(ctx context.Context, op hub.Operation, why error) error {
	if err := c.tx.SetOperationRetry(ctx, op.ID, nil, op.Options); err != nil {
		return err
	}
	condition := hub.SyncError
	if op.Kind == hub.DeleteOperation {
		condition = hub.DeletionError
	}
	return c.tx.SetCondition(ctx, op.Application, condition, fault.Sentence(why))
}

func (c *change) retry(ctx context.Context, op hub.Operation) error {
	if c.overtaken(op) {
		return nil
	}
	app := c.apps[op.Application]
	if _, running := c.open[app.ID]; running {
		return c.retryAt(ctx, op, c.now.Add(dryRunPause))
	}
	if op.Kind == hub.DeleteOperation {
		return c.deleteAgain(ctx, app, op)
	}
	spec, err := hub.DecodeSpec(app.Spec)
	if err != nil {
		return err
	}
	if use, windows := syncwindow.Of(op.Initiator.Automated), c.windows(app, spec); !windows.Allows(use, c.now) {
		// They were changed since the time was set.
		return c.postpone(ctx, op, windows, use)
	}
	if c.skipped(app) != "" || c.restricted(app) != nil {
		return c.retryAt(ctx, op, c.now.Add(time.Minute))
	}
	if err := c.need(ctx, []hub.SnapshotID{op.Snapshot, app.Status.Target}); err != nil {
		return err
	}
	target := c.retried(app, spec, op)
	if _, held := c.snaps[target]; !held {
		return c.giveUp(ctx, op, fault.With(fault.New(fault.Missing, "it is not tried again: the manifests of revision %s are not stored any more", op.Revision),
			"operation "+string(op.ID), "start it anew"))
	}
	if c.verifiedFor(app, spec, op, c.snaps[target]) != nil {
		return c.retryAt(ctx, op, c.now.Add(time.Minute))
	}
	if err := c.tx.SetOperationRetry(ctx, op.ID, nil, op.Options); err != nil {
		return err
	}
	if err := c.attempt(ctx, app, spec, op, target); err != nil {
		return err
	}
	return c.write(ctx)
}

// overtaken reports whether there is nothing to try again: something newer has
// happened to the application of a failed operation, or it is gone. A dry run
// is nothing newer.
func (c *change) overtaken(op hub.Operation) bool {
	app, there := c.apps[op.Application]
	other, running := c.open[op.Application]
	deletes := op.Kind == hub.DeleteOperation
	switch {
	case !there,
		running && !other.Options.DryRun,
		(app.DeletingAt != nil) != deletes,
		app.Cluster == "" && !deletes,
		op.RetryAt == nil,
		c.newest[app.ID].ID != op.ID:
		return true
	}
	return false
}

// attempt notes the next attempt of an operation, with a snapshot.
func (c *change) attempt(ctx context.Context, app hub.Application, spec hub.ApplicationSpec, op hub.Operation, target hub.SnapshotID) error {
	next := c.nextAttempt(app, op, target)
	if op.Options.Override != nil || target != app.Status.Target {
		return c.instead(ctx, app, spec, &next, c.snaps[target])
	}
	return c.move(ctx, move{
		app: app, spec: spec, target: target, accept: isFull(op.Options), op: &next,
		hold: app.Status.Hold, revision: app.Status.Revision, revisions: app.Status.Revisions, sourceType: app.Status.SourceType,
	})
}

// nextAttempt is the operation that tries another one again.
func (c *change) nextAttempt(app hub.Application, op hub.Operation, target hub.SnapshotID) hub.Operation {
	next := c.operation(app, op.Kind, c.snaps[target], op.Initiator)
	switch target {
	case op.Snapshot:
		next.Revision = op.Revision
	case app.Status.Target:
		next.Revision = app.Status.Revision
	}
	next.Options, next.Reason, next.Attempt = op.Options, op.Reason, op.Attempt+1
	if next.Options.Asked.IsZero() {
		next.Options.Asked = op.CreatedAt
	}
	next.Deadline = c.now.Add(plan.Timeout(op.Options.SyncOptions))
	return next
}

// retried is the snapshot that the next attempt of an operation applies: its
// own, or the newest where its retry block has refresh. What holds automation
// back holds a retry back as well, and none removes every object unless the
// application may be empty.
func (c *change) retried(app hub.Application, spec hub.ApplicationSpec, op hub.Operation) hub.SnapshotID {
	switch newest := c.snaps[app.Status.Target]; {
	case op.Kind != hub.SyncOperation || op.Options.Override != nil,
		op.Options.Retry == nil || !op.Options.Retry.Refresh,
		op.Initiator.Automated && app.Status.Hold != "",
		len(newest.Objects) == 0 && len(c.snaps[op.Snapshot].Objects) > 0 && !spec.AllowEmpty():
		return op.Snapshot
	}
	return app.Status.Target
}

// dryRunPause is how long a retry waits for a dry run that is in progress.
const dryRunPause = 5 * time.Second

// retryAt sets when an operation is tried again.
func (c *change) retryAt(ctx context.Context, op hub.Operation, at time.Time) error {
	if err := c.tx.SetOperationRetry(ctx, op.ID, &at, op.Options); err != nil {
		return err
	}
	return c.tx.Enqueue(ctx, WorkRetry, string(op.ID), at, false)
}

// postpone moves the next attempt of an operation to the opening of its
// application; without one in sight it is looked for again in a day.
func (c *change) postpone(ctx context.Context, op hub.Operation, windows syncwindow.Set, use syncwindow.Use) error {
	at, ok := windows.Opening(use, c.now)
	if !ok {
		at = c.now.Add(24 * time.Hour)
	}
	return c.retryAt(ctx, op, at)
}
