// Package recovery_test loses a hub with its database and its agent, and imports
// what was exported before into a fresh installation, which gets an agent of its
// own in the same cluster.
package recovery_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// many is how many applications are exported.
const many = 60

// place is the cluster of both installations.
const place = "in-cluster"

var (
	lost *stack.Stack
	bin  string
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "recovery", 60*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	if bin, err = suite.Build(ctx, dir); err != nil {
		return nil, err
	}
	lost, err = stack.Start(ctx, stack.Options{Bin: bin, Dir: filepath.Join(dir, "lost"), Clusters: []string{place}})
	if err != nil {
		return nil, err
	}
	return lost.Stop, nil
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func name(i int) string { return fmt.Sprintf("app-%02d", i) }

func configMap(value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: %q}\n", value)
}

// declared is what the admin of the lost installation has applied: settings, a
// policy, a secret, a project, and many automated applications.
func declared(repo string) string {
	var all strings.Builder
	all.WriteString(secrets + `---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd}
data:
  timeout.reconciliation: 300s
  resource.customizations.ignoreDifferences.apps_Deployment: |
    jsonPointers: [/spec/replicas]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-rbac-cm, namespace: argocd}
data:
  policy.default: role:readonly
  policy.csv: |
    # developers
    p, role:dev, applications, sync, team/*, allow
    g, devs, role:dev
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: team, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{name: "*", namespace: "app-*"}]
  clusterResourceWhitelist: [{group: "", kind: Namespace}]
  roles:
    - {name: dev, groups: [devs], policies: ["p, proj:team:dev, applications, get, team/*, allow"]}
`)
	for i := range many {
		fmt.Fprintf(&all, `---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %[1]s
  namespace: argocd
  labels: {tier: t%[3]d}
  finalizers: [resources-finalizer.argocd.argoproj.io]
spec:
  project: team
  source: {repoURL: %[2]q, path: %[1]s, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}
`, name(i), repo, i%3)
	}
	return all.String()
}

// secrets are what no export has: people have them elsewhere, too.
const secrets = `---
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd}
stringData: {webhook.github.secret: a long enough webhook secret}
`

// changes lists the requests of an agent that changed something of an application.
func changes(t *testing.T, cluster *kube.Cluster, from kube.AuditMark, user string) (out []string) {
	t.Helper()
	requests, err := cluster.Requests(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		reads := r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
		ours := strings.HasPrefix(r.Namespace, "app-") || r.Resource == "namespaces" && strings.HasPrefix(r.Name, "app-")
		if r.User == user && ours && !reads && !strings.Contains(r.Path, "dryRun") {
			out = append(out, r.Verb+" "+r.Resource+" "+r.Namespace+"/"+r.Name)
		}
	}
	return out
}

// uninstall removes the agent of the lost installation, and its rights.
func uninstall(t *testing.T, cluster *kube.Cluster) {
	t.Helper()
	rights, err := kube.AgentRights("cluster")
	if err == nil {
		err = cluster.Delete(within(t), rights)
	}
	if err == nil {
		err = cluster.WaitGone(within(t), namespaces, "", kube.AgentNamespace)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// every waits until all applications say something.
func every(t *testing.T, s *stack.Stack, check func(i int, x stack.App) error) {
	t.Helper()
	for i := range many {
		if _, err := s.API.Wait(within(t), name(i), func(x stack.App) error { return check(i, x) }); err != nil {
			t.Fatalf("%s: %v", name(i), err)
		}
	}
}

func export(t *testing.T, s *stack.Stack) string {
	t.Helper()
	out, err := s.API.CLI(within(t), "", "admin", "export")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

func TestRecovery(t *testing.T) {
	cluster := lost.Clusters[place]
	repo, err := lost.Repository(within(t), "all", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for i := range many {
		files[name(i)+"/a.yaml"] = configMap("one")
	}
	if _, err := repo.Commit(within(t), "begin", files); err != nil {
		t.Fatal(err)
	}
	if out, err := lost.API.Apply(within(t), declared(repo.URL())); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	every(t, lost, func(_ int, x stack.App) error { return stack.Settled(x) })
	backup := export(t, lost)
	uids, tenant := map[int]types.UID{}, ""
	for i := range many {
		o := object(t, cluster, i)
		uids[i], tenant = o.uid, o.tenant
	}

	// The installation is gone for ever. Meanwhile Git and the cluster go on: one
	// object is edited, and one file.
	if err := lost.Agents[place].Stop(); err != nil {
		t.Fatal(err)
	}
	if err := lost.Hub.Kill(); err != nil {
		t.Fatal(err)
	}
	const edited, behind = 3, 7
	patch := []byte(`{"data":{"v":"edited"}}`)
	if _, err := cluster.Dynamic().Resource(configMaps).Namespace(name(edited)).Patch(within(t), "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
		t.Fatal(err)
	}
	repo.SetWebhook(gitserver.Webhook{})
	if _, err := repo.Commit(within(t), "two", map[string]string{name(behind) + "/a.yaml": configMap("two")}); err != nil {
		t.Fatal(err)
	}

	uninstall(t, cluster)
	mark, err := cluster.Mark()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := stack.Start(within(t), stack.Options{
		Bin: bin, Dir: t.TempDir(), Clusters: []string{place}, Existing: map[string]string{place: cluster.Kubeconfig()},
		Settings: map[string]any{"tenants": map[string]any{"firstID": tenant}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fresh.Stop(); err != nil {
			t.Error(err)
		}
	})
	user := fresh.Agents[place].User()

	t.Run("FT-U2 an import into a fresh installation starts nothing: all is observed, and nothing is changed", func(t *testing.T) {
		if out, err := fresh.API.CLI(within(t), backup, "import", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		every(t, fresh, func(i int, x stack.App) error {
			want := "Synced"
			if i == edited || i == behind {
				want = "OutOfSync"
			}
			if x.Status.Sync.Status != want {
				return fmt.Errorf("it is %q, not %s", x.Status.Sync.Status, want)
			}
			return nil
		})
		list, err := fresh.API.CLI(within(t), "", "import", "list", "-o", "name")
		if err != nil || strings.Count(list, "\n") != many {
			t.Errorf("%d applications wait: %v\n%s", strings.Count(list, "\n"), err, list)
		}
		every(t, fresh, func(_ int, x stack.App) error {
			if x.Status.OperationState != nil {
				t.Errorf("%s has the operation %+v", x.Metadata.Name, x.Status.OperationState)
			}
			return nil
		})
		if got := changes(t, cluster, mark, user); len(got) > 0 {
			t.Errorf("%d changing requests: %v", len(got), got)
		}
	})
	t.Run("FT-U2 with the secrets that no export has, the state is equal by checksum", func(t *testing.T) {
		if out, err := fresh.API.Apply(within(t), secrets); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		again := export(t, fresh)
		was, is := sha256.Sum256([]byte(backup)), sha256.Sum256([]byte(again))
		t.Logf("%d bytes, %x and %x", len(backup), was[:8], is[:8])
		if was != is {
			t.Errorf("the exports differ:\n%s", difference(backup, again))
		}
	})
	t.Run("FT-U2 a confirmation takes over what equals as it is, and syncs what differs alone", func(t *testing.T) {
		if out, err := fresh.API.CLI(within(t), "", "import", "confirm", "--all", "--yes"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		every(t, fresh, func(i int, x stack.App) error {
			if x.Status.Capstan.Accepted == "" || x.Status.Capstan.Accepted != x.Status.Capstan.Target {
				return fmt.Errorf("its target is not accepted")
			}
			return stack.Settled(x)
		})
		for _, c := range changes(t, cluster, mark, user) {
			if !strings.Contains(c, name(edited)) && !strings.Contains(c, name(behind)) {
				t.Errorf("an application that equals got %s", c)
			}
		}
		for i := range many {
			o := object(t, cluster, i)
			want := "one"
			if i == behind {
				want = "two"
			}
			if o.value != want || o.uid != uids[i] {
				t.Errorf("%s has %q (uid %s, before %s)", name(i), o.value, o.uid, uids[i])
			}
		}
	})
	t.Run("FT-U2 what was taken over is deployed and healed from then on", func(t *testing.T) {
		if _, err := cluster.Dynamic().Resource(configMaps).Namespace(name(0)).Patch(within(t), "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		err := poll.Until(within(t), func(context.Context) error {
			if v := object(t, cluster, 0).value; v != "one" {
				return fmt.Errorf("it is %q", v)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

type live struct {
	uid           types.UID
	value, tenant string
}

func object(t *testing.T, cluster *kube.Cluster, i int) live {
	t.Helper()
	o, err := cluster.Dynamic().Resource(configMaps).Namespace(name(i)).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := o.Object["data"].(map[string]any)
	return live{o.GetUID(), fmt.Sprint(data["v"]), o.GetAnnotations()["capstan.dev/tenant"]}
}

// difference is the first line that differs, with what surrounds it.
func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d\nbefore:\n%s\nafter:\n%s", i+1, strings.Join(x[max(0, i-6):min(len(x), i+6)], "\n"), strings.Join(y[max(0, i-6):min(len(y), i+6)], "\n"))
		}
	}
	return fmt.Sprintf("one has %d lines, the other %d", len(x), len(y))
}
