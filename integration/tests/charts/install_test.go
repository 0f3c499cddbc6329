package charts_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
)

// shared is the cluster of this package, with nodes on which pods run.
var shared *kube.Cluster

func TestMain(m *testing.M) {
	_ = os.Setenv("POD_IP", "192.0.2.7") // as in the hub's container, which reads its configuration
	os.Exit(kube.Main(m, kube.Options{Nodes: true}, func(c *kube.Cluster) { shared = c }))
}

var (
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	clusterRole = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
)

// place is a namespace of the cluster into which Helm itself installs.
type place struct {
	t         *testing.T
	namespace string
	helm      *action.Configuration
}

// newPlace makes a namespace that admits only pods of the Pod Security
// Standard "restricted", and a volume for a claim.
func newPlace(t *testing.T, namespace string) *place {
	t.Helper()
	if err := shared.Apply(t.Context(), fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec: {capacity: {storage: 100Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /nowhere}, claimRef: {namespace: %[1]s, name: %[2]s}}
`, namespace, map[bool]string{true: "capstan-agent-state", false: "data-capstan-hub-postgres-0"}[strings.HasPrefix(namespace, "agent")])); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	file := shared.Kubeconfig()
	flags.KubeConfig, flags.Namespace = &file, &namespace
	cfg := &action.Configuration{}
	if err := cfg.Init(flags, namespace, "secret", func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	return &place{t: t, namespace: namespace, helm: cfg}
}

const helmTime = 5 * time.Minute // a limit for what hangs

func (p *place) install(name string, c *chart.Chart, v map[string]any) *release.Release {
	p.t.Helper()
	i := action.NewInstall(p.helm)
	i.ReleaseName, i.Namespace, i.Wait, i.Timeout = name, p.namespace, true, helmTime
	r, err := i.RunWithContext(p.t.Context(), c, v)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *place) upgrade(name string, c *chart.Chart, v map[string]any) *release.Release {
	p.t.Helper()
	u := action.NewUpgrade(p.helm)
	u.Namespace, u.Wait, u.Timeout = p.namespace, true, helmTime
	r, err := u.RunWithContext(p.t.Context(), name, c, v)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *place) uninstall(name string) {
	p.t.Helper()
	u := action.NewUninstall(p.helm)
	u.Wait, u.Timeout = true, helmTime
	if _, err := u.Run(name); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) get(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	p.t.Helper()
	o, err := shared.Dynamic().Resource(r).Namespace(p.namespace).Get(p.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return o
}

func TestHubInstalls(t *testing.T) {
	t.Parallel()
	c := load(t, "capstan-hub")
	t.Run("for a trial: with Postgres and a key of its own, upgraded, and removed except its secrets", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, "hub-trial")
		v := func(more string) map[string]any {
			return values(t, leastHub, "database: {existingSecret: ''}\nmasterKey: {existingSecret: '', generate: true}\npostgres: {bundled: true}\nlink: {service: {type: NodePort}}\n"+more)
		}
		r := p.install("capstan-hub", c, v(""))
		if !strings.Contains(r.Info.Notes, "setup-link") || !strings.Contains(r.Info.Notes, "FOR TRIALS") {
			t.Errorf("notes:\n%s", r.Info.Notes)
		}
		key, url := says(p.get(secrets, "capstan-hub-master-key").Object["data"]), says(p.get(secrets, "capstan-hub-database").Object["data"])
		p.upgrade("capstan-hub", c, v("replicas: 2\n"))
		// Helm waits for the pods; that they are counted comes a moment later.
		ctx, cancel := context.WithTimeout(t.Context(), helmTime)
		defer cancel()
		_, err := shared.WaitFor(ctx, deployments, p.namespace, "capstan-hub", func(o *unstructured.Unstructured) error {
			if got := says(o.Object["status"]); !strings.Contains(got, "availableReplicas: 2") {
				return fmt.Errorf("its status is\n%s", got)
			}
			return nil
		})
		if err != nil {
			t.Errorf("after the upgrade: %v", err)
		}
		same := func(when string) {
			if got := says(p.get(secrets, "capstan-hub-master-key").Object["data"]); got != key {
				t.Errorf("%s: another master key", when)
			}
			if got := says(p.get(secrets, "capstan-hub-database").Object["data"]); got != url {
				t.Errorf("%s: other passwords", when)
			}
		}
		same("upgraded")
		p.uninstall("capstan-hub")
		same("uninstalled")
	})
	t.Run("with a Postgres of yours: a Job migrates before each upgrade", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, "hub-own")
		v := func(more string) map[string]any {
			return values(t, leastHub, "replicas: 2\ningress: {enabled: true, hosts: [{host: capstan.example.com}]}\nlink: {service: {type: NodePort}}\n"+more)
		}
		p.install("capstan-hub", c, v(""))
		p.upgrade("capstan-hub", c, v("config: {log: {level: debug}}\n"))
		if got := says(p.get(configMaps, "capstan-hub").Object["data"]); !strings.Contains(got, "debug") {
			t.Errorf("configuration:\n%s", got)
		}
		// Helm waits for the hooks; that they ran is in the audit log.
		if n := made(t, "jobs", p.namespace); n != 2 {
			t.Errorf("%d Jobs were made for two migrations", n)
		}
		p.uninstall("capstan-hub")
	})
}

// made counts the objects that were created in a namespace.
func made(t *testing.T, resource, namespace string) int {
	t.Helper()
	all, err := shared.Requests(0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range all {
		if r.Verb == "create" && r.Resource == resource && r.Sub == "" && r.Namespace == namespace && r.Code == 201 {
			n++
		}
	}
	return n
}

func TestAgentInstalls(t *testing.T) {
	t.Parallel()
	c := load(t, "capstan-agent")
	if err := shared.Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: agent-target}\n"); err != nil {
		t.Fatal(err)
	}
	t.Run("11.9 after installation, changes of mode and removal, its account has the rights of the mode", func(t *testing.T) {
		p := newPlace(t, "agent-home")
		type can struct{ target, elsewhere, clusterScoped bool }
		check := func(mode string, write, read can) {
			t.Helper()
			if err := shared.RightsInForce(t.Context()); err != nil {
				t.Fatal(err)
			}
			for verb, want := range map[string]can{"patch": write, "list": read} {
				got := can{p.may(verb, "configmaps", "agent-target"), p.may(verb, "configmaps", "default"), p.may(verb, "clusterroles", "")}
				if got != want {
					t.Errorf("mode %s: %s %+v, want %+v", mode, verb, got, want)
				}
			}
			if !p.may("get", "secrets/capstan-agent-state", p.namespace) || !p.may("create", "leases", p.namespace) {
				t.Errorf("mode %s: it cannot keep its identity or its lease", mode)
			}
			if p.may("create", "tokenreviews", "") != (mode == "cluster") || p.may("impersonate", "users", "") {
				t.Errorf("mode %s: it may do what nobody needs", mode)
			}
		}
		all, none, some := can{true, true, true}, can{}, can{target: true}
		p.install("capstan-agent", c, values(t, leastAgent, "{}"))
		check("cluster", all, all)
		p.upgrade("capstan-agent", c, values(t, leastAgent, "mode: namespaced\nnamespaces: [agent-target]"))
		check("namespaced", some, some)
		p.upgrade("capstan-agent", c, values(t, leastAgent, "mode: observe"))
		check("observe", none, all)
		p.uninstall("capstan-agent")
		_, err := shared.Dynamic().Resource(clusterRole).Get(t.Context(), "agent-home:capstan-agent", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("its rights stay: %v", err)
		}
	})
}

// may asks the API server whether the installed account may do something; a
// name follows the resource after a slash.
func (p *place) may(verb, resource, namespace string) bool {
	p.t.Helper()
	group := map[string]string{"clusterroles": "rbac.authorization.k8s.io", "leases": "coordination.k8s.io", "tokenreviews": "authentication.k8s.io"}[resource]
	resource, name, _ := strings.Cut(resource, "/")
	token, err := shared.AccountToken(p.t.Context(), p.namespace, "capstan-agent")
	if err != nil {
		p.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: shared.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: shared.CA()}})
	if err != nil {
		p.t.Fatal(err)
	}
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": verb, "group": group, "resource": resource, "name": name, "namespace": namespace,
		}},
	}}
	answer, err := client.Resource(schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}).
		Create(context.WithoutCancel(p.t.Context()), review, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return dig(answer.Object, "status", "allowed") == true
}
