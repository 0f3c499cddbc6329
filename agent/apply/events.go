package apply

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// OnUpdate processes an object of a watch.
func (e *Engine) OnUpdate(ctx context.Context, o *manifest.Object) {
	key := manifest.KeyOf(o)
	e.present.add(e.watched(o.GroupVersionKind(), key), key) // before looking up who lists it
	if o.GroupVersionKind() == namespaceKind() {
		e.nsEvent(ctx, o, false)
	}
	first, more := e.viewsOf(key)
	if first == nil {
		return
	}
	first.onUpdate(ctx, o)
	for _, x := range more {
		x.onUpdate(ctx, o)
	}
}

// onUpdate processes an object of a watch.
func (x *object) onUpdate(ctx context.Context, o *manifest.Object) {
	a := x.app
	a.mu.Lock()
	defer a.mu.Unlock()
	if x.gvk.Version != manifest.Version(o) || a.objects[x.key] != x {
		return // another version of a kind that is watched in two
	}
	if x.inflight > 0 {
		x.waiting, x.lost = o, ""
		return
	}
	if x.live.older(o) {
		x.behind = true
		return
	}
	x.observeLive(ctx, o)
}

// observeLive compares an object that is not being written. The caller holds
// mu.
func (x *object) observeLive(ctx context.Context, o *manifest.Object) {
	a := x.app
	was := x.healthState()
	x.observe(o)
	a.after(ctx, x, was)
}

// healthState is the part of an object that affects its application.
type healthState struct {
	sync, health string
	cause        string // it is not healthy, and the application names it as a cause
	foreign      bool   // other installations track it, too
}

func (x *object) healthState() healthState {
	s, _ := x.sync()
	h, cause := x.wellness()
	if h == health.Healthy {
		cause = ""
	}
	return healthState{s, h, cause, x.live.foreign != nil}
}

// after reports an object that may have changed, and heals it. The caller holds
// mu.
func (a *app) after(ctx context.Context, x *object, was healthState) {
	if a.closed {
		return
	}
	if a.releaseSelf(x) { // it could not be released while a write was in flight
		a.scheduleReport()
		a.nudge()
		return
	}
	a.selfHeal(ctx, x)
	if x.unsure() {
		a.stale = true
		a.start()
	}
	a.e.Reports.Resource(x.report(a))
	if x.healthState() != was {
		a.scheduleReport()
	}
	a.nudge()
}

// unsure reports whether the state of an object can only be found by a request.
// The caller holds mu.
func (x *object) unsure() bool {
	a := x.app
	if x.target == nil || a.running != nil || len(a.queue) > 0 || x.inflight > 0 {
		return false
	}
	if !x.live.known {
		listed, _ := a.e.kindState(x)
		return listed
	}
	if x.adopted() {
		return false // it is written as soon as that is permitted
	}
	return x.live.found && !x.current(x.target) && !x.expects(x.target)
}

// nudge notifies the running operation. The caller holds mu.
func (a *app) nudge() {
	if a.running == nil {
		return
	}
	select {
	case a.running.changed <- struct{}{}:
	default:
	}
}

// OnDelete processes the deletion of an object.
func (e *Engine) OnDelete(ctx context.Context, o *manifest.Object) {
	key := manifest.KeyOf(o)
	e.present.remove(e.watched(o.GroupVersionKind(), key), key)
	if o.GroupVersionKind() == namespaceKind() {
		e.nsEvent(ctx, o, true)
	}
	first, more := e.viewsOf(key)
	if first == nil {
		return
	}
	first.onDelete(ctx, o)
	for _, x := range more {
		x.onDelete(ctx, o)
	}
}

// onDelete processes the deletion of a watched object.
func (x *object) onDelete(ctx context.Context, o *manifest.Object) {
	a := x.app
	a.mu.Lock()
	defer a.mu.Unlock()
	if x.gvk.Version != manifest.Version(o) || a.objects[x.key] != x {
		return
	}
	uid := string(o.GetUID())
	if x.inflight > 0 {
		if x.waiting == nil || string(x.waiting.GetUID()) == uid {
			x.waiting, x.lost = nil, uid
		}
		return
	}
	if x.live.uid == "" || x.live.uid == uid {
		x.vanish(ctx)
	}
}

// vanish records that an object does not exist. The caller holds mu.
func (x *object) vanish(ctx context.Context) {
	a := x.app
	was := x.healthState()
	if x.live.uid != "" {
		a.e.Tree.Unroot(x.live.uid)
	}
	// The last writer of the object is not who deleted it.
	x.live, x.grace = live{known: true}, gracePeriod{}
	x.expected = expectation{}
	switch {
	case x.hook != "" && x.record == nil:
		a.nudge() // a hook that is not created yet
		return
	case x.hook != "", x.doomed, x.record != nil && x.target == nil && x.accepted == nil:
		a.disown(x)
		a.nudge()
		a.scheduleReport()
		return
	case x.record != nil && !a.restores() && a.e.contested(x.key):
		a.releaseMissing(x)
	}
	a.after(ctx, x, was)
}

// disown deletes the record of an object that is gone and not desired any more.
// The caller holds mu.
func (a *app) disown(x *object) {
	a.e.Inventory.Disown(a.id, x.key)
	x.record, x.hook, x.doomed = nil, "", false
	a.closeTombstone(x.key)
	if x.target == nil && x.accepted == nil {
		a.drop(x)
		return
	}
	a.e.event(a.id, x.key, ownership.Release)
	a.e.Reports.Resource(x.report(a))
}

// OnReplace processes a complete list: objects of the kind that are missing in
// it and are not newer are gone. The list has uids, and names as
// "namespace/name". It is of one namespace, or of the whole cluster for an
// empty one.
func (e *Engine) OnReplace(ctx context.Context, gvk schema.GroupVersionKind, namespace, version string, back bool, list map[string]struct{}) {
	s := scope{gvk, namespace}
	e.present.list(s, list)
	if gvk == namespaceKind() {
		e.nsListed(list)
	}
	e.mu.Lock()
	e.listed[s] = true
	var of []*object
	e.each(func(x *object) {
		if e.scopeOf(x) == s {
			of = append(of, x)
		}
	})
	e.mu.Unlock()
	for _, x := range of {
		x.app.mu.Lock()
		switch {
		case x.app.objects[x.key] != x:
		case x.inflight == 0:
			x.listed(ctx, versionNumber(version), back, list)
		case back:
			x.live.version = "" // every response is newer than the restore
		}
		x.app.mu.Unlock()
	}
}

// listed updates an object from a complete list. The caller holds mu.
func (x *object) listed(ctx context.Context, at uint64, back bool, list map[string]struct{}) {
	_, there := list[x.live.uid]
	_, named := list[x.key.Namespace+"/"+x.key.Name]
	newer := at != 0 && versionNumber(x.live.version) > at
	behind := x.behind
	x.behind = false
	switch {
	case inHub(x.key) && x.live.found && !there:
		x.recheck()
		return
	case back && there && (newer || behind):
		x.live.known, x.live.version = false, "" // the known state is older than the restore
	case !x.live.known && !named:
		x.vanish(ctx)
		return
	case x.live.found && !there && (back || !newer):
		x.vanish(ctx)
		return
	}
	if x.unsure() {
		x.app.stale = true
		x.app.start()
	}
}

// Broken records that a kind is not being watched, or is again. Objects that
// could not be written because their kind was not served are then healed at
// once.
func (e *Engine) Broken(ctx context.Context, gvk schema.GroupVersionKind, namespace string, err error) {
	e.mu.Lock()
	s := scope{gvk, namespace}
	if err == nil {
		delete(e.broken, s)
	} else {
		e.broken[s] = err
	}
	e.mu.Unlock()
	for _, a := range e.all() {
		a.mu.Lock()
		of := 0
		for _, x := range a.objects {
			if e.scopeOf(x) != s {
				continue
			}
			of++
			if err == nil && x.missing {
				x.missing, x.notBefore = false, time.Time{}
				a.selfHeal(ctx, x)
			}
		}
		if of > 0 {
			a.scheduleReport()
		}
		a.mu.Unlock()
	}
}

// Warned records the API server's warning about the version of a kind.
func (e *Engine) Warned(_ context.Context, gvk schema.GroupVersionKind, text string) {
	e.mu.Lock()
	if text == "" {
		delete(e.warned, gvk)
	} else {
		e.warned[gvk] = text
	}
	e.mu.Unlock()
	for _, a := range e.all() {
		a.mu.Lock()
		for _, x := range a.objects {
			if x.gvk == gvk {
				a.scheduleReport()
				break
			}
		}
		a.mu.Unlock()
	}
}

// outdated returns the API server's warnings about the versions that the
// application uses. The caller holds mu.
func (a *app) outdated() []string {
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	if len(a.e.warned) == 0 {
		return nil
	}
	named := map[schema.GroupVersionKind]struct{}{}
	var out []string
	for _, x := range a.objects {
		text := a.e.warned[x.gvk]
		if _, done := named[x.gvk]; text == "" || done || x.target == nil {
			continue
		}
		named[x.gvk] = struct{}{}
		out = append(out, x.gvk.Kind+" of "+x.gvk.GroupVersion().String()+": "+text)
	}
	return out
}

// Left records that a kind is no longer watched.
func (e *Engine) Left(_ context.Context, gvk schema.GroupVersionKind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	gone := func(s scope) bool { return s.gvk == gvk }
	maps.DeleteFunc(e.listed, func(s scope, _ bool) bool { return gone(s) })
	maps.DeleteFunc(e.broken, func(s scope, _ error) bool { return gone(s) })
	delete(e.warned, gvk)
	e.present.forget(gone)
}

// Ready reports whether every state was processed and every managed kind was
// listed, or cannot be watched, so that a complete report is possible.
func (e *Engine) Ready() bool {
	for _, a := range e.all() {
		a.mu.Lock()
		waits := a.newState || a.unresolved
		a.mu.Unlock()
		if waits {
			return false
		}
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	ready := e.begun
	e.each(func(x *object) {
		if listed, broken := e.stateOf(x); !listed && broken == nil {
			ready = false
		}
	})
	return ready
}
