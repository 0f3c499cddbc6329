package render_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestStageDefects(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a/x.yaml": "1", "b/x.yaml": "1", "c/x.yaml": "1"}
	t.Run("FT-H8 SEC-I4 a panic in the render of one application fails only that one, and it is retried", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a", "b", "c")
		w.renderErr = func(app string) error {
			if app == "b" {
				panic("secret text")
			}
			return nil
		}
		m := lifecycle.NewMonitor(lifecycle.System{}, nil)
		w.run(m.With(t.Context()), false)
		if len(w.rendered) != 2 || len(w.failed) != 1 || w.failed[0].Application != "b" || strings.Contains(w.failed[0].Message, "secret text") {
			t.Errorf("%d rendered, failed %+v", len(w.rendered), w.failed)
		}
		if len(w.done) != 2 || len(w.later) != 1 || w.later[0].Key != "b" || m.Panics()["render"] != 1 {
			t.Errorf("done %v, later %v, caught %v", w.done, w.later, m.Panics())
		}
	})
	t.Run("FT-H8 SEC-I4 a panic in the refresh of one application fails only that one", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a", "b", "c")
		m := lifecycle.NewMonitor(lifecycle.System{}, nil)
		w.runWith(m.With(t.Context()), func(r hub.Refresh, _ hub.ApplicationSpec) error {
			if r.Application.Name == "a" {
				panic("x")
			}
			return nil
		})
		if len(w.rendered) != 2 || len(w.failed) != 1 || w.failed[0].Application != "a" || len(w.later) != 1 {
			t.Errorf("%d rendered, failed %+v, later %v", len(w.rendered), w.failed, w.later)
		}
	})
	t.Run("FT-H7 a refresh that never ends is found within two minutes", func(t *testing.T) {
		t.Parallel()
		clock := runtest.NewClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
		m := lifecycle.NewMonitor(clock, nil)
		found := make(chan string, 8)
		ctx, cancel := context.WithCancel(m.With(t.Context()))
		defer cancel()
		guard := make(chan error, 1)
		go func() {
			guard <- m.Guard(ctx, 5*time.Second, nil, func(names []string, stacks string) {
				found <- strings.Join(names, ",") + "\n" + stacks
			})
		}()
		w := newStageWorld(files, "a", "b")
		stuck, release := make(chan struct{}), make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.runWith(ctx, func(r hub.Refresh, _ hub.ApplicationSpec) error {
				if r.Application.Name == "a" {
					close(stuck)
					<-release // the deadlock
				}
				return nil
			})
		}()
		<-stuck
		for passed := time.Duration(0); passed < 2*time.Minute; passed += 5 * time.Second {
			clock.Wait(1)
			clock.Advance(5 * time.Second)
		}
		clock.Wait(1)
		select {
		case got := <-found:
			if !strings.HasPrefix(got, "render\n") || !strings.Contains(got, "TestStageDefects") {
				t.Errorf("found %.300s", got)
			}
		default:
			t.Fatal("nothing was found after two minutes")
		}
		if s := m.Stuck(); len(s) != 1 || s[0] != "render" {
			t.Errorf("liveness would not fail: %v", s)
		}
		close(release)
		<-ended
		if s := m.Stuck(); len(s) != 0 {
			t.Errorf("still stuck: %v", s)
		}
		cancel()
		<-guard
	})
}

// runWith is run with a check of applications.
func (w *stageWorld) runWith(ctx context.Context, permits render.Permits) {
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	for id := range w.apps {
		w.queue = append(w.queue, hub.WorkItem{Kind: hub.WorkRefresh, Tenant: "acme", Key: string(id)})
	}
	_ = render.NewStage(render.StageConfig{}, w, w, w, w, permits, slog.New(slog.DiscardHandler)).Run(ctx)
}
