package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/hubobjects"
	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// HubObjects are the objects that are stored in the hub: applications and
// projects that an application renders (APP-31). The engine orders, compares,
// heals and prunes them like those of the cluster, and the hub writes them. It
// accepts no manifest from an agent, and checks the rights of the application's
// project itself.
type HubObjects interface {
	// Read returns an object; nil if there is none.
	Read(ctx context.Context, r hubobjects.Ref) (*manifest.Object, error)
	// Apply writes the manifest of a digest to an object, and returns the
	// result.
	Apply(ctx context.Context, r hubobjects.Ref, digest [32]byte, dryRun bool) (*manifest.Object, error)
	// Delete deletes the object with the given uid. The result says whether it
	// is gone, is being deleted, belongs to another application, or has to
	// wait.
	Delete(ctx context.Context, r hubobjects.Ref, uid string) (hubobjects.Deletion, error)
	// SetFollowed sets which objects are followed. It does not block.
	SetFollowed(refs []hubobjects.Ref)
}

// defaultNamespace is the namespace of hub objects without one.
const defaultNamespace = "argocd"

func inHub(key manifest.Key) bool { return manifest.InHub(key.Group, key.Kind) }

// hubMapper adds the hub's kinds to those that the cluster serves. Kinds of the
// cluster with these names are ignored.
type hubMapper struct{ Mapper }

func (m hubMapper) Resource(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool, error) {
	if manifest.InHub(gvk.Group, gvk.Kind) {
		return schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version}, true, nil
	}
	return m.Mapper.Resource(ctx, gvk)
}

func (m hubMapper) Find(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool, error) {
	if manifest.InHub(gvk.Group, gvk.Kind) {
		return m.Resource(ctx, gvk)
	}
	return m.Mapper.Find(ctx, gvk)
}

// inCluster finds a kind of the cluster, even if the hub has one of that name.
func (e *Engine) inCluster(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	served := e.Mapper
	if m, both := served.(hubMapper); both {
		served = m.Mapper
	}
	gvr, _, err := served.Find(ctx, gvk)
	return gvr, err
}

// itself reports whether an object is the application that renders it (APP-32).
func (a *app) itself(key manifest.Key) bool {
	return inHub(key) && key.Kind == "Application" && key.Name == a.state.GetName() && key.Namespace == a.state.GetAppNamespace()
}

// wantHub sets which objects of the hub are followed. The caller holds mu.
func (e *Engine) wantHub() {
	if e.Hub == nil {
		return
	}
	var refs []hubobjects.Ref
	for key, s := range e.objects {
		if inHub(key) && s.views != nil {
			refs = append(refs, hubobjects.Ref{App: s.views.app.id, Key: key, Version: s.views.gvk.Version})
		}
	}
	slices.SortFunc(refs, func(a, b hubobjects.Ref) int { return a.Key.Compare(b.Key) })
	e.Hub.SetFollowed(refs)
}

// hub returns the objects of the hub.
func (e *Engine) hub() (HubObjects, error) {
	if e.Hub == nil {
		return nil, fault.New(fault.Missing, "this agent cannot reach objects of the hub")
	}
	return e.Hub, nil
}

// get reads a live object of the application, from the hub if it is stored
// there.
func (a *app) get(ctx context.Context, at endpoint, key manifest.Key) (*manifest.Object, error) {
	if !inHub(key) {
		return a.kube().get(ctx, at)
	}
	h, err := a.e.hub()
	if err != nil {
		return nil, err
	}
	return h.Read(ctx, hubobjects.Ref{App: a.id, Key: key})
}

// sendToHub makes the hub write an object.
func (a *app) sendToHub(ctx context.Context, s *sending) (*manifest.Object, error) {
	s.merged = true // the fields of the manifest are ours
	h, err := a.e.hub()
	if err != nil {
		return nil, err
	}
	return h.Apply(ctx, hubobjects.Ref{App: a.id, Key: s.key}, s.digest, s.dryRun)
}

// The back-off of calls to the hub.
const (
	hubFirst = 250 * time.Millisecond
	hubMost  = 5 * time.Second
)

// patientlyInHub writes an object of the hub. While the hub is unreachable, the
// operation waits until its deadline.
func (t *task) patientlyInHub(ctx context.Context, it wave.Item, x *object, d *desired) (written, error) {
	back := lifecycle.Backoff{First: hubFirst, Max: hubMost}
	for {
		body, err := t.app.e.body(ctx, d.digest)
		if err == nil {
			var w written
			if w, err = t.app.write(ctx, x, d, applicable{Object: body}, writing{options: it.Options}); err == nil {
				return w, nil
			}
		}
		if fault.KindOf(err) != fault.Offline || lifecycle.Sleep(ctx, t.app.e.Clock, back.Next()) != nil {
			return written{}, err
		}
	}
}

// deleteInHub deletes an object of the hub.
func (t *task) deleteInHub(ctx context.Context, it wave.Item) (wave.Outcome, error) {
	a := t.app
	uid, out := t.doom(ctx, it, true)
	if out != nil {
		return *out, nil
	}
	h, err := a.e.hub()
	if err != nil {
		return wave.Outcome{}, err
	}
	back := lifecycle.Backoff{First: hubFirst, Max: hubMost}
	for {
		d, err := h.Delete(ctx, hubobjects.Ref{App: a.id, Key: it.Key}, uid)
		switch {
		case fault.KindOf(err) == fault.Offline, err == nil && d.Waits != "":
			if lifecycle.Sleep(ctx, a.e.Clock, back.Next()) != nil {
				return wave.Outcome{}, fault.With(fault.New(fault.Conflict, "it waits: %s", sentenceOr(err, d.Waits)), it.Key.Describe(), "")
			}
			continue
		case err != nil:
			return wave.Outcome{}, explain(err, it.Key, "delete")
		case d.Other:
			return t.another(it), nil
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		x := a.objects[it.Key]
		switch {
		case x == nil || x.record == nil:
			return wave.Outcome{Changed: true, Gone: true, Message: "pruned"}, nil
		case d.Gone:
			x.vanish(ctx)
			return wave.Outcome{Changed: true, Gone: true, Message: "pruned"}, nil
		case x.live.uid == uid && x.live.found:
			x.live.deleting, x.live.message = true, "its own objects go first"
		}
		return wave.Outcome{Changed: true, Message: "pruned"}, nil
	}
}

func sentenceOr(err error, otherwise string) string {
	if err != nil {
		return sentence(err)
	}
	return otherwise
}

// releaseSelf releases the application's own object once the manifests do not
// contain it any more: an application does not delete itself (APP-32). The
// caller holds mu.
func (a *app) releaseSelf(x *object) bool {
	if !a.itself(x.key) || x.target != nil || x.accepted != nil || x.inflight > 0 {
		return false
	}
	if x.record != nil {
		a.e.Inventory.Disown(a.id, x.key)
		x.record = nil
	}
	a.drop(x)
	a.closeTombstone(x.key)
	return true
}

// noHook refuses objects of the hub as hooks, which would have to be recreated
// for each operation.
func noHook(key manifest.Key) error {
	return fault.With(fault.New(fault.Invalid, "an object of the hub cannot be a hook"), key.Describe(),
		"remove the hook annotation and use a wave (argocd.argoproj.io/sync-wave)")
}

// livesInHub refuses user requests that need a live object of a cluster.
func livesInHub(key manifest.Key) error {
	return fault.With(fault.New(fault.Invalid, "it lives in the hub, not in the cluster"), key.Describe(),
		"do it there, with capstan app, capstan project or the console")
}

// recheck reads an object that is missing in a list of the hub: the list may be
// older than our own write. If the hub is unreachable, its next list triggers
// this again. The caller holds mu.
func (x *object) recheck() {
	a := x.app
	x.live.known = false
	a.e.do(func(ctx context.Context) {
		if _, err := a.readLive(ctx, x, &desired{key: x.key, gvk: x.gvk}, &sending{app: a, key: x.key}); err != nil && ctx.Err() == nil {
			a.e.Log.WarnContext(ctx, "object not read", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Error, err)
		}
	})
}

// Other returns none: a kind of the hub has one version.
func (m hubMapper) Other(gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced, ok bool) {
	if manifest.InHub(gvk.Group, gvk.Kind) {
		return schema.GroupVersionResource{}, false, false
	}
	return m.Mapper.Other(gvk)
}

// reach returns the resource under which existing objects can be read and
// deleted: in another version if their own is not served any more.
func (e *Engine) reach(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool, error) {
	gvr, namespaced, err := e.Mapper.Find(ctx, gvk)
	if fault.KindOf(err) == fault.Missing {
		if other, scope, ok := e.Mapper.Other(gvk); ok {
			return other, scope, nil
		}
	}
	return gvr, namespaced, err
}
