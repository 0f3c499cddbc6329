package apply

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// An app is one application in this cluster. One worker at a time processes its
// states, runs its operations and compares it; events are processed
// concurrently.
type app struct {
	e  *Engine
	id string

	account atomic.Pointer[account] // of the state; nil: there is none yet

	mu                sync.Mutex
	state             *linkv1.AppState // newest resolved one; nil: none yet
	tombstones        tombstoneIndex   // tombstones of the state
	generation        uint64           // highest one that was seen
	ignore            *diff.Ignore
	windows           syncwindow.Set // of the state
	target            *snapshot
	accepted          *snapshot
	exclusionsChanged bool // the excluded kinds have changed since objects were processed
	unserved          bool // some kind of the snapshots is not served yet
	objects           map[manifest.Key]*object
	orphans           map[manifest.Key]*linkv1.Resource // that were reported
	orphanNote        string
	settingsChanged   bool                    // the settings have changed since the state was processed
	problem           string                  // why the application cannot be compared; empty: it can
	warnings          map[string]string       // warnings for users, by subject
	conflicts         map[manifest.Key]string // listed objects that another application owns, by its title
	refusals          refusals                // why its last operation was refused objects
	closed            bool

	// The engine's mu guards these.
	listing *listing           // objects of the newest received state; nil: none was received
	leaving bool               // the application is being deleted: it adopts nothing
	arrived []inventory.Record // records of objects that others have released to it, not processed yet
	nsMeta  *nsMeta            // what it manages on its namespace; nil: nothing; written with both locks held

	newState          bool     // a newer state waits to be resolved
	taking            bool     // the newest state is being resolved: the table of claims does not show yet what it lists
	unresolved        bool     // the newest state could not be resolved yet; it is retried
	queue             []string // ids of waiting operations
	running           *running
	deleting          bool                    // a delete operation has begun; self-heal is off
	rebuild           bool                    // its records were lost with the state directory
	doubt             bool                    // tombstones have no record, and must be checked in the cluster
	tombstonesChecked bool                    // with rebuild or doubt: its tombstones were checked
	healthy           *linkv1.OperationReport // result of the operation whose health is waited for; nil: none
	gone              bool                    // a delete operation has succeeded
	stale             bool                    // some object must be compared by a dry run or read
	working           bool
	nsLive            nsLive            // the namespace, as far as nsMeta concerns it
	ensured           *nsMeta           // what was written to the namespace last; nil: nothing
	lastReport        *linkv1.AppReport // newest report; nil: none yet
	shown             [2]string         // sync and health of the newest report; empty: none yet
	lastReportAt      time.Time
	reportScheduled   bool          // a report is scheduled
	compareScheduled  bool          // a comparison is scheduled
	waits             string        // the operation that was reported to wait for its windows
	graceLeft         time.Duration // until the first grace period of an object ends; 0: there is none
	recheckAt         time.Time     // when that is checked; zero: not scheduled
}

// running is the operation under way.
type running struct {
	id      string
	seq     uint64 // of its row
	since   time.Time
	hooks   bool // it runs hooks, which are not aborted for a newer revision
	stop    func(actor string)
	changed chan struct{} // capacity 1: some object has changed
}

func newApp(e *Engine, id string) *app {
	return &app{
		e: e, id: id, generation: e.Secret.Generation(id),
		objects: map[manifest.Key]*object{}, orphans: map[manifest.Key]*linkv1.Resource{}, warnings: map[string]string{},
	}
}

// adoptAll processes the inventory's records of the application. The caller
// holds mu.
func (a *app) adoptAll() {
	records := a.e.Inventory.Owned(a.id)
	a.rebuild = a.e.lost && len(records) == 0 && a.generation > 0
	a.refusals.restore(a.e.Inventory.Refused(a.id))
	for _, r := range records {
		if !a.e.Excluded(r.Key.Group, r.Key.Kind) {
			a.adopt(r)
		}
	}
}

// adopt processes a record of the inventory.
func (a *app) adopt(r inventory.Record) {
	gvk := kindOf(r.Key, r.Version)
	if !a.e.restore(r) {
		return
	}
	x, _ := a.e.view(a, r.Key, gvk, r.Key.Namespace != "")
	x.record = &r
	x.hook = r.Hook
	a.objects[r.Key] = x
}

// stateChanged says that the inventory has a newer state.
func (a *app) stateChanged(ctx context.Context) {
	row, ok := a.e.Inventory.App(a.id)
	if !ok {
		return
	}
	a.e.Secret.Raise(a.id, row.State.GetGeneration())
	a.mu.Lock()
	a.generation = max(a.generation, row.State.GetGeneration())
	a.newState = true
	a.nudge() // a person may have approved what an operation waits for
	a.start()
	a.mu.Unlock()
}

// enqueue queues an operation.
func (a *app) enqueue(_ context.Context, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.queue, id) || (a.running != nil && a.running.id == id) {
		return
	}
	a.queue = append(a.queue, id)
	a.supersede(id)
	a.start()
}

// supersede ends the running operation in favour of a newer one: the hub has
// one at a time, so it has ended the older one. Hooks are aborted only for the
// application's deletion. The caller holds mu.
func (a *app) supersede(id string) {
	r := a.running
	o, ok := a.e.Inventory.Operation(id)
	if r == nil || !ok || !o.Open() || o.Seq < r.seq {
		return
	}
	if o.Order.GetKind() == linkv1.OperationKind_OPERATION_KIND_DELETE || !r.hooks {
		stop := r.stop
		a.e.do(func(context.Context) { stop("a newer operation") })
	}
}

// terminate ends an operation that runs or waits.
func (a *app) terminate(_ context.Context, o inventory.Operation) {
	a.mu.Lock()
	r := a.running
	waits := slices.Index(a.queue, o.ID)
	if waits >= 0 {
		a.queue = slices.Delete(a.queue, waits, waits+1)
	}
	a.mu.Unlock()
	switch {
	case r != nil && r.id == o.ID:
		r.stop(o.Terminated)
	case waits >= 0:
		a.e.do(func(ctx context.Context) {
			a.end(ctx, o, nil, result(o, errored(fault.New(fault.Conflict, "terminated by %s before it began", o.Terminated)), time.Time{}))
		})
	}
}

// start starts a worker if none runs. The caller holds mu.
func (a *app) start() {
	if !a.working && !a.closed {
		a.working = a.e.do(a.reconcile)
	}
}

// reconcile runs the waiting tasks one after another, and ends when there are
// none.
func (a *app) reconcile(ctx context.Context) {
	ctx, done := lifecycle.Watch(ctx, "application", loopLimit)
	defer done()
	back := lifecycle.Backoff{First: 5 * time.Second, Max: 5 * time.Minute}
	for {
		lifecycle.Beat(ctx)
		next := a.pick(ctx)
		if next == nil {
			return
		}
		err := lifecycle.Safely(ctx, "application", func(ctx context.Context) error { next(ctx); return nil })
		if err == nil {
			back.Reset()
			continue
		}
		// A defect delays only this application.
		if lifecycle.Sleep(ctx, a.e.Clock, max(time.Second, back.Next())) != nil {
			continue
		}
	}
}

// pick returns the worker's next task; nil: none, and the worker ends.
func (a *app) pick(ctx context.Context) func(ctx context.Context) {
	a.e.arriving.RLock()
	defer a.e.arriving.RUnlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.next()
	if next == nil || ctx.Err() != nil || a.closed {
		a.working = false
		return nil
	}
	return next
}

// next returns the next task; nil: none. The caller holds mu.
func (a *app) next() func(ctx context.Context) {
	switch {
	case a.newState:
		a.newState, a.taking = false, true
		return a.setDesired
	case (a.rebuild || a.doubt) && !a.tombstonesChecked && a.state != nil && !a.unresolved:
		return a.reclaimAll
	case len(a.queue) > 0 && !a.unresolved && a.mayBegin():
		id := a.queue[0]
		return func(ctx context.Context) { a.nextOperation(ctx, id) }
	case a.stale && a.state != nil && !a.deleting:
		a.stale = false
		return a.compare
	}
	return nil
}

// nextOperation runs the next operation of the queue. If others wait, it is
// superseded by them, unless it has begun before a restart.
func (a *app) nextOperation(ctx context.Context, first string) {
	o, ok := a.e.Inventory.Operation(first)
	a.mu.Lock()
	if len(a.queue) == 0 || a.queue[0] != first {
		a.mu.Unlock()
		return // it has just been terminated
	}
	later := len(a.queue) > 1
	newest := a.queue[len(a.queue)-1]
	a.queue = a.queue[1:]
	a.mu.Unlock()
	if !ok || !o.Open() {
		return
	}
	if later && len(o.Progress) == 0 {
		a.end(ctx, o, nil, result(o, errored(fault.New(fault.Conflict, "superseded by operation %s before it began", newest)), time.Time{}))
		return
	}
	a.startOperation(ctx, o)
}

// setDesired resolves the newest state and compares every object with it.
func (a *app) setDesired(ctx context.Context) {
	defer func() {
		a.mu.Lock()
		a.taking = false
		a.mu.Unlock()
	}()
	row, ok := a.e.Inventory.App(a.id)
	if !ok {
		return
	}
	state := row.State
	a.mu.Lock()
	again, recount := a.settingsChanged, a.exclusionsChanged
	a.settingsChanged, a.exclusionsChanged = false, false // settings that change from here on are processed next
	a.mu.Unlock()
	r, err := a.e.resolveState(ctx, state)
	if err != nil {
		a.mu.Lock()
		a.settingsChanged, a.exclusionsChanged = a.settingsChanged || again, a.exclusionsChanged || recount
		a.mu.Unlock()
		a.failed(ctx, state, err)
		return
	}
	a.mu.Lock()
	// Events before the first state were processed without any rules.
	again = again || a.ignore == nil || !proto.Equal(&linkv1.Policy{Ignore: a.state.GetPolicy().GetIgnore()}, &linkv1.Policy{Ignore: state.GetPolicy().GetIgnore()})
	a.state, a.target, a.accepted, a.ignore, a.tombstones = state, r.target, r.accepted, r.ignore, r.tombstones
	a.account.Store(&account{user: state.GetPolicy().GetServiceAccount(), project: state.GetProject()})
	a.problem, a.unresolved = "", false
	a.windows = windowsOf(state)
	a.schedule()
	a.unserved = (r.target != nil && r.target.unserved) || (r.accepted != nil && r.accepted.unserved)
	if recount {
		a.takeBack()
		a.leaveAlone()
	}
	a.syncObjectSet()
	if a.rebuild {
		a.tombstonesChecked, a.stale = false, true
	}
	if a.doubt = a.unrecorded(); a.doubt {
		a.tombstonesChecked = false
	}
	a.reassess(ctx, again)
	a.closeTombstones()
	a.scheduleReport()
	a.mu.Unlock()
	a.e.reconsiderKinds()
	a.e.orphans.rescan()
	a.e.do(func(ctx context.Context) { a.refreshSecrets(ctx, false) })
}

// resolved is what a state refers to.
type resolved struct {
	target, accepted *snapshot
	tombstones       tombstoneIndex
	ignore           *diff.Ignore
}

// resolveState reads everything that a state refers to.
func (e *Engine) resolveState(ctx context.Context, state *linkv1.AppState) (r resolved, err error) {
	if r.target, err = e.resolve(ctx, state.GetTarget(), state.GetNamespace()); err != nil {
		return r, err
	}
	switch {
	case state.GetAccepted() == nil:
	case state.GetAccepted().GetId() == state.GetTarget().GetId():
		r.accepted = r.target
	default:
		if r.accepted, err = e.resolve(ctx, state.GetAccepted(), state.GetNamespace()); err != nil {
			return r, err
		}
	}
	if r.tombstones, err = e.loadTombstones(ctx, state); err != nil {
		return r, err
	}
	r.ignore, err = diff.NewIgnore(ignoreRules(slices.Concat(e.tenantSettings().Ignore, state.GetPolicy().GetIgnore())))
	return r, err
}

// failed keeps the former state, reports why the new one cannot be compared,
// and retries after temporary errors.
func (a *app) failed(ctx context.Context, state *linkv1.AppState, err error) {
	if ctx.Err() != nil {
		return
	}
	a.e.Log.WarnContext(ctx, "state not processed", logkey.Application, a.id, logkey.Error, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == nil {
		a.state = state
		a.account.Store(&account{user: state.GetPolicy().GetServiceAccount(), project: state.GetProject()})
	}
	a.problem = sentence(err)
	a.scheduleReport()
	if a.unresolved = fault.KindOf(err) != fault.Invalid; !a.unresolved {
		return
	}
	a.e.runAfter(2*time.Second, func(ctx context.Context) { a.stateChanged(ctx) })
}

// syncObjectSet updates the set of objects to the snapshots. The caller holds
// mu.
func (a *app) syncObjectSet() {
	a.adoptReleased()
	a.publish()
	a.manage()
	a.e.stopWaiting(a, a.conflicts)
	a.conflicts = map[manifest.Key]string{}
	a.listAll(a.target)
	a.listAll(a.accepted)
	for key, x := range a.objects {
		x.target, x.accepted = a.target.get(key), a.accepted.get(key)
		if x.inherited() {
			x.expected, x.examined = expectation{}, time.Time{} // the next comparison records it
		}
		if a.releaseSelf(x) {
			continue
		}
		if x.target == nil && x.accepted == nil && x.record == nil && x.hook == "" {
			a.drop(x)
		}
	}
	for key, x := range a.objects {
		if x.record != nil && x.target == nil && x.accepted == nil {
			a.e.unlisted(key)
		}
	}
}

// listAll adds the objects of a snapshot; nil has none. An object that another
// application owns by now is dropped.
func (a *app) listAll(s *snapshot) {
	if s == nil {
		return
	}
	for key, d := range s.objects {
		x := a.objects[key]
		switch {
		case x == nil:
			a.list(key, d)
		case x.record == nil && x.inflight == 0 && x.hook == "" && a.conflicting(key):
			a.drop(x)
		case x.record != nil && x.gvk != d.gvk:
			a.reversion(x, d)
		}
	}
}

// list creates the application's view of an object of a snapshot, or waits
// while another application owns the object.
func (a *app) list(key manifest.Key, d *desired) {
	for !a.conflicting(key) {
		x, owner := a.e.view(a, key, d.gvk, d.namespaced)
		if owner != "" {
			continue // it has just been acquired
		}
		a.objects[key] = x
		if !x.live.known && a.e.absent(x) {
			x.live.known = true
		}
		return
	}
}

// conflicting reports whether another application owns an object, and then
// waits for it. The caller holds mu.
func (a *app) conflicting(key manifest.Key) bool {
	owner, waits := a.e.wait(a, key)
	if waits {
		a.conflicts[key] = a.e.titleOf(owner)
	}
	return waits
}

// reversion watches an object in the version that is desired now.
func (a *app) reversion(x *object, d *desired) {
	if a.target.get(x.key) == d && x.gvk != d.gvk {
		x.gvk = d.gvk
		x.live, x.grace = live{}, gracePeriod{}
		x.expected = expectation{}
	}
}

// drop stops managing an object. The caller holds mu.
func (a *app) drop(x *object) {
	if a.objects[x.key] == x {
		delete(a.objects, x.key)
	}
	switch other := a.e.unview(x); {
	case x.live.uid == "":
	case other != nil:
		a.e.Tree.Root(x.live.uid, other.app.id)
	default:
		a.e.Tree.Unroot(x.live.uid)
	}
	if x.record == nil || a.closed || !a.e.Excluded(x.key.Group, x.key.Kind) { // an object of an excluded kind stays the application's
		a.e.event(a.id, x.key, ownership.Release)
	}
	a.e.Reports.Removed(x.report(a))
	a.e.orphans.rescan()
	a.e.reconsiderKinds()
}

// close stops managing everything.
func (a *app) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.e.leave(a, true)
	a.adoptReleased()
	a.closed = true
	a.manage()
	a.e.stopWaiting(a, a.conflicts)
	a.e.turns.forget(a)
	for _, x := range a.objects {
		a.drop(x)
	}
	for key, r := range a.orphans {
		a.e.Reports.Removed(r)
		delete(a.orphans, key)
	}
	if a.running != nil {
		a.running.stop("the hub, which no longer has the application")
	}
}

// title names the application for people.
func (a *app) title() string { return a.e.titleOf(a.id) }

// enforced reports whether drift from what was accepted must be reverted. The
// caller holds mu.
func (a *app) enforced() bool {
	return a.state.GetPolicy().GetSelfHeal() && a.accepted != nil && !a.newState && !a.deleting && !a.closed &&
		a.running == nil && len(a.queue) == 0
}

func ignoreRules(rules []*linkv1.IgnoreRule) []diff.Rule {
	out := make([]diff.Rule, len(rules))
	for i, r := range rules {
		out[i] = diff.Rule{
			Group: r.GetGroup(), Kind: r.GetKind(), Name: r.GetName(), Namespace: r.GetNamespace(),
			JSONPointers: r.GetJsonPointers(), JQ: r.GetJq(), Managers: r.GetManagers(),
		}
	}
	return out
}

// sentence is the text of an error for users. Unclassified errors are the
// cluster's network or our own defects, and say so.
func sentence(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal {
		return fault.Sentence(err)
	}
	return "the agent met an unexpected error; its log has the details"
}
