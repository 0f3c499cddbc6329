package stories_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

const backups = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: backups.velero.io}
spec:
  group: velero.io
  scope: Namespaced
  names: {kind: Backup, listKind: BackupList, plural: backups, singular: backup}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func backup(days string) string {
	return "apiVersion: velero.io/v1\nkind: Backup\nmetadata: {name: nightly}\nspec: {days: \"" + days + "\"}\n"
}

// excluded waits until an application says that the settings exclude a kind
// of its, or that they do not.
func excluded(t *testing.T, name string, want bool) stack.App {
	t.Helper()
	return condition(t, name, func(x stack.App) error {
		for _, c := range x.Status.Conditions {
			if c.Type == "ExcludedResourceWarning" {
				if want && strings.Contains(c.Message, "Backup") {
					return nil
				}
				return fmt.Errorf("it says %q", c.Message)
			}
		}
		if want {
			return errors.New("it does not say that a kind is excluded")
		}
		return nil
	})
}

// shown waits until the tree of an application shows a kind, or does not: what
// the cluster has told of an object comes apart from what it says of the
// application.
func shown(t *testing.T, name, kind string, want bool) {
	t.Helper()
	condition(t, name, func(stack.App) error {
		if got := nodes(t, name); slices.Contains(strings.Fields(got), kind) != want {
			return fmt.Errorf("the tree shows %s", got)
		}
		return nil
	})
}

// nodes names the kinds that the tree of an application shows.
func nodes(t *testing.T, name string) string {
	t.Helper()
	var tree struct{ Nodes []struct{ Kind string } }
	if err := s.API.Do(t.Context(), "GET", "/api/v1/applications/argocd/"+name+"/tree", nil, &tree); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range tree.Nodes {
		out = append(out, n.Kind)
	}
	return strings.Join(out, " ")
}

// settings applies data of argocd-cm.
func settings(t *testing.T, data string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit) // it cleans up as well
	defer cancel()
	if _, err := s.API.Apply(ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: "+data+"\n"); err != nil {
		t.Fatal(err)
	}
}

func TestExclusions(t *testing.T) {
	cluster := s.Clusters["in-cluster"]
	kind := schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "backups"}
	if err := cluster.Apply(t.Context(), backups+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: my-app}\n"); err != nil {
		t.Fatal(err)
	}
	repo := repository(t, "exclusions", map[string]string{
		"overlays/production/web.yaml":    strings.ReplaceAll(web, "my-app", "ignored"),
		"overlays/production/backup.yaml": backup("one"),
	})
	t.Cleanup(func() { settings(t, "{resource.exclusions: null}") })
	live := func() (string, error) {
		o, err := cluster.Dynamic().Resource(kind).Namespace("my-app").Get(t.Context(), "nightly", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		days, _, _ := unstructured.NestedString(o.Object, "spec", "days")
		return days, nil
	}
	synchronise := func(t *testing.T) {
		t.Helper()
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "ignore-differences"); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("CLU-13 guide/22 as written: an excluded kind is neither applied, compared nor shown, and the application has a condition", func(t *testing.T) {
		text := strings.ReplaceAll(guideFile(t, "22-ignore-differences-and-exclusions.yaml"), "https://github.com/my-org/my-app.git", repo.URL())
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		excluded(t, "ignore-differences", true)
		synchronise(t)
		settled(t, "ignore-differences")
		if _, err := live(); !apierrors.IsNotFound(err) {
			t.Errorf("the object is in the cluster: %v", err)
		}
		shown(t, "ignore-differences", "Deployment", true)
		if got := nodes(t, "ignore-differences"); strings.Contains(got, "Backup") {
			t.Errorf("the tree shows %s", got)
		}
	})
	t.Run("DIFF-06 guide/22 as written: ignored fields may differ", func(t *testing.T) {
		patch := []byte(`{"spec":{"replicas":2}}`)
		if _, err := cluster.Dynamic().Resource(deployments).Namespace("my-app").Patch(t.Context(), "ignored", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-scale"}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), deployments, "my-app", "ignored", func(o *unstructured.Unstructured) error {
			if n, _, _ := unstructured.NestedInt64(o.Object, "status", "replicas"); n != 2 {
				return fmt.Errorf("%d replicas", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		settled(t, "ignore-differences")
	})
	t.Run("CLU-13 a kind that is no longer excluded is managed, without a restart", func(t *testing.T) {
		settings(t, "{resource.exclusions: null}")
		excluded(t, "ignore-differences", false)
		condition(t, "ignore-differences", differs)
		synchronise(t)
		settled(t, "ignore-differences")
		if days, err := live(); days != "one" || err != nil {
			t.Errorf("%q %v", days, err)
		}
		shown(t, "ignore-differences", "Backup", true)
	})
	t.Run("CLU-13 objects of a kind that is excluded later are unchanged: no watch, no drift, no deletion", func(t *testing.T) {
		settings(t, `{resource.exclusions: "- apiGroups: [velero.io]\n  kinds: [Backup]\n"}`)
		excluded(t, "ignore-differences", true)
		settled(t, "ignore-differences")
		shown(t, "ignore-differences", "Backup", false)
		// What happens to the object is nobody's business now.
		if _, err := cluster.Dynamic().Resource(kind).Namespace("my-app").Patch(t.Context(), "nightly", types.MergePatchType, []byte(`{"spec":{"days":"edited"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		commit, err := repo.Commit(t.Context(), "two", map[string]string{"overlays/production/backup.yaml": backup("two")})
		if err != nil {
			t.Fatal(err)
		}
		condition(t, "ignore-differences", func(x stack.App) error {
			if x.Status.Sync.Revision != commit {
				return errors.New(x.Status.Sync.Revision)
			}
			return nil
		})
		synchronise(t)
		settled(t, "ignore-differences")
		if days, err := live(); days != "edited" || err != nil {
			t.Errorf("%q %v", days, err)
		}
	})
	t.Run("CLU-13 once managed again, the difference is found and healed", func(t *testing.T) {
		settings(t, "{resource.exclusions: null}")
		condition(t, "ignore-differences", differs)
		synchronise(t)
		settled(t, "ignore-differences")
		if days, err := live(); days != "two" || err != nil {
			t.Errorf("%q %v", days, err)
		}
	})
	t.Run("CLU-14 kinds that are excluded from the start", func(t *testing.T) {
		leases := repository(t, "leases", map[string]string{
			"app/a.yaml":     configMap("a", "one"),
			"app/lease.yaml": "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: mine}\n",
		})
		deploy(t, "leases", leases.URL(), "app", "")
		settled(t, "leases")
		condition(t, "leases", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if c.Type == "ExcludedResourceWarning" && strings.Contains(c.Message, "Lease") {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", x.Status.Conditions)
		})
	})
	t.Run("settings are shown and set, and a mistake changes nothing", func(t *testing.T) {
		if _, err := s.API.CLI(t.Context(), "- kinds: A\n", "settings", "set", "resource.inclusions", "--from-file", "-"); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("error %v", err)
		}
		if out, err := s.API.CLI(t.Context(), "", "settings", "get"); err != nil || strings.Contains(out, "inclusions") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", "ignore-differences", "--yes"); err != nil {
		t.Error(err)
	}
}

// What is set about renders counts at once, for applications that are there.
func TestRenderSettings(t *testing.T) {
	repo := repository(t, "render-settings", map[string]string{
		"app/a.yaml": configMap("a", "one"), "app/.hidden/h.yaml": configMap("h", "one"),
		"shared/s.yaml": configMap("s", "one"), "k/kustomization.yaml": "resources: [../shared/s.yaml]\n",
	})
	cluster := s.Clusters["in-cluster"]
	t.Run("DIR-08 hidden directories are read once they are enabled, and pruned when they are not", func(t *testing.T) {
		if _, err := s.API.Apply(within(t, waitLimit), recursing("hidden", repo.URL())); err != nil {
			t.Fatal(err)
		}
		settled(t, "hidden")
		if _, err := cluster.Dynamic().Resource(configMaps).Namespace("hidden").Get(t.Context(), "h", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("it is there before it is asked for: %v", err)
		}
		set := func(data string) {
			t.Helper()
			if _, err := s.API.Apply(within(t, waitLimit), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cmd-params-cm, namespace: argocd}\ndata: "+data+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		set(`{reposerver.include.hidden.directories: "true"}`)
		live(t, "hidden", "h", value("one"))
		set(`{reposerver.include.hidden.directories: "false"}`)
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, "hidden", "h"); err != nil {
			t.Error(err)
		}
	})
	t.Run("KUST-08 build options count once they are set", func(t *testing.T) {
		deploy(t, "build-options", repo.URL(), "k", "")
		says(t, "build-options", "security")
		if _, err := s.API.CLI(within(t, waitLimit), "--load-restrictor LoadRestrictionsNone\n", "settings", "set", "kustomize.buildOptions", "--from-file", "-"); err != nil {
			t.Fatal(err)
		}
		live(t, "build-options", "s", value("one"))
		settled(t, "build-options")
		_, err := s.API.CLI(within(t, waitLimit), "--enable-exec\n", "settings", "set", "kustomize.buildOptions", "--from-file", "-")
		if err == nil || !strings.Contains(err.Error(), "sandbox") {
			t.Errorf("SEC-A7: an option that starts programs: %v", err)
		}
	})
}

func recursing(name, repo string) string {
	return fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: %[1]s, namespace: argocd}\nspec:\n  project: default\n  source: {repoURL: %[2]q, path: app, targetRevision: main, directory: {recurse: true}}\n  destination: {name: in-cluster, namespace: %[1]s}\n  syncPolicy: {automated: {prune: true}, syncOptions: [CreateNamespace=true]}\n", name, repo)
}
