package agenttest_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// annotated gives a manifest sync options of its own.
func annotated(yaml, options string) string {
	return strings.Replace(yaml, "namespace: NS", "namespace: NS, annotations: {argocd.argoproj.io/sync-options: '"+options+"'}", 1)
}

// approve tells the agent that a person has approved deletions now.
func (a *application) approve() {
	a.approved = time.Now().UnixNano()
	a.w.append(a.stateRow())
}

// waits waits until an operation asks for approval.
func (w *world) waits(id string) string {
	w.t.Helper()
	w.await("the operation waits for approval", func() bool {
		return strings.Contains(w.operations[id].GetMessage(), "waiting for approval to delete")
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.operations[id].GetMessage()
}

func TestApproval(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	ask := annotated(configMap("ask", "red"), "Prune=confirm,Delete=confirm")
	a.deploy(configMap("web", "red") + ask)
	t.Run("SYNC-11 SYNC-13 Prune=confirm waits, through a restart of the agent, for an approval", func(t *testing.T) {
		id := a.begin(configMap("web", "blue"), nil)
		if got := w.waits(id); !strings.Contains(got, "ConfigMap "+w.namespace+"/ask") {
			t.Errorf("message is %q", got)
		}
		w.stop()
		w.run()
		w.get(configMaps, "ask")
		a.approve()
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "ask")
		a.synced()
	})
	t.Run("SYNC-13 an approval from before the operation does not count", func(t *testing.T) {
		a.deploy(configMap("web", "blue") + ask)
		a.approve()
		id := a.begin(configMap("web", "red"), nil)
		w.waits(id)
		w.append(row(linkv1.RowKind_ROW_KIND_TERMINATE, a.id, &linkv1.Terminate{OperationId: id, Actor: "alice"}))
		w.ended(id, "Failed")
		w.get(configMaps, "ask")
	})
	t.Run("INV-3 more prunes than the policy allows wait before anything is changed", func(t *testing.T) {
		b := w.application()
		b.policy.PruneLimitPercent = 50
		var all strings.Builder
		for i := range 4 {
			all.WriteString(configMap(fmt.Sprintf("many-%d", i), "red"))
		}
		b.deploy(all.String())
		id := b.begin(configMap("many-0", "blue"), nil)
		if got := w.waits(id); !strings.Contains(got, "it would delete 3 of 4 objects, and more than 50 % need approval") {
			t.Errorf("message is %q", got)
		}
		if err := data("color", "red")(w.get(configMaps, "many-0")); err != nil {
			t.Error(err)
		}
		b.approve()
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "many-3")
		w.live(configMaps, "many-0", data("color", "blue"))
		b.deploy(configMap("many-0", "red") + configMap("many-9", "red")) // nothing is pruned
	})
	t.Run("DEL-04 Delete=confirm holds the deletion of the application", func(t *testing.T) {
		a.deploy(configMap("web", "red") + ask)
		id := a.remove(nil)
		w.waits(id)
		w.get(configMaps, "web")
		a.approve()
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "ask")
	})
}

// remove begins the deletion of the application, as the hub does: with a
// state that wants nothing but the hooks of the deletion.
func (a *application) remove(hooks func(*linkv1.ObjectRef) bool, options ...string) string {
	a.w.t.Helper()
	was := a.target
	a.accepted, a.target = nil, nil
	if hooks != nil {
		a.target = &linkv1.SnapshotRef{Id: was.GetId(), Revision: was.GetRevision()}
		for _, o := range was.GetObjects() {
			if hooks(o) {
				a.target.Objects = append(a.target.Objects, o)
			}
		}
	}
	state := a.stateRow()
	id, op := a.operation(func(o *linkv1.Operation) {
		o.Kind, o.Options.SyncOptions = linkv1.OperationKind_OPERATION_KIND_DELETE, options
		if hooks == nil {
			o.Snapshot = nil
		}
	})
	a.w.append(state, op)
	return id
}

func TestDeletionHooks(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red") + hookJob("bye", "PreDelete", "HookSucceeded") + hookJob("farewell", "PostDelete", "HookSucceeded"))
	deletion := func(o *linkv1.ObjectRef) bool { return o.GetHook() == "PreDelete" || o.GetHook() == "PostDelete" }
	t.Run("HOOK-16 hooks of the deletion do not run in a sync", func(t *testing.T) {
		if _, err := w.at(jobs).Get(t.Context(), "bye", metav1Get); err == nil {
			t.Error("the PreDelete hook exists")
		}
		a.synced()
	})
	t.Run("HOOK-16 after a failed PreDelete hook every object stays", func(t *testing.T) {
		target := a.target
		id := a.remove(deletion)
		w.live(jobs, "bye", exists)
		w.finish("bye", "Failed")
		w.ended(id, "Failed")
		w.get(configMaps, "web")
		a.target = target
	})
	t.Run("HOOK-16 HOOK-17 DEL-02 PreDelete, objects, PostDelete, through kills of the agent; the failed hook is created again", func(t *testing.T) {
		old := w.live(jobs, "bye", exists).GetUID()
		id := a.remove(deletion)
		w.live(jobs, "bye", func(o *unstructured.Unstructured) error {
			if o.GetUID() == old {
				return errSame
			}
			return nil
		})
		w.get(configMaps, "web")
		w.finish("bye", "Complete")
		last := w.live(jobs, "farewell", exists).GetUID()
		w.waitDeleted(configMaps, "web")
		w.stop()
		w.run()
		w.finish("farewell", "Complete")
		w.ended(id, "Succeeded")
		w.waitDeleted(jobs, "bye")
		w.waitDeleted(jobs, "farewell")
		_ = last
	})
}

func TestOptions(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("SYNC-15 Validate=false lets unknown fields pass", func(t *testing.T) {
		odd := "---\napiVersion: v1\nkind: Service\nmetadata: {name: odd, namespace: NS}\nspec: {ports: [{port: 80}], nonsense: true}\n"
		op := w.ended(a.begin(odd, nil), "Failed")
		if got := messageOf(op, "odd"); !strings.Contains(got, "nonsense") {
			t.Errorf("message is %q", got)
		}
		a.deploy(annotated(odd, "Validate=false"))
		a.synced()
	})
	t.Run("SYNC-16 with SkipDryRunOnMissingResource a kind that is not served yet is checked when it is applied", func(t *testing.T) {
		b := w.application()
		widget := "---\napiVersion: late.example.com/v1\nkind: Late\nmetadata: {name: one, namespace: NS, annotations: {argocd.argoproj.io/sync-wave: '1'SKIP}}\n"
		op := w.ended(b.begin(configMap("first", "red")+strings.Replace(widget, "SKIP", "", 1), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "(dry run)") {
			t.Errorf("message is %q", op.GetMessage())
		}
		if _, err := w.at(configMaps).Get(t.Context(), "first", metav1Get); err == nil {
			t.Error("something was applied after a pre-flight that failed")
		}
		op = w.ended(b.begin(configMap("first", "red")+strings.Replace(widget, "SKIP", ", argocd.argoproj.io/sync-options: SkipDryRunOnMissingResource=true", 1), nil), "Failed")
		if strings.Contains(op.GetMessage(), "(dry run)") {
			t.Errorf("message is %q", op.GetMessage())
		}
		w.get(configMaps, "first")
	})
	t.Run("SYNC-17 ApplyOutOfSyncOnly is how every sync works: what is equal costs no request", func(t *testing.T) {
		b := w.application()
		b.deploy(configMap("same", "red") + configMap("other", "red"))
		b.synced()
		var patches atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "configmaps") {
				patches.Add(1)
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		b.deploy(configMap("same", "red") + configMap("other", "blue"))
		if n := patches.Load(); n != 1 {
			t.Errorf("%d objects were applied, 1 differs", n)
		}
	})
	t.Run("SYNC-18 the propagation policy of a prune is the requested one", func(t *testing.T) {
		b := w.application()
		b.policy.SyncOptions = []string{"PrunePropagationPolicy=orphan"}
		web := strings.Replace(strings.ReplaceAll(webDeployment, "web", "orphan"), "replicas: 1", "replicas: 0", 1)
		b.deploy(web + configMap("rest", "red"))
		sets := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
		named := func() []unstructured.Unstructured {
			list, err := w.at(sets).List(t.Context(), metav1.ListOptions{LabelSelector: "app=orphan"})
			if err != nil {
				t.Fatal(err)
			}
			return list.Items
		}
		w.await("its replica set is there", func() bool { return len(named()) == 1 })
		b.deploy(configMap("rest", "red"))
		w.waitDeleted(deployments, "orphan")
		if left := named(); len(left) != 1 || len(left[0].GetOwnerReferences()) > 0 {
			t.Errorf("replica sets %d", len(left))
		}
	})
	t.Run("APP-29 SYNC-18 a deletion of the application goes by the propagation policy that its finalizer asks for", func(t *testing.T) {
		for option, want := range map[string]string{"": "Foreground", "PrunePropagationPolicy=foreground": "Foreground", "PrunePropagationPolicy=background": "Background"} {
			b := w.application()
			b.deploy(configMap("goes", "red"))
			var asked atomic.Value
			w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/configmaps/goes") {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					asked.Store(string(body))
					r.Body = io.NopCloser(bytes.NewReader(body))
				}
				return next.RoundTrip(r)
			})
			w.ended(b.remove(nil, "PrunePropagationPolicy=orphan", option), "Succeeded")
			w.faults.set(nil)
			if option == "" {
				want = "Orphan"
			}
			if got, _ := asked.Load().(string); !strings.Contains(got, `"propagationPolicy":"`+want+`"`) {
				t.Errorf("%s: the request says %s", option, got)
			}
			w.waitDeleted(configMaps, "goes")
		}
	})
	t.Run("SYNC-19 PruneLast deletes after everything else is healthy", func(t *testing.T) {
		b := w.application()
		b.policy.SyncOptions = []string{"PruneLast=true"}
		b.deploy(configMap("former", "red"))
		id := b.begin(hookJob("hold", "Sync", "HookSucceeded")+configMap("latter", "red"), nil)
		w.live(jobs, "hold", exists)
		w.live(configMaps, "latter", exists)
		w.get(configMaps, "former")
		w.finish("hold", "Complete")
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "former")
	})
	t.Run("SYNC-21 SYNC-20 CustomResourceDefinitions and Namespaces are never deleted for Replace and Force", func(t *testing.T) {
		b := w.application()
		crd := annotatedCRD("kept.example.com", "Kept", 0, "Replace=true,Force=true")
		b.deploy(crd)
		before, err := shared.Dynamic().Resource(crds).Get(t.Context(), "kepts.kept.example.com", metav1Get)
		if err != nil {
			t.Fatal(err)
		}
		b.deploy(strings.Replace(crd, "shortNames: []", "shortNames: [kp]", 1))
		after, err := shared.Dynamic().Resource(crds).Get(t.Context(), "kepts.kept.example.com", metav1Get)
		if err != nil || after.GetUID() != before.GetUID() || after.GetGeneration() == before.GetGeneration() {
			t.Errorf("error %v, generation %d, then %d", err, before.GetGeneration(), after.GetGeneration())
		}
	})
	t.Run("SYNC-22 server-side apply forces conflicts; ServerSideApply=false merges", func(t *testing.T) {
		b := w.application()
		b.deploy(configMap("forced", "red") + annotated(configMap("merged", "red"), "ServerSideApply=false"))
		if m := managersOf(w.get(configMaps, "forced")); m["capstan Apply"] == 0 {
			t.Errorf("managers %v", m)
		}
		if m := managersOf(w.get(configMaps, "merged")); m["capstan Apply"] != 0 {
			t.Errorf("managers %v", m)
		}
		b.synced()
		w.edit(configMaps, "merged", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "merged", data("color", "red"))
	})
	t.Run("SYNC-23 the fields of a client-side apply are adopted, so that one that leaves the manifests is removed", func(t *testing.T) {
		for name, keeps := range map[string]bool{"taken": false, "left": true} {
			w.clientSide(name)
			b := w.application()
			yaml := configMap(name, "red")
			if keeps {
				yaml = annotated(yaml, "ClientSideApplyMigration=false")
			}
			b.deploy(yaml)
			_, extra, _ := unstructured.NestedString(w.get(configMaps, name).Object, "data", "extra")
			if extra != keeps {
				t.Errorf("%s: the field of the former apply is there: %v; want %v", name, extra, keeps)
			}
		}
	})
	t.Run("SYNC-24 FailOnSharedResource fails before anything is applied", func(t *testing.T) {
		first, second := w.application(), w.application()
		first.deploy(configMap("shared", "red"))
		second.policy.SyncOptions = []string{"FailOnSharedResource=true"}
		op := w.ended(second.begin(configMap("alone", "red")+configMap("shared", "blue"), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "is managed by application "+first.name) {
			t.Errorf("message is %q", op.GetMessage())
		}
		if _, err := w.at(configMaps).Get(t.Context(), "alone", metav1Get); err == nil {
			t.Error("something was applied")
		}
	})
	t.Run("SYNC-10 a step that exceeds its timeout ends", func(t *testing.T) {
		b := w.application()
		b.policy.SyncOptions = []string{"StepTimeout=2s"}
		op := w.ended(b.begin(hookJob("endless", "PreSync", "BeforeHookCreation")+configMap("after", "red"), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "took longer than its limit of 2s") {
			t.Errorf("message is %q", op.GetMessage())
		}
		w.waitDeleted(jobs, "endless")
	})
	t.Run("HOOK-04 any kind may be a hook, and HOOK-08 one without a health rule succeeds at once", func(t *testing.T) {
		b := w.application()
		b.deploy(strings.Replace(configMap("hooked", "red"), "namespace: NS", "namespace: NS, annotations: {argocd.argoproj.io/hook: PreSync}", 1) + configMap("after-hooked", "red"))
		w.get(configMaps, "hooked")
		t.Run("HOOK-14 hooks count neither for sync nor for health", func(t *testing.T) { b.synced() })
	})
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// annotatedCRD defines a kind; its description may be made very long.
func annotatedCRD(group, kind string, length int, options string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s, annotations: {argocd.argoproj.io/sync-options: %[4]q}}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[2]s, shortNames: []}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, description: %[5]q}}
`, group, plural, kind, options, strings.Repeat("x", length))
}

// managersOf counts the entries of each field manager.
func managersOf(o *unstructured.Unstructured) map[string]int {
	out := map[string]int{}
	for _, f := range o.GetManagedFields() {
		out[f.Manager+" "+string(f.Operation)]++
	}
	return out
}

// clientSide makes a ConfigMap as kubectl's client-side apply leaves it.
func (w *world) clientSide(name string) {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": w.namespace},
		"data": map[string]any{"color": "black", "extra": "1"},
	}}
	if _, err := w.at(configMaps).Create(w.t.Context(), o, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
		w.t.Fatal(err)
	}
}

func TestLarge(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("ENG-14 ENG-05 a definition above 262,144 bytes is applied, and its objects in the same wave", func(t *testing.T) {
		a.deploy(annotatedCRD("large.example.com", "Large", 300_000, "") +
			"---\napiVersion: large.example.com/v1\nkind: Large\nmetadata: {name: one, namespace: NS}\nspec: {a: 1}\n")
		a.synced()
		large := schema.GroupVersionResource{Group: "large.example.com", Version: "v1", Resource: "larges"}
		w.live(large, "one", exists)
		if err := shared.Dynamic().Resource(crds).Delete(t.Context(), "larges.large.example.com", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("DEL-07 one live object is deleted on request, and comes back where live is kept", func(t *testing.T) {
		b := w.application()
		b.deploy(configMap("single", "red"))
		b.synced()
		conn, ok := w.server.Conn(w.cluster)
		if !ok {
			t.Fatal("no connection to the agent")
		}
		ops := linkv1.NewOpsClient(conn)
		old := w.get(configMaps, "single").GetUID()
		if _, err := ops.Delete(t.Context(), &linkv1.DeleteRequest{AppId: b.id, Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "single", Force: true}); err != nil {
			t.Fatal(err)
		}
		w.live(configMaps, "single", func(o *unstructured.Unstructured) error {
			if o.GetUID() == old {
				return errSame
			}
			return nil
		})
		w.apply(configMap("stranger", "red"))
		if _, err := ops.Delete(t.Context(), &linkv1.DeleteRequest{AppId: b.id, Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "stranger"}); err == nil {
			t.Error("an object of nobody was deleted")
		}
		w.get(configMaps, "stranger")
	})
	t.Run("AUTO-06 AUTO-01 live state is reverted to what was accepted while the target is newer", func(t *testing.T) {
		b := w.application()
		b.policy.Automated = false
		b.deploy(configMap("gated", "red"))
		b.synced()
		b.target = b.snapshot(configMap("gated", "blue")) // a new revision that nobody has accepted
		w.append(b.stateRow())
		b.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		if _, err := w.at(configMaps).Patch(t.Context(), "gated", types.MergePatchType, []byte(`{"data":{"color":"black"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		w.live(configMaps, "gated", data("color", "red"))
	})
}
