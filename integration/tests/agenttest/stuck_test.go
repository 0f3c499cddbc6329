package agenttest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

var (
	pods   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	claims = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
)

// addFinalizer puts a finalizer of somebody else on a live object.
func (w *world) addFinalizer(r schema.GroupVersionResource, name string) {
	w.t.Helper()
	w.edit(r, name, "someone", `{"metadata":{"finalizers":["example.com/hold"]}}`)
}

// free takes all finalizers away.
func (w *world) free(r schema.GroupVersionResource, name string) {
	w.t.Helper()
	w.edit(r, name, "someone", `{"metadata":{"finalizers":null}}`)
}

func TestStuck(t *testing.T) {
	w := newWorld(t)
	held := func(id, name string) {
		w.t.Helper()
		w.await("the operation says what holds "+name, func() bool {
			got := w.operations[id].GetMessage()
			return strings.Contains(got, name) && strings.Contains(got, "example.com/hold")
		})
	}
	t.Run("FT-K7 INV-10 an object whose pruning a finalizer blocks is reported with it; an operation that waits for it names it and can be terminated", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("rest", "red") + configMap("held", "red"))
		w.addFinalizer(configMaps, "held")
		w.ended(a.begin(configMap("rest", "red"), nil), "Succeeded") // of the last step nothing is waited for
		w.resource(nameOf("ConfigMap", w.namespace, "held"), func(r *linkv1.Resource) bool {
			return r.GetSync() == "OutOfSync" && strings.Contains(r.GetMessage(), "held by finalizer example.com/hold")
		})
		id := a.begin(configMap("rest", "red")+waved("later", "5"), nil) // what was pruned comes first
		held(id, "held")
		w.append(row(linkv1.RowKind_ROW_KIND_TERMINATE, a.id, &linkv1.Terminate{OperationId: id, Actor: "alice"}))
		w.ended(id, "Failed")
		w.free(configMaps, "held")
		w.waitDeleted(configMaps, "held")
		a.deploy(configMap("rest", "red"))
		a.synced()
	})
	t.Run("FT-K7 INV-10 so it is with the deletion of an application, which its deadline ends", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("rests", "red") + configMap("holds", "red"))
		w.addFinalizer(configMaps, "holds")
		a.accepted, a.target = nil, nil
		state := a.stateRow()
		id, op := a.operation(func(o *linkv1.Operation) {
			o.Kind, o.Snapshot = linkv1.OperationKind_OPERATION_KIND_DELETE, nil
			o.DeadlineUnix = time.Now().Add(8 * time.Second).Unix() // time enough to begin, and to say what holds it
		})
		w.append(state, op)
		held(id, "holds")
		if got := w.ended(id, "Failed").GetMessage(); !strings.Contains(got, "deadline") {
			t.Errorf("message is %q", got)
		}
		id, op = a.operation(func(o *linkv1.Operation) {
			o.Kind, o.Snapshot = linkv1.OperationKind_OPERATION_KIND_DELETE, nil
		})
		w.append(op)
		held(id, "holds")
		w.free(configMaps, "holds")
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "rests")
	})
	t.Run("FT-K7 a volume claim in use is deleted when it is released", func(t *testing.T) {
		a := w.application()
		claim := "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: used, namespace: NS}\nspec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}\n"
		id := a.begin(configMap("beside-claim", "red")+claim, func(o *linkv1.Operation) {
			o.Options.SyncOptions = []string{"StepTimeout=20s"}
		})
		w.live(claims, "used", exists)
		if _, err := w.at(claims).Patch(t.Context(), "used", "application/merge-patch+json", []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		w.ended(id, "Succeeded")
		w.apply("---\napiVersion: v1\nkind: Pod\nmetadata: {name: user, namespace: NS}\nspec: {nodeName: nowhere, containers: [{name: c, image: c}], volumes: [{name: v, persistentVolumeClaim: {claimName: used}}]}\n")
		w.ended(a.begin(configMap("beside-claim", "red"), nil), "Succeeded")
		w.resource(nameOf("PersistentVolumeClaim", w.namespace, "used"), func(r *linkv1.Resource) bool {
			return strings.Contains(r.GetMessage(), "kubernetes.io/pvc-protection")
		})
		none := int64(0)
		if err := w.at(pods).Delete(t.Context(), "user", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
			t.Fatal(err)
		}
		w.waitDeleted(claims, "used")
		a.synced()
	})
	t.Run("FT-K7 a namespace that does not end is one clear sentence", func(t *testing.T) {
		real := w.namespace
		w.namespace += "-ending"
		defer func() { w.namespace = real }()
		w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: NS}\n" + configMap("holder", "red"))
		w.addFinalizer(configMaps, "holder")
		defer w.free(configMaps, "holder")
		if err := shared.Dynamic().Resource(namespaces).Delete(t.Context(), w.namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		a := w.application()
		a.policy.SyncOptions = []string{"CreateNamespace=true"}
		op := w.ended(a.begin(configMap("web", "red"), nil), "Failed")
		if got := messageOf(op, "web"); !strings.Contains(got, "being terminated") {
			t.Errorf("message is %q", got)
		}
	})
}

func TestByHand(t *testing.T) {
	w := newWorld(t)
	t.Run("FT-K8 objects that are deleted and edited by hand in the middle of a sync match the manifests afterwards", func(t *testing.T) {
		a := w.application()
		id := a.begin(configMap("first", "red")+configMap("second", "red")+hookJob("middle", "PostSync", "BeforeHookCreation")+waved("third", "1"), nil)
		w.live(jobs, "middle", exists)
		if err := w.at(configMaps).Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.edit(configMaps, "second", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.edit(configMaps, "third", "robot", `{"data":{"color":"black"}}`)
		w.finish("middle", "Complete")
		w.ended(id, "Succeeded")
		for _, name := range []string{"first", "second", "third"} {
			w.live(configMaps, name, data("color", "red"))
		}
		a.synced()
	})
	t.Run("FT-K8 a namespace that is deleted in the middle of a sync is created again, with all its objects", func(t *testing.T) {
		real := w.namespace
		w.namespace += "-lost"
		defer func() { w.namespace = real }()
		a := w.application()
		a.policy.SyncOptions = []string{"CreateNamespace=true"}
		hook := strings.Replace(hookJob("gate", "Sync", "BeforeHookCreation"), "metadata: {", "metadata: {", 1)
		hook = inNamespace(strings.Replace(hook, "argocd.argoproj.io/hook: Sync", "argocd.argoproj.io/hook: Sync, argocd.argoproj.io/sync-wave: '1'", 1), real)
		id := a.begin(configMap("first", "red")+hook+strings.Replace(waved("last", "2"), "NS", "NS", 1), nil)
		w.live(configMaps, "first", exists)
		lost := w.namespace
		w.namespace = real
		w.live(jobs, "gate", exists)
		if err := shared.Dynamic().Resource(namespaces).Delete(t.Context(), lost, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.namespace = ""
		w.waitDeleted(namespaces, lost)
		w.namespace = real
		w.finish("gate", "Complete")
		w.ended(id, "Succeeded")
		w.namespace = lost
		w.live(configMaps, "last", data("color", "red"))
		w.live(configMaps, "first", data("color", "red"))
		a.synced()
	})
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	t.Run("FT-K9 a quota, a limit of pod sizes and a security standard are reported only for the objects that they refuse", func(t *testing.T) {
		real := w.namespace
		w.namespace += "-small"
		defer func() { w.namespace = real }()
		w.apply(`---
apiVersion: v1
kind: Namespace
metadata: {name: NS, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: NS}
spec: {hard: {secrets: "0"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: small, namespace: NS}
spec: {limits: [{type: Container, max: {cpu: "1"}, default: {cpu: "1"}}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: NS}
`)
		quotas := schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
		w.live(quotas, "few", func(o *unstructured.Unstructured) error {
			if _, counted, _ := unstructured.NestedString(o.Object, "status", "hard", "secrets"); !counted {
				return errSame
			}
			return nil
		})
		w.eventually("the quota counts", func() bool { // what decides follows its status a moment later
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "probe"}}}
			_, err := w.at(secrets).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), "exceeded quota")
		})
		pod := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: NS}\nspec: {hostNetwork: %v, containers: [{name: c, image: c, resources: {limits: {cpu: %q}, requests: {cpu: 10m}}}]}\n"
		a := w.application()
		for name, refused := range map[string][2]string{
			"over":  {"---\napiVersion: v1\nkind: Secret\nmetadata: {name: over, namespace: NS}\nstringData: {password: hunter2}\n", "exceeded quota"},
			"host":  {fmt.Sprintf(pod, "host", true, "1"), "violates PodSecurity"},
			"large": {fmt.Sprintf(pod, "large", false, "8"), "maximum cpu usage per Container is 1"},
		} {
			op := w.ended(a.begin(configMap("fine", name)+refused[0], nil), "Failed")
			if got := messageOf(op, name); !strings.Contains(got, refused[1]) || strings.Contains(got, "hunter2") {
				t.Errorf("message of %s is %q", name, got)
			}
			if got := statusOf(op, "fine"); name != "over" && got != "Synced" { // Secrets come before ConfigMaps
				t.Errorf("beside %s the object that nothing is held against is %s", name, got)
			}
		}
	})
	t.Run("FT-K12 SYNC-10 health that is never reached ends the step at its limit, with the object and the reason, and later steps are not begun", func(t *testing.T) {
		a := w.application()
		a.policy.SyncOptions = []string{"StepTimeout=2s"}
		never := strings.ReplaceAll(webDeployment, "name: web, namespace", "name: never, namespace")
		op := w.ended(a.begin(never+strings.ReplaceAll(waved("after-never", "1"), "red", "blue"), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "took longer than its limit of 2s") || !strings.Contains(op.GetMessage(), "never") {
			t.Errorf("message is %q", op.GetMessage())
		}
		if _, err := w.at(configMaps).Get(t.Context(), "after-never", metav1Get); err == nil {
			t.Error("the next step was begun")
		}
	})
	t.Run("FT-K12 a hook whose pod is lost goes on with its next pod, once", func(t *testing.T) {
		a := w.application()
		hook := strings.Replace(hookJob("evicted", "PreSync", "BeforeHookCreation"), "backoffLimit: 0", "backoffLimit: 3", 1)
		id := a.begin(hook+configMap("after-evicted", "red"), nil)
		uid := w.live(jobs, "evicted", exists).GetUID()
		pod := w.podOf("evicted", "")
		none := int64(0)
		if err := w.at(pods).Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
			t.Fatal(err)
		}
		w.podOf("evicted", pod)
		w.finish("evicted", "Complete")
		w.ended(id, "Succeeded")
		if got := w.get(jobs, "evicted").GetUID(); got != uid {
			t.Error("the hook was made twice")
		}
	})
}

// podOf waits for a pod of a Job that has another name than one that is gone.
func (w *world) podOf(job, but string) string {
	w.t.Helper()
	list, err := w.at(pods).Watch(w.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	if err != nil {
		w.t.Fatal(err)
	}
	defer list.Stop()
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	for {
		select {
		case e, open := <-list.ResultChan():
			if !open {
				w.t.Fatal("the watch for the pod ended")
			}
			if o, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == "ADDED" && o.GetName() != but {
				return o.GetName()
			}
		case <-limit.C:
			w.t.Fatal("no pod came")
		}
	}
}
