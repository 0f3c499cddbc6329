package stories_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// conditioned waits until an application has a condition that speaks of something.
func conditioned(t *testing.T, name, kind, about string) {
	t.Helper()
	condition(t, name, func(x stack.App) error {
		for _, c := range x.Status.Conditions {
			if c.Type == kind && strings.Contains(c.Message, about) {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", x.Status.Conditions)
	})
}

// differs is a check: OutOfSync, by the cluster's own comparison. The hub says
// OutOfSync already before the cluster has heard of a new target.
func differs(x stack.App) error {
	if x.Status.Sync.Status != "OutOfSync" || x.Status.ReconciledAt == nil {
		return fmt.Errorf("it is %s, compared at %v", x.Status.Sync.Status, x.Status.ReconciledAt)
	}
	return nil
}

func TestComparison(t *testing.T) {
	repo := repository(t, "compare", map[string]string{
		"app/a.yaml": configMap("a", "one"),
		"app/d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: nginx}]}\n",
		"two/a.yaml": configMap("a", "two"),
	})
	project := `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: compare, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{name: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
  orphanedResources:
    ignore: [{kind: ConfigMap, name: "cache-*"}]
`
	if _, err := s.API.Apply(within(t, waitLimit), project); err != nil {
		t.Fatal(err)
	}
	app := func(name, path, automated string) string {
		return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %s, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: compare
  source: {repoURL: %q, path: %s, targetRevision: main}
  destination: {name: in-cluster, namespace: compare}
  syncPolicy: {%ssyncOptions: [CreateNamespace=true]}
`, name, repo.URL(), path, automated)
	}
	if _, err := s.API.Apply(within(t, waitLimit), app("compare", "app", "automated: {selfHeal: false}, ")); err != nil {
		t.Fatal(err)
	}
	settled(t, "compare")
	cluster := s.Clusters["in-cluster"]
	maps := cluster.Dynamic().Resource(configMaps).Namespace("compare")
	t.Run("CMPR-11 PROJ-11 an orphaned object is a condition and is shown in the tree", func(t *testing.T) {
		for _, name := range []string{"stray", "cache-1"} {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
			if _, err := maps.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		conditioned(t, "compare", "OrphanedResourceWarning", "ConfigMap stray")
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "get", "compare")
		if err != nil || !strings.Contains(out, "orphaned: no application manages it") || strings.Contains(out, "cache-1") {
			t.Errorf("%v\n%s", err, out)
		}
		settled(t, "compare")
	})
	t.Run("CMPR-11 CLU-13 an object of an excluded kind is no orphan", func(t *testing.T) {
		t.Cleanup(func() { settings(t, "{resource.exclusions: null}") })
		account := cluster.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace("compare")
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "nobody"}}}
		if _, err := account.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		conditioned(t, "compare", "OrphanedResourceWarning", "ServiceAccount nobody")
		settings(t, `{resource.exclusions: "- apiGroups: ['']\n  kinds: [ServiceAccount]\n"}`)
		conditioned(t, "compare", "OrphanedResourceWarning", "one orphaned resource, which no application manages: ConfigMap stray")
	})
	t.Run("TRK-07 a second application that lists an object shows a condition", func(t *testing.T) {
		if _, err := s.API.Apply(within(t, waitLimit), app("compare2", "two", "")); err != nil {
			t.Fatal(err)
		}
		conditioned(t, "compare2", "SharedResourceWarning", "managed by application compare too")
	})
	t.Run("DIFF-16 DIFF-17 a difference shows the fields of manifests, and what an apply would change", func(t *testing.T) {
		deployment := cluster.Dynamic().Resource(deployments).Namespace("compare")
		if _, err := deployment.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		condition(t, "compare", differs)
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "diff", "compare")
		var e *stack.CLIError
		if !errors.As(err, &e) || e.Code != 1 || !strings.Contains(out, "-  replicas: 2") || strings.Contains(out, "progressDeadlineSeconds") {
			t.Errorf("%v\n%s", err, out)
		}
		out, err = s.API.CLI(within(t, waitLimit), "", "app", "diff", "compare", "--server-side-diff", "-o", "json")
		if !errors.As(err, &e) || e.Code != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		var d struct {
			Items []struct {
				Name      string
				Predicted map[string]any
				Live      map[string]any
				Applied   map[string]any
			}
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Items) != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		spec, _ := d.Items[0].Predicted["spec"].(map[string]any)
		if spec["replicas"] != 0.0 || spec["progressDeadlineSeconds"] == nil || d.Items[0].Applied == nil {
			t.Errorf("predicted %v, applied %v", spec, d.Items[0].Applied)
		}
		now, err := deployment.Get(t.Context(), "web", metav1.GetOptions{})
		if got, _, _ := unstructured.NestedInt64(now.Object, "spec", "replicas"); err != nil || got != 2 {
			t.Errorf("asking changed it: %d, %v", got, err)
		}
		out, err = s.API.CLI(within(t, waitLimit), configMap("a", "one"), "app", "diff", "compare", "--local", "-", "--diff-exit-code", "1")
		if !errors.As(err, &e) || e.Code != 1 || strings.Contains(out, "ConfigMap compare/a:") || !strings.Contains(out, "Deployment compare/web") {
			t.Errorf("%v\n%s", err, out)
		}
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "compare"); err != nil {
			t.Fatal(err)
		}
		if out, err := s.API.CLI(within(t, waitLimit), "", "app", "diff", "compare"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("TRK-07 DEL-08 deletion of the owner deletes what the other has not synced, and its sync creates it again", func(t *testing.T) {
		before, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", "compare", "--yes"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "compare2"); err != nil {
			t.Fatal(err)
		}
		after, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || after.GetUID() == before.GetUID() || value("two")(after) != nil {
			t.Errorf("%v, %v", err, after)
		}
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", "compare2", "--yes"); err != nil {
			t.Fatal(err)
		}
	})
}
