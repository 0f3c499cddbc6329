package stories_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

func TestObjectsMoveBetweenApplications(t *testing.T) {
	cluster := s.Clusters["in-cluster"]
	repo := repository(t, "moves", map[string]string{
		"left/stays.yaml": configMap("left", "one"), "left/x.yaml": configMap("x", "one"),
		"right/stays.yaml": configMap("right", "one"), "right/w.yaml": configMap("w", "one"),
	})
	namespaced := func(name string) string {
		return strings.ReplaceAll(fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: moves-NAME, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: %q, path: NAME, targetRevision: main}
  destination: {name: in-cluster, namespace: moves}
  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}
`, repo.URL()), "NAME", name)
	}
	for _, name := range []string{"left", "right"} {
		if _, err := s.API.Apply(within(t, waitLimit), namespaced(name)); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, "moves-left")
	settled(t, "moves-right")
	maps := cluster.Dynamic().Resource(configMaps).Namespace("moves")
	uids := map[string]string{}
	for _, name := range []string{"x", "w"} {
		o, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[name] = string(o.GetUID())
	}
	// move commits files in and files out at once, and waits until all live
	// objects have the value.
	move := func(t *testing.T, value string, in, out map[string]string) {
		t.Helper()
		files := map[string]string{"left/stays.yaml": configMap("left", value), "right/stays.yaml": configMap("right", value)}
		for path, name := range in {
			files[path] = configMap(name, value)
		}
		var gone []string
		for path := range out {
			gone = append(gone, path)
		}
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: value, Write: files, Remove: gone}); err != nil {
			t.Fatal(err)
		}
		for file, name := range in {
			app, _, _ := strings.Cut(file, "/")
			o, err := cluster.WaitFor(within(t, waitLimit), configMaps, "moves", name, func(o *unstructured.Unstructured) error {
				if got, _, _ := unstructured.NestedString(o.Object, "data", "v"); got != value {
					return fmt.Errorf("it has %q", got)
				}
				if id := o.GetAnnotations()["capstan.dev/tracking-id"]; !strings.HasPrefix(id, "argocd_moves-"+app+":") {
					return fmt.Errorf("it is tracked by %q", id)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if string(o.GetUID()) != uids[name] {
				t.Errorf("%s was deleted and made anew", name)
			}
		}
		settled(t, "moves-left")
		settled(t, "moves-right")
	}
	t.Run("TRK-07 what one commit moves to another application is handed over without deletion, in any order of names", func(t *testing.T) {
		move(t, "two", map[string]string{"right/x.yaml": "x"}, map[string]string{"left/x.yaml": "x"})
		move(t, "three", map[string]string{"left/x.yaml": "x"}, map[string]string{"right/x.yaml": "x"})
	})
	t.Run("TRK-07 two applications that exchange objects in one commit delete none", func(t *testing.T) {
		move(t, "four", map[string]string{"right/x.yaml": "x", "left/w.yaml": "w"}, map[string]string{"left/x.yaml": "x", "right/w.yaml": "w"})
	})
	t.Run("TRK-07 what both list for a while stays with the first, and is handed over when that one drops it", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "both", map[string]string{"left/x.yaml": configMap("x", "five")}); err != nil {
			t.Fatal(err)
		}
		conditioned(t, "moves-left", "SharedResourceWarning", "managed by application moves-right too")
		move(t, "five", map[string]string{"left/x.yaml": "x"}, map[string]string{"right/x.yaml": "x"})
	})
	for _, name := range []string{"moves-left", "moves-right"} {
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", name, "--yes"); err != nil {
			t.Error(err)
		}
	}
}
