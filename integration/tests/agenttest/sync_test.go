package agenttest_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestSync(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("TRK-02 SYNC-22 an object is applied server-side by our manager, with a tracking id", func(t *testing.T) {
		a.deploy(configMap("web", "red"))
		o := w.live(configMaps, "web", data("color", "red"))
		if got, want := o.GetAnnotations()["capstan.dev/tracking-id"], "argocd_shop-1:/ConfigMap:"+w.namespace+"/web"; got != want {
			t.Errorf("tracking id is %q, want %q", got, want)
		}
		if m := o.GetManagedFields(); len(m) != 1 || m[0].Manager != "capstan" || m[0].Operation != "Apply" {
			t.Errorf("managed by %v", m)
		}
		a.synced()
		w.resource(nameOf("ConfigMap", w.namespace, "web"), func(r *linkv1.Resource) bool { return r.GetSync() == "Synced" && r.GetUid() == string(o.GetUID()) })
	})
	t.Run("B12 an operation that changes nothing sends nothing", func(t *testing.T) {
		var sent atomic.Int32
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/configmaps") {
				sent.Add(1)
			}
			return next.RoundTrip(r)
		})
		defer w.faults.set(nil)
		op := a.deploy(configMap("web", "red"))
		if n := sent.Load(); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		if got := op.GetResults()[0].GetMessage(); got != "unchanged" {
			t.Errorf("message is %q", got)
		}
	})
	t.Run("INV-1 every batch is answered with an equal root", func(t *testing.T) {
		w.await("a receipt for the newest barrier", func() bool { return w.receipts >= 2 })
	})
}
