package agenttest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// note reports whether a report has a condition of a type that speaks of something.
func note(r *linkv1.AppReport, kind, about string) bool {
	for _, n := range r.GetNotes() {
		if n.GetType() == kind && strings.Contains(n.GetMessage(), about) {
			return true
		}
	}
	return false
}

func TestOwnership(t *testing.T) {
	w := newWorld(t)
	both := configMap("both", "red")
	t.Run("TRK-07 FT-O2 a second application is refused, with a condition, and with FailOnSharedResource fails before it changes anything", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.deploy(both)
		b.policy.SyncOptions = []string{"FailOnSharedResource=true"}
		op := w.ended(b.begin(configMap("own", "blue")+configMap("both", "blue"), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "managed by application "+a.name) {
			t.Errorf("message is %q", op.GetMessage())
		}
		if _, err := w.at(configMaps).Get(t.Context(), "own", metav1Get); err == nil {
			t.Error("something was changed")
		}
		b.await("OutOfSync with SharedResourceWarning", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "OutOfSync" && note(r, "SharedResourceWarning", "both")
		})
		t.Run("TRK-07 what one application prunes is handed over to the other that lists it", func(t *testing.T) {
			uid := w.get(configMaps, "both").GetUID()
			op := a.deploy(configMap("rest", "red"))
			if got := statusOf(op, "both"); got == "Pruned" {
				t.Errorf("both is %s: %s", got, messageOf(op, "both"))
			}
			b.await("no warning any more", func(r *linkv1.AppReport) bool { return len(r.GetNotes()) == 0 })
			b.deploy(configMap("own", "blue") + configMap("both", "blue"))
			if got := w.get(configMaps, "both"); got.GetUID() != uid || data("color", "blue")(got) != nil {
				t.Errorf("it was deleted on the way: %v", got.Object)
			}
			b.synced()
		})
	})
	t.Run("TRK-07 deleting an application never removes what another one lists", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.deploy(configMap("kept", "red") + configMap("goes", "red"))
		w.ended(b.begin(configMap("kept", "blue"), nil), "Failed")
		uid := w.get(configMaps, "kept").GetUID()
		id, op := a.operation(func(o *linkv1.Operation) { o.Kind = linkv1.OperationKind_OPERATION_KIND_DELETE })
		w.append(op)
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "goes")
		b.deploy(configMap("kept", "blue"))
		if got := w.get(configMaps, "kept"); got.GetUID() != uid || data("color", "blue")(got) != nil {
			t.Errorf("it was deleted on the way: %v", got.Object)
		}
	})
	t.Run("TRK-07 what moves between applications in one batch is not deleted on the way", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.deploy(configMap("moves", "red") + configMap("stays", "red"))
		uid := w.get(configMaps, "moves").GetUID()
		next := configMap("stays", "red")
		a.addTombstones(a.target, next)
		a.target = a.snapshot(next)
		a.accepted = a.target
		ida, stateA := "", a.stateRow()
		ida, opA := a.operation(nil)
		b.target = b.snapshot(configMap("moves", "blue"))
		b.accepted = b.target
		stateB := b.stateRow()
		idb, opB := b.operation(nil)
		w.append(stateA, opA, stateB, opB)
		w.ended(ida, "Succeeded")
		w.await("operation of the other ended", func() bool { return w.finals[idb] > 0 })
		if got := w.get(configMaps, "moves"); got.GetUID() != uid {
			t.Error("it was deleted and made anew")
		}
		b.deploy(configMap("moves", "blue"))
		b.synced()
	})
	t.Run("TRK-06 a CustomResourceDefinition is not marked", func(t *testing.T) {
		a := w.application()
		a.deploy(definition("widgets"))
		o, err := shared.Dynamic().Resource(definitions).Get(t.Context(), "widgets.own.example.com", metav1Get)
		if err != nil {
			t.Fatal(err)
		}
		if len(o.GetAnnotations()) != 0 {
			t.Errorf("annotations %v", o.GetAnnotations())
		}
		a.synced()
		id, op := a.operation(func(o *linkv1.Operation) { o.Kind = linkv1.OperationKind_OPERATION_KIND_DELETE })
		w.append(op)
		w.ended(id, "Succeeded")
		if _, err := shared.Dynamic().Resource(definitions).Get(t.Context(), "widgets.own.example.com", metav1Get); err != nil {
			t.Errorf("it went with its application: %v", err)
		}
	})
	t.Run("TRK-08 a removed tracking id is written again", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("marked", "red"))
		w.edit(configMaps, "marked", "kubectl-edit", `{"metadata":{"annotations":{"capstan.dev/tracking-id":null}}}`)
		w.live(configMaps, "marked", func(o *unstructured.Unstructured) error {
			if got := o.GetAnnotations()["capstan.dev/tracking-id"]; got != "argocd_"+a.name+":/ConfigMap:"+w.namespace+"/marked" {
				return fmt.Errorf("the id is %q", got)
			}
			return nil
		})
	})
}

// define makes a kind and waits until it is served; it goes with the test.
func (w *world) define(yaml, name string) {
	w.t.Helper()
	w.apply(yaml)
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	defer cancel()
	if _, err := shared.WaitFor(ctx, definitions, "", name, func(o *unstructured.Unstructured) error {
		all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range all {
			if m, _ := c.(map[string]any); m["type"] == "Established" && m["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("it is not served yet")
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = shared.Dynamic().Resource(definitions).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func definition(plural string) string {
	return `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + `.own.example.com}
spec:
  group: own.example.com
  scope: Namespaced
  names: {plural: ` + plural + `, singular: one` + plural + `, kind: One` + plural + `}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
}

const argoCRD = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {plural: applications, singular: application, kind: Application}
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// asArgo applies manifests as Argo CD does by client-side apply, with its marks.
func (w *world) asArgo(t *testing.T, name, app, extra string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": w.namespace, "annotations": map[string]any{
			"argocd.argoproj.io/tracking-id":                   app + ":/ConfigMap:" + w.namespace + "/" + name,
			"kubectl.kubernetes.io/last-applied-configuration": "{}",
		}},
		"data": map[string]any{"color": "red", "old": "x"},
	}}
	if extra != "" {
		o.SetAnnotations(map[string]string{
			"argocd.argoproj.io/tracking-id": app + ":/ConfigMap:" + w.namespace + "/" + name, "argocd.argoproj.io/installation-id": extra,
		})
	}
	made, err := w.at(configMaps).Create(t.Context(), o, metav1.CreateOptions{FieldManager: "argocd-controller"})
	if err != nil {
		t.Fatal(err)
	}
	w.caughtUp()
	return made
}

// caughtUp waits until the agent has seen all ConfigMaps that there are: it
// heals an edit that was made after them.
func (w *world) caughtUp() {
	w.t.Helper()
	if w.marker == nil {
		w.marker = w.application()
		w.marker.deploy(configMap("marker", "red"))
	}
	w.edit(configMaps, "marker", "kubectl-edit", `{"data":{"color":"black"}}`)
	w.live(configMaps, "marker", data("color", "red"))
}

func TestAdoption(t *testing.T) {
	w := newWorld(t)
	full := func(name string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: NS}\ndata: {color: red, old: x}\n"
	}
	t.Run("TRK-01 what Argo CD applied is adopted: its marks are removed, its fields become ours, the content stays", func(t *testing.T) {
		before := w.asArgo(t, "guest", "guestbook", "")
		a := w.application()
		op := a.deploy(full("guest"))
		if got := messageOf(op, "guest"); !strings.Contains(got, "adopted from Argo CD application guestbook") {
			t.Errorf("message is %q", got)
		}
		got := w.get(configMaps, "guest")
		if got.GetUID() != before.GetUID() || got.GetGeneration() != before.GetGeneration() {
			t.Error("it was made anew")
		}
		for name := range got.GetAnnotations() {
			if strings.HasPrefix(name, "argocd.argoproj.io/") || strings.HasPrefix(name, "kubectl.kubernetes.io/") {
				t.Errorf("annotation %s is left", name)
			}
		}
		for _, e := range got.GetManagedFields() {
			if e.Manager == "argocd-controller" {
				t.Error("Argo CD still owns fields of it")
			}
		}
		a.synced()
		t.Run("TRK-01 a field that leaves the manifests after an adoption leaves the object", func(t *testing.T) {
			a.deploy(configMap("guest", "red"))
			if _, there, _ := unstructured.NestedString(w.get(configMaps, "guest").Object, "data", "old"); there {
				t.Error("the field is still there")
			}
		})
	})
	t.Run("TRK-01 an adoption drops what the manifests never had", func(t *testing.T) {
		w.asArgo(t, "slim", "guestbook", "")
		a := w.application()
		a.deploy(configMap("slim", "red"))
		if _, there, _ := unstructured.NestedString(w.get(configMaps, "slim").Object, "data", "old"); there {
			t.Error("a field of Argo CD's last apply is left")
		}
	})
	t.Run("SYNC-23 what kubectl applied is adopted, unless that is disabled", func(t *testing.T) {
		for name, option := range map[string]string{"moved": "", "stayed": "ClientSideApplyMigration=false"} {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": w.namespace},
				"data": map[string]any{"color": "red", "old": "x"},
			}}
			if _, err := w.at(configMaps).Create(t.Context(), o, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
				t.Fatal(err)
			}
			w.caughtUp()
			a := w.application()
			if option != "" {
				a.policy.SyncOptions = []string{option}
			}
			a.deploy(configMap(name, "red"))
			_, there, _ := unstructured.NestedString(w.get(configMaps, name).Object, "data", "old")
			if there != (option != "") {
				t.Errorf("%s: the field is there: %v", name, there)
			}
		}
	})
	t.Run("TRK-05 an object of another installation is not changed without a request", func(t *testing.T) {
		w.asArgo(t, "north", "guestbook", "north")
		a := w.application()
		op := w.ended(a.begin(configMap("north", "blue"), nil), "Failed")
		if got := messageOf(op, "north"); !strings.Contains(got, "installation north") {
			t.Errorf("message is %q", got)
		}
		if err := data("color", "red")(w.get(configMaps, "north")); err != nil {
			t.Error(err)
		}
		a.await("SharedResourceWarning", func(r *linkv1.AppReport) bool { return note(r, "SharedResourceWarning", "installation north") })
		a.policy.SyncOptions = []string{"Adopt=true"}
		a.deploy(configMap("north", "blue"))
		a.await("no warning", func(r *linkv1.AppReport) bool { return len(r.GetNotes()) == 0 })
	})
	t.Run("TRK-01 adoption is refused while Argo CD would revert it", func(t *testing.T) {
		w.define(argoCRD, "applications.argoproj.io")
		argo := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
		live := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
			"metadata": map[string]any{"name": "live", "namespace": w.namespace, "finalizers": []any{"resources-finalizer.argocd.argoproj.io"}},
			"spec":     map[string]any{"syncPolicy": map[string]any{"automated": map[string]any{}}},
		}}
		if _, err := shared.Dynamic().Resource(argo).Namespace(w.namespace).Create(t.Context(), live, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.asArgo(t, "fought", "live", "")
		a := w.application()
		for _, step := range []struct{ why, patch string }{
			{"automation on", `{"spec":{"syncPolicy":null}}`},
			{"the finalizer", `{"metadata":{"finalizers":null}}`},
		} {
			op := w.ended(a.begin(configMap("fought", "blue"), nil), "Failed")
			if got := messageOf(op, "fought"); !strings.Contains(got, step.why) {
				t.Errorf("message is %q, want %q", got, step.why)
			}
			if _, err := shared.Dynamic().Resource(argo).Namespace(w.namespace).Patch(t.Context(), "live", types.MergePatchType, []byte(step.patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		a.deploy(configMap("fought", "blue"))
		a.synced()
	})
	t.Run("TRK-07 what Argo CD adopts again is reported, and not pruned", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("contested", "red") + configMap("other", "red"))
		w.edit(configMaps, "contested", "argocd-controller", fmt.Sprintf(`{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"book:/ConfigMap:%s/contested"}}}`, w.namespace))
		a.await("SharedResourceWarning", func(r *linkv1.AppReport) bool {
			return note(r, "SharedResourceWarning", "Argo CD application book too")
		})
		op := a.deploy(configMap("other", "red"))
		if got := messageOf(op, "contested"); !strings.Contains(got, "tracked by Argo CD application book") {
			t.Errorf("message is %q", got)
		}
		w.get(configMaps, "contested")
	})
}
