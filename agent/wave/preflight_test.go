package wave_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestPreflight(t *testing.T) {
	t.Parallel()
	objects := []wave.Object{obj("0 ConfigMap a"), obj("1 Deployment b"), obj("0 Job fail", hook("SyncFail"))}
	prunes := []wave.Object{obj("0 ConfigMap old")}
	check := func(bad string) func([]wave.Item) []wave.Check {
		return func(items []wave.Item) []wave.Check {
			out := make([]wave.Check, len(items))
			for i, it := range items {
				out[i].Message = "would be configured"
				if it.Key.Name == bad {
					out[i].Err = fault.New(fault.Invalid, "unknown field")
				}
			}
			return out
		}
	}
	t.Run("ENG-08 a failure ends the operation before any change", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.is(obj("0 ConfigMap old"), nil)
			w.preflight = check("b")
			res := w.run(t.Context(), mustBuild(objects, prunes), wave.Config{})
			if res.Phase != wave.Failed || res.Message != "one or more objects failed to apply (dry run): Deployment shop/b: unknown field" || len(w.log) > 0 {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
			if len(res.Items) != 1 || res.Items[0].Status != wave.SyncFailed {
				t.Errorf("results %+v", res.Items)
			}
		})
	})
	t.Run("ENG-08 the pre-flight runs once and not again after a restart", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.preflight = check("")
			w.behaviours["Sync|/ConfigMap/shop/a"] = behaviour{takes: 10 * time.Second}
			plan := mustBuild(append(slices.Clone(objects), obj("0 Job h", hook("PreSync"))), nil)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if res := w.run(ctx, plan, wave.Config{}); res.Phase != wave.Running {
				t.Errorf("first run: %+v", res)
			}
			if res := w.run(t.Context(), plan, wave.Config{}); res.Phase != wave.Succeeded || w.calls["Preflight"] != 1 {
				t.Errorf("second run: %+v, %d pre-flights", res, w.calls["Preflight"])
			}
		})
	})
	t.Run("SYNC-04 a dry run changes nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.is(obj("0 ConfigMap old"), nil)
			w.preflight = check("")
			res := w.run(t.Context(), mustBuild(objects, prunes, func(o *wave.Options) { o.DryRun = true }), wave.Config{})
			if res.Phase != wave.Succeeded || len(w.log) > 0 || w.saves > 0 || len(w.calls) != 1 || len(res.Items) != 4 {
				t.Errorf("result %+v, changes %v, calls %v", res, w.done(), w.calls)
			}
		})
	})
	t.Run("SYNC-04 a dry run without a pre-flight is an error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			res := w.run(t.Context(), mustBuild(objects, nil, func(o *wave.Options) { o.DryRun = true }), wave.Config{})
			if res.Phase != wave.Failed || len(w.log) > 0 {
				t.Errorf("result %+v", res)
			}
		})
	})
	t.Run("a wrong number of results is an error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.preflight = func([]wave.Item) []wave.Check { return nil }
			if res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{}); res.Phase != wave.Errored || len(w.log) > 0 {
				t.Errorf("result %+v", res)
			}
		})
	})
}
