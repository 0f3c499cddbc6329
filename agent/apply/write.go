package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/secrets"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// maxConflicts is how often a write is prepared again because the object
// changed in between.
const maxConflicts = 5

// A writing says how an object is written.
type writing struct {
	options []string // sync options of application, operation and object together
	held    bool     // the write is counted as in flight already
}

// A written is the result of a write.
type written struct {
	changed bool
	message string
	mark    string // owner by the live tracking mark, if that is why it was refused
}

// write writes one object's desired content and records which fields are ours.
// Events that arrive during the write are processed after its response.
func (a *app) write(ctx context.Context, x *object, d *desired, body applicable, w writing) (written, error) {
	a.meet(ctx, x)
	s := a.sending(x, d, body, w)
	if err := a.adoptLive(ctx, x, s); err != nil {
		s.problem = err
	}
	failpoint.Here(failpoint.AgentSendBefore)
	out, err := a.send(ctx, s)
	failpoint.Here(failpoint.AgentSendAfter)
	if err == nil {
		err = a.record(ctx, x, d, s, out)
	}
	if err != nil {
		err = s.explain(err, "apply")
		a.refused(ctx, x, err)
		a.settle(ctx, x, out)
		a.releaseUnwritten(x)
		return written{mark: s.mark}, err
	}
	failpoint.Here(failpoint.AgentRecordAfter)
	a.settle(ctx, x, out)
	return s.outcome(out), nil
}

// sending is one object that is being written.
type sending struct {
	endpoint
	app     *app
	key     manifest.Key
	digest  [32]byte // of the manifest
	body    *manifest.Object
	leaves  []secrets.Leaf // resolved fields of the body
	ignore  *diff.Ignore
	options []string
	dryRun  bool
	uid     string // uid that live must have; empty: any or none
	before  string // resource version of live before; empty: it did not exist
	applied [32]byte
	had     bool // applied is set
	merged  bool // it was not written by server-side apply
	note    string
	problem error  // problem found before the request
	marks   string // marks of Argo CD that are written
	mark    string // title of the owner, if ownership is the problem
}

// sending collects what a write needs, under mu, and counts the write as in
// flight.
func (a *app) sending(x *object, d *desired, body applicable, w writing) *sending {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.held {
		x.inflight++
	}
	s := &sending{app: a, key: x.key, digest: d.digest, body: body.Object, leaves: body.leaves, ignore: a.ignore, options: w.options}
	a.prepare(s.body, x.key)
	s.marks = a.marksNow(x.key)
	if x.record != nil {
		s.applied, s.had = x.record.Owned.Digest, true
		s.merged = x.record.Merged
	}
	if x.live.known && x.live.found {
		s.before = x.live.version
		if x.record != nil && x.record.Owned.UID == x.live.uid && !x.live.deleting {
			s.uid = x.live.uid
		}
	}
	if s.problem = a.acquire(x.key, d.namespaced); s.problem == nil {
		s.problem = x.surrendered(w.options)
	}
	return s
}

func (s *sending) outcome(out *manifest.Object) written {
	w := written{changed: true, message: "configured"}
	switch {
	case s.before == "":
		w.message = "created"
	case s.before == out.GetResourceVersion():
		w.changed, w.message = false, unchanged
	}
	if s.note != "" {
		w.message += " (" + s.note + ")"
	}
	return w
}

// send writes an object, to the cluster or to the hub.
func (a *app) send(ctx context.Context, s *sending) (*manifest.Object, error) {
	if s.problem == nil {
		s.problem = unnamed(s.key, s.body)
	}
	if s.problem != nil {
		return nil, s.problem
	}
	if inHub(s.key) {
		return a.sendToHub(ctx, s)
	}
	return a.sendBy(ctx, s)
}

// unnamed refuses an object with only generateName that is not a hook: each
// write would create another object (SRC-20).
func unnamed(key manifest.Key, body *manifest.Object) error {
	prefix := body.GetGenerateName()
	if prefix == "" || key.Name != manifest.StandIn(prefix) {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "it has generateName %q and no name, which only a hook may have", prefix), key.Describe(),
		"give it metadata.name, or make it a hook")
}

// sendBy writes by the method that options and the API server permit.
func (a *app) sendBy(ctx context.Context, s *sending) (*manifest.Object, error) {
	gvr, _, err := a.e.Mapper.Find(ctx, s.body.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	s.endpoint = endpoint{resource: gvr, namespace: s.key.Namespace, name: s.key.Name}
	switch {
	case hasOption(s.options, "Replace", "true"):
		return a.replace(ctx, s)
	case s.merged, hasOption(s.options, "ServerSideApply", "false"):
		return a.merge(ctx, s)
	}
	out, err := a.applyServerSide(ctx, s)
	switch {
	case err == nil:
		return a.migrate(ctx, s, out)
	case repeated(err):
		s.note = "merged, because a list names one key twice, and the last one counts"
	case undeclared(err) && hasOption(s.options, "Validate", "false"):
		s.note = "merged, because it has fields that its kind does not declare"
	case noApply(err):
		s.note = "merged, because its API has no server-side apply"
	case immutable(err) && hasOption(s.options, "Force", "true"):
		return a.recreate(ctx, s)
	default:
		return nil, err
	}
	return a.merge(ctx, s)
}

// applyServerSide is the normal way: one request, conflicts forced.
func (a *app) applyServerSide(ctx context.Context, s *sending) (*manifest.Object, error) {
	for try := 1; ; try++ {
		obj, err := a.outgoing(ctx, s)
		if err != nil {
			return nil, err
		}
		text, err := manifest.Canonical(obj)
		if err != nil {
			return nil, err
		}
		out, err := a.kube().patch(ctx, patch{
			endpoint: s.endpoint, kind: types.ApplyPatchType, body: text, manager: a.e.Manager, dryRun: s.dryRun,
			lenient: hasOption(s.options, "Validate", "false"),
		}, func(live *manifest.Object) bool { return carries(live, obj, a.e.Manager) })
		switch {
		case err == nil, try == maxConflicts:
			return out, err
		case otherUID(err):
			s.uid = "" // it was deleted or recreated; the next apply uses the existing object
		case apierrors.IsConflict(err):
			// A precondition failed: read and prepare it again.
		case a.namespaceGone(ctx, s, err):
		default:
			return nil, err
		}
	}
}

// outgoing returns the object as it is sent. With RespectIgnoreDifferences,
// ignored fields keep their live values (see diff.Respect).
func (a *app) outgoing(ctx context.Context, s *sending) (*manifest.Object, error) {
	obj, guard := s.body, ""
	if hasOption(s.options, "RespectIgnoreDifferences", "true") && !s.ignore.Empty(s.key) {
		live, err := a.kube().get(ctx, s.endpoint)
		if err != nil {
			return nil, err
		}
		kept, guarded, err := diff.Respect(s.body, live, s.ignore, a.e.Manager)
		if err != nil {
			return nil, err
		}
		obj = kept
		if guarded {
			guard = live.GetResourceVersion()
		}
	}
	if guard == "" && s.uid == "" {
		return obj, nil
	}
	out := &manifest.Object{Object: desiredFields(obj.Object)}
	if s.uid != "" {
		out.SetUID(types.UID(s.uid))
	}
	if guard != "" {
		out.SetResourceVersion(guard)
	}
	return out, nil
}

// carries reports whether live has everything that was sent, as fields of our
// apply.
func carries(live, sent *manifest.Object, manager string) bool {
	if _, applied := editor(live, manager); !applied {
		return false
	}
	return within(desiredFields(sent.Object), live.Object)
}

// within reports whether another value contains every leaf of a value.
func within(part, whole any) bool {
	switch p := part.(type) {
	case map[string]any:
		w, ok := whole.(map[string]any)
		return ok && withinMap(p, w)
	case []any:
		w, ok := whole.([]any)
		return ok && slices.EqualFunc(p, w, within)
	}
	a, errA := manifest.AppendCanonical(nil, part)
	b, errB := manifest.AppendCanonical(nil, whole)
	return errA == nil && errB == nil && string(a) == string(b)
}

func withinMap(part, whole map[string]any) bool {
	for k, v := range part {
		if !within(v, whole[k]) {
			return false
		}
	}
	return true
}

// merge writes by a three-way merge of what was applied last, what is desired
// and what is live.
func (a *app) merge(ctx context.Context, s *sending) (*manifest.Object, error) {
	s.merged = true
	for try := 1; ; try++ {
		live, err := a.kube().get(ctx, s.endpoint)
		if err != nil {
			return nil, err
		}
		if live == nil {
			out, err := a.kube().create(ctx, s.endpoint, s.body, s.dryRun)
			if apierrors.IsAlreadyExists(err) && try < maxConflicts {
				continue
			}
			return out, err
		}
		out, err := a.mergeInto(ctx, s, live)
		if immutable(err) && hasOption(s.options, "Force", "true") {
			return a.recreate(ctx, s)
		}
		if err == nil || try == maxConflicts || !apierrors.IsConflict(err) {
			return out, err
		}
	}
}

// mergeInto patches a live object, unless nothing differs.
func (a *app) mergeInto(ctx context.Context, s *sending, live *manifest.Object) (*manifest.Object, error) {
	text, err := a.threeWay(ctx, s, live)
	if err != nil {
		return nil, err
	}
	if string(text) == "{}" {
		return live, nil
	}
	return a.kube().patch(ctx, patch{endpoint: s.endpoint, kind: types.MergePatchType, body: text, manager: a.e.Manager, dryRun: s.dryRun}, nil)
}

// threeWay makes the patch of a merge, guarded by the resource version of live.
func (a *app) threeWay(ctx context.Context, s *sending, live *manifest.Object) ([]byte, error) {
	var original []byte
	if s.had {
		if last, err := a.e.body(ctx, s.applied); err == nil {
			a.mu.Lock()
			a.prepare(last, s.key)
			a.mu.Unlock()
			if original, err = manifest.Canonical(last); err != nil {
				return nil, err
			}
		}
	}
	modified, err := manifest.Canonical(s.body)
	if err != nil {
		return nil, err
	}
	current, err := manifest.Canonical(&manifest.Object{Object: withoutFields(live.Object)})
	if err != nil {
		return nil, err
	}
	text, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the object cannot be merged with what is live")
	}
	if string(text) == "{}" {
		return text, nil
	}
	change, err := manifest.FromCanonical(text)
	if err != nil {
		return nil, err
	}
	change.SetResourceVersion(live.GetResourceVersion())
	return manifest.Canonical(change)
}

// replace writes the object as a whole (SYNC-20), or deletes and recreates it
// with Force (SYNC-21). CustomResourceDefinitions and Namespaces are never
// deleted for it.
func (a *app) replace(ctx context.Context, s *sending) (*manifest.Object, error) {
	s.merged = true
	force := hasOption(s.options, "Force", "true") && s.key.Kind != "CustomResourceDefinition" && s.key.Kind != "Namespace"
	for try := 1; ; try++ {
		live, err := a.kube().get(ctx, s.endpoint)
		if err != nil {
			return nil, err
		}
		if live == nil {
			return a.kube().create(ctx, s.endpoint, s.body, s.dryRun)
		}
		if force {
			return a.recreate(ctx, s)
		}
		obj := s.body.DeepCopy()
		obj.SetResourceVersion(live.GetResourceVersion())
		out, err := a.kube().update(ctx, s.endpoint, obj, s.dryRun)
		if err == nil || try == maxConflicts || !apierrors.IsConflict(err) {
			return out, err
		}
	}
}

// recreate deletes an object, waits until it is gone, and creates it again.
func (a *app) recreate(ctx context.Context, s *sending) (*manifest.Object, error) {
	live, err := a.kube().get(ctx, s.endpoint)
	if err != nil {
		return nil, err
	}
	if s.dryRun {
		return live, nil // a deletion with recreation cannot be dry-run
	}
	if live != nil {
		if err := a.e.Guard.deletes(s.key, s.namespace != ""); err != nil {
			return nil, err
		}
		if err := a.kube().delete(ctx, s.endpoint, string(live.GetUID()), propagation(s.options)); err != nil {
			return nil, err
		}
		if err := a.awaitGone(ctx, s.endpoint, live.GetUID()); err != nil {
			return nil, err
		}
	}
	s.uid, s.note = "", "deleted and recreated"
	if s.merged {
		return a.kube().create(ctx, s.endpoint, s.body, false)
	}
	return a.applyServerSide(ctx, s)
}

// awaitGone waits until an object with a uid is deleted.
func (a *app) awaitGone(ctx context.Context, at endpoint, uid types.UID) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		now, err := a.kube().get(ctx, at)
		if err != nil || now == nil || now.GetUID() != uid {
			return err
		}
		if lifecycle.Sleep(ctx, a.e.Clock, wait) != nil {
			return fault.New(fault.Conflict, "it is being deleted to be recreated, and has finalizers %v", now.GetFinalizers())
		}
	}
}

// propagation is the propagation policy of a deletion (SYNC-18).
func propagation(options []string) metav1.DeletionPropagation {
	v, _ := manifest.Option(options, "PrunePropagationPolicy")
	switch v {
	case "background":
		return metav1.DeletePropagationBackground
	case "orphan":
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationForeground
}

// record stores which fields of a written object are ours.
func (a *app) record(ctx context.Context, x *object, d *desired, s *sending, out *manifest.Object) error {
	owned, err := a.recordOwned(s, d.digest, out)
	if err != nil {
		return fmt.Errorf("record what is ours: %w", err)
	}
	r := inventory.Record{
		App: a.id, Key: x.key, Version: d.gvk.Version, Wave: d.wave, Owned: owned, Merged: s.merged,
		Options: optionsOf(s.body), Marks: s.marks, Secret: a.secretsOf(s),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	r.Resolve = a.resolvesAll()
	x.rotationEnds()
	x.record, x.failure, x.missing, x.retries, x.notBefore, x.doomed = &r, "", false, 0, time.Time{}, false
	a.e.event(a.id, x.key, ownership.Applied)
	if _, err := a.e.Inventory.Own(r); err != nil {
		a.e.Log.ErrorContext(ctx, "ownership not recorded", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Error, err)
	}
	return nil
}

func (a *app) recordOwned(s *sending, digest [32]byte, out *manifest.Object) (diff.Owned, error) {
	if s.merged {
		return a.e.hashes.Replaced(s.body, out, a.e.Manager, digest, s.ignore)
	}
	return a.e.hashes.Own(out, a.e.Manager, digest, s.ignore)
}

// settle stores the response of a write as the newest live state, and then
// processes the deferred events. out is nil if the write failed.
func (a *app) settle(ctx context.Context, x *object, out *manifest.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.inflight--
	was := x.healthState()
	if out != nil && !x.live.older(out) {
		x.observe(out)
	}
	if x.inflight > 0 {
		return
	}
	o, lost := x.waiting, x.lost
	x.waiting, x.lost = nil, ""
	switch {
	case a.closed:
	case o != nil && !x.live.older(o) && (o.GetResourceVersion() != x.live.version || inHub(x.key)): // the hub's versions do not count its status
		// A report before the response belongs to the same step.
		x.observe(o)
		a.scheduleReport()
	case lost != "" && lost == x.live.uid:
		x.vanish(ctx)
		return
	}
	a.after(ctx, x, was)
}
