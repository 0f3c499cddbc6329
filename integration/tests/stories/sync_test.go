package stories_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// byHand applies an application that nothing synchronises by itself.
func byHand(t *testing.T, name, repo, path, labels, options string) {
	t.Helper()
	manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd, labels: {%[4]s}, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: %[2]q, path: %[3]q, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {syncOptions: [CreateNamespace=true%[5]s]}
`, name, repo, path, labels, options)
	if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
		t.Fatal(err)
	}
}

// cli runs the command line and gives what it wrote.
func cli(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.API.CLI(within(t, waitLimit), "", args...)
	if err != nil {
		t.Fatalf("capstan %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func live(t *testing.T, namespace, name string, check func(*unstructured.Unstructured) error) {
	t.Helper()
	if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, namespace, name, check); err != nil {
		t.Fatal(err)
	}
}

func TestSyncRequests(t *testing.T) {
	repo := repository(t, "requests", map[string]string{"app/a.yaml": configMap("a", "one")})
	byHand(t, "requests", repo.URL(), "app", "team: sync", "")
	first, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")})
	if err != nil {
		t.Fatal(err)
	}
	at := func(commit string) {
		t.Helper()
		condition(t, "requests", func(x stack.App) error {
			if x.Status.Sync.Revision != commit {
				return fmt.Errorf("its target is %s", x.Status.Sync.Revision)
			}
			return nil
		})
	}
	rest := func() {
		t.Helper()
		condition(t, "requests", func(x stack.App) error {
			if op := x.Status.OperationState; op == nil || op.Phase != "Succeeded" {
				return fmt.Errorf("the operation is %+v", op)
			}
			return nil
		})
	}
	at(first)
	cli(t, "app", "sync", "requests", "--info", "ticket=42", "--reason", "first")
	live(t, "requests", "a", value("two"))
	t.Run("SYNC-29 infos are stored with the operation", func(t *testing.T) {
		out := cli(t, "app", "get", "requests", "-o", "json")
		if !strings.Contains(out, `"ticket"`) || !strings.Contains(out, `"42"`) {
			t.Errorf("the application shows %s", out)
		}
	})
	third, err := repo.Commit(t.Context(), "three", map[string]string{"app/a.yaml": configMap("a", "three"), "app/b.yaml": configMap("b", "three")})
	if err != nil {
		t.Fatal(err)
	}
	at(third)
	cli(t, "app", "sync", "requests")
	live(t, "requests", "a", value("three"))
	t.Run("SYNC-06 SYNC-01 an older revision is applied by hand, and the application is OutOfSync afterwards", func(t *testing.T) {
		cli(t, "app", "sync", "requests", "--revision", first, "--prune", "--async")
		live(t, "requests", "a", value("two"))
		if err := s.Clusters["in-cluster"].WaitGone(within(t, waitLimit), configMaps, "requests", "b"); err != nil {
			t.Error(err)
		}
		condition(t, "requests", differs)
	})
	rest()
	t.Run("SYNC-31 a preview shows the difference before anything is applied", func(t *testing.T) {
		out := cli(t, "app", "sync", "requests", "--preview-changes", "--yes")
		if !strings.Contains(out, "three") || !strings.Contains(out, "=====") {
			t.Errorf("output:\n%s", out)
		}
		live(t, "requests", "a", value("three"))
	})
	t.Run("SYNC-05 manifests of one's own are applied where nothing is automatic", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(configMap("a", "mine")), 0o600); err != nil {
			t.Fatal(err)
		}
		cli(t, "app", "sync", "requests", "--local", dir, "--async")
		live(t, "requests", "a", value("mine"))
	})
	t.Run("SYNC-03 SYNC-04 a selective dry run changes and records nothing", func(t *testing.T) {
		rest()
		kept := func(want int) {
			t.Helper()
			condition(t, "requests", func(stack.App) error {
				if got := entries(t, "requests"); len(got) != want {
					return fmt.Errorf("history is %v, want %d entries", got, want)
				}
				return nil
			})
		}
		kept(5) // an operation is over a moment before it stands there
		cli(t, "app", "sync", "requests", "--dry-run", "--resource", ":ConfigMap:requests/a", "--async")
		rest()
		live(t, "requests", "a", value("mine"))
		cli(t, "app", "sync", "requests")
		kept(6)
	})
	t.Run("DEL-08 applications are deleted by selector", func(t *testing.T) {
		cli(t, "app", "delete", "-l", "team=sync", "--propagation-policy", "background", "--yes")
		if err := s.Clusters["in-cluster"].WaitGone(within(t, waitLimit), configMaps, "requests", "a"); err != nil {
			t.Error(err)
		}
	})
}

func TestApprovals(t *testing.T) {
	asks := strings.Replace(configMap("asks", "one"), "name: asks", "name: asks\n  annotations: {argocd.argoproj.io/sync-options: Prune=confirm}", 1)
	bye := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bye, annotations: {argocd.argoproj.io/hook: PreDelete, argocd.argoproj.io/hook-delete-policy: HookSucceeded}}\n" +
		"spec: {template: {metadata: {annotations: {harness.capstan.dev/outcome: hang}}, spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}\n"
	repo := repository(t, "approvals", map[string]string{"app/a.yaml": configMap("a", "one"), "app/asks.yaml": asks, "app/bye.yaml": bye})
	deploy(t, "approvals", repo.URL(), "app", "")
	settled(t, "approvals")
	waiting := func(x stack.App) error {
		if op := x.Status.OperationState; op == nil || !strings.Contains(op.Message, "waiting for approval to delete") {
			return fmt.Errorf("the operation is %+v", op)
		}
		return nil
	}
	t.Run("SYNC-13 SYNC-11 a prune that needs approval is approved from the command line", func(t *testing.T) {
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "drop", Remove: []string{"app/asks.yaml"}}); err != nil {
			t.Fatal(err)
		}
		condition(t, "approvals", waiting)
		live(t, "approvals", "asks", value("one"))
		cli(t, "app", "confirm-deletion", "approvals", "--yes", "--reason", "a story")
		if err := s.Clusters["in-cluster"].WaitGone(within(t, waitLimit), configMaps, "approvals", "asks"); err != nil {
			t.Error(err)
		}
		settled(t, "approvals")
	})
	t.Run("SYNC-13 kubectl users approve by an annotation of the application", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "again", map[string]string{"app/asks.yaml": asks}); err != nil {
			t.Fatal(err)
		}
		live(t, "approvals", "asks", value("one"))
		settled(t, "approvals")
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "drop again", Remove: []string{"app/asks.yaml"}}); err != nil {
			t.Fatal(err)
		}
		condition(t, "approvals", waiting)
		var object map[string]any
		if err := json.Unmarshal([]byte(cli(t, "app", "get", "approvals", "-o", "json")), &object); err != nil {
			t.Fatal(err)
		}
		delete(object, "status")
		meta := object["metadata"].(map[string]any)
		meta["annotations"] = map[string]any{"argocd.argoproj.io/deletion-approved": time.Now().Add(time.Second).UTC().Format(time.RFC3339)}
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.Apply(t.Context(), string(text)); err != nil {
			t.Fatal(err)
		}
		if err := s.Clusters["in-cluster"].WaitGone(within(t, waitLimit), configMaps, "approvals", "asks"); err != nil {
			t.Error(err)
		}
		settled(t, "approvals")
	})
	t.Run("HOOK-16 DEL-02 the deletion runs its hooks first, visibly", func(t *testing.T) {
		cli(t, "app", "delete", "approvals", "--yes", "--wait=false")
		condition(t, "approvals", func(x stack.App) error {
			if op := x.Status.OperationState; op == nil || !strings.Contains(op.Message, "bye") {
				return fmt.Errorf("the operation is %+v", op)
			}
			return nil
		})
		live(t, "approvals", "a", value("one"))
		pods := s.Clusters["in-cluster"].Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("approvals")
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "job-name=bye"})
			if err != nil || len(list.Items) != 1 {
				return fmt.Errorf("the hook has not its one pod: %v, %+v", err, list)
			}
			// Its pod hangs until it is told to end.
			_, err = pods.Patch(ctx, list.Items[0].GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"harness.capstan.dev/outcome":null}}}`), metav1.PatchOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Clusters["in-cluster"].WaitGone(within(t, waitLimit), configMaps, "approvals", "a"); err != nil {
			t.Error(err)
		}
	})
}
