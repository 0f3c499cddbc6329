package render_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
)

// fairWorld has work of two tenants: the renders of "bad" do not end before
// one of "good" did.
type fairWorld struct {
	*stageWorld
	mu    sync.Mutex
	steps [][]hub.WorkItem
	asked [][]hub.TenantID // who was busy at each claim
	good  chan struct{}
	once  sync.Once
	all   int // how many applications there are
}

func (w *fairWorld) Claim(ctx context.Context, _ int, busy func() []hub.TenantID, freed <-chan struct{}) ([]hub.WorkItem, error) {
	w.mu.Lock()
	now := busy()
	w.asked = append(w.asked, now)
	if len(w.steps) > 0 {
		items := w.steps[0]
		w.steps = w.steps[1:]
		w.mu.Unlock()
		return items, nil
	}
	w.mu.Unlock()
	for w.left() > 0 {
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.stop()
	return nil, context.Canceled
}

func (w *fairWorld) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all - len(w.done)
}

func (w *fairWorld) Done(ctx context.Context, items []hub.WorkItem) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stageWorld.Done(ctx, items)
}

func (w *fairWorld) Render(ctx context.Context, r render.Request) (render.Result, error) {
	if r.Tenant == "bad" {
		select {
		case <-w.good:
		case <-ctx.Done():
			return render.Result{}, ctx.Err()
		}
	}
	res, err := w.stageWorld.Render(ctx, r)
	if r.Tenant == "good" {
		w.once.Do(func() { close(w.good) })
	}
	return res, err
}

func (w *fairWorld) Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stageWorld.Tree(ctx, tenant, repo, commit)
}

func TestStageServesTenantsInParallel(t *testing.T) {
	t.Parallel()
	apps := []string{"a", "b", "c", "d"}
	files := map[string]string{"g/x": "0"}
	for _, a := range apps {
		files[a+"/x"] = "0"
	}
	w := &fairWorld{stageWorld: newStageWorld(files, append(apps, "g")...), good: make(chan struct{})}
	w.push(rendertest.NewTree(files))
	for _, a := range apps {
		w.steps = append(w.steps, []hub.WorkItem{{Tenant: "bad", Key: a}})
	}
	w.steps = append(w.steps, []hub.WorkItem{{Tenant: "good", Key: "g"}})
	w.all = len(w.steps)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // a failure would wait for ever
	defer stop()
	w.stop = stop
	permits := func(hub.Refresh, hub.ApplicationSpec) error { return nil }
	_ = render.NewStage(render.StageConfig{}, w, w, w, w, permits, slog.New(slog.DiscardHandler)).Run(ctx)
	t.Run("FT-G9 INV-7 hanging renders of one tenant delay no other tenant", func(t *testing.T) {
		if len(w.rendered) != 5 || len(w.done) != 5 {
			t.Errorf("rendered %d, done %d", len(w.rendered), len(w.done))
		}
	})
	t.Run("a tenant has four batches in work at most", func(t *testing.T) {
		for i, busy := range w.asked[:len(apps)] {
			if len(busy) != 0 {
				t.Errorf("busy at claim %d: %v", i, busy)
			}
		}
		if now := w.asked[len(apps)]; !slices.Equal(now, []hub.TenantID{"bad"}) {
			t.Errorf("busy with %d batches in work: %v", len(apps), now)
		}
	})
}
