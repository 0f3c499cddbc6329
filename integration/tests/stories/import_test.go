package stories_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// byArgo creates a ConfigMap as Argo CD applies it: with its field manager, its
// tracking id and the annotation of client-side apply, or server-side.
func byArgo(t *testing.T, app, namespace, name, value string, serverSide bool) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"v": value},
		"metadata": map[string]any{"name": name, "namespace": namespace, "annotations": map[string]any{
			"argocd.argoproj.io/tracking-id": app + ":/ConfigMap:" + namespace + "/" + name,
		}},
	}}
	at := s.Clusters["in-cluster"].Dynamic().Resource(configMaps).Namespace(namespace)
	var made *unstructured.Unstructured
	var err error
	if serverSide {
		made, err = at.Apply(t.Context(), name, o, metav1.ApplyOptions{FieldManager: "argocd-controller"})
	} else {
		last := fmt.Sprintf(`{"apiVersion":"v1","data":{"v":%q},"kind":"ConfigMap","metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"%s:/ConfigMap:%s/%s"},"name":%q,"namespace":%q}}`+"\n",
			value, app, namespace, name, name, namespace)
		annotations := o.GetAnnotations()
		annotations["kubectl.kubernetes.io/last-applied-configuration"] = last
		o.SetAnnotations(annotations)
		made, err = at.Create(t.Context(), o, metav1.CreateOptions{FieldManager: "argocd-controller"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// changesIn lists the requests of agents that changed something in a namespace.
func changesIn(t *testing.T, from kube.AuditMark, namespace string) (out []string) {
	t.Helper()
	requests, err := s.Clusters["in-cluster"].Requests(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		reads := r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
		if r.User == s.Agents["in-cluster"].User() && r.Namespace == namespace && !reads && !strings.Contains(r.Path, "dryRun") {
			out = append(out, r.Verb+" "+r.Resource+" "+r.Name)
		}
	}
	return out
}

func TestImport(t *testing.T) {
	const ns = "imported"
	cluster := s.Clusters["in-cluster"]
	repo := repository(t, ns, map[string]string{
		"equal/a.yaml":   configMap("first", "blue"),
		"equal/b.yaml":   configMap("second", "blue"),
		"differs/c.yaml": configMap("third", "blue"),
	})
	if err := cluster.Apply(within(t, waitLimit), "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n"); err != nil {
		t.Fatal(err)
	}
	byArgo(t, "import-equal", ns, "first", "blue", false)
	byArgo(t, "import-equal", ns, "second", "blue", true)
	byArgo(t, "import-differs", ns, "third", "red", false)
	mark, err := cluster.Mark()
	if err != nil {
		t.Fatal(err)
	}
	export := func(name string) string {
		return fmt.Sprintf(`---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: import-%[1]s
  annotations: {argocd.argoproj.io/refresh: normal}
operation: {sync: {revision: main}}
spec:
  project: default
  source: {repoURL: %[2]q, path: %[1]s, targetRevision: main}
  destination: {name: in-cluster, namespace: %[3]s}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
status: {sync: {status: Synced}}
`, name, repo.URL(), ns)
	}
	accepted := func(x stack.App) error {
		if x.Status.Capstan.Accepted == "" || x.Status.Capstan.Accepted != x.Status.Capstan.Target {
			return errors.New("its target is not accepted")
		}
		return stack.Settled(x)
	}
	t.Run("CLI-13 FT-U3 an import changes nothing in the cluster, and shows what equals and what differs", func(t *testing.T) {
		if out, err := s.API.CLI(within(t, waitLimit), export("equal")+export("differs"), "import", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		settled(t, "import-equal")
		condition(t, "import-differs", func(x stack.App) error {
			if x.Status.Sync.Status != "OutOfSync" {
				return fmt.Errorf("it is %s", x.Status.Sync.Status)
			}
			return nil
		})
		list := cli(t, "import", "list")
		if !strings.Contains(list, "its objects are taken over as they are") || !strings.Contains(list, "shows what differs") {
			t.Errorf("import list says\n%s", list)
		}
		if got := changesIn(t, mark, ns); len(got) > 0 {
			t.Errorf("%d changing requests: %v", len(got), got)
		}
	})
	t.Run("FT-U3 a confirmation takes over what equals with no changing request, and without an operation", func(t *testing.T) {
		cli(t, "import", "confirm", "import-equal", "--yes")
		x := condition(t, "import-equal", accepted)
		if x.Status.OperationState != nil {
			t.Errorf("operation %+v", x.Status.OperationState)
		}
		if got := changesIn(t, mark, ns); len(got) > 0 {
			t.Errorf("%d changing requests: %v", len(got), got)
		}
	})
	t.Run("FT-U3 drift of what was taken over is healed, and what leaves Git is pruned", func(t *testing.T) {
		byArgo(t, "import-equal", ns, "bystander", "blue", false)
		if _, err := cluster.Dynamic().Resource(configMaps).Namespace(ns).Patch(t.Context(), "first", "application/merge-patch+json", []byte(`{"data":{"v":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		live(t, ns, "first", func(o *unstructured.Unstructured) error {
			if v, _, _ := unstructured.NestedString(o.Object, "data", "v"); v != "blue" {
				return fmt.Errorf("it is %q", v)
			}
			return nil
		})
		if _, err := repo.Push(within(t, waitLimit), gitserver.Change{Message: "less", Remove: []string{"equal/b.yaml"}}); err != nil {
			t.Fatal(err)
		}
		cli(t, "app", "get", "import-equal", "--refresh")
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, ns, "second"); err != nil {
			t.Error(err)
		}
		if _, err := cluster.Dynamic().Resource(configMaps).Namespace(ns).Get(t.Context(), "bystander", metav1.GetOptions{}); err != nil {
			t.Errorf("an object that no manifest has ever had: %v", err)
		}
	})
	t.Run("FT-U3 what differs is synced after the confirmation, and adopted", func(t *testing.T) {
		cli(t, "import", "confirm", "--all", "--yes")
		condition(t, "import-differs", accepted)
		live(t, ns, "third", ownedBy("import-differs"))
	})
	cli(t, "app", "delete", "import-equal", "import-differs", "--yes", "--wait")
}
