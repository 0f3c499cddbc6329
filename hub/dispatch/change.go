package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Unchanged records that applications stand at new commits without a change.
func (d *Dispatcher) Unchanged(ctx context.Context, tenant hub.TenantID, apps []hub.Unchanged) error {
	return d.commit(ctx, tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, error) {
		good, err := stillOurs(ctx, d, tx.WorkQueue, apps, func(u hub.Unchanged) (hub.ApplicationID, int64) { return u.Application, u.Lease })
		if err != nil || len(good) == 0 {
			return nil, err
		}
		return nil, tx.Unchanged(ctx, good)
	})
}

// Failed records why applications could not be refreshed. What is desired
// stays as it was.
func (d *Dispatcher) Failed(ctx context.Context, tenant hub.TenantID, failures []hub.RefreshFailure) error {
	return d.commit(ctx, tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, error) {
		good, err := stillOurs(ctx, d, tx.WorkQueue, failures, func(f hub.RefreshFailure) (hub.ApplicationID, int64) { return f.Application, f.Lease })
		if err == nil {
			good, err = failAwaited(ctx, tx.WorkQueue, tx.OperationWriter, good)
		}
		if err != nil || len(good) == 0 {
			return nil, err
		}
		return nil, tx.SetFailures(ctx, good)
	})
}

// AcknowledgeRefresh takes the annotations away that asked for looks which are done.
func (d *Dispatcher) AcknowledgeRefresh(ctx context.Context, tenant hub.TenantID, done []hub.RefreshAck) error {
	return d.commit(ctx, tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, error) {
		return nil, tx.AcknowledgeRefresh(ctx, done)
	})
}

// commit runs a transaction and then gives the hints that it earned.
func (d *Dispatcher) commit(ctx context.Context, tenant hub.TenantID, do func(context.Context, Tx) ([]hub.ClusterID, error)) error {
	return d.commitAndPush(ctx, tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, map[hub.ClusterID]*wire.PushedRows, error) {
		clusters, err := do(ctx, tx)
		return clusters, nil, err
	})
}

// commitAndPush is commit whose hints say what was added to the logs.
func (d *Dispatcher) commitAndPush(ctx context.Context, tenant hub.TenantID, do func(context.Context, Tx) ([]hub.ClusterID, map[hub.ClusterID]*wire.PushedRows, error)) error {
	var clusters []hub.ClusterID
	var additions map[hub.ClusterID]*wire.PushedRows
	err := d.store.InTenant(ctx, tenant, func(ctx context.Context, tx Tx) error {
		var err error
		clusters, additions, err = do(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	failpoint.Here(failpoint.HubWakeBefore)
	for _, c := range clusters {
		d.streams.Push(c, additions[c])
	}
	d.changed(tenant)
	return nil
}

// Rendered stores complete snapshots, moves what is desired, and appends what
// follows from it to the logs of the clusters: one transaction for all.
func (d *Dispatcher) Rendered(ctx context.Context, tenant hub.TenantID, results []hub.Rendered) error {
	sealed, results, large, err := d.seal(ctx, tenant, results)
	if err != nil {
		return err
	}
	if len(large) > 0 {
		if err := d.Failed(ctx, tenant, large); err != nil {
			return err
		}
	}
	return d.commitAndPush(ctx, tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, map[hub.ClusterID]*wire.PushedRows, error) {
		c := &change{tx: tx, now: time.Now()}
		good, err := stillOurs(ctx, d, tx.WorkQueue, results, func(r hub.Rendered) (hub.ApplicationID, int64) { return r.Application, r.Lease })
		if err != nil || len(good) == 0 {
			return nil, nil, err
		}
		if err := c.rendered(ctx, good, sealed); err != nil {
			return nil, nil, err
		}
		return c.touched(), c.pushed, nil
	})
}

// seal names and seals the bodies of new snapshots, and gives new snapshots
// their ids. Results with something in them that is too large to be sent are
// left out of good.
func (d *Dispatcher) seal(ctx context.Context, tenant hub.TenantID, results []hub.Rendered) (out []hub.SealedObject, good []hub.Rendered, large []hub.RefreshFailure, err error) {
	keys, err := d.store.Keys(ctx, tenant)
	if err != nil {
		return nil, nil, nil, err
	}
	s := &sealer{streams: d.streams, tenant: tenant, keys: keys, sealed: map[hub.Digest]bool{}}
	for _, r := range results {
		if !r.Reused {
			r.Snapshot.ID = hub.NewID[hub.SnapshotID]()
			err := nameBodies(&r.Snapshot, r.Bodies, s.add)
			if wire.IsOversize(err) {
				large = append(large, tooLarge(r, err))
				continue
			}
			if err != nil {
				return nil, nil, nil, err
			}
		}
		good = append(good, r)
	}
	// Before the commit: a stream may read the rows as soon as they are there.
	d.streams.Remember(tenant, s.out)
	return s.out, good, large, nil
}

// A sealer seals the bodies of one tenant, each once.
type sealer struct {
	streams Streams
	tenant  hub.TenantID
	keys    Keys
	sealed  map[hub.Digest]bool
	out     []hub.SealedObject
}

// add seals one body, unless another application has it too, and returns its
// digest. What was sealed lately is not sealed again.
func (s *sealer) add(plain []byte) (hub.Digest, error) {
	digest := hub.Digest(encryption.Digest(s.keys.Digest, plain))
	if s.sealed[digest] {
		return digest, nil
	}
	body, recent := s.streams.Recent(s.tenant, digest)
	if !recent {
		var err error
		if body, err = encryption.SealBlob(s.keys.Object, digest, plain); err != nil {
			return digest, err
		}
	}
	if err := wire.CheckSealedSize(body); err != nil {
		return digest, err
	}
	s.sealed[digest] = true
	s.out = append(s.out, hub.SealedObject{Digest: digest, Sealed: body, Size: len(plain)})
	return digest, nil
}

// A change gathers what one transaction does to desired state: first the
// decisions, then, with the clusters locked in order, the rows.
type change struct {
	tx  Tx
	now time.Time
	known
	decided
}

// known is what a change has read.
type known struct {
	specs      map[hub.ApplicationID]*hub.DecodedSpec // when they were rendered
	apps       map[hub.ApplicationID]hub.Application
	projects   map[string]hub.ProjectSpec
	versions   map[string]int64 // of the projects
	clusters   map[hub.ClusterID]hub.Cluster
	open       map[hub.ApplicationID]hub.Operation
	newest     map[hub.ApplicationID]hub.Operation
	tombstones map[hub.ApplicationID][]hub.Tombstone
	snaps      map[hub.SnapshotID]hub.Snapshot
	leaves     map[hub.ClusterID]map[string][32]byte // what each log holds, as far as it was asked for
}

// decided is what a change is going to write.
type decided struct {
	moved []moved // rows to come
	tries []moved // dry runs: operation rows without a state
	ends  []end
	// forget holds rows that make a cluster stop managing an application.
	forget  []end
	deleted []hub.ApplicationID // whose deletion is over
	ops     []hub.Operation
	given   []hub.Operation // that waited for their manifests
	opened  []hub.Tombstone
	targets []hub.TargetChange
	lists   []hub.SealedObject // of tombstones
	history []hub.HistoryEntry
	pushed  map[hub.ClusterID]*wire.PushedRows
}

// keys reads the tenant's keys when they are needed.
func (c *change) keys(ctx context.Context) func() (hub.TenantKeys, error) {
	return func() (hub.TenantKeys, error) { return c.tx.TenantKeys(ctx) }
}

// moved is one application whose desired state changes: a state row and, if
// there is one, the operation row after it.
type moved struct {
	state  wire.State
	opened []hub.Tombstone // since is filled with the state row's number
	op     *hub.Operation
	own    *hub.Snapshot // of the operation, where it is not the target's
}

// end is a row about an application that is no new state.
type end struct {
	cluster hub.ClusterID
	row     hub.LogRow
}

// load locks the applications and reads all that decisions about them need.
func (c *change) load(ctx context.Context, ids []hub.ApplicationID) error {
	if err := c.lock(ctx, ids); err != nil {
		return err
	}
	var err error
	if err = c.operations(ctx); err != nil {
		return err
	}
	if c.tombstones, err = c.tx.Tombstones(ctx, ids); err != nil {
		return err
	}
	if err := c.loadPlaces(ctx); err != nil {
		return err
	}
	if c.snaps == nil {
		c.snaps = map[hub.SnapshotID]hub.Snapshot{}
	}
	return c.need(ctx, c.snapshotsInUse())
}

// loadPlaces reads the clusters and projects of the applications.
func (c *change) loadPlaces(ctx context.Context) error {
	names, homes := map[string]bool{}, map[string]bool{}
	for _, a := range c.apps {
		names[a.Project] = true
		if a.Cluster != "" {
			homes[string(a.Cluster)] = true
		}
	}
	var clusters []hub.ClusterID
	for _, id := range sortedKeys(homes) {
		clusters = append(clusters, hub.ClusterID(id))
	}
	var err error
	if c.clusters, err = c.tx.ClusterPlaces(ctx, clusters); err != nil {
		return err
	}
	projects, err := c.tx.ProjectSpecs(ctx, sortedKeys(names))
	if err != nil {
		return err
	}
	c.projects, c.versions = map[string]hub.ProjectSpec{}, map[string]int64{}
	for name, p := range projects {
		c.versions[name] = p.Revision()
		if c.projects[name], err = projectSpec(p); err != nil {
			return err
		}
	}
	return nil
}

// snapshotsInUse are those of the applications and of their open operations.
func (c *change) snapshotsInUse() []hub.SnapshotID {
	var out []hub.SnapshotID
	for _, a := range c.apps {
		for _, id := range []hub.SnapshotID{a.Status.Target, a.Status.Accepted, c.open[a.ID].Snapshot} {
			if id != "" && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

func (c *change) lock(ctx context.Context, ids []hub.ApplicationID) (err error) {
	c.apps, err = c.tx.LockApplications(ctx, ids)
	return err
}

// spec is what the spec of a locked application means.
func (c *change) spec(app hub.Application) (hub.ApplicationSpec, error) {
	if s := c.specs[app.ID]; s != nil && s.Version == app.Version {
		return s.Spec, nil
	}
	return hub.DecodeSpec(app.Spec)
}

// operations gives the newest operation of each application, and those that are
// not over: as nobody adds one while the applications are locked, these are
// among the newest. A dry run has changed nothing, so the newest is the one
// before it.
func (c *change) operations(ctx context.Context) (err error) {
	c.newest, c.open = make(map[hub.ApplicationID]hub.Operation, len(c.apps)), nil
	var open, tried []hub.ApplicationID
	for id, a := range c.apps {
		op := a.Status.Operation
		if op == nil {
			continue
		}
		c.newest[id] = *op
		if op.Options.DryRun {
			tried = append(tried, id)
		}
		if !op.Phase.Over() {
			open = append(open, id)
		}
	}
	if len(open) > 0 {
		if c.open, err = c.tx.OpenOperations(ctx, open); err != nil {
			return err
		}
	}
	if len(tried) == 0 {
		return nil
	}
	before, err := c.tx.NewestOperations(ctx, tried)
	if err != nil {
		return err
	}
	for _, id := range tried {
		delete(c.newest, id)
		if op, there := before[id]; there {
			c.newest[id] = op
		}
	}
	return nil
}

// need reads snapshots that are not at hand yet.
func (c *change) need(ctx context.Context, ids []hub.SnapshotID) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id hub.SnapshotID) bool {
		_, held := c.snaps[id]
		return held || id == ""
	})
	if len(ids) == 0 {
		return nil
	}
	found, err := c.tx.Snapshots(ctx, ids)
	if err != nil {
		return err
	}
	for id, s := range found {
		c.snaps[id] = s
	}
	return nil
}

func (c *change) rendered(ctx context.Context, results []hub.Rendered, sealed []hub.SealedObject) error {
	ids := make([]hub.ApplicationID, len(results))
	c.snaps = map[hub.SnapshotID]hub.Snapshot{}
	var fresh []hub.Snapshot
	var old []hub.SnapshotID
	c.specs = make(map[hub.ApplicationID]*hub.DecodedSpec, len(results))
	for i, r := range results {
		ids[i] = r.Application
		if r.Spec != nil {
			c.specs[r.Application] = r.Spec
		}
		if r.Reused {
			old = append(old, r.Snapshot.ID)
			continue
		}
		fresh = append(fresh, r.Snapshot)
		c.snaps[r.Snapshot.ID] = r.Snapshot
	}
	if err := c.load(ctx, ids); err != nil {
		return err
	}
	if err := c.need(ctx, old); err != nil {
		return err
	}
	if err := c.storeRendered(ctx, sealed, c.live(fresh)); err != nil {
		return err
	}
	for _, r := range results {
		if err := c.accept(ctx, r); err != nil {
			return err
		}
	}
	return c.write(ctx)
}

// storeRendered stores new objects and snapshots.
func (c *change) storeRendered(ctx context.Context, sealed []hub.SealedObject, fresh []hub.Snapshot) error {
	failpoint.Here(failpoint.HubObjectsBefore)
	if len(sealed) > 0 {
		if err := c.tx.PutObjects(ctx, sealed); err != nil {
			return err
		}
	}
	if len(fresh) > 0 {
		if err := c.tx.PutSnapshots(ctx, fresh); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.HubSnapshotsAfter)
	return nil
}

// accept decides about one result. One that is too large to be sent is noted
// as that, because the others must not wait for it.
func (c *change) accept(ctx context.Context, r hub.Rendered) error {
	ctx, end := trace.Start(trace.Resume(ctx, r.Trace), "accept", logkey.Application, string(r.Application), logkey.Revision, r.Revision)
	err := c.candidate(ctx, r)
	if wire.IsOversize(err) {
		err = c.refused(ctx, r, err)
	}
	end(err)
	return err
}

// refused notes what was rendered and cannot be sent to its cluster. The
// application stays as it is, or the operation that asked for it fails.
func (c *change) refused(ctx context.Context, r hub.Rendered, why error) error {
	if r.Operation != "" {
		return c.tx.EndOperation(ctx, r.Operation, hub.Failed, fault.Sentence(why))
	}
	return c.tx.SetFailures(ctx, []hub.RefreshFailure{tooLarge(r, why)})
}

func tooLarge(r hub.Rendered, why error) hub.RefreshFailure {
	return hub.RefreshFailure{
		Application: r.Application, Generation: r.Generation, Condition: hub.ComparisonError, Message: fault.Sentence(why), Operation: r.Operation, Lease: r.Lease,
	}
}

// live leaves out snapshots of applications that are gone meanwhile.
func (c *change) live(snaps []hub.Snapshot) []hub.Snapshot {
	return slices.DeleteFunc(snaps, func(s hub.Snapshot) bool {
		_, there := c.apps[s.Application]
		return !there
	})
}

// A move is a decided change of one application's desired state.
type move struct {
	app        hub.Application
	spec       hub.ApplicationSpec
	target     hub.SnapshotID
	accept     bool
	op         *hub.Operation
	own        *hub.Snapshot // what op applies instead of the target
	hold       string
	pin        *hub.Pin
	unpin      bool
	revision   string
	revisions  []string
	sourceType string
	refreshed  bool // at its sources, just now
}

// move notes a decided change. The application's generation grows by one:
// operations of earlier generations are refused by the agent from then on.
// A decision that changes nothing for the agent appends nothing and leaves the
// generation alone, so that it voids no operation that is under way.
func (c *change) move(ctx context.Context, m move) error {
	if err := c.checkLoaded(m); err != nil {
		return err
	}
	target, held := c.snaps[m.target]
	accepted, wanted := m.enforced(target)
	st := c.state(m.app, m.spec, m.app.Generation)
	if held {
		st.Target = &target
	}
	if s, ok := c.snaps[accepted]; ok {
		st.Accepted = &s
	}
	var opened []hub.Tombstone
	if m.app.Cluster != "" {
		st.Tombstones, opened = c.diffTombstones(m.app, wanted)
		if err := st.CheckSize(m.op, m.own, c.keys(ctx)); err != nil {
			return err
		}
	}
	known, err := c.isWritten(ctx, st, m)
	if err != nil {
		return err
	}
	if !known {
		st.Generation++
	}
	if m.app.Cluster != "" && !known {
		if m.op != nil {
			m.op.Fence, m.op.Trace = st.Generation, trace.Parent(ctx)
			m.from()
		}
		c.moved = append(c.moved, moved{st, opened, m.op, m.own})
	}
	change := hub.TargetChange{
		Application: m.app.ID, Target: m.target, Revision: m.revision, Revisions: m.revisions, SourceType: m.sourceType,
		Resources: ordinary(target), Hold: m.hold, Pin: m.pin, Unpin: m.unpin, Generation: st.Generation, Project: c.versions[m.app.Project], Warnings: slices.Concat(target.Warnings, misread(m.spec)), Impure: target.Impure,
		DeletionHooks: target.DeletionHooks(), Refreshed: m.refreshed,
	}
	if m.accept {
		change.Accepted = accepted
	}
	c.targets = append(c.targets, change)
	return nil
}

// checkLoaded reports a defect: a move whose snapshot or project was not read.
func (c *change) checkLoaded(m move) error {
	if _, held := c.snaps[m.target]; m.target != "" && !held {
		return fmt.Errorf("snapshot %s of application %s is not loaded", m.target, m.app.ID)
	}
	if _, known := c.projects[m.app.Project]; !known {
		return fmt.Errorf("project %q of application %s is not loaded", m.app.Project, m.app.ID)
	}
	return nil
}

// enforced returns what is enforced from now on, and the snapshot whose objects
// the cluster is to have.
func (m move) enforced(target hub.Snapshot) (accepted hub.SnapshotID, wanted hub.Snapshot) {
	switch {
	case !m.accept:
		return m.app.Status.Accepted, target
	case m.own != nil:
		return m.own.ID, *m.own
	}
	return m.target, target
}

// misread tells of the application's own sync options that count for nothing.
func misread(spec hub.ApplicationSpec) []string {
	if spec.SyncPolicy == nil {
		return nil
	}
	return hub.MisreadSyncOptions(spec.SyncPolicy.SyncOptions, false)
}

// isWritten reports whether the cluster's log ends with this very state of the
// application, at the generation that it has, and nothing is to be done.
func (c *change) isWritten(ctx context.Context, st wire.State, m move) (bool, error) {
	cluster := m.app.Cluster
	if m.op != nil || cluster == "" || m.app.Status.PlannedGeneration != m.app.Generation {
		return false, nil
	}
	if _, read := c.leaves[cluster]; !read {
		leaves, err := c.tx.Leaves(ctx, cluster)
		if err != nil {
			return false, err
		}
		if c.leaves == nil {
			c.leaves = map[hub.ClusterID]map[string][32]byte{}
		}
		c.leaves[cluster] = leaves
	}
	body, _, err := st.Body(c.keys(ctx))
	if err != nil {
		return false, err
	}
	leaf, held := c.leaves[cluster][string(m.app.ID)]
	return held && leaf == hashchain.Leaf(string(m.app.ID), body), nil
}

// state begins a state row with what does not depend on snapshots.
func (c *change) state(app hub.Application, spec hub.ApplicationSpec, generation int64) wire.State {
	return wire.State{App: app, Still: c.skipped(app) != "", Spec: spec, Project: c.projects[app.Project], Cluster: c.clusters[app.Cluster].DestinationOf(spec.Destination), Generation: generation}
}

func ordinary(s hub.Snapshot) int {
	n := 0
	for _, o := range s.Objects {
		if o.Hook == "" {
			n++
		}
	}
	return n
}

func sortedKeys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
