package dispatch

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Delete begins the deletion of an application. With cascade its objects go
// first and the application stays visible until they are gone; without, or
// when no cluster ever heard of it, it goes at once and leaves objects alone.
// The clusters to wake are returned.
func Delete(ctx context.Context, tx Tx, app hub.ApplicationID, d hub.Deletion, by hub.Initiator) ([]hub.ClusterID, error) {
	c := &change{tx: tx, now: time.Now()}
	if err := c.load(ctx, []hub.ApplicationID{app}); err != nil {
		return nil, err
	}
	a, there := c.apps[app]
	if !there {
		return nil, fault.New(fault.Missing, "no such application")
	}
	if err := c.mayAct(a); err != nil && d.Cascade {
		return nil, err
	}
	clusters, err := tx.DesiredClusters(ctx, app)
	if err != nil {
		return nil, err
	}
	if op, running := c.open[app]; running {
		if op.Kind == hub.DeleteOperation && d.Cascade {
			return nil, nil // under way already
		}
		if err := tx.EndOperation(ctx, op.ID, hub.Failed, "superseded by the deletion of the application"); err != nil {
			return nil, err
		}
	}
	if !d.Cascade || len(clusters) == 0 {
		return c.forgetNow(ctx, app, clusters)
	}
	if err := tx.MarkDeleting(ctx, app, true); err != nil {
		return nil, err
	}
	op := c.operation(a, hub.DeleteOperation, hub.Snapshot{}, by)
	op.Options = hub.OperationOptions{Prune: true, Retry: &hub.Retry{Limit: -1}}
	if err := c.destroy(ctx, a, clusters, d.Propagation, &op); err != nil {
		return nil, err
	}
	return c.touched(), c.write(ctx)
}

// forgetNow removes an application at once. Its objects stay.
func (c *change) forgetNow(ctx context.Context, app hub.ApplicationID, clusters []hub.ClusterID) ([]hub.ClusterID, error) {
	c.leave(app, clusters...)
	if err := c.write(ctx); err != nil {
		return nil, err
	}
	return c.touched(), c.tx.RemoveApplication(ctx, app)
}

// destroy notes a state with the deletion hooks alone and tombstones for all
// objects, and the operation that deletes them, if there is one.
func (c *change) destroy(ctx context.Context, a hub.Application, clusters []hub.ClusterID, propagation string, op *hub.Operation) error {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	a.Cluster = clusters[0]
	c.leave(a.ID, clusters[1:]...)
	generation := a.Generation + 1
	st := c.state(a, spec, generation)
	hooks := c.deletionHooks(a)
	st.Target = hooks
	if op != nil {
		if spec.SyncPolicy != nil && op.Attempt == 0 {
			op.Options.SyncOptions = slices.Clone(spec.SyncPolicy.SyncOptions)
		}
		if propagation != "" {
			op.Options.SyncOptions = append(op.Options.SyncOptions, "PrunePropagationPolicy="+propagation)
		}
		op.Cluster, op.Fence, op.Deadline = a.Cluster, generation, c.now.Add(plan.Timeout(op.Options.SyncOptions))
		op.Trace = trace.Parent(ctx)
		if hooks != nil {
			op.Snapshot, op.Revision = hooks.ID, hooks.Revision
		}
	}
	tombstones, opened := c.diffTombstones(a, hub.Snapshot{})
	st.Tombstones = tombstones
	if err := st.CheckSize(op, nil, c.keys(ctx)); err != nil {
		return err
	}
	c.moved = append(c.moved, moved{st, opened, op, nil})
	c.targets = append(c.targets, hub.TargetChange{
		Application: a.ID, Target: a.Status.Target, Revision: a.Status.Revision, Revisions: a.Status.Revisions,
		SourceType: a.Status.SourceType, DeletionHooks: a.Status.DeletionHooks, Resources: a.Status.Resources, Generation: generation, Project: c.versions[a.Project], Unpin: a.Pin != nil,
	})
	return nil
}

// deletionHooks is the snapshot that the application runs by, reduced to the
// hooks of its deletion; nil if it has none (HOOK-16, HOOK-17).
func (c *change) deletionHooks(a hub.Application) *hub.Snapshot {
	s, ok := c.snaps[a.Status.Accepted]
	if !ok {
		if s, ok = c.snaps[a.Status.Target]; !ok {
			return nil
		}
	}
	s.Objects = slices.DeleteFunc(slices.Clone(s.Objects), func(o hub.ObjectRef) bool {
		types := strings.Split(o.Hook, ",")
		return !slices.Contains(types, "PreDelete") && !slices.Contains(types, "PostDelete")
	})
	if len(s.Objects) == 0 {
		return nil
	}
	s.Lists = nil
	return &s
}

// deleteAgain makes the next attempt of a deletion that failed.
func (c *change) deleteAgain(ctx context.Context, app hub.Application, op hub.Operation) error {
	clusters, err := c.tx.DesiredClusters(ctx, app.ID)
	if err != nil || len(clusters) == 0 {
		return err
	}
	next := c.operation(app, hub.DeleteOperation, hub.Snapshot{}, op.Initiator)
	next.Options, next.Reason, next.Attempt = op.Options, op.Reason, op.Attempt+1
	if next.Options.Asked.IsZero() {
		next.Options.Asked = op.CreatedAt
	}
	if err := c.tx.SetOperationRetry(ctx, op.ID, nil, op.Options); err != nil {
		return err
	}
	if err := c.destroy(ctx, app, clusters, "", &next); err != nil {
		return err
	}
	return c.write(ctx)
}

// Abandon gives an application up whose cluster is gone: nothing is deleted,
// the hub and, should it come back, the cluster forget it. The objects that
// are left behind are returned.
func Abandon(ctx context.Context, tx Tx, app hub.ApplicationID) (left []hub.ObjectRef, clusters []hub.ClusterID, err error) {
	c := &change{tx: tx, now: time.Now()}
	if err := c.load(ctx, []hub.ApplicationID{app}); err != nil {
		return nil, nil, err
	}
	a, there := c.apps[app]
	if !there {
		return nil, nil, fault.New(fault.Missing, "no such application")
	}
	if clusters, err = tx.DesiredClusters(ctx, app); err != nil {
		return nil, nil, err
	}
	homes, err := tx.ClustersByID(ctx, clusters)
	if err != nil {
		return nil, nil, err
	}
	for _, home := range homes {
		if home.Connected {
			return nil, nil, fault.With(fault.New(fault.Conflict, "its cluster %s is connected, so its objects can be deleted", home.Name), "application "+a.Name,
				"delete it with cascade, or without cascade to leave its objects alone")
		}
	}
	left = c.leftBehind(a)
	c.leave(app, clusters...)
	if err := c.write(ctx); err != nil {
		return nil, nil, err
	}
	return left, c.touched(), tx.RemoveApplication(ctx, app)
}

// leftBehind lists what the application may have in its cluster.
func (c *change) leftBehind(a hub.Application) []hub.ObjectRef {
	known := map[manifest.Key]bool{}
	var out []hub.ObjectRef
	add := func(o hub.ObjectRef) {
		if key := o.Key(); !known[key] {
			known[key] = true
			out = append(out, o)
		}
	}
	for _, id := range []hub.SnapshotID{a.Status.Accepted, a.Status.Target} {
		for _, o := range c.snaps[id].Objects {
			if o.Hook == "" && (id == a.Status.Accepted || a.Status.Accepted == "") {
				add(o)
			}
		}
	}
	for _, t := range c.tombstones[a.ID] {
		add(hub.ObjectRef{Group: t.Group, Version: t.Version, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, Wave: t.Wave})
	}
	return out
}

// Approve tells the cluster that a person has approved deletions: the
// application's annotation says when.
func Approve(ctx context.Context, tx Tx, app hub.ApplicationID) (hub.Operation, error) {
	c := &change{tx: tx, now: time.Now()}
	if err := c.load(ctx, []hub.ApplicationID{app}); err != nil {
		return hub.Operation{}, err
	}
	a, there := c.apps[app]
	if !there {
		return hub.Operation{}, fault.New(fault.Missing, "no such application")
	}
	op, running := c.open[app]
	if !running {
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "no operation is in progress, so nothing waits for approval"), "application "+a.Name,
			"an approval counts for operations that began before it")
	}
	if a.DeletingAt != nil {
		clusters, err := tx.DesiredClusters(ctx, app)
		if err != nil || len(clusters) == 0 {
			return op, err
		}
		if err := c.destroy(ctx, a, clusters, "", nil); err != nil {
			return op, err
		}
		return op, c.write(ctx)
	}
	if err := c.restate(ctx, a); err != nil {
		return op, err
	}
	return op, c.write(ctx)
}

// restate notes the state of an application as it is now.
func (c *change) restate(ctx context.Context, a hub.Application) error {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	return c.move(ctx, move{
		app: a, spec: spec, target: a.Status.Target, hold: a.Status.Hold,
		revision: a.Status.Revision, revisions: a.Status.Revisions, sourceType: a.Status.SourceType,
	})
}

// refetch has the repositories of an application looked at now.
func (c *change) refetch(ctx context.Context, app hub.Application) error {
	spec, err := hub.DecodeSpec(app.Spec)
	if err != nil {
		return err
	}
	for _, url := range spec.RepoURLs() {
		repo, err := c.tx.RepositoryFor(ctx, url, app.Project)
		if fault.KindOf(err) == fault.Missing {
			continue
		}
		if err != nil {
			return err
		}
		if err := c.tx.Fetch(ctx, repo.ID); err != nil {
			return err
		}
	}
	return nil
}
