package apply

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/tracking"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// comparePause is the least time between two dry runs of one object.
const comparePause = 2 * time.Second

// compare sends requests for what records and watches do not show: whether an
// object exists whose kind was watched before it was desired, and whether a
// desired object that was never applied would change anything. It checks few
// objects at a time, and each at most every two seconds.
func (a *app) compare(ctx context.Context) {
	a.compareNamespace(ctx)
	a.mu.Lock()
	var unsure []*object
	for _, key := range a.keys() {
		if x := a.objects[key]; x.unsure() {
			unsure = append(unsure, x)
		}
	}
	a.mu.Unlock()
	var wait sync.WaitGroup
	for _, x := range unsure {
		select {
		case a.e.tries <- struct{}{}:
		case <-ctx.Done():
			wait.Wait()
			return
		}
		wait.Go(func() {
			defer func() { <-a.e.tries }()
			_ = lifecycle.Safely(ctx, "comparison", func(ctx context.Context) error { a.examine(ctx, x); return nil })
		})
	}
	wait.Wait()
	a.rebuilt(ctx)
}

// examine reads one object and dry-runs its desired content.
func (a *app) examine(ctx context.Context, x *object) {
	a.mu.Lock()
	d, uncertain := x.target, x.unsure()
	now := a.e.Clock.Now()
	if wait := x.examined.Add(comparePause).Sub(now); uncertain && wait > 0 && x.live.known {
		a.compareLater(wait)
		uncertain = false
	}
	if uncertain {
		x.examined = now
	}
	a.mu.Unlock()
	if !uncertain {
		return
	}
	err := a.try(ctx, x, d)
	if err == nil || ctx.Err() != nil {
		return
	}
	a.e.Log.WarnContext(ctx, "object not compared", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Error, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := fault.KindOf(err)
	if kind == fault.Offline || kind == fault.Internal {
		a.compareLater(5 * comparePause)
		return
	}
	was := x.healthState()
	x.expected = expectation{digest: d.digest, uid: x.live.uid, content: x.live.content, problem: sentence(err)}
	a.after(ctx, x, was)
}

// compareLater schedules a comparison. The caller holds mu.
func (a *app) compareLater(wait time.Duration) {
	if a.compareScheduled {
		return
	}
	a.compareScheduled = a.e.do(func(ctx context.Context) {
		if lifecycle.Sleep(ctx, a.e.Clock, wait) != nil {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.compareScheduled, a.stale = false, true
		a.start()
	})
}

// try reads the live object and dry-runs the desired one on it.
func (a *app) try(ctx context.Context, x *object, d *desired) error {
	s := &sending{app: a, key: x.key, dryRun: true, digest: d.digest}
	live, err := a.readLive(ctx, x, d, s)
	if err != nil || live == nil {
		return err
	}
	body, err := a.readDesired(ctx, d, time.Time{})
	if err != nil {
		return err
	}
	s.body, s.leaves, s.options = body.Object, body.leaves, a.options(body.Object)
	a.mu.Lock()
	s.body.SetNamespace(x.key.Namespace) // without a tracking id: a missing one is not a difference (TRK-08)
	a.labelled(s.body, x.key)
	s.ignore = a.ignore
	if x.record != nil {
		s.applied, s.had, s.merged = x.record.Owned.Digest, true, x.record.Merged
	}
	a.mu.Unlock()
	if a.e.Guard.writes(x.key, x.namespaced) != nil {
		return a.diffLocally(ctx, x, d, s, live, refusal{}) // a dry run needs the right to write
	}
	out, err := a.send(ctx, s)
	if err != nil {
		return a.refusedDryRun(ctx, x, d, s, live, err)
	}
	return a.recordDryRun(ctx, x, d, s, live, out)
}

// refusedDryRun compares an object whose dry run is refused, such as a change
// of an immutable field. Differences are found without it, and the refusal says
// why the next sync will fail. Temporary errors are retried.
func (a *app) refusedDryRun(ctx context.Context, x *object, d *desired, s *sending, live *manifest.Object, err error) error {
	why, fixed := s.explain(err, "dry-run"), immutable(err)
	if kind := fault.KindOf(why); kind == fault.Offline || kind == fault.Internal || ctx.Err() != nil {
		return why
	}
	body, err := a.readDesired(ctx, d, time.Time{}) // the sent object may have been modified
	if err != nil {
		return err
	}
	body.SetNamespace(x.key.Namespace)
	s.body, s.leaves = body.Object, body.leaves
	return a.diffLocally(ctx, x, d, s, live, refusal{sentence(why), fixed})
}

// A refusal is why an API server refused a dry run.
type refusal struct {
	sentence string // empty: it did not refuse
	fixed    bool   // it refuses to change a field, so there is a difference
}

// readLive reads the live object of a key; nil if there is none.
func (a *app) readLive(ctx context.Context, x *object, d *desired, s *sending) (*manifest.Object, error) {
	gvr, _, err := a.e.Mapper.Resource(ctx, d.gvk)
	if fault.KindOf(err) == fault.Missing {
		if other, _, ok := a.e.Mapper.Other(d.gvk); ok {
			gvr, err = other, nil
		}
	}
	if err != nil && fault.KindOf(err) != fault.Missing {
		return nil, err
	}
	var live *manifest.Object
	unserved := err != nil
	if !unserved {
		s.endpoint = endpoint{resource: gvr, namespace: x.key.Namespace, name: x.key.Name}
		if live, err = a.get(ctx, s.endpoint, x.key); err != nil {
			return nil, explain(err, x.key, "read")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.objects[x.key] != x || x.inflight > 0:
		return nil, nil
	case unserved && x.record != nil && x.hook == "":
		// It cannot be read, which does not mean that it is gone.
	case live == nil && !(x.live.known && !x.live.found):
		x.vanish(ctx)
	case live != nil && !x.live.older(live):
		x.observeLive(ctx, live)
	}
	return live, nil
}

// awaitDeletion polls a deleted object until it is gone, because its kind is
// not served in its version any more and no watch reports it.
func (a *app) awaitDeletion(ctx context.Context, x *object) {
	back := lifecycle.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second}
	for {
		_, err := a.readLive(ctx, x, &desired{key: x.key, gvk: x.gvk}, &sending{app: a, key: x.key})
		a.mu.Lock()
		over := a.objects[x.key] != x || !x.doomed || a.closed
		a.mu.Unlock()
		if over {
			return
		}
		if err != nil {
			a.e.Log.WarnContext(ctx, "deleted object not read", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Error, err)
		}
		if lifecycle.Sleep(ctx, a.e.Clock, back.Next()) != nil {
			return
		}
	}
}

// recordDryRun stores the result of a dry run. If nothing would change and our
// own apply produced the live state, the lost or void record is restored.
func (a *app) recordDryRun(ctx context.Context, x *object, d *desired, s *sending, live, out *manifest.Object) error {
	owned, err := a.recordOwned(s, d.digest, out)
	if err != nil {
		return explain(err, x.key, "compare")
	}
	owned.UID = string(live.GetUID())
	v, err := a.e.hashes.Compare(owned, live, s.ignore)
	if err != nil {
		return explain(err, x.key, "compare")
	}
	if v.Equal && s.ignore.Empty(x.key) && contentOf(untracked(out.Object)) != contentOf(untracked(live.Object)) {
		v.Equal, v.Fields = false, []string{"fields that are no longer in the manifests"}
	}
	seen := a.e.reduceLive(live, nil)
	inherits, err := a.mayInherit(ctx, x, s, live)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was := x.healthState()
	x.expected = expectation{digest: d.digest, uid: seen.uid, content: seen.content, equal: v.Equal, fields: v.Fields}
	ours := seen.applied && (seen.tracked == a.trackingID(x.key) || x.key.Kind == "CustomResourceDefinition")
	void := ours && x.record != nil && x.record.Owned.Digest == diff.Hash(d.digest) && x.comparison.Void != ""
	switch {
	case v.Equal && x.accepted != nil && x.accepted.digest == d.digest && ((x.record == nil && ours) || void):
		a.rerecord(ctx, x, d, s, live)
	case v.Equal && inherits && x.inherited():
		x.inherit(owned, s, live)
	case !v.Equal && (void || ours && x.record == nil && (a.rebuild || x.inherited()) || inherits && x.inherited()):
		x.drifted(d, owned, s)
	}
	a.after(ctx, x, was)
	return nil
}

// untracked returns an object without our tracking marks, because missing ones
// are not a difference (TRK-08).
func untracked(object map[string]any) map[string]any {
	o := (&manifest.Object{Object: object}).DeepCopy()
	all := o.GetAnnotations()
	if _, ok := all[trackingAnnotation]; ok {
		for _, mark := range []string{trackingAnnotation, tracking.Tenant, tracking.Installation, tracking.ArgoAnnotation, tracking.ArgoInstallation} {
			delete(all, mark)
		}
		o.SetAnnotations(all)
	}
	if len(all) == 0 {
		o.SetAnnotations(nil) // none, and an empty section, are the same
	}
	return o.Object
}

// rerecord creates the record of an object that equals its manifest. The caller
// holds mu.
func (a *app) rerecord(ctx context.Context, x *object, d *desired, s *sending, live *manifest.Object) {
	owned, err := a.recordOwned(s, d.digest, live)
	if err != nil {
		a.e.Log.WarnContext(ctx, "record not made", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Error, err)
		return
	}
	x.storeRecord(d, owned, s)
	x.compareNewest(live)
}

// compareNewest compares an object with its new record: as a request has read it
// or as a watch has reported it since. Nothing else would compare what changed in
// between. The caller holds mu.
func (x *object) compareNewest(read *manifest.Object) {
	newest := read
	if x.live.uid == string(read.GetUID()) && x.live.version != read.GetResourceVersion() {
		newest = x.live.read()
	}
	if newest == nil {
		x.comparison = diff.Result{Void: "it has changed while it was compared"} // it is read again
		return
	}
	x.compareLive(newest)
}

// drifted records the desired content of an accepted object, so that the
// difference is detected and healed. The caller holds mu.
func (x *object) drifted(d *desired, owned diff.Owned, s *sending) {
	if x.accepted == nil || x.accepted.digest != d.digest {
		return
	}
	x.storeRecord(d, owned, s)
	if o := x.live.read(); o != nil {
		x.compareLive(o)
	}
}

func (x *object) storeRecord(d *desired, owned diff.Owned, s *sending) {
	a := x.app
	if a.acquire(x.key, x.namespaced) != nil {
		return
	}
	r := inventory.Record{
		App: a.id, Key: x.key, Version: d.gvk.Version, Wave: d.wave, Owned: owned, Merged: s.merged, Options: optionsOf(s.body),
		Secret: a.secretsOf(s), Resolve: a.resolvesAll(),
	}
	x.rotationEnds()
	if _, err := a.e.Inventory.Own(r); err != nil {
		return // it is retried at the next comparison
	}
	x.record = &r
	a.e.event(a.id, x.key, ownership.Applied)
}

// reclaimAll finds which objects of tombstones are ours, before an operation
// could skip them: those with our tracking id, and no others.
func (a *app) reclaimAll(ctx context.Context) {
	a.mu.Lock()
	tombstones, rebuild := a.tombstones.all, a.rebuild
	missed := false
	a.mu.Unlock()
	for _, t := range tombstones {
		key := manifest.Key{Group: t.GetGroup(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName()}
		if err := a.reclaim(ctx, key, kindOf(key, t.GetVersion())); err != nil {
			if ctx.Err() == nil {
				a.e.Log.WarnContext(ctx, "object of a tombstone not read", logkey.Application, a.id, logkey.Object, key.String(), logkey.Error, err)
			}
			if missed = true; rebuild {
				_ = lifecycle.Sleep(ctx, a.e.Clock, comparePause) // then the worker retries
				return
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tombstonesChecked = true
	if a.doubt = missed; missed {
		a.e.runAfter(5*comparePause, func(ctx context.Context) { a.stateChanged(ctx) })
	} else if !a.rebuild {
		a.closeTombstones()
	}
}

// rebuilt ends the rebuilding of lost records once every object was checked.
func (a *app) rebuilt(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.rebuild || !a.tombstonesChecked {
		return
	}
	for _, x := range a.objects {
		if x.unsure() || !x.live.known {
			a.compareLater(comparePause)
			return
		}
	}
	a.rebuild = false
	a.remake(ctx)
	a.closeTombstones()
	a.scheduleReport()
	a.e.reconsiderKinds()
}

// remake recreates accepted objects that do not exist. If the records are lost,
// the Secret proves that the application was applied before. The caller holds
// mu.
func (a *app) remake(ctx context.Context) {
	if a.accepted.name() == "" || a.accepted.name() != a.target.name() {
		return
	}
	for _, x := range a.objects {
		if x.record != nil || x.accepted == nil || !x.live.known || x.live.found || !a.enforced() || a.acquire(x.key, x.namespaced) != nil {
			continue
		}
		d := x.accepted
		x.record = &inventory.Record{App: a.id, Key: x.key, Version: d.gvk.Version, Wave: d.wave, Owned: diff.Owned{
			Manager: a.e.Manager, APIVersion: d.gvk.GroupVersion().String(), Digest: d.digest,
		}}
		a.selfHeal(ctx, x)
	}
}

// reclaim checks whether the object of a tombstone is ours.
func (a *app) reclaim(ctx context.Context, key manifest.Key, gvk schema.GroupVersionKind) error {
	if a.e.Excluded(key.Group, key.Kind) {
		return nil
	}
	gvr, namespaced, err := a.e.reach(ctx, gvk)
	if fault.KindOf(err) == fault.Missing {
		return nil
	}
	if err != nil {
		return err
	}
	key, ours := a.tombstoneKey(key, namespaced)
	if owner := a.e.owner(key); ours || owner != "" && owner != a.id || a.e.provenAbsent(gvk, key) {
		return nil
	}
	live, err := a.get(ctx, endpoint{resource: gvr, namespace: key.Namespace, name: key.Name}, key)
	if err != nil && !apierrors.IsForbidden(err) {
		return explain(err, key, "read")
	}
	if live == nil {
		return nil
	}
	return a.own(live, key, gvk)
}

// tombstoneKey returns where the object of a tombstone lives, and whether the
// application has a record of it.
func (a *app) tombstoneKey(key manifest.Key, namespaced bool) (at manifest.Key, recorded bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key.Namespace == "" && namespaced {
		key.Namespace = a.state.GetNamespace()
	}
	if !namespaced {
		key.Namespace = ""
	}
	x := a.objects[key]
	return key, x != nil && x.record != nil
}

// own records a live object of a tombstone if the application has applied it.
func (a *app) own(live *manifest.Object, key manifest.Key, gvk schema.GroupVersionKind) error {
	seen := a.e.reduceLive(live, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.objects[key]; x != nil && x.record != nil || !seen.applied || seen.tracked != a.trackingID(key) {
		return nil
	}
	owned, err := a.e.hashes.Own(live, a.e.Manager, [32]byte{}, nil)
	if err != nil {
		return explain(err, key, "reclaim")
	}
	r := inventory.Record{App: a.id, Key: key, Version: gvk.Version, Owned: owned, Options: optionsOf(live)}
	if _, err := a.e.Inventory.Own(r); err != nil {
		return err
	}
	a.adopt(r)
	if x := a.objects[key]; x != nil {
		x.observe(live)
	}
	return nil
}
