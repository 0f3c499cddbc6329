package agenttest_test

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// asked counts the requests about single objects of a resource by method.
func (w *world) asked(t *testing.T, resource string) func() map[string]int {
	t.Helper()
	var mu sync.Mutex
	count := map[string]int{}
	w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.Contains(r.URL.Path, w.namespace+"/"+resource+"/") {
			mu.Lock()
			count[r.Method]++
			mu.Unlock()
		}
		return next.RoundTrip(r)
	})
	t.Cleanup(func() { w.faults.set(nil) })
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(count)
	}
}

func TestFirstWrites(t *testing.T) {
	w := newWorld(t)
	first := w.application()
	first.deploy(configMap("first", "red"))
	first.synced()
	five := func(prefix string) (yaml string) {
		for _, n := range []string{"1", "2", "3", "4", "5"} {
			yaml += configMap(prefix+n, "red")
		}
		return yaml
	}
	t.Run("B12 what a watch proves to be missing is created by one request each", func(t *testing.T) {
		asked := w.asked(t, "configmaps")
		a := w.application()
		op := a.deploy(five("new"))
		for _, r := range op.GetResults() {
			if r.GetMessage() != "created" {
				t.Errorf("%s: %s", r.GetName(), r.GetMessage())
			}
		}
		a.synced()
		if got := asked(); got["PATCH"] != 5 || got["GET"] != 0 {
			t.Errorf("requests: %v", got)
		}
	})
	t.Run("CMPR-01 an application that waits for a sync reports missing objects from the watch", func(t *testing.T) {
		asked := w.asked(t, "configmaps")
		a := w.application()
		a.policy = &linkv1.Policy{}
		a.target = a.snapshot(five("waits"))
		w.append(a.stateRow())
		a.await("OutOfSync and Missing", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" && r.GetHealth() == "Missing" })
		if got := asked(); len(got) != 0 {
			t.Errorf("requests: %v", got)
		}
	})
	t.Run("TRK-01 an object that someone else created meanwhile is read before it is written", func(t *testing.T) {
		before := w.asArgo(t, "met", "guestbook", "")
		a := w.application()
		op := a.deploy(configMap("met", "red"))
		if got := messageOf(op, "met"); !strings.Contains(got, "adopted from Argo CD") || w.get(configMaps, "met").GetUID() != before.GetUID() {
			t.Errorf("message is %q", got)
		}
	})
	t.Run("B12 what was deleted is known to be missing", func(t *testing.T) {
		first.deploy(configMap("second", "red")) // prunes
		w.waitDeleted(configMaps, "first")
		w.await("the agent has seen it", func() bool { return w.resources[nameOf("ConfigMap", w.namespace, "first")] == nil })
		asked := w.asked(t, "configmaps")
		a := w.application()
		a.deploy(configMap("first", "blue"))
		if got := asked(); got["PATCH"] != 1 || got["GET"] != 0 {
			t.Errorf("requests: %v", got)
		}
	})
}

func TestKindWatchedForOthers(t *testing.T) {
	w := newWorld(t)
	parent := w.application()
	parent.deploy("---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: NS}\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: web}}\n" +
		"  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: nginx}]}\n")
	parent.synced()
	w.application().deploy(configMap("between", "red"))
	t.Run("CMPR-02 a kind that was watched for what objects own can be managed itself later", func(t *testing.T) {
		a := w.application()
		a.policy = &linkv1.Policy{}
		a.target = a.snapshot("---\napiVersion: v1\nkind: Pod\nmetadata: {name: bare, namespace: NS}\nspec: {containers: [{name: web, image: nginx}]}\n")
		w.append(a.stateRow())
		a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
	})
}
