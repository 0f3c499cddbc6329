package agenttest_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// TestPace measures and asserts nothing of time; it runs only when asked for,
// with CAPSTAN_BENCH=1.
func TestPace(t *testing.T) {
	if os.Getenv("CAPSTAN_BENCH") == "" {
		t.Skip("set CAPSTAN_BENCH=1 to measure")
	}
	w := newWorld(t)
	var mu sync.Mutex
	var sent time.Time
	watchPatch := func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPatch {
			mu.Lock()
			if sent.IsZero() {
				sent = time.Now()
			}
			mu.Unlock()
		}
		return next.RoundTrip(r)
	}
	w.faults.set(watchPatch)
	took := func(begin time.Time) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		d := sent.Sub(begin)
		sent = time.Time{}
		return d
	}
	a := w.application()
	a.deploy(configMap("web", "red"))
	took(time.Now())
	var rows, heals []time.Duration
	for i := range 50 {
		color := fmt.Sprint("c", i)
		a.target = a.snapshot(configMap("web", color))
		a.accepted = a.target
		state := a.stateRow()
		id, op := a.operation(nil)
		begin := time.Now()
		w.append(state, op)
		w.ended(id, "Succeeded")
		rows = append(rows, took(begin))
		a.synced()
		begin = time.Now()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "web", data("color", color))
		heals = append(heals, took(begin))
	}
	slices.Sort(rows)
	slices.Sort(heals)
	t.Logf("row appended → PATCH sent: p50 %s p98 %s", rows[25], rows[48])
	t.Logf("edit sent → heal PATCH sent (the edit's own round trip included): p50 %s p98 %s", heals[25], heals[48])

	b := w.application()
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(configMap(fmt.Sprintf("many-%d", i), "red"))
	}
	b.target = b.snapshot(many.String())
	b.asList()
	b.accepted = b.target
	state := b.stateRow()
	id, op := b.operation(nil)
	begin := time.Now()
	w.append(state, op)
	w.ended(id, "Succeeded")
	t.Logf("1000 creations in one operation: %s", time.Since(begin))
	b.synced()
	t.Logf("until Synced was reported: %s", time.Since(begin))

	c := make([]*application, 200)
	var all []*linkv1.Row
	var ids []string
	for i := range c {
		c[i] = w.application()
		var five strings.Builder
		for j := range 5 {
			five.WriteString(configMap(fmt.Sprintf("app-%d-%d", i, j), "red"))
		}
		c[i].target = c[i].snapshot(five.String())
		c[i].accepted = c[i].target
		state := c[i].stateRow()
		id, op := c[i].operation(nil)
		all, ids = append(all, state, op), append(ids, id)
	}
	asked := w.asked(t, "configmaps")
	begin = time.Now()
	w.append(all...)
	for _, id := range ids {
		w.ended(id, "Succeeded")
	}
	t.Logf("200 applications with 5 objects each: %s, requests %v", time.Since(begin), asked())
}
