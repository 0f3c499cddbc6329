package apply

import (
	"context"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/wave"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A task is the cluster as the machine of one operation sees it.
type task struct {
	app     *app
	op      inventory.Operation
	options []string // of application and operation
	wants   []*desired
	hooks   map[manifest.Key]*object // guarded by the application's mu
	changed chan struct{}            // capacity 1
	refused *refused
}

// Changed notifies that the state of some object may have changed.
func (t *task) Changed() <-chan struct{} { return t.changed }

// plan reads the manifests and orders them.
func (t *task) plan(ctx context.Context, p *progress) (wave.Plan, error) {
	a, order := t.app, t.op.Order
	a.mu.Lock()
	a.adoptReleased()
	state, tombstones := a.state, a.tombstones.all
	snap, err := t.snapshot()
	a.mu.Unlock()
	if own := order.GetSnapshot(); err != nil && len(own.GetObjects())+len(inventory.Lists(own)) > 0 {
		snap, err = a.e.resolve(ctx, own, state.GetNamespace()) // it is not part of a state, because it changes nothing or only some objects
	}
	if err != nil {
		return wave.Plan{}, err
	}
	t.options = slices.Concat(state.GetPolicy().GetSyncOptions(), order.GetOptions().GetSyncOptions())
	if order.GetOptions().GetForce() {
		t.options = append(t.options, "Force=true")
	}
	objects, err := t.read(ctx, snap, p)
	if err != nil {
		return wave.Plan{}, err
	}
	o := wave.Options{
		Operation: order.GetId(), Revision: snap.commit(), Created: time.Unix(0, order.GetCreatedUnixNano()),
		Prune: order.GetOptions().GetPrune() && a.e.Inventory.Frozen() == "", DryRun: order.GetOptions().GetDryRun(),
		SkipHooks: order.GetOptions().GetSkipHooks(), SyncOptions: t.options, Resources: order.GetOptions().GetResources(),
		Namespace:         state.GetNamespace(),
		NamespaceMetadata: len(order.GetOptions().GetNamespaceLabels())+len(order.GetOptions().GetNamespaceAnnotations()) > 0,
		Most:              int(state.GetPolicy().GetPruneLimit()), MostPercent: int(state.GetPolicy().GetPruneLimitPercent()),
		Owned: a.owns(),
	}
	var plan wave.Plan
	if t.deletes() {
		plan = wave.BuildDelete(objects, t.owned(nil), o)
	} else if plan, err = wave.Build(objects, t.owned(tombstones), o); err != nil {
		return wave.Plan{}, err
	}
	return plan, t.prepare(ctx, plan)
}

// snapshot selects what the operation applies. The caller holds mu.
func (t *task) snapshot() (*snapshot, error) {
	a, want := t.app, t.op.Order.GetSnapshot().GetId()
	for _, s := range []*snapshot{a.target, a.accepted} {
		if s != nil && s.id == want {
			return s, nil
		}
	}
	switch {
	case want == "" && t.deletes():
		return nil, nil
	case a.problem != "":
		return nil, fault.New(fault.Invalid, "the application's state cannot be used: %s", a.problem)
	}
	return nil, fault.New(fault.Conflict, "superseded: its snapshot is not part of the application's state any more")
}

// commit is the revision of a snapshot; empty for none.
func (s *snapshot) commit() string {
	if s == nil {
		return ""
	}
	return s.revision
}

// read reads the manifests, and waits for the hub if some are missing. It
// stores only what the plan needs; each is read again when it is applied, so
// that an operation that waits for hours uses little memory.
func (t *task) read(ctx context.Context, s *snapshot, p *progress) ([]wave.Object, error) {
	if s == nil {
		return nil, nil
	}
	back := lifecycle.Backoff{First: 500 * time.Millisecond, Max: 10 * time.Second}
	for {
		objects, err := t.describe(ctx, s)
		if err == nil || fault.KindOf(err) != fault.Offline || ctx.Err() != nil {
			return objects, err
		}
		p.report(phaseRunning, "waiting: "+sentence(err))
		if lifecycle.Sleep(ctx, t.app.e.Clock, back.Next()) != nil {
			return nil, err
		}
	}
}

// describe returns the objects as the planner needs them. For a deletion these
// are only its hooks.
func (t *task) describe(ctx context.Context, s *snapshot) ([]wave.Object, error) {
	lifecycle.Rest(ctx) // others are planned meanwhile
	select {
	case t.app.e.plans <- struct{}{}:
		lifecycle.Beat(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-t.app.e.plans }()
	plain, err := t.app.e.blobs(ctx, s.digests())
	if err != nil {
		return nil, err
	}
	t.wants = s.all
	deletion := t.deletes()
	out := make([]wave.Object, 0, len(plain))
	for i, text := range plain {
		o, err := manifest.FromCanonical(text)
		if err != nil {
			return nil, fault.With(err, s.all[i].key.Describe(), "")
		}
		d, err := wave.Describe(i, o, s.all[i].key.Namespace)
		if err != nil {
			return nil, fault.With(err, s.all[i].key.Describe(), "")
		}
		if !deletion || len(d.Hooks) > 0 {
			out = append(out, d)
		}
	}
	return out, nil
}

// owned returns the objects that may be deleted: those of tombstones that are
// also in our inventory; for a deletion everything in the inventory.
func (t *task) owned(tombstones []*linkv1.Tombstone) []wave.Object {
	a := t.app
	deletion := t.deletes()
	a.mu.Lock()
	defer a.mu.Unlock()
	dead := map[manifest.Key]bool{}
	for _, s := range tombstones {
		dead[a.keyOfTombstone(s)] = true
	}
	wanted := map[manifest.Key]bool{}
	for _, d := range t.wants {
		wanted[d.key] = wanted[d.key] || !d.hook
	}
	var out []wave.Object
	for _, key := range a.keys() {
		x := a.objects[key]
		if x.record == nil || x.hook == t.op.ID || a.itself(key) || (!deletion && (!dead[key] || wanted[key] || x.hook != "")) {
			continue
		}
		out = append(out, wave.Object{Index: -1, Key: key, Version: x.record.Version, Wave: x.record.Wave, Options: x.record.Options})
	}
	return out
}

// owns counts the objects that the application has in the cluster.
func (a *app) owns() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, x := range a.objects {
		if x.record != nil && x.hook == "" {
			n++
		}
	}
	return n
}

// Approved reports whether a person has approved the operation's deletions
// since the request (SYNC-13).
func (t *task) Approved() bool {
	row, ok := t.app.e.Inventory.App(t.app.id)
	if !ok || row.State.GetApprovedUnixNano() == 0 {
		return false
	}
	since := t.op.Order.GetAskedUnixNano()
	if since == 0 {
		since = t.op.Order.GetCreatedUnixNano()
	}
	at := row.State.GetApprovedUnixNano()
	if at%int64(time.Second) == 0 { // written without fractions, as kubectl users do
		since -= since % int64(time.Second)
	}
	return at >= since
}

// prepare watches the objects that the operation writes, and refuses the
// operation as a whole if FailOnSharedResource requires it. It acquires
// nothing: each object is acquired when it is written.
func (t *task) prepare(ctx context.Context, plan wave.Plan) error {
	a := t.app
	for _, it := range plan.Items() {
		if it.Hook || it.Prune || it.Namespace {
			continue
		}
		if d := t.wants[it.Index]; hasOption(it.Options, "FailOnSharedResource", "true") {
			if err := a.obtain(ctx, it.Key, d.namespaced, true); fault.KindOf(err) == fault.Conflict {
				t.refused.add(it.Key, "")
				return err
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, it := range plan.Items() {
		switch {
		case it.Hook:
			t.hook(it)
		case it.Prune || it.Namespace:
		case a.objects[it.Key] == nil && a.conflicts[it.Key] == "" && !plan.DryRun:
			t.adhoc(it)
		}
	}
	a.e.reconsiderKinds()
	return nil
}

// adhoc watches an object that is in no state of the application, because the
// operation applies another revision of some objects. The caller holds mu.
func (t *task) adhoc(it wave.Item) *object {
	d := t.wants[it.Index]
	x, owner := t.app.e.view(t.app, it.Key, d.gvk, d.namespaced)
	if owner != "" {
		t.app.conflicts[it.Key] = t.app.e.titleOf(owner)
		return nil
	}
	delete(t.app.conflicts, it.Key)
	x.target, x.accepted = t.app.target.get(it.Key), t.app.accepted.get(it.Key)
	t.app.objects[it.Key] = x
	return x
}

// acquire makes the owner of an object release it, if it does not list it any
// more, and returns the application's view of it.
func (t *task) acquire(ctx context.Context, it wave.Item) (*object, error) {
	a, d := t.app, t.wants[it.Index]
	if err := a.obtain(ctx, it.Key, d.namespaced, false); err != nil {
		if fault.KindOf(err) == fault.Conflict {
			t.refused.add(it.Key, "")
		}
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adoptReleased()
	x := a.objects[it.Key]
	if _, contested := a.conflicts[it.Key]; x == nil && contested {
		x = t.adhoc(it)
	}
	if x == nil {
		if owner := a.e.owner(it.Key); owner != "" && owner != a.id {
			t.refused.add(it.Key, "")
			return nil, managed(it.Key, a.e.titleOf(owner))
		}
		return nil, fault.New(fault.Conflict, "%s is not wanted any more", it.Key.Describe())
	}
	return x, nil
}

// noteRefusal stores why an object could not be written, if its ownership is
// the reason.
func (t *task) noteRefusal(x *object, err error, mark string) {
	if fault.KindOf(err) != fault.Conflict {
		return
	}
	a := t.app
	a.mu.Lock()
	defer a.mu.Unlock()
	switch owner := a.e.owner(x.key); {
	case owner != "" && owner != a.id:
		t.refused.add(x.key, "")
	case mark != "":
		t.refused.add(x.key, mark)
	case x.isTaken():
		t.refused.add(x.key, x.live.foreign.Title())
	}
}

// hook registers a hook, so that it is watched; nil if its name is in use. The
// caller holds mu.
func (t *task) hook(it wave.Item) *object {
	a := t.app
	if held := a.objects[it.Key]; held != nil && held.hook == "" {
		return nil
	}
	x, owner := a.e.view(a, it.Key, kindOf(it.Key, it.Version), it.Key.Namespace != "")
	if owner != "" {
		return nil
	}
	x.hook = t.op.ID
	a.objects[it.Key] = x
	t.hooks[it.Key] = x
	return x
}

// ended removes the hooks that were never created.
func (t *task) ended(r wave.Result) {
	if r.Phase == wave.Running {
		return
	}
	a := t.app
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, x := range t.hooks {
		if x.record == nil && a.objects[key] == x {
			x.hook = ""
			a.drop(x)
		}
	}
}

// Apply writes an object's desired content, or creates a hook.
func (t *task) Apply(ctx context.Context, it wave.Item) (wave.Outcome, error) {
	switch {
	case it.Namespace:
		o := t.op.Order.GetOptions()
		w, err := t.app.ensureNamespace(ctx, it.Key.Name, o.GetNamespaceLabels(), o.GetNamespaceAnnotations())
		return wave.Outcome{Changed: w.changed, Message: w.message}, err
	case it.Hook:
		return t.create(ctx, it)
	}
	d, a := t.wants[it.Index], t.app
	x, err := t.acquire(ctx, it)
	if err != nil {
		return wave.Outcome{}, err
	}
	a.mu.Lock()
	if x.settled(d) && !hasOption(it.Options, "Replace", "true") {
		s := x.state()
		a.mu.Unlock()
		return wave.Outcome{Message: unchanged, State: &s}, nil
	}
	a.mu.Unlock()
	w, err := t.patiently(ctx, it, x, d)
	if err != nil {
		t.noteRefusal(x, err, w.mark)
		return wave.Outcome{}, err
	}
	a.mu.Lock()
	s := x.state()
	a.mu.Unlock()
	return wave.Outcome{Changed: w.changed, Message: w.message, State: &s}, nil
}

// kindPause is how long the API server may take to serve a kind whose
// definition this operation has just created.
const kindPause = 15 * time.Second

// patiently writes an object, and waits if this operation has just created its
// kind.
func (t *task) patiently(ctx context.Context, it wave.Item, x *object, d *desired) (written, error) {
	if inHub(it.Key) {
		return t.patientlyInHub(ctx, it, x, d)
	}
	until := t.app.e.Clock.Now().Add(kindPause)
	for {
		body, err := t.app.readDesired(ctx, d, time.Time{})
		if err != nil {
			return written{}, t.unresolved(ctx, x, err)
		}
		w, err := t.app.write(ctx, x, d, body, writing{options: it.Options})
		if fault.KindOf(err) != fault.Missing && !unknownResource(err) || !it.MadeHere || t.app.e.Clock.Now().After(until) {
			return w, err
		}
		t.app.e.Mapper.Forget(d.gvk)
		if lifecycle.Sleep(ctx, t.app.e.Clock, 250*time.Millisecond) != nil {
			return w, err
		}
	}
}

// settled reports whether an object is unchanged, so that no request is needed.
// The caller holds mu.
func (x *object) settled(d *desired) bool {
	if !x.live.known || !x.live.found || x.live.deleting || x.inflight > 0 || !x.current(d) || !x.comparison.Equal || x.rotated != "" || !x.marked() {
		return false
	}
	_, broken := x.app.e.kindState(x)
	return broken == nil && x.record.Owned.UID == x.live.uid
}

// state returns the known live state. The caller holds mu.
func (x *object) state() wave.State {
	s := wave.State{Found: x.live.found, Deleting: x.live.deleting, Health: x.live.health, Message: x.live.message}
	if x.live.known && x.live.found && x.hook == "" {
		s.Health, s.Message, _ = x.counts(x.app.e.Clock.Now())
	}
	return s
}

// State returns the live state: from the watch or, without one, from the API
// server.
func (t *task) State(ctx context.Context, it wave.Item) (wave.State, error) {
	a := t.app
	a.mu.Lock()
	x := a.objects[it.Key]
	if it.Hook {
		x = t.hooks[it.Key]
	}
	if x == nil {
		a.mu.Unlock()
		return wave.State{}, nil
	}
	known := x.live.known
	s := x.state()
	s.Ours = it.Hook && x.live.instance == it.Instance
	a.mu.Unlock()
	if listed, broken := a.e.kindState(x); known && listed && broken == nil {
		return s, nil
	}
	if err := t.readUnwatched(ctx, x); err != nil {
		return wave.State{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s = x.state()
	s.Ours = it.Hook && x.live.instance == it.Instance
	return s, nil
}

// readUnwatched reads an object whose kind is not being watched yet.
func (t *task) readUnwatched(ctx context.Context, x *object) error {
	_, err := t.app.readLive(ctx, x, &desired{key: x.key, gvk: x.gvk}, &sending{app: t.app, key: x.key})
	return err
}

// Preflight dry-runs objects; unchanged ones need no request.
func (t *task) Preflight(ctx context.Context, items []wave.Item) []wave.Check {
	out := make([]wave.Check, len(items))
	next := make(chan int, len(items)) // capacity for all work, so that filling it never blocks
	for i := range items {
		next <- i
	}
	close(next)
	g := lifecycle.NewGroup(ctx)
	for range min(16, len(items)) {
		g.Go(func(context.Context) error {
			for i := range next {
				out[i] = t.check(ctx, items[i])
			}
			return nil
		})
	}
	_ = g.Wait() // the workers return no errors
	return out
}

func (t *task) check(ctx context.Context, it wave.Item) wave.Check {
	if it.Namespace {
		return wave.Check{Message: "would be ensured"}
	}
	a := t.app
	d := t.wants[it.Index]
	if it.Hook && t.deletes() {
		return wave.Check{Err: t.mayCreateHook(it, d), Message: "would be created"}
	}
	body, err := a.readDesired(ctx, d, time.Time{})
	if err != nil {
		return wave.Check{Err: err}
	}
	s := &sending{app: a, key: it.Key, digest: d.digest, body: body.Object, leaves: body.leaves, options: it.Options, dryRun: true}
	var owned error
	if !it.Hook {
		owned = a.obtain(ctx, it.Key, d.namespaced, true)
	}
	x, settled := t.prepareCheck(s, it, d, owned)
	if settled {
		return wave.Check{Message: unchanged}
	}
	if x != nil {
		if err := a.adoptLive(ctx, x, s); err != nil {
			s.problem = err
			t.noteRefusal(x, err, s.mark)
		}
	}
	var out *manifest.Object
	if it.Hook {
		err = t.tryHook(ctx, it, s)
	} else {
		out, err = a.send(ctx, s)
	}
	switch {
	case err != nil && absent(it, err):
		return wave.Check{Message: "checked when it is applied"}
	case err != nil:
		return wave.Check{Err: s.explain(err, "dry-run")}
	case out == nil || s.before == "":
		return wave.Check{Message: "would be created"}
	}
	return wave.Check{Message: "would be configured"}
}

// deletes reports whether the operation deletes the application.
func (t *task) deletes() bool {
	return t.op.Order.GetKind() == linkv1.OperationKind_OPERATION_KIND_DELETE
}

// mayCreateHook reports why the application must not have a hook of its
// deletion. What the API server says counts when the hook is created.
func (t *task) mayCreateHook(it wave.Item, d *desired) error {
	if inHub(it.Key) {
		return noHook(it.Key)
	}
	t.app.mu.Lock()
	defer t.app.mu.Unlock()
	return t.app.permits(it.Key, d.namespaced)
}

// prepareCheck fills in what a dry run of an item sends. It returns the object,
// nil for a hook or an unknown one, and whether it is unchanged and needs no
// dry run. owned is why the application cannot own the object; nil: it can.
func (t *task) prepareCheck(s *sending, it wave.Item, d *desired, owned error) (x *object, settled bool) {
	a := t.app
	a.mu.Lock()
	defer a.mu.Unlock()
	if !it.Hook {
		x = a.objects[it.Key]
	}
	if x != nil {
		if x.settled(d) {
			return x, true
		}
		s.before = x.live.version
		if x.record != nil {
			s.applied, s.had, s.merged = x.record.Owned.Digest, true, x.record.Merged
		}
	}
	a.prepare(s.body, it.Key)
	s.ignore = a.ignore
	s.problem = a.permits(it.Key, d.namespaced)
	if s.problem == nil && x != nil {
		s.problem = x.surrendered(it.Options)
	}
	if s.problem == nil && owned != nil {
		s.problem = owned
		t.refused.add(it.Key, "")
	}
	return x, false
}
