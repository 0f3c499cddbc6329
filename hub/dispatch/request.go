package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// Sync appends an operation that a person asked for, inside the caller's
// transaction. The caller wakes the cluster after the commit.
func Sync(ctx context.Context, tx Tx, app hub.ApplicationID, req hub.SyncRequest) (hub.Operation, error) {
	c := &change{tx: tx, now: time.Now()}
	a, spec, err := c.one(ctx, app, req.Initiator)
	if err != nil {
		return hub.Operation{}, err
	}
	at := newestOf(a, req.Override)
	if req.Present && req.Override == nil && (at.target == "" || a.Status.PlannedGeneration != a.Generation) {
		req.Override = &hub.Override{Fresh: true}
		return c.await(ctx, a, spec, req)
	}
	if req.Override != nil && !stands(at.target, at.revision, *req.Override) {
		if err := mayOverride(a, spec, req.Options); err != nil {
			return hub.Operation{}, err
		}
		return c.await(ctx, a, spec, req)
	}
	if at.target == "" {
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "nothing has been rendered for it yet"), "application "+a.Name,
			"see its conditions: the repository, path or chart may be wrong")
	}
	if err := c.need(ctx, []hub.SnapshotID{at.target}); err != nil {
		return hub.Operation{}, err
	}
	req.Override = nil
	op := c.asked(a, spec, req)
	newest, held := c.snaps[at.target]
	if !held {
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "the manifests that were rendered for it are damaged or gone"), "application "+a.Name,
			"refresh it: they are rendered again")
	}
	if err := c.verified(a, spec, newest); err != nil {
		return hub.Operation{}, err
	}
	op.Snapshot, op.Revision = at.target, at.revision
	if err := c.selected(ctx, a, spec, &op, newest); err != nil {
		return hub.Operation{}, err
	}
	switch {
	case op.Options.DryRun:
		err = c.tryOut(ctx, a, spec, &op, newest)
	case a.Pin != nil && !isFull(op.Options):
		// A part of it leaves the application paused.
		err = c.instead(ctx, a, spec, &op, newest)
	default:
		err = c.move(ctx, move{
			app: a, spec: spec, target: at.target, accept: isFull(op.Options), op: &op, unpin: a.Pin != nil,
			revision: at.revision, revisions: at.revisions, sourceType: newest.SourceType,
		})
	}
	if err != nil {
		return hub.Operation{}, err
	}
	return c.finish(ctx, app)
}

// A gitState is the newest snapshot of an application and the revisions that
// it stands for.
type gitState struct {
	target    hub.SnapshotID
	revision  string
	revisions []string
}

// newestOf returns what Git says about an application. The status of a paused
// one says what it is paused at.
func newestOf(a hub.Application, o *hub.Override) gitState {
	if a.Pin == nil {
		return gitState{a.Status.Target, a.Status.Revision, a.Status.Revisions}
	}
	var s gitState
	s.target, s.revision, s.revisions = a.Pin.Git()
	if o != nil && o.Revision != "" && s.target == a.Pin.Bad && stands(s.target, a.Pin.Skipped, *o) {
		s.revision, s.revisions = a.Pin.Skipped, a.Pin.SkippedRevisions // other commits with the same objects came since
	}
	return s
}

// mayOverride refuses to apply something else than what automation would
// apply.
func mayOverride(a hub.Application, spec hub.ApplicationSpec, o hub.OperationOptions) error {
	if !a.Follows(spec) || o.DryRun {
		return nil
	}
	return fault.With(fault.New(fault.Conflict, "it follows its revision by itself and would undo what you apply"), "application "+a.Name,
		"turn automation off first, make it a dry run, or roll back to a revision of its history")
}

// stands reports whether an override asks for nothing but the revision that a
// target stands for.
func stands(target hub.SnapshotID, revision string, o hub.Override) bool {
	if o.Revision == "" || len(o.Revisions) > 0 || o.Source != nil || len(o.Sources) > 0 {
		return o.Revision == "" && len(o.Revisions) == 0 && o.Source == nil && len(o.Sources) == 0
	}
	return target != "" && (o.Revision == revision || len(o.Revision) >= 7 && strings.HasPrefix(revision, o.Revision))
}

// Rollback goes back to what a history entry holds and pauses the application
// there: automation skips the present revision until Git renders something
// else.
func Rollback(ctx context.Context, tx Tx, app hub.ApplicationID, entry int64, reason string, options hub.OperationOptions, by hub.Initiator) (hub.Operation, error) {
	c := &change{tx: tx, now: time.Now()}
	a, spec, err := c.one(ctx, app, by)
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
	if err := c.verified(a, spec, snapshot); err != nil {
		return hub.Operation{}, err
	}
	// Another commit may have given these manifests before: what the entry names
	// was deployed.
	revisions := h.Revisions
	if len(revisions) == 0 {
		revisions = snapshot.Revisions
	}
	op := c.operation(a, hub.RollbackOperation, snapshot, by)
	op.Revision, op.Options, op.Reason = h.Revision, options, reason
	op.Options.From = syncedFromOf(h, spec)
	if spec.SyncPolicy != nil && len(op.Options.SyncOptions) == 0 {
		op.Options.SyncOptions = spec.SyncPolicy.SyncOptions
	}
	op.Deadline = c.now.Add(plan.Timeout(op.Options.SyncOptions))
	if options.DryRun {
		if err := c.tryOut(ctx, a, spec, &op, snapshot); err != nil {
			return hub.Operation{}, err
		}
		return c.finish(ctx, app)
	}
	pin, err := c.pin(ctx, a, snapshot)
	if err != nil {
		return hub.Operation{}, err
	}
	pin.History, pin.Reason, pin.By, pin.At = h.ID, reason, by.Username, c.now
	err = c.move(ctx, move{
		app: a, spec: spec, target: snapshot.ID, accept: true, op: &op, pin: &pin,
		revision: h.Revision, revisions: revisions, sourceType: snapshot.SourceType,
		hold: plan.Paused(pin, h.Revision),
	})
	if err != nil {
		return hub.Operation{}, err
	}
	return c.finish(ctx, app)
}

// pin is what an application is paused with that goes back to a snapshot.
func (c *change) pin(ctx context.Context, a hub.Application, to hub.Snapshot) (hub.Pin, error) {
	p := hub.Pin{Skipped: a.Status.Revision, SkippedRevisions: a.Status.Revisions, Bad: a.Status.Target}
	p.Newest, p.Revision, p.Revisions = a.Status.Target, a.Status.Revision, a.Status.Revisions
	if a.Pin != nil { // what was skipped before is skipped still
		p.Skipped, p.SkippedRevisions, p.Bad = a.Pin.Skipped, a.Pin.SkippedRevisions, a.Pin.Bad
		p.Newest, p.Revision, p.Revisions = a.Pin.Git()
	}
	p.Snapshot = to.ID
	err := c.need(ctx, []hub.SnapshotID{p.Newest})
	p.Behind = !sameObjects(c.snaps[p.Newest], to)
	return p, err
}

// Resume ends the pause of an application, inside the caller's transaction:
// automation follows Git again, and a person syncs where there is none. One
// that is not paused stays as it is. The caller has the application looked at
// after the commit.
func Resume(ctx context.Context, tx Tx, app hub.ApplicationID) error {
	c := &change{tx: tx, now: time.Now()}
	if err := c.load(ctx, []hub.ApplicationID{app}); err != nil {
		return err
	}
	a, there := c.apps[app]
	switch {
	case !there:
		return fault.New(fault.Missing, "no such application")
	case a.Pin == nil:
		return nil
	case a.DeletingAt != nil:
		return fault.With(fault.New(fault.Conflict, "the application is being deleted"), "application "+a.Name, "wait for the deletion to end")
	}
	if op, running := c.open[app]; running && !op.Options.DryRun {
		return fault.With(fault.New(fault.Conflict, "operation %s is in progress", op.ID), "application "+a.Name,
			"wait for it, or end it with `capstan app terminate "+a.Name+"`")
	}
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	target, revision, revisions := a.Pin.Git()
	if err := c.need(ctx, []hub.SnapshotID{target}); err != nil {
		return err
	}
	newest, held := c.snaps[target]
	if !held {
		return fault.With(fault.New(fault.Conflict, "the manifests of revision %s are not stored any more", revision), "application "+a.Name,
			"refresh it with `capstan app refresh --hard "+a.Name+"`, and try again")
	}
	err = c.move(ctx, move{
		app: a, spec: spec, target: target, unpin: true,
		revision: revision, revisions: revisions, sourceType: newest.SourceType,
	})
	if err != nil {
		return err
	}
	if err := c.write(ctx); err != nil {
		return err
	}
	// Automation decides about it as about any new revision.
	return tx.Enqueue(ctx, WorkRefresh, string(app), c.now, false)
}

// sameObjects reports whether two snapshots hold the same objects: to apply one
// instead of the other would change nothing.
func sameObjects(a, b hub.Snapshot) bool {
	return a.ID != "" && b.ID != "" && (a.ID == b.ID || slices.Equal(a.Objects, b.Objects))
}

// syncedFromOf is what the sync of a history entry was made from.
func syncedFromOf(h hub.HistoryEntry, spec hub.ApplicationSpec) *hub.SyncedFrom {
	out := spec.From(nil, h.Revisions)
	var was hub.Source
	var several []hub.Source
	switch {
	case len(h.Source) == 0:
	case json.Unmarshal(h.Source, &several) == nil:
		out.Source, out.Sources, out.Revisions = nil, several, h.Revisions
	case json.Unmarshal(h.Source, &was) == nil:
		out.Source, out.Sources, out.Revisions = &was, nil, nil
	}
	return out
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
	homes, err := tx.ClustersByID(ctx, []hub.ClusterID{op.Cluster})
	if err != nil {
		return hub.Operation{}, err
	}
	early := op.Snapshot == "" && op.Kind != hub.DeleteOperation
	if early || len(homes) == 0 {
		op.Phase, op.Message = hub.Failed, "terminated by "+by.Username+" before its manifests were there"
		if !early {
			op.Message = "terminated by " + by.Username + " after its cluster was removed"
		}
		return op, tx.EndOperation(ctx, op.ID, op.Phase, op.Message)
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

// one loads an application that somebody wants an operation for.
func (c *change) one(ctx context.Context, id hub.ApplicationID, by hub.Initiator) (hub.Application, hub.ApplicationSpec, error) {
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
	spec, err := hub.DecodeSpec(a.Spec)
	if err == nil {
		err = c.mayDeploy(a, spec)
	}
	if err != nil {
		return a, spec, err
	}
	return a, spec, plan.Check(a, running, c.windows(a, spec), syncwindow.Of(by.Automated), c.now)
}

func (c *change) operation(a hub.Application, kind hub.OperationKind, s hub.Snapshot, by hub.Initiator) hub.Operation {
	return hub.Operation{
		ID: hub.NewID[hub.OperationID](), Application: a.ID, Cluster: a.Cluster, Kind: kind,
		Snapshot: s.ID, Revision: s.Revision, Initiator: by, Phase: hub.Pending,
		OperationTimes: hub.OperationTimes{CreatedAt: c.now, Deadline: c.now.Add(plan.DefaultDeadline)},
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
