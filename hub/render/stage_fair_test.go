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
	for len(busy()) > 0 {
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.stop()
	return nil, context.Canceled
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

func TestStageServesTenantsBesideEachOther(t *testing.T) {
	t.Parallel()
	apps := []string{"a", "b", "c", "d"}
	files := map[string]string{"g/x": "0"}
	for _, a := range apps {
		files[a+"/x"] = "0"
	}
	w := &fairWorld{stageWorld: newStageWorld(files, append(apps, "g")...), good: make(chan struct{})}
	w.push(rendertest.NewTree(files))
	var bad []hub.WorkItem
	for _, a := range apps {
		bad = append(bad, hub.WorkItem{Tenant: "bad", Key: a})
	}
	w.steps = [][]hub.WorkItem{bad, {{Tenant: "good", Key: "g"}}}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // a failure would wait for ever
	defer stop()
	w.stop = stop
	permits := func(hub.Refresh, hub.ApplicationSpec) error { return nil }
	_ = render.NewStage(render.StageConfig{}, w, w, w, w, permits, slog.New(slog.DiscardHandler)).Run(ctx)
	t.Run("FT-G9 INV-7 renders of one tenant that hang keep no other tenant waiting", func(t *testing.T) {
		if len(w.rendered) != 5 || len(w.done) != 5 {
			t.Errorf("rendered %d, done %d", len(w.rendered), len(w.done))
		}
	})
	t.Run("work of a tenant is claimed again only when it has come to its end", func(t *testing.T) {
		if len(w.asked[0]) != 0 || !slices.Equal(w.asked[1], []hub.TenantID{"bad"}) {
			t.Errorf("busy at each claim: %v", w.asked)
		}
	})
}
