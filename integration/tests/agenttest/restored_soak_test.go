//go:build soak

package agenttest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// TestClusterRestored has a cluster of its own, whose etcd is set back.
func TestClusterRestored(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	own, err := kube.Start(ctx, "restored", kube.Options{Controllers: true})
	if err != nil {
		t.Fatal(err)
	}
	all := shared
	shared = own
	t.Cleanup(func() {
		shared = all
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t)
	t.Cleanup(func() { w.stop() }) // before the cluster
	a := w.application()
	a.deploy(configMap("web", "red") + configMap("api", "red"))
	a.synced()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := own.Backup(ctx, backup); err != nil {
		t.Fatal(err)
	}
	w.renewed()                                                    // what is lost is more than the time between two renewals
	a.deploy(configMap("web", "blue") + configMap("later", "red")) // api is pruned
	for i := range 200 {
		w.apply(configMap("other", fmt.Sprint(i)))
	}
	a.synced()
	w.waitDeleted(configMaps, "api")
	t.Run("FT-K6 INV-5 a cluster whose resource versions go backwards is listed again, and brought to the desired state", func(t *testing.T) {
		if err := own.Restore(ctx, backup); err != nil {
			t.Fatal(err)
		}
		w.live(configMaps, "web", data("color", "blue"))
		w.live(configMaps, "later", data("color", "red"))
	})
	t.Run("FT-K6 so is one whose resource versions exceed the observed ones before the agent reconnects", func(t *testing.T) {
		w.renewed()
		w.faults.set(func(*http.Request, http.RoundTripper) (*http.Response, error) { return nil, errors.New("no way") })
		if err := own.Restore(ctx, backup); err != nil {
			t.Fatal(err)
		}
		for i := range 600 {
			w.apply(configMap("other", fmt.Sprint(i)))
		}
		w.faults.set(nil)
		w.live(configMaps, "web", data("color", "blue"))
		w.live(configMaps, "later", data("color", "red"))
	})
	t.Run("FT-K6 what is edited afterwards is healed as before", func(t *testing.T) {
		for range 3 {
			w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
			w.live(configMaps, "web", data("color", "blue"))
		}
		a.deploy(configMap("web", "green") + configMap("later", "red"))
		a.synced()
	})
}

// renewed waits until the agent has renewed its Lease.
func (w *world) renewed() {
	w.t.Helper()
	leases := shared.Dynamic().Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(w.home)
	first := ""
	err := poll.Until(w.t.Context(), func(ctx context.Context) error {
		o, err := leases.Get(ctx, apply.LeaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		at, _, _ := unstructured.NestedString(o.Object, "spec", "renewTime")
		if first == "" {
			first = at
		}
		if at == first {
			return errors.New("the lease is not renewed")
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
