package agenttest_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// recordWrites records the agent's requests that change something. What it
// returns lists those whose path has a part.
func (w *world) recordWrites() func(part string) []string {
	var mu sync.Mutex
	var all []string
	w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodGet {
			mu.Lock()
			all = append(all, r.Method+" "+r.URL.Path)
			mu.Unlock()
		}
		return next.RoundTrip(r)
	})
	w.t.Cleanup(func() { w.faults.set(nil) })
	return func(part string) []string {
		mu.Lock()
		defer mu.Unlock()
		var out []string
		for _, r := range all {
			if strings.Contains(r, part) {
				out = append(out, r)
			}
		}
		return out
	}
}

// TestForbiddenDeletionHooks is about hooks that stand where the project does
// not permit anything: they are in the repository, which its owners write.
func TestForbiddenDeletionHooks(t *testing.T) {
	w := newWorld(t)
	other := cut(w.namespace + "-other")
	w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + other + "}\n")
	deletion := func(o *linkv1.ObjectRef) bool { return o.GetHook() == "PreDelete" || o.GetHook() == "PostDelete" }
	hookOf := func(phase, rest string) string {
		return strings.Replace("---\n"+rest, "metadata: {", "metadata: {annotations: {argocd.argoproj.io/hook: "+phase+"}, ", 1)
	}
	manifests := map[string]struct{ text, path, refusal string }{
		"in another namespace": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: intruder, namespace: " + other + "}\n", "/" + other + "/configmaps", "does not permit objects in namespace " + other},
		"of a denied kind":     {"apiVersion: v1\nkind: Secret\nmetadata: {name: intruder, namespace: NS}\n", "/" + w.namespace + "/secrets", "does not permit objects of kind Secret"},
		"of the whole cluster": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + w.namespace + "-intruder}\nrules: []\n", "/clusterroles", "does not permit cluster-scoped objects"},
	}
	limits := &linkv1.Limits{Namespaces: []string{w.namespace}, NamespacedDeny: []*linkv1.KindRule{{Kind: "Secret"}}}
	for _, phase := range []string{"PreDelete", "PostDelete"} {
		for name, c := range manifests {
			t.Run("SEC-D2 ENG-16 PROJ-10 a "+phase+" hook "+name+" is refused before anything is deleted", func(t *testing.T) {
				a := w.application()
				a.policy.Limits = limits
				a.deploy(configMap("web", "red") + hookOf(phase, c.text))
				writes := w.recordWrites()
				id := a.remove(deletion)
				op := w.ended(id, "Failed")
				if !strings.Contains(op.GetMessage(), c.refusal) {
					t.Errorf("the operation says %q", op.GetMessage())
				}
				if got := writes(c.path); len(got) > 0 {
					t.Errorf("the agent sent %v", got)
				}
				w.get(configMaps, "web")
				w.ended(a.remove(nil), "Succeeded")
				w.waitDeleted(configMaps, "web")
			})
		}
	}
	t.Run("SEC-D2 SEC-D12 a project that is restricted during a deletion permits no later hook, and none of that name is deleted", func(t *testing.T) {
		w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: intruder, namespace: " + other + ", annotations: {capstan.dev/hook-instance: theirs/PostSync}}\n")
		a := w.application()
		a.deploy(configMap("web", "red") + hookJob("bye", "PreDelete", "HookSucceeded") + hookOf("PostDelete", manifests["in another namespace"].text))
		writes := w.recordWrites()
		id := a.remove(deletion)
		w.live(jobs, "bye", exists)
		a.policy.Limits = limits
		w.append(a.stateRow())
		w.await("the agent has the restriction", func() bool { return w.ack >= uint64(len(w.rows)) })
		w.finish("bye", "Complete")
		op := w.ended(id, "Failed")
		if got := messageOf(op, "intruder"); !strings.Contains(got+op.GetMessage(), "does not permit objects in namespace "+other) {
			t.Errorf("the operation says %q, the hook %q", op.GetMessage(), got)
		}
		if got := writes("/" + other + "/"); len(got) > 0 {
			t.Errorf("the agent sent %v", got)
		}
		if _, err := shared.Dynamic().Resource(configMaps).Namespace(other).Get(t.Context(), "intruder", metav1Get); err != nil {
			t.Errorf("the hook of another application: %v", err)
		}
	})
}
