package render_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// remoteWorld renders what is at an address, as its tenant may read it.
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
	t.Run("HELM-05 a refresh renders again only if the content of an address has changed", func(t *testing.T) {
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

// chartWorld renders a chart of a repository that the project may permit.
type chartWorld struct {
	*stageWorld
	digest  string
	permits bool
	asked   []string
	renders int
}

func (w *chartWorld) Locate(_ context.Context, tenant hub.TenantID, project string, ref hub.ChartRef) (string, error) {
	w.asked = append(w.asked, fmt.Sprint(tenant, " ", project, " ", ref.Name))
	return "https://charts.example.com", nil
}

func (w *chartWorld) Chart(_ context.Context, _ hub.TenantID, _ string, ref hub.ChartRef, _ string) (hub.ChartArchive, error) {
	if ref.Repository != "https://charts.example.com" {
		return hub.ChartArchive{}, fault.New(fault.Internal, "asked for %q", ref.Repository)
	}
	return hub.ChartArchive{Digest: w.digest, Data: []byte(w.digest)}, nil
}

func (w *chartWorld) permit(_ hub.Refresh, url string) error {
	if w.permits {
		return nil
	}
	return fault.New(fault.Invalid, "the project does not permit %s", url)
}

func (w *chartWorld) Render(ctx context.Context, r render.Request) (render.Result, error) {
	w.renders++
	rec := render.NewRecorder(r, render.Limits{})
	a, err := rec.Ask(ctx, render.Question{Op: render.OpChart, Names: []string{"a/Chart.yaml", "0"}})
	if err != nil {
		return render.Result{}, fmt.Errorf("ask: %w", err)
	}
	if a.Files[0].Refused != nil {
		return render.Result{}, a.Files[0].Refused.Err()
	}
	return render.Result{
		SourceType: render.TypeHelm, Inputs: rec.Inputs(),
		Objects: []render.Object{{Ref: hub.ObjectRef{Kind: "ConfigMap", Name: string(a.Files[0].Data)}, JSON: []byte(`{}`)}},
	}, nil
}

func TestStageFetchesCharts(t *testing.T) {
	t.Parallel()
	w := &chartWorld{stageWorld: newStageWorld(map[string]string{"a/Chart.yaml": "name: a\ndependencies: [{name: redis, version: ^1, repository: '@stable'}]"}, "a"), permits: true}
	w.apps["a"].Application.Spec = []byte(`{"source":{"repoURL":"https://git.example.com/r","path":"a"},"destination":{"name":"prod"},"syncPolicy":{"automated":{}}}`)
	w.apps["a"].Application.Project = "shop"
	refresh := func() {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		w.stop, w.given = stop, 0
		w.back.Store(0)
		w.queue = append(w.queue, hub.WorkItem{Kind: hub.WorkRefresh, Tenant: "acme", Key: "a"})
		s := render.NewStage(render.StageConfig{}, w, w, w, w, func(hub.Refresh, hub.ApplicationSpec) error { return nil }, slog.New(slog.DiscardHandler))
		s.Serves(w, w.permit)
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("HELM-15 a refresh renders again only if the range resolves to another archive", func(t *testing.T) {
		for i, step := range []struct {
			digest  string
			renders int
		}{{"sha256:01", 1}, {"sha256:01", 1}, {"sha256:02", 2}, {"sha256:02", 2}} {
			w.digest = step.digest
			refresh()
			if len(w.failed) > 0 || w.renders != step.renders {
				t.Fatalf("step %d: %d renders, want %d; failures %+v", i, w.renders, step.renders, w.failed)
			}
		}
		if w.asked[0] != "acme shop redis" {
			t.Errorf("asked for %q", w.asked)
		}
	})
	t.Run("HELM-15 a repository that the project permits no longer ends the use of what was fetched", func(t *testing.T) {
		w.permits = false
		refresh()
		if len(w.failed) != 1 || w.failed[0].Message != "the project does not permit https://charts.example.com" {
			t.Errorf("failures %+v", w.failed)
		}
	})
}
