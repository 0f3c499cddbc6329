//go:build soak

package agenttest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// TestFiveThousand deploys one application of 5,000 objects, changes one, and
// deletes all.
func TestFiveThousand(t *testing.T) {
	w := newWorld(t)
	w.change(func() {
		w.withhold = true // the hub sends few bodies with rows, and these are too many for one message
		w.timeout = 5 * time.Minute
	})
	a := w.application()
	const n = 5000
	yaml := func(first string) string {
		var b strings.Builder
		b.WriteString(configMap("n-0", first))
		for i := 1; i < n; i++ {
			b.WriteString(configMap(fmt.Sprintf("n-%d", i), "red"))
		}
		return b.String()
	}
	var patches, now, most atomic.Int32
	w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/configmaps/") {
			patches.Add(1)
			if at := now.Add(1); at > most.Load() {
				most.Store(at)
			}
			defer now.Add(-1)
		}
		return next.RoundTrip(r)
	})
	var objects []*linkv1.ObjectRef
	slow := func(o *linkv1.Operation) { o.DeadlineUnix = time.Now().Add(w.timeout).Unix() }
	begin := func(text string) string {
		a.addTombstones(a.target, text)
		a.target = a.snapshot(text)
		objects = a.target.GetObjects()
		a.asList()
		a.accepted = a.target
		state := a.stateRow()
		id, op := a.operation(slow)
		w.append(state, op)
		return id
	}
	t.Run("B21 5,000 objects are applied at the same time within their step, and one change costs one request", func(t *testing.T) {
		started := time.Now()
		op := w.ended(begin(yaml("red")), "Succeeded")
		t.Logf("deployed in %s, at most %d requests at once", time.Since(started), most.Load())
		if len(op.GetResults()) != n || patches.Load() < n || most.Load() < 2 {
			t.Errorf("%d results, %d patches, at most %d at once", len(op.GetResults()), patches.Load(), most.Load())
		}
		a.synced()
		patches.Store(0)
		started = time.Now()
		w.ended(begin(yaml("blue")), "Succeeded")
		t.Logf("one of them changed in %s", time.Since(started))
		if patches.Load() != 1 {
			t.Errorf("%d patches for one change", patches.Load())
		}
	})
	t.Run("DEL-01 all 5,000 are deleted", func(t *testing.T) {
		for _, o := range objects {
			a.tombstones = append(a.tombstones, &linkv1.Tombstone{Version: o.GetVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
		}
		started := time.Now()
		w.ended(a.remove(nil, "PrunePropagationPolicy=background"), "Succeeded")
		t.Logf("deleted in %s", time.Since(started))
	})
}
