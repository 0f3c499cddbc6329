package agenttest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// hookJob is a Job that runs as a hook. No kubelet runs here: tests say how
// it ends by writing its status.
func hookJob(name, hook, policy string) string {
	return fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: NS, annotations: {argocd.argoproj.io/hook: %s, argocd.argoproj.io/hook-delete-policy: %s}}
spec:
  backoffLimit: 0
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}
`, name, hook, policy)
}

// finish ends a Job that its controller has begun.
func (w *world) finish(name, condition string) {
	w.t.Helper()
	w.live(jobs, name, func(o *unstructured.Unstructured) error {
		if _, begun, _ := unstructured.NestedString(o.Object, "status", "startTime"); !begun {
			return errSame
		}
		return nil
	})
	now := metav1.Now().UTC().Format(time.RFC3339)
	first, completion := "SuccessCriteriaMet", fmt.Sprintf(`"completionTime":%q,`, now)
	if condition == "Failed" {
		first, completion = "FailureTarget", ""
	}
	text := fmt.Sprintf(`{"status":{"active":0,"ready":0,"uncountedTerminatedPods":{},%s"conditions":[{"type":%q,"status":"True","lastTransitionTime":%q,"reason":"r"},{"type":%q,"status":"True","lastTransitionTime":%q,"reason":"r"}]}}`,
		completion, first, now, condition, now)
	if _, err := w.at(jobs).Patch(w.t.Context(), name, "application/merge-patch+json", []byte(text), metav1.PatchOptions{}, "status"); err != nil {
		w.t.Fatal(err)
	}
}

func exists(*unstructured.Unstructured) error { return nil }

func TestHooks(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("HOOK-01 HOOK-06 HOOK-09 ENG-01 hooks run in their phases, once, wait for their result, and are deleted by their policies", func(t *testing.T) {
		id := a.begin(hookJob("before", "PreSync", "HookSucceeded")+configMap("web", "red")+hookJob("after", "PostSync", "BeforeHookCreation"), nil)
		before := w.live(jobs, "before", exists)
		if got := before.GetAnnotations()["capstan.dev/hook-instance"]; got != id+"/PreSync" {
			t.Errorf("instance is %q", got)
		}
		if f := before.GetFinalizers(); !contains(f, "capstan.dev/hook-finalizer") {
			t.Errorf("a hook that runs may vanish before its result is seen: %v", f)
		}
		if _, err := w.at(configMaps).Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
			t.Error("an object was applied before the PreSync hook was done")
		}
		w.await("the hub hears what is waited for", func() bool {
			return strings.Contains(w.operations[id].GetMessage(), "before")
		})
		w.finish("before", "Complete")
		w.live(jobs, "after", exists)
		w.get(configMaps, "web")
		w.finish("after", "Complete")
		w.ended(id, "Succeeded")
		w.waitDeleted(jobs, "before")
		if f := w.get(jobs, "after").GetFinalizers(); contains(f, "capstan.dev/hook-finalizer") {
			t.Errorf("a hook that stays is still held: %v", f)
		}
		a.synced()
	})
	t.Run("HOOK-06 BeforeHookCreation creates the hook again, HOOK-11 a failure stops the sync", func(t *testing.T) {
		old := w.get(jobs, "after").GetUID()
		id := a.begin(hookJob("after", "PreSync", "BeforeHookCreation")+configMap("web", "blue")+hookJob("sorry", "SyncFail", "HookSucceeded"), nil)
		w.live(jobs, "after", func(o *unstructured.Unstructured) error {
			if o.GetUID() == old {
				return errSame
			}
			return nil
		})
		w.finish("after", "Failed")
		w.live(jobs, "sorry", exists)
		w.finish("sorry", "Complete")
		w.ended(id, "Failed")
		if err := data("color", "red")(w.get(configMaps, "web")); err != nil {
			t.Error(err)
		}
	})
	t.Run("SYNC-09 INV-10 a running operation is terminated and its hook is deleted", func(t *testing.T) {
		id := a.begin(hookJob("slow", "PreSync", "BeforeHookCreation")+configMap("web", "green"), nil)
		w.live(jobs, "slow", exists)
		w.append(row(linkv1.RowKind_ROW_KIND_TERMINATE, a.id, &linkv1.Terminate{OperationId: id, Actor: "alice"}))
		op := w.ended(id, "Failed")
		if !strings.Contains(op.GetMessage(), "terminated by alice") {
			t.Errorf("message is %q", op.GetMessage())
		}
		w.waitDeleted(jobs, "slow")
	})
	t.Run("INV-10 SYNC-10 a deadline ends an operation", func(t *testing.T) {
		id := a.begin(hookJob("never", "PreSync", "BeforeHookCreation")+configMap("web", "green"), func(o *linkv1.Operation) {
			o.DeadlineUnix = time.Now().Add(3 * time.Second).Unix()
		})
		op := w.ended(id, "Failed")
		if !strings.Contains(op.GetMessage(), "deadline") {
			t.Errorf("message is %q", op.GetMessage())
		}
	})
	t.Run("HOOK-05 a hook with generateName gets a name of its own", func(t *testing.T) {
		id := a.begin(strings.Replace(hookJob("gen-", "PreSync", "HookSucceeded"), "name: gen-,", "generateName: gen-,", 1)+configMap("web", "green"), nil)
		var name string
		w.await("the hook is told", func() bool {
			for _, r := range w.operations[id].GetResults() {
				if r.GetHookType() == "PreSync" {
					name = r.GetName()
				}
			}
			return strings.HasPrefix(name, "gen-0123456-presync-")
		})
		w.live(jobs, name, exists)
		w.finish(name, "Complete")
		w.ended(id, "Succeeded")
	})
}

func TestRestart(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("FT-A1 INV-2 an operation continues after a restart and runs no hook twice", func(t *testing.T) {
		id := a.begin(hookJob("first", "PreSync", "HookSucceeded")+hookJob("second", "PreSync", "BeforeHookCreation")+configMap("web", "red"), nil)
		first, second := w.live(jobs, "first", exists).GetUID(), w.live(jobs, "second", exists).GetUID()
		w.stop()
		w.finish("first", "Complete")
		w.run()
		w.finish("second", "Complete")
		w.ended(id, "Succeeded")
		if got := w.get(jobs, "second").GetUID(); got != second {
			t.Error("the hook was made twice")
		}
		w.waitDeleted(jobs, "first")
		_ = first
		w.get(configMaps, "web")
	})
	t.Run("FT-L6 a result that the hub did not get is reported after a restart, and nothing is executed twice", func(t *testing.T) {
		w.change(func() { w.deaf = true })
		id := a.begin(configMap("web", "blue"), nil)
		w.live(configMaps, "web", data("color", "blue"))
		w.edit(configMaps, "web", "robot", `{"data":{"more":"1"}}`)
		version := w.get(configMaps, "web").GetResourceVersion()
		w.stop()
		w.change(func() { w.deaf = false })
		w.run()
		w.ended(id, "Succeeded")
		a.synced()
		if got := w.get(configMaps, "web").GetResourceVersion(); got != version {
			t.Error("the object was written again")
		}
	})
	t.Run("FT-A3 a lost directory is rebuilt from hub and cluster, nothing is pruned wrongly", func(t *testing.T) {
		a.deploy(configMap("web", "blue") + configMap("api", "blue") + configMap("old", "blue"))
		a.synced()
		// One object leaves the manifests, and its pruning is yet to come.
		a.policy.Prune = false
		w.ended(a.begin(configMap("web", "blue")+configMap("api", "blue"), func(o *linkv1.Operation) { o.Options.Prune = false }), "Succeeded")
		w.stop()
		w.state += "-new"
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		if err := w.at(configMaps).Delete(t.Context(), "api", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.apply(configMap("foreign", "red"))
		w.run()
		w.live(configMaps, "web", data("color", "blue"))
		w.live(configMaps, "api", data("color", "blue"))
		w.get(configMaps, "old")
		a.tombstones = append(a.tombstones, &linkv1.Tombstone{Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "foreign"})
		a.deploy(configMap("web", "blue") + configMap("api", "blue"))
		w.waitDeleted(configMaps, "old")
		w.get(configMaps, "foreign")
		a.synced()
	})
	t.Run("FT-A3 after the loss of its directory, what equals its manifest is Synced and recorded without a write", func(t *testing.T) {
		versions := func() string {
			return w.get(configMaps, "web").GetResourceVersion() + " " + w.get(configMaps, "api").GetResourceVersion()
		}
		before := versions()
		w.stop()
		w.state += "-again"
		w.change(func() { delete(w.fakeHub.apps, a.id) })
		w.run()
		a.synced()
		if after := versions(); after != before {
			t.Errorf("the objects were written: %s, before %s", after, before)
		}
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "web", data("color", "blue"))
	})
}

func TestOrder(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("ENG-02 waves go in order and wait for health", func(t *testing.T) {
		claim := `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, namespace: NS, annotations: {argocd.argoproj.io/sync-wave: "-1"}}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}
`
		id := a.begin(claim+configMap("web", "red"), nil)
		w.await("the hub hears what is waited for", func() bool { return strings.Contains(w.operations[id].GetMessage(), "disk") })
		if _, err := w.at(configMaps).Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
			t.Error("a later wave was applied before the earlier one was healthy")
		}
		claims := configMaps
		claims.Resource = "persistentvolumeclaims"
		if _, err := w.at(claims).Patch(t.Context(), "disk", "application/merge-patch+json", []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		w.ended(id, "Succeeded")
		w.get(configMaps, "web")
	})
	t.Run("SEC-D12 ENG-16 a project that is restricted while an operation waits for a wave stops what comes after it", func(t *testing.T) {
		b := w.application()
		claims := configMaps
		claims.Resource = "persistentvolumeclaims"
		id := b.begin(`---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: tightened, namespace: NS, annotations: {argocd.argoproj.io/sync-wave: "-1"}}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}
`+configMap("later", "red"), nil)
		w.await("the first wave is waited for", func() bool { return strings.Contains(w.operations[id].GetMessage(), "tightened") })
		b.policy.Limits = &linkv1.Limits{Namespaces: []string{w.namespace}, NamespacedDeny: []*linkv1.KindRule{{Kind: "ConfigMap"}}}
		w.append(b.stateRow())
		w.await("the agent has the restriction", func() bool { return w.ack >= uint64(len(w.rows)) })
		if _, err := w.at(claims).Patch(t.Context(), "tightened", "application/merge-patch+json", []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		op := w.ended(id, "Failed")
		if got := messageOf(op, "later"); !strings.Contains(got, "project default does not permit objects of kind ConfigMap") {
			t.Errorf("the message is %q", got)
		}
		if _, err := w.at(configMaps).Get(t.Context(), "later", metav1.GetOptions{}); err == nil {
			t.Error("an object that the project no longer permits was written")
		}
	})
	t.Run("ENG-05 SYNC-26 a namespace, a kind and an object of it in one operation", func(t *testing.T) {
		b := w.application()
		group := strings.ReplaceAll(w.namespace, "-", "") + ".example.com"
		id := b.begin(`---
apiVersion: `+group+`/v1
kind: Widget
metadata: {name: one, namespace: `+w.namespace+`-made}
spec: {size: 3}
---
apiVersion: v1
kind: Namespace
metadata: {name: `+w.namespace+`-made}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.`+group+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]
`, nil)
		w.ended(id, "Succeeded")
		b.synced()
	})
	t.Run("ENG-15 a kind that is not served fails clearly", func(t *testing.T) {
		c := w.application()
		op := w.ended(c.begin("---\napiVersion: no.such.group/v1\nkind: Nothing\nmetadata: {name: x, namespace: NS}\n"+configMap("beside", "red"), nil), "Failed")
		if got := messageOf(op, "x"); !strings.Contains(got, "does not serve kind Nothing of no.such.group/v1") {
			t.Errorf("message is %q", got)
		}
	})
	t.Run("INV-4 FT an operation of an older generation is refused", func(t *testing.T) {
		d := w.application()
		d.deploy(configMap("fenced", "red"))
		d.fence = d.generation
		op := w.ended(d.begin(configMap("fenced", "blue"), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "superseded") {
			t.Errorf("message is %q", op.GetMessage())
		}
		if err := data("color", "red")(w.get(configMaps, "fenced")); err != nil {
			t.Error(err)
		}
	})
	t.Run("TRK-07 an object has one application", func(t *testing.T) {
		d, e := w.application(), w.application()
		d.deploy(configMap("mine", "red"))
		op := w.ended(e.begin(configMap("mine", "blue"), nil), "Failed")
		if got := messageOf(op, "mine"); !strings.Contains(got, "managed by application "+d.name) {
			t.Errorf("message is %q", got)
		}
		if err := data("color", "red")(w.get(configMaps, "mine")); err != nil {
			t.Error(err)
		}
		e.await("OutOfSync with a warning", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "OutOfSync" && len(r.GetNotes()) == 1 && r.GetNotes()[0].GetType() == "SharedResourceWarning"
		})
	})
}
