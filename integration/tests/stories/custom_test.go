package stories_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

func TestCustomComparison(t *testing.T) {
	repo := repository(t, "custom", map[string]string{
		"app/a.yaml": configMap("a", "one"),
		"app/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {example.com/token: hunter2}}\nstringData: {p: x}\n",
	})
	t.Cleanup(func() {
		settings(t, "{resource.customizations.ignoreDifferences.ConfigMap: null, installationID: null, resource.sensitive.mask.annotations: null}")
	})
	text := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: custom, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: %q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: custom}
  syncPolicy: {automated: {selfHeal: false}, syncOptions: [CreateNamespace=true]}
`, repo.URL())
	if _, err := s.API.Apply(within(t, waitLimit), text); err != nil {
		t.Fatal(err)
	}
	settled(t, "custom")
	maps := s.Clusters["in-cluster"].Dynamic().Resource(configMaps).Namespace("custom")
	is := func(status string) {
		t.Helper()
		condition(t, "custom", func(x stack.App) error {
			if x.Status.Sync.Status != status {
				return fmt.Errorf("it is %s", x.Status.Sync.Status)
			}
			return nil
		})
	}
	live := func() *unstructured.Unstructured {
		t.Helper()
		o, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	edit := func(manager, patch string) {
		t.Helper()
		if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("DIFF-09 rules of the tenant for a kind are effective at once, and no longer after their removal", func(t *testing.T) {
		edit("kubectl-edit", `{"data":{"v":"edited"}}`)
		is("OutOfSync")
		settings(t, `{resource.customizations.ignoreDifferences.ConfigMap: "jsonPointers: [/data/v]"}`)
		is("Synced")
		settings(t, "{resource.customizations.ignoreDifferences.ConfigMap: null}")
		is("OutOfSync")
	})
	t.Run("DIFF-08 DIFF-09 so do fields of a manager", func(t *testing.T) {
		settings(t, `{resource.customizations.ignoreDifferences.ConfigMap: "managedFieldsManagers: [kubectl-edit]"}`)
		is("Synced")
		settings(t, "{resource.customizations.ignoreDifferences.ConfigMap: null}")
		is("OutOfSync")
		if got, _, _ := unstructured.NestedString(live().Object, "data", "v"); got != "edited" {
			t.Errorf("somebody has written it: %q", got)
		}
	})
	sync := func(t *testing.T) {
		t.Helper()
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "custom"); err != nil {
			t.Fatal(err)
		}
		settled(t, "custom")
	}
	id := func() string { return live().GetAnnotations()["capstan.dev/installation-id"] }
	t.Run("TRK-05 the installation id is written at the next sync, and another one replaces it", func(t *testing.T) {
		for _, name := range []string{"north", "south"} {
			settings(t, "{installationID: "+name+"}")
			sync(t)
			if got := id(); got != name {
				t.Errorf("it is %q, want %q", got, name)
			}
		}
	})
	t.Run("TRK-05 the id under which we applied an object is not that of another installation", func(t *testing.T) {
		settings(t, "{installationID: east}")
		condition(t, "custom", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if c.Type == "SharedResourceWarning" {
					return errors.New(c.Message)
				}
			}
			return nil
		})
		settled(t, "custom")
	})
	t.Run("TRK-05 an object that another installation has adopted shows it", func(t *testing.T) {
		edit("kubectl-edit", `{"metadata":{"annotations":{"capstan.dev/installation-id":"west"}}}`)
		conditioned(t, "custom", "SharedResourceWarning", "of installation west too")
		sync(t)
		if got := id(); got != "east" {
			t.Errorf("it is %q", got)
		}
		settings(t, "{installationID: null}")
		sync(t)
		if got := id(); got != "" {
			t.Errorf("it is %q", got)
		}
	})
	t.Run("DIFF-14 an annotation of a Secret that the tenant names is masked", func(t *testing.T) {
		shown := func() string {
			t.Helper()
			var out json.RawMessage
			if err := s.API.Do(t.Context(), "GET", "/api/v1/applications/argocd/custom/resource?version=v1&kind=Secret&resourceNamespace=custom&resourceName=s", nil, &out); err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		if !strings.Contains(shown(), "hunter2") {
			t.Error("it is masked though nobody asked")
		}
		settings(t, "{resource.sensitive.mask.annotations: example.com/token}")
		condition(t, "custom", func(stack.App) error {
			if strings.Contains(shown(), "hunter2") {
				return errors.New("the annotation is not masked")
			}
			return nil
		})
	})
	if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", "custom", "--yes"); err != nil {
		t.Error(err)
	}
}
