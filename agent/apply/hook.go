package apply

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// hookBody converts a hook's manifest to the object that is created: with the
// name and mark of this instance, and a finalizer that stays until its result
// was read.
func (t *task) hookBody(ctx context.Context, it wave.Item) (applicable, error) {
	o, err := t.app.readDesired(ctx, t.wants[it.Index], time.Time{})
	if err != nil {
		return applicable{}, err
	}
	o.SetGenerateName("")
	t.app.mu.Lock()
	t.app.prepare(o.Object, it.Key)
	t.app.mu.Unlock()
	annotate(o.Object, instanceAnnotation, it.Instance)
	if held := o.GetFinalizers(); !slices.Contains(held, health.HookFinalizer) {
		o.SetFinalizers(append(held, health.HookFinalizer))
	}
	return o, nil
}

// answerTime is how long a running creation of a hook may continue after its
// operation was ended.
const answerTime = 5 * time.Second

// outlast returns a context that ends some time after ctx. A cancelled request
// may have been executed nevertheless, and its object must be known so that it
// can be deleted.
func outlast(ctx context.Context, while time.Duration) (longer context.Context, done func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(while, cancel)
		context.AfterFunc(longer, func() { late.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// create creates a hook. One that exists with the same instance was created
// before a restart.
func (t *task) create(ctx context.Context, it wave.Item) (wave.Outcome, error) {
	a := t.app
	if inHub(it.Key) {
		return wave.Outcome{}, noHook(it.Key)
	}
	body, err := t.hookBody(ctx, it)
	if err != nil {
		return wave.Outcome{}, err
	}
	gvr, namespaced, err := a.e.Mapper.Find(ctx, body.GroupVersionKind())
	if err != nil {
		return wave.Outcome{}, explain(err, it.Key, "find")
	}
	a.mu.Lock()
	x := t.hook(it)
	var refused error
	if x != nil {
		refused = a.acquire(it.Key, namespaced)
		x.inflight++
	}
	a.mu.Unlock()
	if x == nil {
		return wave.Outcome{}, fault.With(fault.New(fault.Conflict, "a hook has the name of a managed object"), it.Key.Describe(), "give the hook another name")
	}
	if refused != nil {
		a.settle(ctx, x, nil)
		a.releaseUnwritten(x)
		t.noteRefusal(x, refused, "")
		return wave.Outcome{}, refused
	}
	at := endpoint{resource: gvr, namespace: it.Key.Namespace, name: it.Key.Name}
	failpoint.Here(failpoint.AgentHookBefore)
	whole, done := outlast(ctx, answerTime)
	out, message, err := t.make(whole, at, it, body.Object)
	done()
	failpoint.Here(failpoint.AgentHookAfter)
	if err != nil {
		a.settle(ctx, x, nil)
		err = explainAs(err, it.Key, "create", body.hidden(it.Key))
		a.releaseUnwritten(x)
		return wave.Outcome{}, err
	}
	a.mu.Lock()
	x.hook = t.op.ID
	x.record = &inventory.Record{
		App: a.id, Key: it.Key, Version: it.Version, Wave: it.Wave, Hook: t.op.ID, Options: manifest.Options(body.Object), Secret: a.secretsIn(body.leaves),
		Owned: diff.Owned{Manager: a.e.Manager, APIVersion: out.GetAPIVersion(), UID: string(out.GetUID())},
	}
	_, err = a.e.Inventory.Own(*x.record)
	a.e.event(a.id, x.key, ownership.Applied)
	a.mu.Unlock()
	a.settle(ctx, x, out)
	if err != nil {
		return wave.Outcome{}, err
	}
	return wave.Outcome{Changed: message == "created", Message: message}, nil
}

// make creates a hook, or finds what an earlier attempt of this operation
// created.
func (t *task) make(ctx context.Context, at endpoint, it wave.Item, body *manifest.Object) (*manifest.Object, string, error) {
	k := t.app.kube()
	out, err := k.create(ctx, at, body, false)
	if err == nil {
		return out, "created", nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, "", err
	}
	live, getErr := k.get(ctx, at)
	if getErr != nil {
		return nil, "", getErr
	}
	if live == nil {
		return nil, "", err // it was deleted at this moment; the next attempt creates it
	}
	if instance, _ := manifest.RawAnnotation(live, instanceAnnotation); instance == it.Instance {
		return live, "created before the restart", nil
	}
	if err := t.app.mayReplaceHook(it.Key, it.Key.Namespace != "", live); err != nil {
		return nil, "", err
	}
	text, err := manifest.Canonical(body)
	if err != nil {
		return nil, "", err
	}
	out, err = k.patch(ctx, patch{endpoint: at, kind: types.ApplyPatchType, body: text, manager: k.manager}, nil)
	return out, "applied to the hook of an earlier operation, which its policy retains", err
}

// tryHook dry-runs the creation of a hook. An existing object of that name is
// no failure: it is deleted before the hook runs.
func (t *task) tryHook(ctx context.Context, it wave.Item, s *sending) error {
	if s.problem != nil {
		return s.problem
	}
	if inHub(it.Key) {
		return noHook(it.Key)
	}
	body, err := t.hookBody(ctx, it)
	if err != nil {
		return err
	}
	gvr, _, err := t.app.e.Mapper.Find(ctx, body.GroupVersionKind())
	if err != nil {
		return err
	}
	s.leaves = body.leaves
	_, err = t.app.kube().create(ctx, endpoint{resource: gvr, namespace: it.Key.Namespace, name: it.Key.Name}, body.Object, true)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// absent reports whether an item could not be dry-run because this operation
// itself creates its namespace or kind, or because that is allowed.
func absent(it wave.Item, err error) bool {
	missing := apierrors.IsNotFound(err) || fault.KindOf(err) == fault.Missing
	return missing && (it.MadeHere || hasOption(it.Options, "SkipDryRunOnMissingResource", "true"))
}

// Delete prunes an object, or deletes a hook.
func (t *task) Delete(ctx context.Context, it wave.Item) (wave.Outcome, error) {
	switch {
	case it.Hook && inHub(it.Key):
		return wave.Outcome{Gone: true, Message: "never created"}, nil
	case it.Hook:
		return t.remove(ctx, it)
	case inHub(it.Key):
		return t.deleteInHub(ctx, it)
	}
	a := t.app
	gvr, namespaced, err := a.e.reach(ctx, kindOf(it.Key, it.Version))
	if fault.KindOf(err) == fault.Missing {
		// Without its kind the object does not exist, or cannot be read.
		// Nothing can be deleted, and the record stays.
		return wave.Outcome{Kept: true, Message: "left alone: " + sentence(err)}, nil
	}
	if err != nil {
		return wave.Outcome{}, explain(err, it.Key, "delete")
	}
	if out, err := t.handOver(ctx, it, namespaced); out != nil || err != nil {
		return or(out), err
	}
	uid, out := t.doom(ctx, it, namespaced)
	if out != nil {
		return *out, nil
	}
	at := endpoint{resource: gvr, namespace: it.Key.Namespace, name: it.Key.Name}
	if x := t.heldByHook(it.Key); x {
		if err := a.unhold(ctx, at, uid); err != nil {
			t.retain(it)
			return wave.Outcome{}, explain(err, it.Key, "delete")
		}
	}
	failpoint.Here(failpoint.AgentDeleteBefore)
	err = a.kube().delete(ctx, at, uid, propagation(it.Options))
	failpoint.Here(failpoint.AgentDeleteAfter)
	if apierrors.IsConflict(err) {
		return t.another(it), nil
	}
	if err != nil {
		t.retain(it)
		return wave.Outcome{}, explain(err, it.Key, "delete")
	}
	return t.pruned(it, uid, gvr.Version), nil
}

// pruned notes the accepted deletion of an object. One that was deleted in
// another version than the watched one is checked until it is gone.
func (t *task) pruned(it wave.Item, uid, version string) wave.Outcome {
	a := t.app
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.objects[it.Key]
	if x == nil || x.record == nil {
		return wave.Outcome{Changed: true, Gone: true, Message: "pruned"} // the watch has already reported the deletion
	}
	if x.live.uid == uid && x.live.found {
		x.live.deleting = true
	}
	if version != it.Version {
		a.e.do(func(ctx context.Context) { a.awaitDeletion(ctx, x) })
	}
	return wave.Outcome{Changed: true, Message: "pruned"}
}

func (t *task) heldByHook(key manifest.Key) bool {
	t.app.mu.Lock()
	defer t.app.mu.Unlock()
	x := t.app.objects[key]
	return x != nil && x.hook != ""
}

// doom marks an object for deletion and returns its uid in our inventory; or an
// outcome, if it must not or need not be deleted.
func (t *task) doom(ctx context.Context, it wave.Item, namespaced bool) (uid string, out *wave.Outcome) {
	a := t.app
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.objects[it.Key]
	switch {
	case x == nil || x.record == nil:
		return "", &wave.Outcome{Gone: true, Message: "not ours, or gone already"}
	case a.e.Inventory.Frozen() != "":
		return "", &wave.Outcome{Kept: true, Message: "kept: hub and agent disagree about the log's past"}
	}
	err := a.permits(it.Key, namespaced)
	switch {
	case err != nil:
	case a.leaving || x.hook != "":
		err = a.e.Guard.deletes(it.Key, namespaced)
	default:
		err = a.e.Guard.prunes(it.Key, namespaced)
	}
	if err != nil {
		return "", &wave.Outcome{Kept: true, Message: "kept: " + sentence(err)}
	}
	if m := x.live.foreign; x.live.known && x.live.found && m != nil && x.hook == "" && !(a.names(m) && x.live.tracked == "") {
		return "", &wave.Outcome{Kept: true, Message: "kept: it is tracked by " + m.Title() + " too"}
	}
	uid = x.record.Owned.UID
	x.doomed = true
	a.e.event(a.id, x.key, ownership.Delete)
	if x.live.known && !x.live.found {
		x.vanish(ctx)
		return "", &wave.Outcome{Gone: true, Message: "gone already"}
	}
	if uid == "" {
		uid = x.live.uid
	}
	if uid == "" {
		x.doomed = false
		a.e.event(a.id, x.key, ownership.Retain)
		return "", &wave.Outcome{Kept: true, Message: "kept: which object of this name is ours is not known"}
	}
	return uid, nil
}

// handOver releases an object, instead of deleting it, to another application
// that has been synced with it; nil: there is none.
func (t *task) handOver(ctx context.Context, it wave.Item, namespaced bool) (*wave.Outcome, error) {
	a := t.app
	for {
		to, err := a.e.successor(ctx, a, it.Key, namespaced)
		if to == nil || err != nil {
			return nil, err
		}
		a.mu.Lock()
		x := a.objects[it.Key]
		ours := x != nil && x.record != nil && x.hook == ""
		released := ours && a.release(x, *to)
		a.mu.Unlock()
		switch {
		case released:
			return &wave.Outcome{Kept: true, Gone: true, Message: "released to application " + to.app.title() + ", which lists it too"}, nil
		case !ours:
			return nil, nil
		}
		// It is being written, or the other application has just received a
		// newer state.
		if err := lifecycle.Sleep(ctx, a.e.Clock, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func or(out *wave.Outcome) wave.Outcome {
	if out == nil {
		return wave.Outcome{}
	}
	return *out
}

// retain cancels the planned deletion of an object.
func (t *task) retain(it wave.Item) {
	a := t.app
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.objects[it.Key]; x != nil {
		x.doomed = false
		a.e.event(a.id, it.Key, ownership.Retain)
	}
}

// another releases an object that someone else deleted and recreated: it is not
// the one that we applied.
func (t *task) another(it wave.Item) wave.Outcome {
	a := t.app
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.objects[it.Key]; x != nil {
		x.doomed = false
		a.disown(x)
	}
	return wave.Outcome{Kept: true, Message: "not deleted: it was recreated since it was applied"}
}

// remove deletes a hook with its finalizer. An object without the mark of a
// hook is not ours to delete.
func (t *task) remove(ctx context.Context, it wave.Item) (wave.Outcome, error) {
	a := t.app
	if err := a.e.Secret.Flush(ctx); err != nil { // the record of its run must survive it, even if the disk is lost
		return wave.Outcome{}, err
	}
	gvr, namespaced, err := a.e.reach(ctx, kindOf(it.Key, it.Version))
	if err != nil {
		return wave.Outcome{}, explain(err, it.Key, "delete")
	}
	at := endpoint{resource: gvr, namespace: it.Key.Namespace, name: it.Key.Name}
	live, err := a.kube().get(ctx, at)
	if err != nil {
		return wave.Outcome{}, explain(err, it.Key, "read")
	}
	if live == nil {
		return wave.Outcome{Gone: true, Message: "gone already"}, nil
	}
	instance, marked := manifest.RawAnnotation(live, instanceAnnotation)
	if !marked {
		return wave.Outcome{Kept: true, Message: "it carries no mark of a hook of this application"}, nil
	}
	if instance != it.Instance {
		if err := a.mayReplaceHook(it.Key, namespaced, live); err != nil {
			return wave.Outcome{}, err
		}
	}
	uid := string(live.GetUID())
	if err := a.unhold(ctx, at, uid); err != nil {
		return wave.Outcome{}, explain(err, it.Key, "delete")
	}
	err = a.kube().delete(ctx, at, uid, metav1.DeletePropagationBackground)
	failpoint.Here(failpoint.AgentHookRemoved)
	if err != nil && !apierrors.IsConflict(err) {
		return wave.Outcome{}, explain(err, it.Key, "delete")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	x := t.hooks[it.Key]
	if x == nil {
		return wave.Outcome{Changed: true, Message: "deleted"}, nil
	}
	if x.live.found && x.live.uid == uid {
		x.live.deleting, x.live.message = true, "being deleted"
	}
	return wave.Outcome{Changed: true, Gone: x.live.known && !x.live.found, Message: "deleted"}, nil
}

// mayReplaceHook reports why a hook of an earlier operation must stay as it is:
// the project permits nothing there, or it is another tenant's. The name alone
// shows nothing, because any application may have a hook of that name.
func (a *app) mayReplaceHook(key manifest.Key, namespaced bool, live *manifest.Object) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.permits(key, namespaced); err != nil {
		return err
	}
	if m := a.foreign(live); m != nil && m.Tenant != "" {
		return fault.With(fault.New(fault.Conflict, "it belongs to %s", m.Title()), key.Describe(), "give the hook another name")
	}
	return nil
}

// Release removes the finalizer from a hook that stays, so that it may be
// deleted.
func (t *task) Release(ctx context.Context, it wave.Item) error {
	if inHub(it.Key) {
		return nil
	}
	gvr, _, err := t.app.e.reach(ctx, kindOf(it.Key, it.Version))
	if err != nil {
		return explain(err, it.Key, "release")
	}
	at := endpoint{resource: gvr, namespace: it.Key.Namespace, name: it.Key.Name}
	return explain(t.app.unhold(ctx, at, ""), it.Key, "release")
}

// unhold removes the hook finalizer from an object, with the given uid, if any.
// An object that is gone, or has no finalizer, is success.
func (a *app) unhold(ctx context.Context, at endpoint, uid string) error {
	for try := 1; ; try++ {
		live, err := a.kube().get(ctx, at)
		if err != nil || live == nil || (uid != "" && string(live.GetUID()) != uid) {
			return err
		}
		if !slices.Contains(live.GetFinalizers(), health.HookFinalizer) {
			return nil
		}
		text, err := unholdPatch(live)
		if err != nil {
			return err
		}
		_, err = a.kube().patch(ctx, patch{endpoint: at, kind: types.MergePatchType, body: text, manager: a.e.Manager}, nil)
		if isGone(err) {
			return nil
		}
		if err == nil || try == maxConflicts || !apierrors.IsConflict(err) {
			return err
		}
	}
}

// unholdPatch removes the hook finalizer from the version of an object that was
// read.
func unholdPatch(live *manifest.Object) ([]byte, error) {
	left := []any{}
	for _, f := range live.GetFinalizers() {
		if f != health.HookFinalizer {
			left = append(left, f)
		}
	}
	return manifest.AppendCanonical(nil, map[string]any{"metadata": map[string]any{
		"finalizers": left, "resourceVersion": live.GetResourceVersion(),
	}})
}
