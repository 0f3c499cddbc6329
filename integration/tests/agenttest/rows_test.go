package agenttest_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestSmallerRows(t *testing.T) {
	w := newWorld(t)
	t.Run("SYNC-23 the manager of a former client-side apply may be named", func(t *testing.T) {
		for name, annotations := range map[string]string{
			"named": ", annotations: {argocd.argoproj.io/client-side-apply-migration-manager: my-tool}", "unnamed": "",
		} {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": w.namespace},
				"data": map[string]any{"color": "red", "old": "x"},
			}}
			if _, err := w.at(configMaps).Create(t.Context(), o, metav1.CreateOptions{FieldManager: "my-tool"}); err != nil {
				t.Fatal(err)
			}
			w.caughtUp()
			w.application().deploy(strings.Replace(configMap(name, "red"), "namespace: NS", "namespace: NS"+annotations, 1))
			_, there, _ := unstructured.NestedString(w.get(configMaps, name).Object, "data", "old")
			if there != (annotations == "") {
				t.Errorf("%s: the field of the former manager is there: %v", name, there)
			}
		}
	})
	t.Run("HLT-03 an object that is annotated so does not count for health", func(t *testing.T) {
		claim := func(name, annotations string) string {
			return "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + ", namespace: NS" + annotations + "}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
		}
		healthy := func(want string) func(*linkv1.AppReport) bool {
			return func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" && r.GetHealth() == want }
		}
		a := w.application()
		a.deploy(claim("ignored", ", annotations: {argocd.argoproj.io/ignore-healthcheck: 'true'}") + configMap("beside", "red"))
		a.await("it is Healthy", healthy("Healthy"))
		b := w.application()
		b.deploy(claim("counted", ""))
		b.await("it is Progressing", healthy("Progressing"))
	})
	t.Run("PROJ-10 a live object of a forbidden kind is neither pruned nor deleted", func(t *testing.T) {
		secret := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: kept, namespace: NS}\nstringData: {a: b}\n"
		a := w.application()
		a.deploy(secret + configMap("free", "red"))
		a.policy.Limits = &linkv1.Limits{Namespaces: []string{w.namespace}, NamespacedDeny: []*linkv1.KindRule{{Kind: "Secret"}}}
		op := w.ended(a.begin(configMap("free", "red"), nil), "Succeeded")
		if got := messageOf(op, "kept"); !strings.Contains(got, "project default does not permit objects of kind Secret") {
			t.Errorf("message is %q", got)
		}
		w.get(secrets, "kept")
		id, row := a.operation(func(o *linkv1.Operation) { o.Kind = linkv1.OperationKind_OPERATION_KIND_DELETE; o.Snapshot = nil })
		w.append(row)
		w.await("the deletion has ended", func() bool { return w.finals[id] > 0 })
		w.get(secrets, "kept")
	})
}
