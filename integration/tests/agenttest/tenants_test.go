package agenttest_test

import (
	"strings"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// neighbour is another tenant's agent in the same namespace of the same
// cluster, from a hub of its own.
func (w *world) neighbour() *world {
	w.t.Helper()
	return newWorldWith(w.t, func(n *world) {
		n.namespace, n.home = w.namespace, cut(w.home+"-2")
		n.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + n.home + "}\n")
	})
}

func TestTwoTenantsInOneCluster(t *testing.T) {
	north := newWorld(t)
	south := north.neighbour()
	// Applications of both have equal names.
	a, b := north.application(), south.application()
	a.deploy(configMap("both", "red"))
	a.synced()
	uid := north.get(configMaps, "both").GetUID()
	version := func() string { return north.get(configMaps, "both").GetResourceVersion() }
	t.Run("ISO-9 an object names its tenant", func(t *testing.T) {
		if got := north.get(configMaps, "both").GetAnnotations()["capstan.dev/tenant"]; got != string(north.tenant) {
			t.Errorf("it names %q", got)
		}
	})
	t.Run("ISO-9 another tenant's object is refused, reported without its name, and not changed", func(t *testing.T) {
		before := version()
		op := south.ended(b.begin(configMap("own", "blue")+configMap("both", "blue"), nil), "Failed")
		if got := messageOf(op, "both"); !strings.Contains(got, "belongs to an application of another tenant") || strings.Contains(got, "argocd") || strings.Contains(got, string(north.tenant)) {
			t.Errorf("message is %q", got)
		}
		b.await("OutOfSync with SharedResourceWarning", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "OutOfSync" && note(r, "SharedResourceWarning", "ConfigMap "+north.namespace+"/both belongs to an application of another tenant")
		})
		if got := version(); got != before {
			t.Errorf("it was written: version %s became %s", before, got)
		}
		a.synced()
	})
	t.Run("ISO-9 deleting the application that was refused deletes nothing of the other tenant", func(t *testing.T) {
		b.deploy(configMap("own", "blue"))
		id, op := b.operation(func(o *linkv1.Operation) { o.Kind = linkv1.OperationKind_OPERATION_KIND_DELETE })
		south.append(op)
		south.ended(id, "Succeeded")
		south.waitDeleted(configMaps, "own")
		if got := north.get(configMaps, "both").GetUID(); got != uid {
			t.Error("it was deleted and made anew")
		}
	})
	for _, policy := range []string{"BeforeHookCreation", "HookFailed"} {
		t.Run("ISO-9 a hook of another tenant is neither deleted nor written for one of the same name: "+policy, func(t *testing.T) {
			hook := strings.Replace(configMap("task-"+strings.ToLower(policy), "red"), "NS}", "NS, annotations: {argocd.argoproj.io/hook: Sync, argocd.argoproj.io/hook-delete-policy: "+policy+"}}", 1)
			name := "task-" + strings.ToLower(policy)
			north.application().deploy(hook)
			before := north.get(configMaps, name).GetResourceVersion()
			op := south.ended(south.application().begin(strings.Replace(hook, "red", "blue", 1), nil), "Failed")
			if got := op.GetMessage(); !strings.Contains(got, "belongs to an application of another tenant") || strings.Contains(got, string(north.tenant)) {
				t.Errorf("message is %q", got)
			}
			if got := north.get(configMaps, name).GetResourceVersion(); got != before {
				t.Error("it was written")
			}
		})
	}
	c := south.application()
	c.policy.SyncOptions = []string{"Adopt=true"}
	t.Run("ISO-9 a tenant that requests it adopts the object, and the former one releases it", func(t *testing.T) {
		c.deploy(configMap("both", "blue"))
		a.await("it says so", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "OutOfSync" && note(r, "SharedResourceWarning", "tracked by an application of another tenant too")
		})
		before := version()
		// What heals in both shows that both have judged the object by then.
		for _, w := range []*world{north, south} {
			x := w.application()
			x.deploy(configMap("marker-"+w.home[len(w.home)-1:], "red"))
			w.edit(configMaps, "marker-"+w.home[len(w.home)-1:], "kubectl-edit", `{"data":{"color":"black"}}`)
			w.live(configMaps, "marker-"+w.home[len(w.home)-1:], data("color", "red"))
		}
		if got := version(); got != before {
			t.Errorf("somebody has written it: version %s became %s", before, got)
		}
		c.synced()
	})
	t.Run("ISO-9 a sync of the former tenant is refused, and its prune leaves the object", func(t *testing.T) {
		op := north.ended(a.begin(configMap("both", "green"), nil), "Failed")
		if got := messageOf(op, "both"); !strings.Contains(got, "another tenant") {
			t.Errorf("message is %q", got)
		}
		op = a.deploy(configMap("rest", "red"))
		if got := messageOf(op, "both"); !strings.Contains(got, "kept") {
			t.Errorf("message is %q", got)
		}
		got := north.get(configMaps, "both")
		if got.GetUID() != uid || got.GetAnnotations()["capstan.dev/tenant"] != string(south.tenant) || data("color", "blue")(got) != nil {
			t.Errorf("it is %v", got.Object)
		}
		c.synced()
	})
}
