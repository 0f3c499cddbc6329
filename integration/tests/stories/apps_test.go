package stories_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// node is an object in the tree of an application.
type node struct {
	UID, Kind, Namespace, Name, Status, Health, Message string
	Info                                                []struct{ Name, Value string }
}

func tree(t *testing.T, name string) []node {
	t.Helper()
	var out struct{ Nodes []node }
	if err := s.API.Do(within(t, waitLimit), "GET", "/api/v1/applications/argocd/"+name+"/tree", nil, &out); err != nil {
		t.Fatal(err)
	}
	return out.Nodes
}

func nodeOf(nodes []node, kind, name string) (node, bool) {
	i := slices.IndexFunc(nodes, func(n node) bool { return n.Kind == kind && n.Name == name })
	if i < 0 {
		return node{}, false
	}
	return nodes[i], true
}

// child is the manifest of an application that another one renders.
func child(name, project, repo, path, extra string) string {
	return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %[1]s
  namespace: argocd
  finalizers: [resources-finalizer.argocd.argoproj.io]
%[5]sspec:
  project: %[2]s
  source: {repoURL: %[3]q, path: %[4]q, targetRevision: main}
  destination: {server: https://kubernetes.default.svc, namespace: %[1]s}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true]
`, name, project, repo, path, extra)
}

// parentApp applies an application of applications.
func parentApp(t *testing.T, name, project, repo, path string) {
	t.Helper()
	manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: %[2]s
  source: {repoURL: %[3]q, path: %[4]q, targetRevision: main}
  destination: {server: https://kubernetes.default.svc, namespace: argocd}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
`, name, project, repo, path)
	if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
		t.Fatal(err)
	}
}

// absent waits until an application is not there.
func absent(t *testing.T, name string) {
	t.Helper()
	ctx := within(t, waitLimit)
	err := poll.Until(ctx, func(ctx context.Context) error {
		_, err := s.API.CLI(ctx, "", "app", "get", name)
		if err == nil {
			return fmt.Errorf("application %s is still there", name)
		}
		if !strings.Contains(err.Error(), "there is no application") {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// refused waits for an operation that failed and says these words about an object.
func refused(t *testing.T, name, kind, object string, words ...string) {
	t.Helper()
	condition(t, name, func(x stack.App) error {
		op := x.Status.OperationState
		if op == nil || op.SyncResult == nil {
			return errors.New("there is no operation yet")
		}
		for _, r := range op.SyncResult.Resources {
			if r.Kind != kind || r.Name != object || r.Status != "SyncFailed" {
				continue
			}
			for _, w := range words {
				if !strings.Contains(r.Message, w) {
					return fmt.Errorf("%q is not in %q", w, r.Message)
				}
			}
			return nil
		}
		return fmt.Errorf("nothing is said of it: %s %s %+v", op.Phase, op.Message, op.SyncResult.Resources)
	})
}

func TestAppOfApps(t *testing.T) {
	cluster := s.Clusters["in-cluster"]
	guide06 := guideFile(t, "06-app-of-apps.yaml")
	repo := repository(t, "app-of-apps", map[string]string{"manifests/app-a/cm.yaml": configMap("a", "one")})
	guide06 = strings.ReplaceAll(guide06, "https://github.com/my-org/gitops-repo.git", repo.URL())
	rootText, childText, _ := strings.Cut(guide06, "\n---\n")
	if _, err := repo.Commit(t.Context(), "children", map[string]string{"apps/app-a.yaml": childText}); err != nil {
		t.Fatal(err)
	}
	t.Run("APP-31 guide/06 as written: the child is an object of the hub, and is deployed", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), rootText); err != nil {
			t.Fatal(err)
		}
		settled(t, "root-app")
		settled(t, "app-a")
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "app-a", "a", value("one")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("APP-31 nothing of it was sent to the cluster", func(t *testing.T) {
		requests, err := cluster.Requests(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			if strings.Contains(r.Path, "argoproj.io") {
				t.Fatalf("a request for %s", r.Path)
			}
		}
	})
	t.Run("APP-31 the parent's tree and the command line show the child, the child names its parent", func(t *testing.T) {
		var a struct {
			Metadata struct{ UID string }
			Status   struct {
				Capstan struct {
					Parent struct{ Namespace, Name string }
				}
			}
		}
		if err := s.API.Do(t.Context(), "GET", "/api/v1/applications/argocd/app-a", nil, &a); err != nil {
			t.Fatal(err)
		}
		if p := a.Status.Capstan.Parent; p.Name != "root-app" || p.Namespace != "argocd" {
			t.Errorf("the parent is %+v", p)
		}
		condition(t, "root-app", func(stack.App) error {
			n, ok := nodeOf(tree(t, "root-app"), "Application", "app-a")
			if !ok || n.Status != "Synced" || n.UID != a.Metadata.UID || n.Health != "" || fmt.Sprint(n.Info) != "[{sync Synced} {health Healthy}]" {
				return fmt.Errorf("%v: %+v, not of %s", ok, n, a.Metadata.UID)
			}
			return nil
		})
		if out := cli(t, "app", "get", "root-app"); !strings.Contains(out, "app-a") {
			t.Errorf("%s", out)
		}
		if out := cli(t, "app", "get", "app-a"); !strings.Contains(out, "root-app") {
			t.Errorf("%s", out)
		}
	})
	t.Run("APP-31 the audit log names the parent as creator of the child", func(t *testing.T) {
		out := cli(t, "audit", "list", "-o", "json")
		if !strings.Contains(out, `"application root-app"`) {
			t.Errorf("%s", out)
		}
	})
	t.Run("AUTO-06 an edit of the child is healed, what the manifest does not say stays", func(t *testing.T) {
		text := strings.ReplaceAll(childText, "manifests/app-a", "manifests/elsewhere")
		text = strings.ReplaceAll(text, "finalizers:", "labels: {team: blue}\n  finalizers:")
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		condition(t, "app-a", func(stack.App) error {
			got := applied(t, "app-a")
			if !strings.Contains(got, "path: manifests/app-a") || !strings.Contains(got, "team: blue") {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
		settled(t, "root-app")
	})
	t.Run("APP-31 a child that left the repository is deleted, with its objects by its finalizer", func(t *testing.T) {
		files := map[string]string{"apps/app-b.yaml": child("app-b", "default", repo.URL(), "manifests/app-a", "")}
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "b for a", Remove: []string{"apps/app-a.yaml"}, Write: files}); err != nil {
			t.Fatal(err)
		}
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, "app-a", "a"); err != nil {
			t.Fatal(err)
		}
		absent(t, "app-a")
		settled(t, "app-b")
		settled(t, "root-app")
	})
	t.Run("SYNC-13 a child that needs approval is not pruned before it", func(t *testing.T) {
		confirm := child("app-c", "default", repo.URL(), "manifests/app-a", "  annotations: {argocd.argoproj.io/sync-options: Prune=confirm}\n")
		if _, err := repo.Commit(t.Context(), "c", map[string]string{"apps/app-c.yaml": confirm}); err != nil {
			t.Fatal(err)
		}
		settled(t, "app-c")
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "no c", Remove: []string{"apps/app-c.yaml"}}); err != nil {
			t.Fatal(err)
		}
		condition(t, "root-app", func(x stack.App) error {
			if !strings.Contains(fmt.Sprint(status(t, "root-app")), "waiting for approval") {
				return fmt.Errorf("it does not wait: %v", status(t, "root-app"))
			}
			return nil
		})
		cli(t, "app", "get", "app-c")
		cli(t, "app", "confirm-deletion", "root-app", "--yes")
		absent(t, "app-c")
		settled(t, "root-app")
	})
	t.Run("DEL-02 the deletion of the parent deletes its children", func(t *testing.T) {
		cli(t, "app", "delete", "root-app", "--cascade=true", "--yes") // guide/06 gives it no finalizer
		absent(t, "app-b")
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, "app-b", "a"); err != nil {
			t.Fatal(err)
		}
		absent(t, "root-app")
	})
}

func TestAppOfAppsWaves(t *testing.T) {
	cluster := s.Clusters["in-cluster"]
	paused := strings.ReplaceAll(web, "replicas: 1", "replicas: 1\n  paused: true")
	repo := repository(t, "apps-waves", map[string]string{"first/web.yaml": paused, "second/cm.yaml": configMap("a", "one")})
	wave := func(n int) string { return fmt.Sprintf("  annotations: {argocd.argoproj.io/sync-wave: \"%d\"}\n", n) }
	_, err := repo.Commit(t.Context(), "children", map[string]string{
		"apps/first.yaml":  child("wave-first", "default", repo.URL(), "first", wave(0)),
		"apps/second.yaml": child("wave-second", "default", repo.URL(), "second", wave(1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	const rule = `apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd}
data:
  resource.customizations.health.argoproj.io_Application: |
    hs = {status = "Progressing", message = ""}
    if obj.status ~= nil and obj.status.health ~= nil then
      hs.status = obj.status.health.status
      hs.message = obj.status.health.message or ""
    end
    if hs.status == "Unknown" then hs.status = "Progressing" end
    return hs
`
	if _, err := s.API.Apply(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.API.Apply(context.Background(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {resource.customizations.health.argoproj.io_Application: null}\n"); err != nil {
			t.Error(err)
		}
	})
	parentApp(t, "waves-of-apps", "default", repo.URL(), "apps")
	t.Run("APP-31 HLT-25 with a health rule the next wave waits until the child is healthy", func(t *testing.T) {
		condition(t, "wave-first", func(x stack.App) error {
			if x.Status.Sync.Status != "Synced" || x.Status.Health.Status != "Suspended" {
				return fmt.Errorf("%+v", x.Status)
			}
			return nil
		})
		condition(t, "waves-of-apps", func(x stack.App) error {
			if op := x.Status.OperationState; op == nil || !strings.Contains(op.Message, "waiting for healthy Application argocd/wave-first") {
				return fmt.Errorf("%+v", op)
			}
			return nil
		})
		if _, err := s.API.CLI(t.Context(), "", "app", "get", "wave-second"); err == nil {
			t.Error("the second wave has begun")
		}
		if _, err := repo.Commit(t.Context(), "go on", map[string]string{"first/web.yaml": web}); err != nil {
			t.Fatal(err)
		}
		settled(t, "wave-first")
		settled(t, "wave-second")
		if x := settled(t, "waves-of-apps"); x.Status.Health.Status != "Healthy" {
			t.Errorf("%+v", x.Status.Health)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "wave-second", "a", value("one")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("APP-31 the child's health counts in its parent's then", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "pause", map[string]string{"first/web.yaml": paused}); err != nil {
			t.Fatal(err)
		}
		condition(t, "waves-of-apps", func(x stack.App) error {
			if x.Status.Health.Status != "Suspended" || !strings.Contains(x.Status.Health.Message, "wave-first") {
				return fmt.Errorf("%+v", x.Status.Health)
			}
			return nil
		})
	})
	cli(t, "app", "delete", "waves-of-apps", "--yes")
}

func TestAppOfAppsKilledDuringAnOperation(t *testing.T) {
	repo := repository(t, "apps-middle", map[string]string{"app/cm.yaml": configMap("a", "one")})
	files := map[string]string{"apps/hook.yaml": `apiVersion: batch/v1
kind: Job
metadata:
  name: before-children
  annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: BeforeHookCreation}
spec:
  template:
    metadata: {annotations: {harness.capstan.dev/delay: 2s}}
    spec: {restartPolicy: Never, containers: [{name: wait, image: wait}]}
`}
	for i := range 6 {
		name := fmt.Sprintf("middle-%d", i)
		files["apps/"+name+".yaml"] = child(name, "default", repo.URL(), "app", fmt.Sprintf("  annotations: {argocd.argoproj.io/sync-wave: %q}\n", fmt.Sprint(i%3)))
	}
	if _, err := repo.Commit(t.Context(), "apps", files); err != nil {
		t.Fatal(err)
	}
	if err := s.Clusters["in-cluster"].Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: middle}\n"); err != nil {
		t.Fatal(err)
	}
	t.Run("FT-H1 the hub is killed while an operation creates children: it continues", func(t *testing.T) {
		parent := strings.ReplaceAll(child("middle", "default", repo.URL(), "apps", ""), "[CreateNamespace=true]", "[]")
		if _, err := s.API.Apply(t.Context(), parent); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), jobs, "middle", "before-children", func(*unstructured.Unstructured) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Start(within(t, waitLimit)); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			settled(t, fmt.Sprintf("middle-%d", i))
		}
		settled(t, "middle")
	})
	cli(t, "app", "delete", "middle", "--yes")
}
