package apply

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/agent/tracking"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// reportPause is the least time between two status computations of an
// application.
const reportPause = 40 * time.Millisecond

// scheduleReport reports the application's status: at once, and then at most
// every reportPause. The caller holds mu.
func (a *app) scheduleReport() {
	if a.state == nil || a.closed || a.reportScheduled {
		return
	}
	now := a.e.Clock.Now()
	if wait := reportPause - now.Sub(a.lastReportAt); wait > 0 {
		a.reportScheduled = a.e.do(func(ctx context.Context) {
			if lifecycle.Sleep(ctx, a.e.Clock, wait) != nil {
				return
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			a.reportScheduled = false
			if !a.closed {
				a.sum(a.e.Clock.Now())
			}
		})
		return
	}
	a.sum(now)
}

// sum computes the application's status and reports it if it has changed.
func (a *app) sum(now time.Time) {
	if a.gone {
		return
	}
	a.lastReportAt = now
	r := &linkv1.AppReport{
		AppId: a.id, Target: a.target.name(), Generation: a.state.GetGeneration(),
		Warnings: a.sentences(), Notes: a.notes(), Excluded: a.excludedKinds(), Error: a.problem, Unblocked: a.unblocked(now),
	}
	if why := a.unhealed(); why != "" {
		r.Warnings = append(r.Warnings, why)
	}
	known := a.fold(r)
	a.awaitHold(now)
	if !known && a.lastReport == nil {
		return // the first comparison is not complete
	}
	if !known {
		r.Sync, r.Health, r.HealthCause = a.lastReport.GetSync(), a.lastReport.GetHealth(), a.lastReport.GetHealthCause()
	}
	if a.lastReport != nil {
		r.ComparedUnixNano = a.lastReport.GetComparedUnixNano()
		if proto.Equal(a.lastReport, r) {
			return
		}
	}
	r.ComparedUnixNano = now.UnixNano()
	a.lastReport = r
	a.eventChanged(r)
	a.e.Reports.App(r)
	a.eventHealthy(r)
}

// fold aggregates the objects: sync (outOfSync before unknown before synced)
// and health (HLT-01 to HLT-05) with its worst object. It reports whether all
// objects are known.
func (a *app) fold(r *linkv1.AppReport) (known bool) {
	r.Sync, r.Health = synced, health.Healthy
	if a.problem != "" {
		r.Sync = unknownSync
	}
	if (len(a.conflicts) > 0 || a.nsDetail() != "") && r.Sync == synced {
		r.Sync = outOfSync
	}
	known, a.graceLeft = a.nsMeta == nil || a.nsLive.known, 0
	var missing, rest int
	var why, absent healthCauses
	for key, x := range a.objects {
		if x.hook != "" {
			continue
		}
		known = a.foldSync(r, key, x) && known
		before := missing
		a.noteGrace(worse(r, x, a.e.Clock.Now(), &missing, &rest, &why))
		if missing > before {
			absent.add(key.Describe() + missingCause)
		}
	}
	r.HealthCause = why.String()
	if r.Health == health.Healthy && a.running == nil {
		r.HealthCause = absent.String() // it stays Healthy (HLT-04), and names what is missing
	}
	if missing > 0 && rest == 0 {
		r.Health, r.HealthCause = health.Missing, "nothing of the application is in the cluster"
	}
	return known
}

// foldSync adds one object's sync status. It reports whether it is known.
func (a *app) foldSync(r *linkv1.AppReport, key manifest.Key, x *object) (known bool) {
	state, detail := x.sync()
	switch state {
	case "":
		return false
	case outOfSync:
		if r.Sync == synced && !x.extraneous() {
			r.Sync = outOfSync
		}
	case unknownSync:
		r.Sync = unknownSync
		if text := key.Describe() + ": " + detail; a.problem == "" && (r.Error == "" || text < r.Error) {
			r.Error = text
		}
	}
	return true
}

// missingCause is the suffix of the name of a missing object. The hub parses
// it.
const missingCause = ": missing"

// noteGrace records the rest of a grace period; 0: none.
func (a *app) noteGrace(wait time.Duration) {
	if wait > 0 && (a.graceLeft == 0 || wait < a.graceLeft) {
		a.graceLeft = wait
	}
}

// worse adds one object's health to the aggregated health. A missing object
// alone does not make its application Missing (HLT-04). It returns the rest of
// the object's grace period.
func worse(r *linkv1.AppReport, x *object, now time.Time, missing, rest *int, why *healthCauses) (wait time.Duration) {
	state, message, wait := x.counts(now)
	switch {
	case x.app.itself(x.key):
		return 0
	case x.target == nil:
		return 0 // an object to prune does not affect the application's health
	case childApplication(x.key) && (state == health.Missing || state == health.Unknown):
		return 0
	case state == health.Missing:
		*missing++
		return 0
	case x.live.known:
		*rest++
	}
	if state == "" || state == health.Healthy || health.Worst(r.GetHealth(), state) != state {
		return wait
	}
	cause := x.key.Describe()
	if message != "" {
		cause += ": " + message
	}
	if state != r.GetHealth() {
		r.Health, *why = state, healthCauses{}
	}
	why.add(cause)
	return wait
}

// extraneous reports whether an object that needs pruning must not make its
// application OutOfSync (DIFF-12).
func (x *object) extraneous() bool {
	return x.target == nil && x.record != nil && slices.Contains(x.record.Options, ignoreExtraneous)
}

// ignoreExtraneous is stored as one of an object's options.
const ignoreExtraneous = "IgnoreExtraneous"

// optionsOf returns an object's own options for its record.
func optionsOf(o *manifest.Object) []string {
	out := manifest.Options(o)
	if hasOption(manifest.CompareOptions(o), ignoreExtraneous, "true") {
		out = append(out, ignoreExtraneous)
	}
	return out
}

// sentences returns the warnings in a stable order.
func (a *app) sentences() []string {
	out := append(a.outdated(), a.nsWarnings()...)
	for _, text := range a.warnings {
		out = append(out, text)
	}
	slices.Sort(out)
	if why := a.e.Inventory.Rewound(); why != "" {
		out = append(out, "no desired state is accepted from the hub and nothing is pruned: "+why)
	} else if why := a.e.Inventory.Frozen(); why != "" {
		out = append(out, "nothing is pruned: "+why)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// eventHealthy reports once when the objects that an operation has applied
// became healthy.
func (a *app) eventHealthy(r *linkv1.AppReport) {
	if a.healthy == nil || r.GetHealth() != health.Healthy || a.running != nil {
		return
	}
	report := proto.CloneOf(a.healthy)
	a.healthy = nil
	report.HealthyUnixNano = a.e.Clock.Now().UnixNano()
	a.e.Reports.Operation(report)
}

// reassess processes every object again, because the state has changed or an
// operation has ended. With again, it also compares each again, from stored
// data. The caller holds mu.
func (a *app) reassess(ctx context.Context, again bool) {
	a.nsHeal(ctx)
	a.stale = a.stale || a.nsUnsure()
	for _, key := range a.keys() {
		x := a.objects[key]
		if x == nil {
			continue
		}
		if again {
			x.recompare()
		}
		if x.live.known && !x.live.found && x.record != nil && x.target == nil && x.accepted == nil && x.hook == "" {
			a.disown(x)
			continue
		}
		a.selfHeal(ctx, x)
		a.stale = a.stale || x.unsure()
		a.e.Reports.Resource(x.report(a))
	}
}

// recompare compares an object by changed rules, from stored data. Without
// stored data it has to be read. The caller holds mu.
func (x *object) recompare() {
	a := x.app
	x.expected = expectation{}
	if !x.live.known || !x.live.found {
		return
	}
	if x.target != nil && !slices.Equal(x.live.seenBy, a.ignore.Managers(x.key)) {
		x.live.known, x.live.version = false, ""
		return
	}
	o := x.live.read()
	if o == nil {
		return
	}
	x.compareLive(o)
	x.live.foreign = x.stranger(tracking.WithArgo(o, x.live.argo))
}

// closeTombstones closes the tombstones of objects that are not ours, or do not
// exist. The caller holds mu.
func (a *app) closeTombstones() {
	if a.rebuild || a.doubt {
		return // ownership is being determined
	}
	for _, t := range a.tombstones.all {
		key := a.keyOfTombstone(t)
		if x := a.objects[key]; x == nil || (x.record == nil && x.inflight == 0) {
			a.forgetExcluded(key)
			a.e.Reports.Closed(&linkv1.TombstoneClosed{
				AppId: a.id, Group: t.GetGroup(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName(),
			})
		}
	}
}

// keyOfTombstone returns the object of a tombstone, which may lack the
// destination's namespace, or have one for a cluster-scoped kind.
func (a *app) keyOfTombstone(t *linkv1.Tombstone) manifest.Key {
	key := manifest.Key{Group: t.GetGroup(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName()}
	for _, namespace := range [...]string{t.GetNamespace(), a.state.GetNamespace(), "", defaultNamespace} {
		try := key
		try.Namespace = namespace
		if a.objects[try] != nil && (t.GetNamespace() == "" || namespace == t.GetNamespace() || namespace == "") &&
			(namespace != defaultNamespace || namespace == t.GetNamespace() || namespace == a.state.GetNamespace() || inHub(key)) {
			return try
		}
	}
	if key.Namespace == "" {
		key.Namespace = a.state.GetNamespace()
	}
	return key
}

// closeTombstone reports to the hub that the object of a tombstone is gone. The
// caller holds mu.
func (a *app) closeTombstone(key manifest.Key) {
	for _, t := range a.tombstones.of[tombstoneKey(key.Group, key.Kind, key.Name)] {
		if t.GetNamespace() == key.Namespace || t.GetNamespace() == "" || key.Namespace == "" {
			a.e.Reports.Closed(&linkv1.TombstoneClosed{
				AppId: a.id, Group: t.GetGroup(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName(),
			})
		}
	}
}

// Refresh compares an application again, or all for an empty id, without a
// request for objects whose watches are current.
func (e *Engine) Refresh(ctx context.Context, id string) bool {
	found := false
	for _, a := range e.all() {
		if id != "" && a.id != id {
			continue
		}
		found = true
		a.mu.Lock()
		if len(e.Guard.Scope) > 0 { // namespaces are not watched
			a.nsLive.known = false
		}
		for _, x := range a.objects {
			if !x.expected.equal {
				x.expected = expectation{}
			}
		}
		a.reassess(ctx, true)
		a.start()
		a.lastReport = nil
		a.scheduleReport()
		a.mu.Unlock()
		a.e.do(func(ctx context.Context) { a.refreshSecrets(ctx, true) })
	}
	return found
}

// Report puts the known state of an application into the outbox. The error is
// fault.Offline before the first comparison.
func (e *Engine) Report(id string) error {
	for _, a := range e.all() {
		if a.id != id {
			continue
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.state == nil || a.closed || a.gone || a.newState || a.unresolved {
			return fault.New(fault.Offline, "the agent has not compared the application yet")
		}
		for key, x := range a.objects {
			// Objects that cannot be watched are reported as Unknown.
			if listed, broken := e.kindState(x); !listed && broken == nil {
				return fault.New(fault.Offline, "the agent has not listed the kind of %s yet", key.Describe())
			}
		}
		a.sum(e.Clock.Now())
		if a.lastReport == nil {
			return fault.New(fault.Offline, "the agent has not compared the application yet")
		}
		return nil
	}
	return fault.New(fault.Missing, "the agent does not have this application")
}

// Announce reports every application's status again, because something has
// changed that affects all of them.
func (e *Engine) Announce() {
	for _, a := range e.all() {
		a.mu.Lock()
		a.scheduleReport()
		a.mu.Unlock()
	}
}
