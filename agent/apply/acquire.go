package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// This file connects the engine to the state machine of package ownership.
// Every change of an object's ownership happens here, under the engine's mu,
// together with the inventory's record. Locks are acquired in the order
// application, engine; no goroutine holds the locks of two applications.

// A slot is an object of the cluster that concerns some application: who owns
// it, and the views of the applications that may own it. Applications that list
// an object which another one owns have no view of it; they wait.
type slot struct {
	ownership.Object
	views   *object // linked by next
	waiting []*app  // that list the object while another application owns it
}

// A listing is the set of objects in an application's newest state.
type listing struct {
	target, accepted *snapshot
	automated        bool // automation accepts the target, if it is not accepted yet
}

func (l *listing) lists(key manifest.Key) bool {
	return l != nil && (l.target.get(key) != nil || l.accepted.get(key) != nil)
}

// accepts reports whether the application was synced with an object, or
// automation will do so, perhaps after waiting for another application or a
// window.
func (l *listing) accepts(key manifest.Key) bool {
	return l != nil && (l.accepted.get(key) != nil || l.automated && l.target.get(key) != nil)
}

// slotOf returns the slot of an object, and creates it if needed. The caller
// holds mu.
func (e *Engine) slotOf(key manifest.Key) *slot {
	s := e.objects[key]
	if s == nil {
		s = &slot{}
		e.objects[key] = s
	}
	return s
}

// tidy removes an unused slot. The caller holds mu.
func (e *Engine) tidy(key manifest.Key) {
	if s := e.objects[key]; s != nil && s.State == ownership.Free && s.views == nil && len(s.waiting) == 0 {
		delete(e.objects, key)
	}
}

// view returns an application's view of an object, and begins to watch it. That
// does not make it the owner. While another application owns the object there
// is no view: the owner is returned instead.
func (e *Engine) view(a *app, key manifest.Key, gvk schema.GroupVersionKind, namespaced bool) (x *object, owner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.slotOf(key)
	if s.State != ownership.Free && s.Owner != a.id {
		e.tidy(key)
		return nil, s.Owner
	}
	for x = s.views; x != nil; x = x.next {
		if x.app == a {
			return x, ""
		}
	}
	x = &object{key: key, gvk: gvk, namespaced: namespaced, app: a, next: s.views}
	s.views = x
	return x, ""
}

// unview drops a view and returns another one of the same object, if there is
// any.
func (e *Engine) unview(x *object) (other *object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.objects[x.key]
	if s == nil {
		return nil
	}
	for at := &s.views; *at != nil; at = &(*at).next {
		if *at == x {
			*at = x.next
			break
		}
	}
	other = s.views
	e.tidy(x.key)
	return other
}

// viewsOf returns the views of an object: usually one.
func (e *Engine) viewsOf(key manifest.Key) (first *object, more []*object) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.objects[key]
	if s == nil || s.views == nil {
		return nil, nil
	}
	for x := s.views.next; x != nil; x = x.next {
		more = append(more, x)
	}
	return s.views, more
}

// each calls f with every application's view of every object. The caller holds
// mu.
func (e *Engine) each(f func(x *object)) {
	for _, s := range e.objects {
		for x := s.views; x != nil; x = x.next {
			f(x)
		}
	}
}

// isTracked reports whether an object concerns any application.
func (e *Engine) isTracked(key manifest.Key) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.objects[key] != nil
}

// owner returns the application that owns an object; empty: none does.
func (e *Engine) owner(key manifest.Key) string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.objects[key]; s != nil {
		return s.Owner
	}
	return ""
}

// titleOf names an application for people.
func (e *Engine) titleOf(id string) string {
	if row, ok := e.Inventory.App(id); ok && row.State.GetName() != "" {
		return row.State.GetName()
	}
	return id
}

// restore applies a stored record. One that contradicts another application's
// record is deleted: an object has one owner.
func (e *Engine) restore(r inventory.Record) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.slotOf(r.Key)
	next, ok := s.Restore(r.App, r.From != "")
	s.Object = next
	if !ok {
		e.Inventory.Disown(r.App, r.Key)
	}
	return ok
}

// interestOf returns what an application declares about an object, as far as
// the engine's mu guards it. The caller holds mu.
func (e *Engine) interestOf(id string, key manifest.Key, permitted bool) ownership.Interest {
	c := ownership.Interest{App: id, Permitted: permitted, Leaving: true}
	if a := e.apps[id]; a != nil {
		c.Listed, c.Accepted, c.Leaving = a.listing.lists(key), a.listing.accepts(key), a.leaving
	}
	return c
}

// acquire makes the application the object's owner, before it is written. It
// fails if the application must not write it or another one owns it. The caller
// holds the application's mu.
func (a *app) acquire(key manifest.Key, namespaced bool) error {
	if err := a.permits(key, namespaced); err != nil {
		return err
	}
	e := a.e
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.slotOf(key)
	defer e.tidy(key)
	c := e.interestOf(a.id, key, true)
	c.Leaving = false // what its deletion writes, too, belongs to an operation
	// A present owner releases an object only in release, which knows the
	// writes in flight.
	next, v := s.Acquire(c, ownership.Interest{App: s.Owner, Listed: true})
	if v != ownership.Granted {
		return managed(key, e.titleOf(s.Owner))
	}
	taken := s.State == ownership.Free
	s.Object = next
	if taken {
		for x := s.views; x != nil; x = x.next {
			if x.app != a {
				e.reconsider(x.app) // it has no view of the object any more
			}
		}
	}
	return nil
}

// managed refuses an object that another application owns.
func managed(key manifest.Key, title string) error {
	return fault.With(fault.New(fault.Conflict, "it is managed by application %s of this cluster", title),
		key.Describe(), "remove it from one of the two applications")
}

// event applies an event that the owner of an object causes.
func (e *Engine) event(id string, key manifest.Key, ev ownership.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.objects[key]
	if s == nil {
		return
	}
	was := s.State
	if s.Object = s.Do(id, ev); s.State == ownership.Free && was != ownership.Free {
		e.notifyWaiting(s)
	}
	e.tidy(key)
}

// notifyWaiting makes the applications that wait for an object check who owns
// it now. The caller holds mu.
func (e *Engine) notifyWaiting(s *slot) {
	for _, b := range s.waiting {
		e.reconsider(b)
	}
}

// reconsider makes an application process its state again, because the owner of
// one of its objects has changed. The caller holds mu.
func (e *Engine) reconsider(a *app) {
	if !e.begun {
		return
	}
	ctx := e.life
	e.workers.Go(func() {
		_ = lifecycle.Safely(ctx, "engine", func(ctx context.Context) error { a.stateChanged(ctx); return nil })
	})
}

// wait queues an application for an object that another one owns; false if it
// has no owner.
func (e *Engine) wait(a *app, key manifest.Key) (owner string, waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.objects[key]
	if s == nil || s.State == ownership.Free || s.Owner == a.id {
		return "", false
	}
	if !slices.Contains(s.waiting, a) {
		s.waiting = append(s.waiting, a)
	}
	return s.Owner, true
}

// unlisted notifies the waiting applications that the owner does not list the
// object any more.
func (e *Engine) unlisted(key manifest.Key) {
	e.mu.RLock()
	s := e.objects[key]
	waits := s != nil && len(s.waiting) > 0
	e.mu.RUnlock()
	if !waits {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.objects[key]; s != nil {
		e.notifyWaiting(s)
	}
}

// stopWaiting removes an application from the queues of the given objects.
func (e *Engine) stopWaiting(a *app, keys map[manifest.Key]string) {
	if len(keys) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range keys {
		if s := e.objects[key]; s != nil {
			s.waiting = slices.DeleteFunc(s.waiting, func(b *app) bool { return b == a })
			e.tidy(key)
		}
	}
}

// waitingFor returns the applications that wait for an object, in the order in
// which they came.
func (e *Engine) waitingFor(key manifest.Key) []*app {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.objects[key]; s != nil {
		return slices.Clone(s.waiting)
	}
	return nil
}

// contested reports whether an application waits for an object of another one.
func (e *Engine) contested(key manifest.Key) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.objects[key]
	return s != nil && len(s.waiting) > 0
}

// publish sets what an application lists from now on. The caller holds the
// application's mu.
func (a *app) publish() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.listing = &listing{a.target, a.accepted, a.state.GetPolicy().GetAutomated()}
}

// leave reports whether an application is being deleted: it adopts nothing then.
func (e *Engine) leave(a *app, leaving bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a.leaving = leaving
}

// A candidate is an application that would adopt an object.
type candidate struct {
	app      *app
	by       *listing // its listing at the time of the check
	interest ownership.Interest
}

// candidates returns what other applications declare about an object that its
// owner is about to delete. The error means that one of them cannot be read
// now. The caller must hold no application's lock.
func (e *Engine) candidates(ctx context.Context, a *app, key manifest.Key, namespaced bool) (out []candidate, err error) {
	for _, b := range e.waitingFor(key) {
		if out, err = a.addCandidate(ctx, out, b, key, namespaced); err != nil {
			return nil, err
		}
	}
	for _, b := range e.all() {
		if b == a || !b.unread() {
			continue
		}
		if out, err = a.addCandidate(ctx, out, b, key, namespaced); err != nil {
			return nil, err
		}
	}
	// An application that has just processed a state was not queued at that
	// moment.
	for _, b := range e.waitingFor(key) {
		if out, err = a.addCandidate(ctx, out, b, key, namespaced); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addCandidate adds another application that was synced with an object of this
// one, unless the list has it.
func (a *app) addCandidate(ctx context.Context, list []candidate, b *app, key manifest.Key, namespaced bool) ([]candidate, error) {
	if b == a || slices.ContainsFunc(list, func(c candidate) bool { return c.app == b }) {
		return list, nil
	}
	c, err := b.claims(ctx, key, namespaced)
	if err != nil {
		return nil, err
	}
	if c.interest.Accepted {
		list = append(list, c)
	}
	return list, nil
}

// claims returns what the application's newest state declares about the object,
// processed or not.
func (a *app) claims(ctx context.Context, key manifest.Key, namespaced bool) (candidate, error) {
	unread := a.unread()
	a.e.mu.RLock()
	c := candidate{app: a, by: a.listing, interest: a.e.interestOf(a.id, key, false)}
	a.e.mu.RUnlock()
	a.mu.Lock()
	c.interest.Permitted = a.permits(key, namespaced) == nil
	a.mu.Unlock()
	if !unread {
		return c, nil
	}
	row, ok := a.e.Inventory.App(a.id)
	if !ok {
		c.interest.Listed, c.interest.Accepted = false, false
		return c, nil
	}
	next := listing{automated: row.State.GetPolicy().GetAutomated()}
	var err error
	if next.accepted, err = a.e.resolve(ctx, row.State.GetAccepted(), row.State.GetNamespace()); err == nil && next.automated {
		next.target, err = a.e.resolve(ctx, row.State.GetTarget(), row.State.GetNamespace())
	}
	if err != nil {
		return c, fault.With(fault.New(fault.Offline, "application %s may own it now, and its state cannot be read yet: %s", a.e.titleOf(a.id), sentence(err)),
			key.Describe(), "it is tried again")
	}
	c.interest.Accepted = next.accepts(key)
	c.interest.Listed = c.interest.Accepted
	c.interest.Permitted = a.e.Guard.writes(key, namespaced) == nil && permit(row.State.GetPolicy().GetLimits(), row.State.GetProject(), key, namespaced) == nil
	return c, nil
}

// successor returns the application that adopts an object which its owner is
// about to delete; nil: none, so it is deleted.
func (e *Engine) successor(ctx context.Context, a *app, key manifest.Key, namespaced bool) (*candidate, error) {
	all, err := e.candidates(ctx, a, key, namespaced)
	if err != nil {
		return nil, err
	}
	claims := make([]ownership.Interest, len(all))
	for i := range all {
		claims[i] = all[i].interest
	}
	best, ok := ownership.Successor(a.id, claims)
	for i := range all {
		if ok && all[i].interest.App == best.App {
			return &all[i], nil
		}
	}
	return nil, nil
}

// release transfers an object to another application. It stays unchanged in the
// cluster, and its record changes in one write. It fails if the other
// application has a newer state, or is being deleted. The caller holds the mu
// of the owner.
func (a *app) release(x *object, to candidate) bool {
	if x.inflight > 0 || x.record == nil {
		return false
	}
	e := a.e
	r := *x.record
	r.App = to.app.id
	if r.From == "" {
		r.From = a.name()
	}
	e.mu.Lock()
	s := e.objects[x.key]
	c := to.interest
	c.Leaving = to.app.leaving || e.apps[to.app.id] != to.app
	if s == nil || s.Owner != a.id || to.app.listing != to.by {
		e.mu.Unlock()
		return false
	}
	next := s.Adopt(c)
	if next.Owner != to.app.id {
		e.mu.Unlock()
		return false
	}
	s.Object = next
	if _, err := e.Inventory.Transfer(a.id, r); err != nil {
		e.Log.Error("change of ownership not recorded", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Error, err)
	}
	to.app.arrived = append(to.app.arrived, r)
	for _, b := range s.waiting {
		if b != to.app {
			e.reconsider(b) // it waits for another owner now
		}
	}
	e.mu.Unlock()
	e.Log.Info("object released to another application", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Name, to.app.title())
	x.record, x.doomed = nil, false
	a.closeTombstone(x.key)
	a.drop(x)
	e.do(func(ctx context.Context) { to.app.adopted(ctx) })
	return true
}

// adopted processes what other applications have released to this one.
func (a *app) adopted(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.adoptReleased() == 0 || a.closed {
		return
	}
	a.reassess(ctx, false)
	a.start()
	a.scheduleReport()
	a.e.reconsiderKinds()
}

// adoptReleased processes the records released to the application, and returns
// their number. The caller holds mu.
func (a *app) adoptReleased() int {
	a.e.mu.Lock()
	list := a.arrived
	a.arrived = nil
	a.e.mu.Unlock()
	for _, r := range list {
		x, owner := a.e.view(a, r.Key, kindOf(r.Key, r.Version), r.Key.Namespace != "")
		if owner != "" || a.closed {
			continue // it was released to another application
		}
		delete(a.conflicts, r.Key)
		x.record, x.hook = &r, r.Hook
		x.target, x.accepted = a.target.get(r.Key), a.accepted.get(r.Key)
		a.objects[r.Key] = x
		if d := x.target; d != nil {
			x.gvk, x.namespaced = d.gvk, d.namespaced
		}
	}
	return len(list)
}

// releasePause is how long an operation waits until the owner of an object has
// processed the state that may no longer list it.
const releasePause = 3 * time.Second

// obtain makes the owner of an object release it to the application whose
// operation is about to write it, if the owner does not list it any more.
// Otherwise it fails and names the owner. With try, nothing is transferred. The
// caller must hold no application's lock.
func (a *app) obtain(ctx context.Context, key manifest.Key, namespaced, try bool) error {
	for until := a.e.Clock.Now().Add(releasePause); ; {
		id := a.e.owner(key)
		if id == "" || id == a.id {
			return nil
		}
		a.e.mu.RLock()
		owner := a.e.apps[id]
		by := a.listing
		a.e.mu.RUnlock()
		if owner == nil {
			return managed(key, a.e.titleOf(id))
		}
		a.mu.Lock()
		err := a.permits(key, namespaced)
		a.mu.Unlock()
		if err != nil {
			return err
		}
		ok, again := owner.releaseUnlisted(ctx, key, candidate{a, by, ownership.Interest{App: a.id, Permitted: true, Listed: true}}, try)
		if ok {
			return nil
		}
		if !again || a.e.Clock.Now().After(until) || lifecycle.Sleep(ctx, a.e.Clock, 10*time.Millisecond) != nil {
			return managed(key, a.e.titleOf(id))
		}
	}
}

// releaseUnlisted releases an object that the application does not list any
// more to another one that is about to write it, and an object that is missing
// in the cluster and that the application does not restore. again means that
// this cannot be decided yet.
func (a *app) releaseUnlisted(ctx context.Context, key manifest.Key, to candidate, try bool) (ok, again bool) {
	unread := a.unread()
	if unread && a.mayList(ctx, key) {
		return false, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adoptReleased()
	x := a.objects[key]
	switch {
	case x == nil:
		return false, a.e.owner(key) != a.id
	case x.doomed, x.hook != "" && a.running != nil && a.running.id == x.hook:
		return false, false
	case x.inflight > 0:
		return false, true
	case x.record != nil && x.live.known && !x.live.found && !a.restores():
		if !try {
			a.releaseMissing(x)
		}
		return true, false
	case !unread && (x.target != nil || x.accepted != nil):
		return false, false
	case try:
		return true, false
	case x.record == nil:
		a.e.event(a.id, key, ownership.Release)
		return true, false
	}
	return a.release(x, to), true
}

// mayList reports whether the newest stored state lists an object, or cannot be
// read.
func (a *app) mayList(ctx context.Context, key manifest.Key) bool {
	row, ok := a.e.Inventory.App(a.id)
	if !ok {
		return false
	}
	for _, ref := range [...]*linkv1.SnapshotRef{row.State.GetTarget(), row.State.GetAccepted()} {
		s, err := a.e.resolve(ctx, ref, row.State.GetNamespace())
		if err != nil || s.get(key) != nil {
			return true
		}
	}
	return false
}

// restores reports whether the application itself recreates a missing object,
// or may be about to. The caller holds mu.
func (a *app) restores() bool {
	return a.state.GetPolicy().GetSelfHeal() || a.running != nil || len(a.queue) > 0 || a.newState
}

// releaseMissing releases an object that is missing in the cluster: the first
// writer owns it. The caller holds mu.
func (a *app) releaseMissing(x *object) {
	a.e.Inventory.Disown(a.id, x.key)
	x.record, x.doomed = nil, false
	a.e.event(a.id, x.key, ownership.Release)
}

// releaseUnwritten releases an object whose first write failed. If the API
// server has executed it nevertheless, the live tracking mark names the owner.
func (a *app) releaseUnwritten(x *object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x.record == nil && x.inflight == 0 {
		a.e.event(a.id, x.key, ownership.Release)
	}
}

// unrecorded reports whether there are tombstones of objects without a record.
// The application may have written them nevertheless: the agent may have
// stopped between a write and its record, or the response may be lost. The
// caller holds mu.
func (a *app) unrecorded() bool {
	return slices.ContainsFunc(a.tombstones.all, func(t *linkv1.Tombstone) bool {
		x := a.objects[a.keyOfTombstone(t)]
		return x == nil || x.record == nil
	})
}

// holder returns the application that a live object's tracking names, if it is
// one of this cluster that still lists, records or deletes the object. Such an
// object keeps its owner, even while its record is missing.
func (e *Engine) holder(a *app, name string, key manifest.Key) *app {
	for _, b := range e.all() {
		if b == a {
			continue
		}
		b.mu.Lock()
		same := !b.closed && b.name() == name
		has := b.target.get(key) != nil || b.accepted.get(key) != nil || b.rebuild || len(b.tombstones.of[tombstoneKey(key.Group, key.Kind, key.Name)]) > 0
		b.mu.Unlock()
		if same {
			if has {
				return b
			}
			return nil
		}
	}
	return nil
}
