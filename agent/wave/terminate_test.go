package wave_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestTerminate(t *testing.T) {
	t.Parallel()
	objects := []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a"), obj("0 Job fail", hook("SyncFail"))}
	long := func(w *world) { w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: -1} }
	t.Run("SYNC-09 INV-10 running hooks are deleted, the result is Failed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			long(w)
			start := time.Now()
			res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{}, func(m *wave.Machine) {
				time.AfterFunc(time.Minute, func() { m.Terminate("terminated by alice"); m.Terminate("twice") })
			})
			if res.Phase != wave.Failed || !res.Terminated || !strings.HasPrefix(res.Message, "terminated by alice; it was step 1 of 2 (PreSync, wave 0): waiting for hook Job shop/h") {
				t.Errorf("result %+v", res)
			}
			if diff := cmp.Diff([]string{"create Job/h", "delete Job/h"}, w.done()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if took := time.Since(start); took > time.Minute+10*time.Second {
				t.Errorf("it took %s", took)
			}
			if last := res.Items[len(res.Items)-1]; last.HookPhase != "Failed" || last.Message != "terminated" {
				t.Errorf("the hook's result is %+v", last)
			}
		})
	})
	t.Run("SYNC-10 the deadline terminates an operation, too", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			long(w)
			res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{Deadline: time.Now().Add(time.Minute)})
			if res.Phase != wave.Failed || !res.Terminated || !strings.HasPrefix(res.Message, "the operation's deadline has passed") || len(w.log) != 2 {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
		})
	})
	t.Run("SYNC-09 an operation is terminated before it starts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{}, func(m *wave.Machine) { m.Terminate("terminated by alice") })
			if res.Phase != wave.Failed || !res.Terminated || len(w.log) > 0 {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
		})
	})
	t.Run("SYNC-09 an operation is terminated through its context", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			long(w)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(&wave.Terminated{Why: "superseded"}) })
			if res := w.run(ctx, mustBuild(objects, nil), wave.Config{}); res.Phase != wave.Failed || !strings.HasPrefix(res.Message, "superseded") {
				t.Errorf("result %+v", res)
			}
		})
	})
	t.Run("INV-3 an older hook stays if its policy retains it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.is(obj("0 Job h"), func(th *thing) { th.instance, th.behave.takes = "former/PreSync", -1 })
			plan := mustBuild([]wave.Object{obj("0 Job h", hook("PreSync", "HookFailed"))}, nil)
			res := w.run(t.Context(), plan, wave.Config{Deadline: time.Now().Add(time.Minute)})
			if res.Phase != wave.Failed || len(w.log) > 0 {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
		})
	})
	t.Run("SYNC-09 a hook that cannot be stopped is named", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			long(w)
			w.behaviours["delete /Job/shop/h"] = behaviour{refuse: fault.New(fault.Denied, "forbidden")}
			res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{}, func(m *wave.Machine) { time.AfterFunc(time.Second, func() { m.Terminate("stop") }) })
			if !strings.HasSuffix(res.Message, "Job shop/h could not be stopped: forbidden") {
				t.Errorf("result %+v", res)
			}
		})
	})
	t.Run("a shutdown only interrupts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: time.Minute}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			plan := mustBuild(objects, nil)
			if res := w.run(ctx, plan, wave.Config{}); res.Phase != wave.Running || res.Terminated {
				t.Errorf("first run: %+v", res)
			}
			res := w.run(t.Context(), plan, wave.Config{})
			if diff := cmp.Diff([]string{"create Job/h", "apply ConfigMap/a"}, w.done()); diff != "" || res.Phase != wave.Succeeded || len(res.Items) != 2 {
				t.Errorf("second run: %+v (-want +got):\n%s", res, diff)
			}
		})
	})
}
