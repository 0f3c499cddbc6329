package render_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
)

func TestRequestedRefreshes(t *testing.T) {
	t.Parallel()
	asked := func(kind string) (*stageWorld, *hub.Application) {
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.run(t.Context(), false)
		a := &w.apps["a"].Application
		a.Annotations, a.Version, a.UpdatedAt = map[string]string{"argocd.argoproj.io/refresh": kind}, 7, time.Now()
		return w, a
	}
	fetched := func(w *stageWorld) {
		at := time.Now().Add(time.Second)
		w.apps["a"].Sources[0].Repository.FetchedAt = &at
	}
	t.Run("APP-22 the annotation stays until the repositories have been tried", func(t *testing.T) {
		t.Parallel()
		w, _ := asked("normal")
		if w.run(t.Context(), false); len(w.refreshed) != 0 {
			t.Errorf("done too early: %v", w.refreshed)
		}
		fetched(w)
		if w.run(t.Context(), false); len(w.refreshed) != 1 || w.refreshed[0] != (hub.RefreshAck{Application: "a", Version: 7}) {
			t.Errorf("looked %v", w.refreshed)
		}
	})
	t.Run("APP-22 a repository that cannot be fetched ends the wait too", func(t *testing.T) {
		t.Parallel()
		w, _ := asked("hard")
		at := time.Now().Add(time.Second)
		w.apps["a"].Sources[0].Repository.ErrorAt = &at
		if w.run(t.Context(), true); len(w.refreshed) != 1 {
			t.Errorf("looked %v", w.refreshed)
		}
	})
	t.Run("APP-22 a result that is not stored consumes nothing", func(t *testing.T) {
		t.Parallel()
		w, _ := asked("hard")
		fetched(w)
		w.loadErr = errors.New("not now")
		if w.run(t.Context(), true); len(w.refreshed) != 0 {
			t.Errorf("looked %v", w.refreshed)
		}
	})
	t.Run("APP-24 an application that is left as it is renders nothing and consumes nothing", func(t *testing.T) {
		t.Parallel()
		w, a := asked("normal")
		fetched(w)
		a.Annotations["argocd.argoproj.io/skip-reconcile"] = "true"
		renders := w.renders
		w.push(rendertest.NewTree(map[string]string{"a/x.yaml": "1"}))
		w.run(t.Context(), true)
		if len(w.refreshed) != 0 || w.renders != renders || len(w.skipped) != 1 || len(w.done) != 1 {
			t.Errorf("looked %v, %d renders, skipped %v", w.refreshed, w.renders-renders, w.skipped)
		}
	})
	t.Run("APP-24 nor does one on a cluster that is", func(t *testing.T) {
		t.Parallel()
		w, a := asked("normal")
		fetched(w)
		a.Annotations = nil
		w.apps["a"].Cluster = &hub.Cluster{Meta: hub.Meta{Name: "prod", Annotations: map[string]string{"argocd.argoproj.io/skip-reconcile": "true"}}}
		if w.run(t.Context(), false); len(w.skipped) != 1 {
			t.Errorf("skipped %v", w.skipped)
		}
	})
	t.Run("APP-05 one on a disabled in-cluster shows that, and is not changed", func(t *testing.T) {
		t.Parallel()
		w, a := asked("normal")
		fetched(w)
		a.Annotations = nil
		w.apps["a"].Cluster = &hub.Cluster{Meta: hub.Meta{Name: hub.InClusterName}, InClusterOff: true}
		w.permits = w.apps["a"].Cluster.Admits(hub.Destination{Name: hub.InClusterName})
		renders := w.renders
		w.run(t.Context(), true)
		if len(w.skipped) != 1 || w.renders != renders || len(w.failed) != 1 || w.failed[0].Condition != hub.InvalidSpecError || !strings.Contains(w.failed[0].Message, hub.InClusterKey) {
			t.Errorf("skipped %v, failed %v", w.skipped, w.failed)
		}
	})
	t.Run("APP-24 what waits for manifests of its own is ended, not left waiting", func(t *testing.T) {
		t.Parallel()
		w, a := asked("normal")
		a.Annotations = map[string]string{"argocd.argoproj.io/skip-reconcile": "true"}
		a.Status.Operation = &hub.Operation{ID: "op", Phase: hub.Pending, Options: hub.OperationOptions{Override: &hub.Override{Fresh: true}}}
		if w.run(t.Context(), false); len(w.skipped) != 0 || w.rendered[len(w.rendered)-1].Operation != "op" {
			t.Errorf("skipped %v, rendered %v", w.skipped, w.rendered)
		}
	})
	t.Run("APP-14 an operation on what was never fetched waits for the fetch", func(t *testing.T) {
		t.Parallel()
		w, a := asked("normal")
		a.Status.Operation = &hub.Operation{ID: "op", Phase: hub.Pending, Options: hub.OperationOptions{Override: &hub.Override{Fresh: true}}}
		w.apps["a"].Sources[0].Repository = hub.Repository{ID: "repo"}
		if w.run(t.Context(), false); len(w.failed) != 0 {
			t.Errorf("failed %v", w.failed)
		}
	})
}
