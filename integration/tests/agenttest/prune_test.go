package agenttest_test

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

var errSame = errors.New("still the old object")

func TestPrune(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	keep := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: keep, namespace: NS, annotations: {capstan.dev/sync-options: Prune=false}}\ndata: {color: red}\n"
	a.deploy(configMap("web", "red") + configMap("api", "red") + keep)
	a.synced()
	t.Run("INV-3 without a tombstone nothing is deleted", func(t *testing.T) {
		tombstones := a.tombstones
		a.target = a.snapshot(configMap("web", "red"))
		a.accepted = a.target
		state := a.stateRow()
		id, op := a.operation(nil)
		w.append(state, op)
		w.ended(id, "Succeeded")
		w.get(configMaps, "api")
		a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		w.resource(nameOf("ConfigMap", w.namespace, "api"), func(r *linkv1.Resource) bool { return r.GetRequiresPrune() && r.GetSync() == "OutOfSync" })
		a.tombstones = tombstones
	})
	t.Run("AUTO-03 without prune a tombstone is only reported", func(t *testing.T) {
		a.tombstones = []*linkv1.Tombstone{
			{Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "api"},
			{Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "keep"},
		}
		id := a.begin(configMap("web", "red"), func(o *linkv1.Operation) { o.Options.Prune = false })
		op := w.ended(id, "Succeeded")
		if got := statusOf(op, "api"); got != "PruneSkipped" {
			t.Errorf("api is %s", got)
		}
		w.get(configMaps, "api")
	})
	t.Run("INV-3 an object of a tombstone that we never applied is left alone", func(t *testing.T) {
		w.apply(configMap("foreign", "red"))
		a.tombstones = append(a.tombstones, &linkv1.Tombstone{Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "foreign"})
		a.deploy(configMap("web", "red"))
		w.get(configMaps, "foreign")
		w.await("its tombstone is closed", func() bool { return contains(w.closed, nameOf("ConfigMap", w.namespace, "foreign")) })
	})
	t.Run("SYNC-11 a tombstone is pruned and closed, but not against Prune=false", func(t *testing.T) {
		w.waitDeleted(configMaps, "api")
		w.await("its tombstone is closed", func() bool { return contains(w.closed, nameOf("ConfigMap", w.namespace, "api")) })
		w.get(configMaps, "keep")
		w.await("the resource is gone", func() bool { return w.resources[nameOf("ConfigMap", w.namespace, "api")] == nil })
	})
	t.Run("INV-3 an object that someone else created again under the name is not pruned", func(t *testing.T) {
		a.policy.SelfHeal = false
		a.deploy(configMap("web", "red") + configMap("again", "red"))
		w.stop() // so that nobody sees it happen
		if err := w.at(configMaps).Delete(t.Context(), "again", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.apply(configMap("again", "black"))
		id := a.begin(configMap("web", "red"), nil)
		w.run()
		op := w.ended(id, "Succeeded")
		if err := data("color", "black")(w.get(configMaps, "again")); err != nil {
			t.Error(err)
		}
		if got := statusOf(op, "again"); got != "PruneSkipped" {
			t.Errorf("again is %s", got)
		}
	})
	t.Run("SYNC-18 an empty manifest list with tombstones deletes exactly them", func(t *testing.T) {
		a.deploy(configMap("only", "red"))
		w.waitDeleted(configMaps, "web")
		w.get(configMaps, "keep")
		w.get(configMaps, "foreign")
	})
}

func statusOf(o *linkv1.OperationReport, name string) string {
	for _, r := range o.GetResults() {
		if r.GetName() == name {
			return r.GetStatus()
		}
	}
	return ""
}

func messageOf(o *linkv1.OperationReport, name string) string {
	for _, r := range o.GetResults() {
		if r.GetName() == name {
			return r.GetMessage()
		}
	}
	return ""
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	manifests := configMap("web", "red") + waved("late", "5") + `---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: NS, annotations: {argocd.argoproj.io/sync-options: Delete=false}}
`
	a.deploy(manifests)
	a.synced()
	t.Run("DEL-02 DEL-03 a deletion deletes our objects, in reverse order, and reports that nothing is left", func(t *testing.T) {
		a.policy.SelfHeal = true
		state := a.stateRow()
		id, op := a.operation(func(o *linkv1.Operation) { o.Kind = linkv1.OperationKind_OPERATION_KIND_DELETE })
		w.append(state, op)
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "web")
		w.waitDeleted(configMaps, "late")
		w.get(configMaps, "kept")
		w.await("gone", func() bool { return w.fakeHub.apps[a.id].GetGone() })
	})
	t.Run("INV-3 removal of an application changes no object", func(t *testing.T) {
		b := w.application()
		b.deploy(configMap("other", "red"))
		w.append(&linkv1.Row{Kind: linkv1.RowKind_ROW_KIND_FORGET, AppId: b.id})
		w.acked()
		w.get(configMaps, "other")
		w.await("its resources are told to be gone", func() bool { return w.resources[nameOf("ConfigMap", w.namespace, "other")] == nil })
	})
}

func waved(name, wave string) string {
	return strings.Replace(configMap(name, "red"), "metadata: {", "metadata: {annotations: {argocd.argoproj.io/sync-wave: \""+wave+"\"}, ", 1)
}
