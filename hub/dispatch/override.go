package dispatch

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/trace"
)

// await notes an operation whose manifests have to be rendered first. It is
// visible as Pending until then; no agent hears of it before.
func (c *change) await(ctx context.Context, a hub.Application, spec hub.ApplicationSpec, req hub.SyncRequest) (hub.Operation, error) {
	if _, err := req.Override.Apply(spec); err != nil {
		return hub.Operation{}, err
	}
	op := c.asked(a, spec, req)
	op.Revision, op.Fence = req.Override.Revision, a.Generation
	op.Options.From = spec.From(req.Override, nil)
	op.Message = "waiting for its manifests to be rendered"
	if err := c.tx.PutOperations(ctx, []hub.Operation{op}); err != nil {
		return hub.Operation{}, err
	}
	return op, c.tx.Enqueue(ctx, WorkRefresh, string(a.ID), c.now, true)
}

// asked makes the operation of a person's request, without what it applies.
func (c *change) asked(a hub.Application, spec hub.ApplicationSpec, req hub.SyncRequest) hub.Operation {
	op := c.operation(a, hub.SyncOperation, hub.Snapshot{}, req.Initiator)
	op.Options, op.Reason = req.Options, req.Reason
	op.Options.Override = req.Override
	if spec.SyncPolicy != nil {
		op.Options.SyncOptions = append(append([]string{}, spec.SyncPolicy.SyncOptions...), req.Options.SyncOptions...)
	}
	switch {
	case op.Options.DryRun: // it tells what would happen now, once
		op.Options.Retry = nil
	case op.Options.Retry == nil:
		op.Options.Retry = plan.RetryOf(spec, false)
	}
	op.Deadline = c.now.Add(plan.Timeout(op.Options.SyncOptions))
	return op
}

// awaited starts an operation whose manifests are there now.
func (c *change) awaited(ctx context.Context, app hub.Application, r hub.Rendered) error {
	// The target was not looked at while the operation waited.
	if err := c.tx.Enqueue(ctx, WorkRefresh, string(app.ID), c.now, false); err != nil {
		return err
	}
	op, open := c.open[app.ID]
	if !open || op.ID != r.Operation || op.Snapshot != "" {
		return nil // it was terminated meanwhile
	}
	if app.Cluster == "" || app.Cluster != op.Cluster {
		return c.tx.EndOperation(ctx, op.ID, hub.Failed, "its destination was changed before it could begin")
	}
	if why := c.skipped(app); why != "" {
		return c.tx.EndOperation(ctx, op.ID, hub.Failed, why)
	}
	spec, err := hub.DecodeSpec(app.Spec)
	if err != nil {
		return err
	}
	own := c.snaps[r.Snapshot.ID]
	if err := c.verifiedFor(app, spec, op, own); err != nil {
		return c.tx.EndOperation(ctx, op.ID, hub.Failed, fault.Sentence(err))
	}
	op.Snapshot, op.Revision = own.ID, r.Revision
	if err := c.selected(ctx, app, spec, &op, own); fault.KindOf(err) == fault.Invalid {
		return c.tx.EndOperation(ctx, op.ID, hub.Failed, fault.Sentence(err))
	} else if err != nil {
		return err
	}
	if c.isNewest(app, op, r) {
		// A decision about the target after this one would void the operation.
		if err := c.moveAway(ctx, app); err != nil {
			return err
		}
		op.Options.Override = nil
		return c.move(ctx, move{
			app: app, spec: spec, target: own.ID, accept: isFull(op.Options), op: &op, unpin: app.Pin != nil,
			revision: r.Revision, revisions: r.Revisions, sourceType: own.SourceType, refreshed: true,
		})
	}
	return c.instead(ctx, app, spec, &op, own)
}

// isNewest reports whether what was rendered for an operation is what the
// application's own specification says now, so that it is the target as well.
func (c *change) isNewest(app hub.Application, op hub.Operation, r hub.Rendered) bool {
	o := op.Options
	return o.Override != nil && o.Override.Fresh && !o.DryRun && app.Generation == r.Generation && (app.Pin == nil || isFull(o))
}

// instead moves an application so that an operation applies a snapshot which
// is not its target. The target stays: the application is OutOfSync afterwards.
func (c *change) instead(ctx context.Context, app hub.Application, spec hub.ApplicationSpec, op *hub.Operation, own hub.Snapshot) error {
	if op.Options.DryRun {
		return c.tryOut(ctx, app, spec, op, own)
	}
	if err := c.need(ctx, []hub.SnapshotID{app.Status.Target}); err != nil {
		return err
	}
	return c.move(ctx, move{
		app: app, spec: spec, target: app.Status.Target, accept: isFull(op.Options), op: op, own: &own, unpin: app.Pin != nil && isFull(op.Options),
		hold: app.Status.Hold, revision: app.Status.Revision, revisions: app.Status.Revisions, sourceType: app.Status.SourceType,
	})
}

// tryOut notes a dry run: an order to the cluster beside the application's
// state. Nothing that is desired changes, in the hub or in the log.
func (c *change) tryOut(ctx context.Context, app hub.Application, spec hub.ApplicationSpec, op *hub.Operation, own hub.Snapshot) error {
	at, err := c.tx.DesiredClusters(ctx, app.ID)
	if err != nil {
		return err
	}
	if !slices.Contains(at, app.Cluster) {
		return fault.With(fault.New(fault.Conflict, "cluster %s holds no state of it yet that a dry run could be compared with", c.clusters[app.Cluster].Name),
			"application "+app.Name, "wait until its sources have been rendered; see its conditions")
	}
	if err := c.need(ctx, []hub.SnapshotID{app.Status.Target}); err != nil {
		return err
	}
	st := c.state(app, spec, app.Generation)
	if target, held := c.snaps[app.Status.Target]; held {
		st.Target = &target
	}
	if err := st.CheckSize(op, &own, c.keys(ctx)); err != nil {
		return err
	}
	op.Fence, op.Trace = app.Generation, trace.Parent(ctx)
	move{spec: spec, op: op, own: &own, revisions: own.Revisions}.from()
	c.tries = append(c.tries, moved{state: st, op: op, own: &own})
	return nil
}

// from notes what the operation takes its manifests from. A rollback knows it
// from the history.
func (m move) from() {
	if m.op.Kind == hub.RollbackOperation {
		return
	}
	revisions := m.revisions
	if m.own != nil {
		revisions = m.own.Revisions
	}
	m.op.Options.From = m.spec.From(m.op.Options.Override, revisions)
}

// isFull reports whether an operation is about all objects, and changes them.
func isFull(o hub.OperationOptions) bool { return len(o.Resources) == 0 && !o.DryRun }

// Local appends an operation that applies manifests which came with the
// request (SYNC-05), inside the caller's transaction.
func Local(ctx context.Context, tx Tx, keys Keys, app hub.ApplicationID, req hub.SyncRequest) (hub.Operation, error) {
	c := &change{tx: tx, now: time.Now()}
	a, spec, err := c.one(ctx, app, req.Initiator)
	if err != nil {
		return hub.Operation{}, err
	}
	object := "application " + a.Name
	switch {
	case a.Follows(spec) && !req.Options.DryRun:
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "it follows its revision by itself and would undo what you apply"), object,
			"turn automation off first, or make it a dry run")
	case a.Status.Target == "":
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "nothing has been rendered for it yet"), object,
			"see its conditions: the repository, path or chart may be wrong")
	}
	own := hub.Snapshot{
		ID: hub.NewID[hub.SnapshotID](), Application: a.ID, Revision: "local", Objects: req.Local.Objects, SourceType: "Directory", CreatedAt: c.now,
	}
	// It stands for no recorded inputs, so nothing may ever be taken for it.
	if _, err := rand.Read(own.ParamsHash[:]); err != nil {
		return hub.Operation{}, fmt.Errorf("name a snapshot: %w", err)
	}
	sealed, err := sealBodies(keys, &own, req.Local.Bodies)
	if err != nil {
		return hub.Operation{}, err
	}
	if err := tx.PutObjects(ctx, sealed); err != nil {
		return hub.Operation{}, err
	}
	if err := tx.PutSnapshots(ctx, []hub.Snapshot{own}); err != nil {
		return hub.Operation{}, err
	}
	c.snaps[own.ID] = own
	req.Override = &hub.Override{Local: true}
	op := c.asked(a, spec, req)
	op.Snapshot, op.Revision = own.ID, own.Revision
	if err := c.selected(ctx, a, spec, &op, own); err != nil {
		return hub.Operation{}, err
	}
	if err := c.instead(ctx, a, spec, &op, own); err != nil {
		return hub.Operation{}, err
	}
	return c.finish(ctx, app)
}

// sealBodies names and seals the bodies of a snapshot.
func sealBodies(keys Keys, s *hub.Snapshot, bodies [][]byte) ([]hub.SealedObject, error) {
	var out []hub.SealedObject
	err := nameBodies(s, bodies, func(plain []byte) (hub.Digest, error) {
		digest := hub.Digest(encryption.Digest(keys.Digest, plain))
		body, err := encryption.SealBlob(keys.Object, digest, plain)
		if err == nil {
			err = wire.CheckSealedSize(body)
		}
		out = append(out, hub.SealedObject{Digest: digest, Sealed: body, Size: len(plain)})
		return digest, err
	})
	return out, err
}

// nameBodies gives the objects of a snapshot their digests, as add seals them,
// and adds the lists of a long one.
func nameBodies(s *hub.Snapshot, bodies [][]byte, add func(plain []byte) (hub.Digest, error)) error {
	var err error
	for n, body := range bodies {
		if s.Objects[n].Digest, err = add(body); wire.IsOversize(err) {
			return wire.Oversize(fault.With(err, s.Objects[n].Kind+" "+s.Objects[n].Name, "make it smaller"))
		}
		if err != nil {
			return fmt.Errorf("seal %s %q: %w", s.Objects[n].Kind, s.Objects[n].Name, err)
		}
	}
	if err := wire.AddLists(s, add); err != nil {
		return fmt.Errorf("seal the object lists of application %s: %w", s.Application, err)
	}
	return nil
}

// failAwaited ends the operations whose own manifests could not be rendered,
// and gives the failures that are their applications'. The target of the
// others was not even looked at.
func failAwaited(ctx context.Context, queue WorkQueue, ops OperationWriter, failures []hub.RefreshFailure) (own []hub.RefreshFailure, err error) {
	for _, f := range failures {
		if f.Operation == "" {
			own = append(own, f)
			continue
		}
		err := ops.EndOperation(ctx, f.Operation, hub.Failed, "its manifests cannot be rendered: "+f.Message)
		if err != nil && fault.KindOf(err) != fault.Missing {
			return nil, err
		}
		if err := queue.Enqueue(ctx, WorkRefresh, string(f.Application), time.Now(), false); err != nil {
			return nil, err
		}
	}
	return own, nil
}
