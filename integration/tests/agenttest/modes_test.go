package agenttest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// install gives the agent an account of its own, with the rights that its
// chart grants in its mode, and nothing more.
func (w *world) install(c *daemon.Config) {
	w.t.Helper()
	if w.guard != "" {
		c.GuardFile = filepath.Join(w.t.TempDir(), "guard.yaml")
		if err := os.WriteFile(c.GuardFile, []byte(inNamespace(w.guard, w.namespace)), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	c.Mode, c.Namespaces = w.mode, w.scope
	rights, err := kube.AgentRightsIn(w.home, w.mode, w.scope...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.apply(rights)
	token, err := shared.AccountToken(w.t.Context(), w.home, "capstan-agent")
	if err != nil {
		w.t.Fatal(err)
	}
	c.REST = &rest.Config{Host: shared.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: shared.CA()}}
	w.account = c.REST
}

// doctor says how an agent finds its rights that is installed like this one,
// or as another mode has it.
func (w *world) doctor(mode string, scope []string, line string) {
	w.t.Helper()
	var out bytes.Buffer
	_ = daemon.Doctor(w.t.Context(), daemon.Config{Namespace: w.home, REST: w.account, Mode: mode, Namespaces: scope, Upgrades: true}, &out)
	if !strings.Contains(out.String(), line) || !strings.Contains(out.String(), "ok    own rights") {
		w.t.Errorf("mode %s: no line has %q:\n%s", mode, line, out.String())
	}
}

// denied are the requests of an agent that the API server refused since mark.
func (w *world) denied(mark kube.AuditMark) []string {
	w.t.Helper()
	all, err := shared.Requests(mark)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, r := range all {
		if r.User == "system:serviceaccount:"+w.home+":capstan-agent" && r.Code == 403 {
			out = append(out, r.Verb+" "+r.Path)
		}
	}
	return out
}

func mark(t *testing.T) kube.AuditMark {
	t.Helper()
	m, err := shared.Mark()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const clusterRole = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: NS-role}\nrules: []\n"

// What the API server adds most defaults to, some of them inside lists
// without names.
const (
	deployed = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: api, image: "example.com/api:1", ports: [{containerPort: 80}]}]}
`
	service = `---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: NS}
spec: {selector: {app: api}, ports: [{port: 80}]}
`
)

// message finds what an operation says of an object.
func message(o *linkv1.OperationReport, kind, name string) string {
	for _, r := range o.GetResults() {
		if r.GetKind() == kind && r.GetName() == name {
			return r.GetStatus() + ": " + r.GetMessage()
		}
	}
	return "(no result)"
}

func TestNamespaced(t *testing.T) {
	t.Parallel()
	before := mark(t)
	w := newWorldWith(t, func(w *world) {
		w.mode, w.scope = "namespaced", []string{w.namespace, w.namespace + "-2"}
		w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: NS-2}\n")
		w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: NS-other}\n")
	})
	a := w.application()
	t.Run("CLU-06 11.9 an agent of some namespaces deploys, reports and heals in them with the rights of its chart", func(t *testing.T) {
		a.deploy(configMap("web", "red") + inNamespace(configMap("far", "red"), w.namespace+"-2") + deployed)
		a.synced()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"blue"}}`)
		w.live(configMaps, "web", data("color", "red"))
		w.await("the ReplicaSet is seen", func() bool {
			for _, r := range w.resources {
				if r.GetKind() == "ReplicaSet" && r.GetNamespace() == w.namespace {
					return true
				}
			}
			return false
		})
		if got := w.denied(before); len(got) > 0 {
			t.Errorf("the API server refused: %v", got)
		}
	})
	t.Run("11.9 a deletion in one namespace is observed, and objects of the other are unchanged", func(t *testing.T) {
		old := w.get(configMaps, "web").GetUID()
		if err := w.at(configMaps).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.live(configMaps, "web", func(o *unstructured.Unstructured) error {
			if o.GetUID() == old {
				return errSame
			}
			return nil
		})
		a.synced()
	})
	t.Run("CLU-06 11.9 objects outside are refused one by one, and the others are Unknown", func(t *testing.T) {
		b := w.application()
		o := w.ended(b.begin(configMap("in", "red")+inNamespace(configMap("out", "red"), w.namespace+"-other"), nil), "Failed")
		if got := message(o, "ConfigMap", "out"); !strings.Contains(got, "this agent sees only the namespaces "+w.namespace) {
			t.Errorf("ConfigMap: %s", got)
		}
		if got := message(o, "ConfigMap", "in"); !strings.HasPrefix(got, "Synced") {
			t.Errorf("the other ConfigMap: %s", got)
		}
		o = w.ended(w.application().begin(clusterRole, nil), "Failed")
		if got := message(o, "ClusterRole", w.namespace+"-role"); !strings.Contains(got, "nothing cluster-scoped") {
			t.Errorf("ClusterRole: %s", got)
		}
		b.await("what cannot be seen is unknown", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "Unknown" && strings.Contains(r.GetError(), "this agent sees only")
		})
		if got := w.denied(before); len(got) > 0 {
			t.Errorf("it asked all the same: %v", got)
		}
	})
	t.Run("SYNC-26 a namespace of the agent that is there counts as made", func(t *testing.T) {
		b := w.application()
		b.policy.SyncOptions = []string{"CreateNamespace=true"}
		b.deploy(configMap("third", "red"))
		b.synced()
	})
	t.Run("11.9 it prunes, and survives a restart", func(t *testing.T) {
		a.deploy(inNamespace(configMap("far", "red"), w.namespace+"-2"))
		w.waitDeleted(configMaps, "web")
		w.stop()
		w.run()
		a.synced()
		if got := w.denied(before); len(got) > 0 {
			t.Errorf("the API server refused: %v", got)
		}
	})
}

func TestDoctorKnowsModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cluster", "namespaced", "observe"} {
		t.Run("11.9 "+mode+": rights that are missing, and those of no use", func(t *testing.T) {
			t.Parallel()
			w := newWorldWith(t, func(w *world) {
				if w.mode = mode; mode == "namespaced" {
					w.scope = []string{w.namespace}
				}
			})
			w.doctor(mode, w.scope, "ok    rights")
			switch mode {
			case "cluster":
				w.doctor("observe", nil, "which its mode does not need")
				w.doctor("namespaced", []string{"default"}, "which its mode does not need")
			case "namespaced":
				w.doctor("cluster", nil, "the agent may not get in all namespaces")
				w.doctor("namespaced", []string{"default"}, "the agent may not get in namespace default")
				w.doctor("namespaced", w.scope, "warn  upgrades        the hub may not upgrade this agent: it may not get deployments.apps in namespace "+w.home)
			case "observe":
				w.doctor("cluster", nil, "the agent may not create in all namespaces")
			}
		})
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	before := mark(t)
	w := newWorldWith(t, func(w *world) { w.mode = "observe" })
	w.apply(configMap("web", "red") + deployed + service)
	a := w.application()
	t.Run("11.9 an agent in mode observe reports whether live state matches the manifests", func(t *testing.T) {
		a.target = a.snapshot(configMap("web", "red") + deployed + service)
		a.accepted = a.target
		w.append(a.stateRow())
		a.synced()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"blue"}}`)
		r := w.resource(nameOf("ConfigMap", w.namespace, "web"), func(r *linkv1.Resource) bool {
			return r.GetSync() == "OutOfSync" && strings.Contains(r.GetDiff(), "data.color")
		})
		if !strings.Contains(r.GetMessage(), "only observes") {
			t.Errorf("it says %q and %q", r.GetDiff(), r.GetMessage())
		}
	})
	t.Run("11.9 it applies, heals and deletes nothing, and reports that for each object", func(t *testing.T) {
		id := a.begin(configMap("new", "red")+deployed+service, nil)
		o := w.ended(id, "Failed")
		if got := message(o, "ConfigMap", "new"); !strings.Contains(got, "this agent only observes; it changes nothing") {
			t.Errorf("ConfigMap: %s", got)
		}
		if _, err := w.at(configMaps).Get(t.Context(), "new", metav1Get); !apierrors.IsNotFound(err) {
			t.Errorf("it was made: %v", err)
		}
		w.get(configMaps, "web")
		if got := w.denied(before); len(got) > 0 {
			t.Errorf("the API server refused: %v", got)
		}
	})
}

func TestGuard(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, func(w *world) {
		w.mode = "cluster"
		w.guard = "allowDelete: false\nallowClusterScoped: false\nnamespaces: [\"*\", \"!NS-forbidden\"]\ndeny: [{kind: Secret}, {kind: ConfigMap, name: \"locked*\"}]\n"
		w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: NS-forbidden}\n")
	})
	a := w.application()
	t.Run("SEC-K9 what the local guard refuses is refused in the cluster, whatever the hub sends", func(t *testing.T) {
		for name, c := range map[string]struct{ kind, manifest, why string }{
			"locked-1":            {"ConfigMap", configMap("locked-1", "red"), "does not permit changes of it"},
			"s":                   {"Secret", "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: NS}\n", "does not permit changes of it"},
			w.namespace + "-role": {"ClusterRole", clusterRole, "nothing cluster-scoped"},
			"there":               {"ConfigMap", inNamespace(configMap("there", "red"), w.namespace+"-forbidden"), "does not permit changes in namespace"},
			"home":                {"ConfigMap", inNamespace(configMap("home", "red"), w.home), "protects the agent's own namespace"},
		} {
			o := w.ended(w.application().begin(c.manifest, nil), "Failed")
			if got := message(o, c.kind, name); !strings.Contains(got, c.why) {
				t.Errorf("%s %s: %s", c.kind, name, got)
			}
		}
	})
	t.Run("SEC-K9 what it permits is deployed", func(t *testing.T) {
		a.deploy(configMap("web", "red") + configMap("old", "red"))
		w.live(configMaps, "old", data("color", "red"))
	})
	t.Run("SEC-K9 without deletion nothing is pruned, replaced by force, or deleted with its application", func(t *testing.T) {
		o := a.deploy(configMap("web", "red"))
		if got := message(o, "ConfigMap", "old"); !strings.Contains(got, "permits no deletion") {
			t.Errorf("prune: %s", got)
		}
		force := strings.Replace(configMap("web", "blue"), "namespace: NS}", "namespace: NS, annotations: {argocd.argoproj.io/sync-options: 'Replace=true,Force=true'}}", 1)
		o = w.ended(a.begin(force, nil), "Failed")
		if got := message(o, "ConfigMap", "web"); !strings.Contains(got, "permits no deletion") {
			t.Errorf("force: %s", got)
		}
		w.live(configMaps, "old", data("color", "red"))
		w.live(configMaps, "web", data("color", "red"))
	})
	t.Run("a refused object is compared without the right to dry-run it", func(t *testing.T) {
		w.apply(configMap("locked-2", "green"))
		b := w.application()
		b.target = b.snapshot(configMap("locked-2", "green"))
		b.accepted = b.target
		w.append(b.stateRow())
		b.synced()
	})
}
