package apply

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/agent/tracking"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// adoptOption is the sync option that adopts an object regardless of its marks.
const adoptOption = "Adopt"

// listPause is how long a first write waits until its kind was listed, which
// saves a request per object.
const listPause = 3 * time.Second

// argoFinalizer makes Argo CD delete an application's objects with it.
const argoFinalizer = "resources-finalizer.argocd.argoproj.io"

// meet waits until the live state of an object is known, before its first
// write. No write of it may be in flight.
func (a *app) meet(ctx context.Context, x *object) {
	for until := a.e.Clock.Now().Add(listPause); ; {
		a.mu.Lock()
		met := x.record != nil || x.live.known
		a.mu.Unlock()
		if listed, broken := a.e.kindState(x); met || listed || broken != nil || a.e.Clock.Now().After(until) {
			return
		}
		if lifecycle.Sleep(ctx, a.e.Clock, 10*time.Millisecond) != nil {
			return
		}
	}
}

// adoptLive adopts an object that others have applied, before our first write
// of it: their fields become ours, so that fields missing in the manifests are
// removed, and their marks are removed. It changes metadata alone. An object
// that another tool still enforces is refused.
func (a *app) adoptLive(ctx context.Context, x *object, s *sending) error {
	if !a.mayAdopt(x, s) {
		return nil
	}
	gvr, _, err := a.e.Mapper.Find(ctx, s.body.GroupVersionKind())
	if err != nil {
		return nil // the write fails for the same reason, and reports it
	}
	at := endpoint{resource: gvr, namespace: s.key.Namespace, name: s.key.Name}
	for try := 1; ; try++ {
		live, mark, err := a.readForeign(ctx, at, s)
		if err != nil || live == nil {
			return err
		}
		ops, from := a.adoption(live, s.options)
		if len(ops) == 0 || s.dryRun {
			return nil
		}
		if mark != nil {
			from = mark.Title()
		}
		switch err := a.patchOps(ctx, at, ops); {
		case err == nil:
			s.note = "adopted from " + from
			return nil
		case isGone(err):
			return nil
		case !apierrors.IsConflict(err) || try == maxConflicts:
			return explain(err, s.key, "adopt")
		}
	}
}

// patchOps sends the operations of a JSON patch.
func (a *app) patchOps(ctx context.Context, at endpoint, ops []any) error {
	text, err := manifest.AppendCanonical(nil, ops)
	if err != nil {
		return err
	}
	_, err = a.kube().patch(ctx, patch{endpoint: at, kind: types.JSONPatchType, body: text, manager: a.e.Manager}, nil)
	return err
}

// mayAdopt reports whether an object that is about to be written may have been
// applied by others.
func (a *app) mayAdopt(x *object, s *sending) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.problem != nil || inHub(s.key) || x.record != nil {
		return false
	}
	return !x.live.known || x.live.found && (x.live.inherits || x.live.foreign != nil)
}

// readForeign reads an object and the mark of its former manager; a nil object
// does not exist. It fails if that manager still enforces the object.
func (a *app) readForeign(ctx context.Context, at endpoint, s *sending) (*manifest.Object, *tracking.Mark, error) {
	live, err := a.kube().get(ctx, at)
	if err != nil || live == nil {
		return nil, nil, err
	}
	if s.before == "" {
		s.before = live.GetResourceVersion() // no watch had seen it yet
	}
	a.mu.Lock()
	mark := a.foreign(live)
	a.mu.Unlock()
	if err := a.checkConflict(ctx, s, mark); err != nil {
		s.mark = mark.Title()
		return nil, nil, err
	}
	return live, mark, nil
}

// adoption returns the patch that adopts an object, and the former managers.
func (a *app) adoption(live *manifest.Object, options []string) (ops []any, from string) {
	former := func(manager string) bool {
		if hasOption(options, "ClientSideApplyMigration", "false") {
			return manager == "argocd-controller"
		}
		extra, _ := manifest.Annotation(live, "client-side-apply-migration-manager")
		return diff.Former(manager) || extra != "" && manager == extra
	}
	entries, taken := diff.Adopt(live, a.e.Manager, former)
	if len(taken) > 0 {
		ops = append(ops, map[string]any{"op": "replace", "path": "/metadata/managedFields", "value": entries})
		from = strings.Join(taken, " and ")
	}
	kept := a.e.tenantSettings().Marks == marksAnnotation || a.e.tenantSettings().Marks == marksBoth
	for _, name := range [...]string{manifest.LastApplied, tracking.ArgoAnnotation, tracking.ArgoInstallation} {
		rewritten := kept && (name == tracking.ArgoAnnotation || name == tracking.ArgoInstallation && a.installation() != "")
		if _, there := manifest.RawAnnotation(live, name); there && !rewritten {
			ops = append(ops, map[string]any{"op": "remove", "path": "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")})
		}
	}
	if len(ops) > 0 {
		ops = append(ops, map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()})
	}
	if from == "" {
		from = "another tool"
	}
	return ops, from
}

// inherits reports whether an object has annotations or field managers of tools
// that apply whole manifests.
func inherits(o *manifest.Object) bool {
	if _, there := manifest.RawAnnotation(o, manifest.LastApplied); there {
		return true
	}
	meta, _ := o.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		m, _ := e.(map[string]any)
		name, _ := m["manager"].(string)
		if sub, _ := m["subresource"].(string); sub == "" && diff.Former(name) {
			return true
		}
	}
	return false
}

// argoMemory is how long the result that the cluster has no Applications of
// Argo CD is used for writes outside of operations. An operation checks once.
const argoMemory = 10 * time.Second

// checkConflict refuses to adopt an object that another tool still enforces.
func (a *app) checkConflict(ctx context.Context, s *sending, m *tracking.Mark) error {
	if m == nil || hasOption(s.options, adoptOption, "true") {
		return nil
	}
	a.mu.Lock()
	installation, since := a.installation(), time.Now().Add(-argoMemory)
	if a.running != nil {
		since = a.running.since
	}
	a.mu.Unlock()
	if m.Tenant != "" || m.Installation != "" && m.Installation != installation {
		return belongs(*m, s.key)
	}
	if m.System != tracking.Argo {
		if b := a.e.holder(a, m.App, s.key); b != nil {
			return managed(s.key, b.title())
		}
		return nil // it belonged to an application of ours that is deleted
	}
	why, err := a.e.argoHolds(ctx, *m, since)
	if err != nil || why == "" {
		return err
	}
	return fault.With(fault.New(fault.Conflict, "%s still manages it: %s", m.Title(), why), s.key.Describe(),
		"turn off automation and take the finalizer "+argoFinalizer+" off in Argo CD, then sync again")
}

// argoHolds says why an Argo CD in this cluster would revert an adoption, or
// delete adopted objects; empty: adoption is possible. An earlier result that
// the cluster has no Applications is used if it is not older than since.
func (e *Engine) argoHolds(ctx context.Context, m tracking.Mark, since time.Time) (string, error) {
	if at := e.noArgo.Load(); at != nil && !at.Before(since) {
		return "", nil
	}
	asked := time.Now()
	gvr, err := e.inCluster(ctx, schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"})
	if fault.KindOf(err) == fault.Missing {
		e.noArgo.Store(&asked)
		return "", nil
	}
	if err != nil {
		return "", err
	}
	namespace, name := tracking.ID{App: m.App}.Application()
	list, err := e.kube.list(ctx, endpoint{resource: gvr, namespace: namespace}, metav1.ListOptions{FieldSelector: selector(m, name)})
	if apierrors.IsNotFound(err) { // it is not served any more: Argo CD's CRDs have just been removed
		e.noArgo.Store(&asked)
		return "", nil
	}
	if apierrors.IsForbidden(err) {
		return "the agent may not check whether it is still active", nil
	}
	if err != nil {
		return "", fault.Wrap(fault.Offline, err, "the API server does not say which applications Argo CD has")
	}
	for i := range list {
		if !m.Names(list[i].GetName()) {
			continue
		}
		if why := argoEnforces(&list[i]); why != "" {
			return why, nil
		}
	}
	return "", nil
}

// argoEnforces says why Argo CD would write or delete the objects of one of its
// Applications; empty: it would not.
func argoEnforces(o *unstructured.Unstructured) string {
	automated, on, _ := unstructured.NestedMap(o.Object, "spec", "syncPolicy", "automated")
	if enabled, set := automated["enabled"].(bool); on && (enabled || !set) {
		return "its Application has automation on"
	}
	for _, f := range o.GetFinalizers() {
		if strings.HasPrefix(f, argoFinalizer) {
			return "its Application has the finalizer " + f
		}
	}
	return ""
}

// selector selects one application; a name that a label has truncated is
// searched among all.
func selector(m tracking.Mark, name string) string {
	if m.Label {
		return ""
	}
	return "metadata.name=" + name
}
