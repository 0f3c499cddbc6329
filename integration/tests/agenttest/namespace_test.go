package agenttest_test

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// dressed is an application that manages labels and annotations of its
// namespace, as the hub gives them: with the state and with each operation.
func (w *world) dressed(labels, annotations map[string]string) (*application, func(*linkv1.Operation)) {
	a := w.application()
	a.policy.SyncOptions = []string{"CreateNamespace=true"}
	a.policy.NamespaceLabels, a.policy.NamespaceAnnotations = labels, annotations
	return a, func(o *linkv1.Operation) {
		o.Options.NamespaceLabels, o.Options.NamespaceAnnotations = labels, annotations
	}
}

// shows waits until a namespace has all of these labels and annotations.
func (w *world) shows(name string, labels, annotations map[string]string) {
	w.t.Helper()
	w.eventually("the namespace has what is managed", func() bool {
		ns, err := shared.Dynamic().Resource(namespaces).Get(w.t.Context(), name, metav1Get)
		return err == nil && ns.GetDeletionTimestamp() == nil && has(ns.GetLabels(), labels) && has(ns.GetAnnotations(), annotations)
	})
}

func has(all, some map[string]string) bool {
	merged := maps.Clone(all)
	maps.Copy(merged, some)
	return maps.Equal(merged, all)
}

func (w *world) touch(name, patch string) {
	w.t.Helper()
	_, err := shared.Dynamic().Resource(namespaces).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestManagedNamespace(t *testing.T) {
	w := newWorld(t)
	labels, notes := map[string]string{"team": "shop"}, map[string]string{"note": "hello"}
	drift := `{"metadata":{"labels":{"team":null},"annotations":{"note":"bye"}}}`
	t.Run("SYNC-27 drift makes the application OutOfSync, and the next sync corrects it", func(t *testing.T) {
		a, with := w.dressed(labels, notes)
		a.policy.Automated, a.policy.SelfHeal = false, false
		w.ended(a.begin(configMap("inside", "red"), with), "Succeeded")
		a.synced()
		w.touch(w.namespace, drift)
		a.await("the namespace differs", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "OutOfSync" && len(r.GetWarnings()) == 1 &&
				r.GetWarnings()[0] == "namespace "+w.namespace+": metadata.labels.team, metadata.annotations.note"
		})
		id, op := a.operation(with)
		w.append(op)
		w.ended(id, "Succeeded")
		a.synced()
		w.shows(w.namespace, labels, notes)
	})
	t.Run("SYNC-27 what is no longer managed is removed with the next sync", func(t *testing.T) {
		a, with := w.dressed(map[string]string{"tier": "x"}, nil)
		a.policy.SelfHeal = false
		w.ended(a.begin(configMap("less", "red"), func(o *linkv1.Operation) {
			o.Options.NamespaceLabels = map[string]string{"tier": "x", "old": "y"}
		}), "Succeeded")
		id, op := a.operation(with)
		w.append(op)
		w.ended(id, "Succeeded")
		ns, err := shared.Dynamic().Resource(namespaces).Get(t.Context(), w.namespace, metav1Get)
		if err != nil || ns.GetLabels()["old"] != "" || ns.GetLabels()["tier"] != "x" || ns.GetLabels()["team"] != "shop" {
			t.Errorf("labels %v (%v)", ns.GetLabels(), err)
		}
	})
	t.Run("SYNC-27 self-heal reverts labels and annotations", func(t *testing.T) {
		a, with := w.dressed(labels, notes)
		w.ended(a.begin(configMap("healed", "red"), with), "Succeeded")
		a.synced()
		w.touch(w.namespace, drift)
		w.shows(w.namespace, labels, notes)
		a.synced()
	})
	t.Run("SYNC-27 a deleted namespace is created again with its labels", func(t *testing.T) {
		real := w.namespace
		w.namespace += "-again"
		defer func() { w.namespace = real }()
		a, with := w.dressed(labels, notes)
		w.ended(a.begin(configMap("inside", "red"), with), "Succeeded")
		first, err := shared.Dynamic().Resource(namespaces).Get(t.Context(), w.namespace, metav1Get)
		if err != nil {
			t.Fatal(err)
		}
		if err := shared.Dynamic().Resource(namespaces).Delete(t.Context(), w.namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.live(configMaps, "inside", data("color", "red"))
		w.eventually("it is another namespace with its labels", func() bool {
			ns, err := shared.Dynamic().Resource(namespaces).Get(t.Context(), w.namespace, metav1Get)
			return err == nil && ns.GetUID() != first.GetUID() && has(ns.GetLabels(), labels) && has(ns.GetAnnotations(), notes)
		})
		a.synced()
	})
	t.Run("SYNC-27 two applications manage one namespace", func(t *testing.T) {
		a, withA := w.dressed(map[string]string{"one": "a", "both": "a"}, nil)
		b, withB := w.dressed(map[string]string{"two": "b", "both": "b"}, nil)
		w.ended(a.begin(configMap("of-a", "red"), withA), "Succeeded")
		w.ended(b.begin(configMap("of-b", "red"), withB), "Succeeded")
		all := map[string]string{"one": "a", "two": "b", "both": "a"}
		w.shows(w.namespace, all, nil)
		a.synced()
		b.await("it is told whose key counts", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "OutOfSync" && len(r.GetWarnings()) == 1 &&
				r.GetWarnings()[0] == "namespace "+w.namespace+": the label both is set otherwise by application "+a.name+" of this cluster, which counts"
		})
		w.touch(w.namespace, `{"metadata":{"labels":{"one":null,"two":null,"both":"c"}}}`)
		w.shows(w.namespace, all, nil)
		a.synced()
	})
	t.Run("SYNC-27 a Namespace manifest wins, of the application itself and of another one", func(t *testing.T) {
		name := w.namespace + "-declared"
		real := w.namespace
		w.namespace = name
		defer func() { w.namespace = real }()
		a, with := w.dressed(map[string]string{"team": "managed"}, nil)
		w.ended(a.begin("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+", labels: {team: declared}}\n", with), "Succeeded")
		w.shows(name, map[string]string{"team": "declared"}, nil)
		a.synced()
		b, with := w.dressed(map[string]string{"team": "managed", "tier": "x"}, nil)
		w.ended(b.begin(configMap("inside", "red"), with), "Succeeded")
		w.shows(name, map[string]string{"team": "declared", "tier": "x"}, nil)
		b.await("it is told that the manifest counts", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "OutOfSync" && len(r.GetWarnings()) == 1
		})
		a.synced()
	})
}

func TestManagedNamespaceOfOwnRights(t *testing.T) {
	w := newWorldWith(t, func(w *world) { w.mode, w.scope = "namespaced", []string{w.namespace} })
	t.Run("SYNC-27 an agent of one namespace corrects its metadata with each sync", func(t *testing.T) {
		labels := map[string]string{"team": "shop"}
		a, with := w.dressed(labels, nil)
		w.ended(a.begin(configMap("inside", "red"), with), "Succeeded")
		a.synced()
		w.touch(w.namespace, `{"metadata":{"labels":{"team":null}}}`)
		id, op := a.operation(with)
		w.append(op)
		w.ended(id, "Succeeded")
		w.shows(w.namespace, labels, nil)
	})
}
