package stories_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// owns applies an application of a project that goes to a namespace.
func owns(t *testing.T, name, project, repo, path, namespace, policy string) {
	t.Helper()
	if _, err := s.API.Apply(within(t, waitLimit), fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %s, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: %s
  source: {repoURL: %q, path: %s, targetRevision: main}
  destination: {name: in-cluster, namespace: %s}
  syncPolicy: {syncOptions: [CreateNamespace=true]%s}
`, name, project, repo, path, namespace, policy)); err != nil {
		t.Fatal(err)
	}
}

const automated = ", automated: {prune: true, selfHeal: true}, retry: {limit: 1, backoff: {duration: 1ms}}"

// rendered waits until an application has a target.
func rendered(t *testing.T, name string) {
	t.Helper()
	condition(t, name, func(x stack.App) error {
		if x.Status.Sync.Revision == "" || x.Status.ReconciledAt == nil {
			return errors.New("it was not compared yet")
		}
		return nil
	})
}

func ownedBy(app string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		if id := o.GetAnnotations()["capstan.dev/tracking-id"]; !strings.HasPrefix(id, "argocd_"+app+":") {
			return fmt.Errorf("it is tracked by %q", id)
		}
		return nil
	}
}

func TestOwnersOfObjects(t *testing.T) {
	clusterRoles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	cluster := s.Clusters["in-cluster"]
	const ns = "owners"
	repo := repository(t, ns, map[string]string{
		"role/role.yaml":   "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: owners-role}\nrules: []\n",
		"first/a.yaml":     configMap("shared", "first"),
		"second/a.yaml":    configMap("shared", "second"),
		"hostile/own.yaml": strings.ReplaceAll(configMap("victim", "hostile"), "metadata:\n", "metadata:\n  namespace: "+ns+"\n"),
		"right/own.yaml":   configMap("victim", "rightful"),
	})
	if _, err := s.API.Apply(within(t, waitLimit), `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: owners-small, namespace: argocd}
spec:
  sourceRepos: ['*']
  clusterResourceWhitelist: [{group: '*', kind: '*'}]
  destinations: [{name: in-cluster, namespace: owners-small}]
`); err != nil {
		t.Fatal(err)
	}
	t.Run("TRK-07 SEC-A12 a never synced application of another project does not block the objects that it renders", func(t *testing.T) {
		owns(t, "owners-idle", "owners-small", repo.URL(), "role", "owners-small", "")
		rendered(t, "owners-idle")
		owns(t, "owners-role", "default", repo.URL(), "role", ns, automated)
		settled(t, "owners-role")
		o, err := cluster.Dynamic().Resource(clusterRoles).Get(t.Context(), "owners-role", metav1.GetOptions{})
		if err != nil || ownedBy("owners-role")(o) != nil {
			t.Errorf("%v, %v", ownedBy("owners-role")(o), err)
		}
		conditioned(t, "owners-idle", "SharedResourceWarning", "owners-role")
		cli(t, "app", "delete", "owners-role", "owners-idle", "--yes", "--wait")
		if err := cluster.WaitGone(within(t, waitLimit), clusterRoles, "", "owners-role"); err != nil {
			t.Error(err)
		}
	})
	t.Run("SEC-D2 SEC-A12 INV-13 an application whose project forbids an object does not block the permitted one", func(t *testing.T) {
		owns(t, "owners-squatter", "owners-small", repo.URL(), "hostile", "owners-small", automated)
		says(t, "owners-squatter", "does not permit")
		owns(t, "owners-rightful", "default", repo.URL(), "right", ns, automated)
		settled(t, "owners-rightful")
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, ns, "victim", ownedBy("owners-rightful")); err != nil {
			t.Error(err)
		}
		cli(t, "app", "delete", "owners-squatter", "owners-rightful", "--yes", "--wait")
	})
	t.Run("AUTO-04 TRK-07 an application whose manual sync was refused an object is synced once the owner is deleted", func(t *testing.T) {
		owns(t, "owners-a", "default", repo.URL(), "first", ns, automated)
		settled(t, "owners-a")
		owns(t, "owners-b", "default", repo.URL(), "second", ns, ", automated: {prune: true}, retry: {limit: 0}")
		conditioned(t, "owners-b", "SyncError", "managed by application owners-a")
		if out, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "owners-b"); err == nil {
			t.Errorf("the sync succeeded: %s", out)
		}
		cli(t, "app", "delete", "owners-a", "--yes")
		settled(t, "owners-b")
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, ns, "shared", ownedBy("owners-b")); err != nil {
			t.Error(err)
		}
		cli(t, "app", "delete", "owners-b", "--yes", "--wait")
		if err := cluster.WaitGone(within(t, waitLimit), configMaps, ns, "shared"); err != nil {
			t.Error(err)
		}
	})
	for title, c := range map[string]struct {
		order []string
		b     string
	}{
		"DEL-08 TRK-07 both applications of a shared object are deleted at once": {[]string{"owners-c", "owners-d"}, automated},
		"DEL-08 TRK-07 the one that was refused it is deleted first":             {[]string{"owners-d", "owners-c"}, automated},
		"DEL-08 TRK-07 the other one was never synced":                           {[]string{"owners-c", "owners-d"}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			owns(t, "owners-c", "default", repo.URL(), "first", ns, automated)
			settled(t, "owners-c")
			owns(t, "owners-d", "default", repo.URL(), "second", ns, c.b)
			conditioned(t, "owners-d", "SharedResourceWarning", "owners-c")
			cli(t, append([]string{"app", "delete", "--yes", "--wait=false"}, c.order...)...)
			for _, name := range c.order {
				absent(t, name)
			}
			if err := cluster.WaitGone(within(t, waitLimit), configMaps, ns, "shared"); err != nil {
				t.Error(err)
			}
		})
	}
}
