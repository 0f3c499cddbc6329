package apply

import (
	"context"

	"github.com/capstan-cd/capstan/agent/tracking"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// This file records objects of an imported application that Argo CD, or a hub
// that was lost, has applied and that equal their manifests. The record costs no
// write: the object keeps Argo CD's marks until something else has to be written.
// From then on it is compared, healed and pruned like any other.

// inherited reports whether an object that the application accepted, and never
// wrote, carries a mark of the application's own name: Argo CD's, or our own from
// before a hub was lost. Only an import that was confirmed leads to that: any
// other application is accepted with an operation, which writes the object. The
// caller holds mu.
func (x *object) inherited() bool {
	if x.record != nil || x.hook != "" || x.accepted == nil || x.target == nil || x.accepted.digest != x.target.digest || x.inflight > 0 {
		return false
	}
	return x.app.running == nil && len(x.app.queue) == 0 && (x.app.names(x.live.foreign) || x.appliedBefore())
}

// appliedBefore reports whether the live object was applied by an agent of this tenant
// for an application of this name. The caller holds mu.
func (x *object) appliedBefore() bool {
	l := &x.live
	return l.found && l.applied && l.tenanted && l.foreign == nil && l.tracked == x.app.trackingID(x.key)
}

// names reports whether a mark is Argo CD's of an application of this name. The
// caller holds mu.
func (a *app) names(m *tracking.Mark) bool {
	if m == nil || m.System != tracking.Argo || m.Tenant != "" || m.Installation != "" && m.Installation != a.installation() {
		return false
	}
	if m.Label {
		return m.Names(a.argoName())
	}
	return m.App == a.argoName()
}

// mayInherit reports whether an object may be recorded as it is: Argo CD must
// not enforce it any more.
func (a *app) mayInherit(ctx context.Context, x *object, s *sending, live *manifest.Object) (bool, error) {
	a.mu.Lock()
	mark := a.foreign(live)
	argos := x.inherited() && a.names(mark)
	a.mu.Unlock()
	if !argos || a.e.Guard.writes(x.key, x.namespaced) != nil {
		return false, nil
	}
	err := a.checkConflict(ctx, s, mark)
	if fault.KindOf(err) == fault.Conflict {
		return false, nil // a condition of the application says that both track it
	}
	return err == nil, err
}

// inherit records an object that equals what is accepted. owned is of the dry
// run, so it has the fields that an apply would own. The caller holds mu.
func (x *object) inherit(owned diff.Owned, s *sending, live *manifest.Object) {
	x.storeRecord(x.accepted, owned, s)
	x.compareNewest(live)
}
