package render_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
)

// remoteWorld renders what stands at an address, as its tenant may read it.
type remoteWorld struct {
	*stageWorld
	contents string
	tenants  map[hub.TenantID]bool
	renders  int
}

func (w *remoteWorld) Get(_ context.Context, tenant hub.TenantID, _ string, _ []string, _ int64) ([]byte, error) {
	w.tenants[tenant] = true
	return []byte(w.contents), nil
}

func (w *remoteWorld) Render(ctx context.Context, r render.Request) (render.Result, error) {
	w.renders++
	rec := render.NewRecorder(r, render.Limits{})
	a, err := rec.Ask(ctx, render.Question{Op: render.OpRemote, Names: []string{"https://example.com/v.yaml"}})
	if err != nil {
		return render.Result{}, fmt.Errorf("ask: %w", err)
	}
	return render.Result{
		SourceType: render.TypeHelm, Inputs: rec.Inputs(),
		Objects: []render.Object{{Ref: hub.ObjectRef{Kind: "ConfigMap", Name: string(a.Files[0].Data)}, JSON: []byte(`{}`)}},
	}, nil
}

func TestStageReadsAddresses(t *testing.T) {
	t.Parallel()
	w := &remoteWorld{stageWorld: newStageWorld(map[string]string{"a/Chart.yaml": "name: a"}, "a"), contents: "one", tenants: map[hub.TenantID]bool{}}
	w.apps["a"].Application.Spec = []byte(`{"source":{"repoURL":"https://git.example.com/r","path":"a","helm":{"valueFiles":["https://example.com/v.yaml"]}},` +
		`"destination":{"name":"prod"},"syncPolicy":{"automated":{}}}`)
	refresh := func() {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		w.stop, w.given = stop, 0
		w.back.Store(0)
		w.queue = append(w.queue, hub.WorkItem{Kind: hub.WorkRefresh, Tenant: "acme", Key: "a"})
		s := render.NewStage(render.StageConfig{}, w, w, w, w, func(hub.Refresh, hub.ApplicationSpec) error { return nil }, slog.New(slog.DiscardHandler))
		s.Reads(w)
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("HELM-05 a refresh renders anew what an address holds now, and nothing else", func(t *testing.T) {
		for i, step := range []struct {
			contents string
			renders  int
		}{{"one", 1}, {"one", 1}, {"two", 2}, {"two", 2}} {
			w.contents = step.contents
			refresh()
			if len(w.failed) > 0 || w.renders != step.renders {
				t.Fatalf("step %d: %d renders, want %d; failures %+v", i, w.renders, step.renders, w.failed)
			}
			if got := w.rendered[len(w.rendered)-1].Snapshot.Objects[0].Name; got != step.contents {
				t.Fatalf("step %d: the target holds %q", i, got)
			}
		}
		if len(w.tenants) != 1 || !w.tenants["acme"] {
			t.Errorf("asked for the tenants %v", w.tenants)
		}
	})
}
