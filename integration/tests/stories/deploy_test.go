package stories_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// value is a check for the data of a ConfigMap.
func value(want string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		if got, _, _ := unstructured.NestedString(o.Object, "data", "v"); got != want {
			return fmt.Errorf("the value is %q, not %q", got, want)
		}
		return nil
	}
}

func TestPushReachesTheCluster(t *testing.T) {
	repo := repository(t, "push", map[string]string{"app/a.yaml": configMap("a", "one"), "app/b.yaml": configMap("b", "one")})
	deploy(t, "push", repo.URL(), "app", "")
	settled(t, "push")
	cluster := s.Clusters["in-cluster"]
	t.Run("HOOKW-01 a push event makes the new revision visible in the cluster", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "push", "a", value("two")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("AUTO-06 an edit of a managed field is healed, every time", func(t *testing.T) {
		maps := cluster.Dynamic().Resource(configMaps).Namespace("push")
		for i := range 6 {
			if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, fmt.Appendf(nil, `{"data":{"v":"edit-%d"}}`, i), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
				t.Fatal(err)
			}
			if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "push", "a", value("two")); err != nil {
				t.Fatalf("edit %d: %v", i, err)
			}
		}
	})
	t.Run("AUTO-06 a deleted object comes back", func(t *testing.T) {
		if err := cluster.Dynamic().Resource(configMaps).Namespace("push").Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "push", "b", value("one")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("SYNC-11 an object that left the repository is pruned", func(t *testing.T) {
		change := gitserver.Change{Message: "remove b", Remove: []string{"app/b.yaml"}, Write: map[string]string{"app/c.yaml": configMap("c", "new")}}
		if _, err := repo.Push(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, "push", "b"); err != nil {
			t.Fatal(err)
		}
	})
	settled(t, "push")
	t.Run("ROLL-01 API-08 a rollback deploys the older state and automation does not change it", func(t *testing.T) {
		ctx := within(t, waitLimit)
		if _, err := s.API.CLI(ctx, "", "app", "rollback", "push", "1", "--reason", "a story"); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(ctx, configMaps, "push", "a", value("one")); err != nil {
			t.Fatal(err)
		}
		condition(t, "push", func(x stack.App) error {
			if p := x.Status.Capstan.Paused; p == nil || p.Reason != "a story" || x.Status.Sync.Status != "OutOfSync" {
				return fmt.Errorf("it is not paused and OutOfSync: %+v", x.Status)
			}
			return nil
		})
		if _, err := repo.Commit(ctx, "three", map[string]string{"app/a.yaml": configMap("a", "three")}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(ctx, configMaps, "push", "a", value("three")); err != nil {
			t.Fatalf("a newer revision does not end the rollback: %v", err)
		}
	})
	t.Run("CLI-04 history lists what was deployed", func(t *testing.T) {
		condition(t, "push", func(stack.App) error { // a moment after the operation is over
			if out := cli(t, "app", "history", "push"); !strings.Contains(out, "a story") {
				return errors.New(out)
			}
			return nil
		})
	})
	t.Run("DEL-01 deletion with cascade removes the objects", func(t *testing.T) {
		ctx := within(t, waitLimit)
		if _, err := s.API.CLI(ctx, "", "app", "delete", "push", "--yes"); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Dynamic().Resource(configMaps).Namespace("push").Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the object is still there: %v", err)
		}
	})
}

func TestManualApplication(t *testing.T) {
	repo := repository(t, "manual", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "manual", repo.URL(), "app", "")
	settled(t, "manual")
	var object map[string]any
	if err := yaml.Unmarshal([]byte(applied(t, "manual")), &object); err != nil {
		t.Fatal(err)
	}
	delete(object["spec"].(map[string]any)["syncPolicy"].(map[string]any), "automated")
	manifest, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(t.Context(), string(manifest)); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
		t.Fatal(err)
	}
	t.Run("CMPR-01 a new revision makes a manual application OutOfSync and changes nothing", func(t *testing.T) {
		condition(t, "manual", differs)
	})
	t.Run("UX-CLI-5 DIFF-17 diff shows the field and answers with exit code 1", func(t *testing.T) {
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "diff", "manual")
		var e *stack.CLIError
		if !errors.As(err, &e) || e.Code != 1 || !strings.Contains(out, "two") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	})
	t.Run("SYNC-01 API-08 a person's sync applies it", func(t *testing.T) {
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "manual", "--reason", "by hand"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, "manual", "a", value("two")); err != nil {
			t.Fatal(err)
		}
	})
}

// applied returns an application as the API gives it back.
func applied(t *testing.T, name string) string {
	t.Helper()
	out, err := s.API.CLI(t.Context(), "", "app", "get", name, "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// guide reads a manifest of the guide with its repository replaced.
func guide(t *testing.T, file, repo string) (text string, object map[string]any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "guide", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	if repo != "" {
		source := object["spec"].(map[string]any)["source"].(map[string]any)
		b = []byte(strings.ReplaceAll(string(b), source["repoURL"].(string), repo))
		source["repoURL"] = repo
	}
	return string(b), object
}

// equalBack proves that spec, labels and annotations come back as given.
func equalBack(t *testing.T, name string, want map[string]any) {
	t.Helper()
	var got map[string]any
	if err := yaml.Unmarshal([]byte(applied(t, name)), &got); err != nil {
		t.Fatal(err)
	}
	meta := func(o map[string]any, key string) any { return o["metadata"].(map[string]any)[key] }
	for what, pair := range map[string][2]any{
		"spec": {got["spec"], want["spec"]}, "labels": {meta(got, "labels"), meta(want, "labels")}, "annotations": {meta(got, "annotations"), meta(want, "annotations")},
	} {
		if !reflect.DeepEqual(normal(t, pair[0]), normal(t, pair[1])) {
			t.Errorf("%s came back as\n%v\nand was given as\n%v", what, pair[0], pair[1])
		}
	}
}

func normal(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: my-app}
spec:
  replicas: 1
  selector: {matchLabels: {app: my-app}}
  template:
    metadata: {labels: {app: my-app}}
    spec: {containers: [{name: my-app, image: my-app}]}
`

func TestGuide(t *testing.T) {
	repo := repository(t, "guide", map[string]string{
		"overlays/production/kustomization.yaml": "resources: [web.yaml]\n", "overlays/production/web.yaml": web,
		"waves/all.yaml": guideFile(t, "08-waves-and-hooks.yaml"),
	})
	if _, err := s.API.Apply(t.Context(), `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"my-project"},"spec":{"sourceRepos":["*"],"destinations":[{"server":"*","namespace":"*"}],"clusterResourceWhitelist":[{"group":"*","kind":"*"}]}}`); err != nil {
		t.Fatal(err)
	}
	t.Run("APP-01 guide/02 syncs as written and comes back equal", func(t *testing.T) {
		text, object := guide(t, "02-application.yaml", repo.URL())
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		settled(t, "my-application")
		equalBack(t, "my-application", object)
	})
	t.Run("KUST-01 guide/05 syncs as written, with its prefix, image and labels", func(t *testing.T) {
		text, object := guide(t, "05-application-kustomize.yaml", repo.URL())
		if _, err := s.API.Apply(t.Context(), "apiVersion: v1\nkind: Secret\nmetadata: {name: repo, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}\nstringData: {type: git, url: \""+repo.URL()+"\"}\n---\n"+text); err != nil {
			t.Fatal(err)
		}
		if err := s.Clusters["in-cluster"].Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: production}\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "my-kustomize-app"); err != nil {
			t.Fatal(err)
		}
		settled(t, "my-kustomize-app")
		equalBack(t, "my-kustomize-app", object)
		o, err := s.Clusters["in-cluster"].Dynamic().Resource(deployments).Namespace("production").Get(t.Context(), "prod-my-app", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if image := containers[0].(map[string]any)["image"]; image != "registry.example.com/my-app:v1.2.3" || o.GetLabels()["app.kubernetes.io/managed-by"] != "argocd" {
			t.Errorf("image %v, labels %v", image, o.GetLabels())
		}
	})
	t.Run("ENG-02 guide/08 syncs in its order", func(t *testing.T) {
		mark, err := s.Clusters["in-cluster"].Mark()
		if err != nil {
			t.Fatal(err)
		}
		// The namespace of guide/02 is in the way of its wave -1 otherwise.
		deploy(t, "waves", repo.URL(), "waves", "")
		settled(t, "waves")
		requests, err := s.Clusters["in-cluster"].Requests(mark)
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]time.Time{}
		for _, r := range requests {
			if r.User == s.Agents["in-cluster"].User() && (r.Verb == "patch" || r.Verb == "create") && r.Code < 300 && r.Sub == "" && !strings.Contains(r.Path, "dryRun") {
				if _, seen := at[r.Resource]; !seen && (r.Namespace == "waves" && r.Name != "waves" || r.Resource == "namespaces" && r.Name == "my-app") {
					at[r.Resource] = r.At
				}
			}
		}
		order := []string{"jobs", "namespaces", "deployments", "services"}
		for i, kind := range order {
			if at[kind].IsZero() {
				t.Fatalf("no write of %s: %v", kind, at)
			}
			if i > 0 && at[kind].Before(at[order[i-1]]) {
				t.Errorf("%s came before %s", kind, order[i-1])
			}
		}
	})
}

func guideFile(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "guide", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
