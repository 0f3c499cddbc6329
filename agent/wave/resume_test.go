package wave_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestResume(t *testing.T) {
	t.Parallel()
	interrupted := func(t *testing.T, w *world, plan wave.Plan, after time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		if res := w.run(ctx, plan, wave.Config{}); res.Phase != wave.Running {
			t.Fatalf("the first run ended %s: %s", res.Phase, res.Message)
		}
		w.asked, w.saves = nil, 0
	}
	t.Run("ENG-19 the operation continues at its current step", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.behaviours["Sync|/Deployment/shop/b"] = behaviour{takes: time.Minute}
			plan := mustBuild([]wave.Object{obj("0 ConfigMap a"), obj("1 Deployment b"), obj("2 ConfigMap c")}, nil)
			interrupted(t, w, plan, 30*time.Second)
			w.things[obj("0 ConfigMap a").Key].content = "edited by a person"
			res := w.run(t.Context(), plan, wave.Config{})
			if diff := cmp.Diff([]string{"Sync|/Deployment/shop/b", "Sync|/ConfigMap/shop/c"}, w.asked); diff != "" || res.Phase != wave.Succeeded {
				t.Errorf("%+v; applied (-want +got):\n%s", res, diff)
			}
			if len(res.Items) != 3 || res.Items[0].Message != "applied before the restart" {
				t.Errorf("results %+v", res.Items)
			}
		})
	})
	t.Run("ENG-19 a running hook is not created again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: time.Minute}
			plan := mustBuild([]wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a")}, nil)
			interrupted(t, w, plan, 30*time.Second)
			res := w.run(t.Context(), plan, wave.Config{})
			if diff := cmp.Diff([]string{"Sync|/ConfigMap/shop/a"}, w.asked); diff != "" || res.Phase != wave.Succeeded {
				t.Errorf("%+v; applied (-want +got):\n%s", res, diff)
			}
		})
	})
	t.Run("ENG-17 a hook that was deleted meanwhile is not run again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: time.Minute}
			plan := mustBuild([]wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a")}, nil)
			interrupted(t, w, plan, 30*time.Second)
			delete(w.things, obj("0 Job h").Key)
			if res := w.run(t.Context(), plan, wave.Config{}); res.Phase != wave.Errored || len(w.asked) != 0 {
				t.Errorf("%+v, asked for %v", res, w.asked)
			}
		})
	})
	t.Run("HOOK-11 a failure before the restart still counts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.behaviours["PreSync|/Job/shop/bad"] = behaviour{refuse: fault.New(fault.Invalid, "refused")}
			w.behaviours["PreSync|/Job/shop/good"] = behaviour{takes: time.Minute}
			plan := mustBuild([]wave.Object{obj("0 Job bad", hook("PreSync")), obj("0 Job good", hook("PreSync")), obj("0 ConfigMap a")}, nil)
			interrupted(t, w, plan, 30*time.Second)
			res := w.run(t.Context(), plan, wave.Config{})
			if res.Phase != wave.Failed || !strings.Contains(res.Message, "Job shop/bad: the hook failed: refused") || len(w.asked) != 0 {
				t.Errorf("%+v, asked for %v", res, w.asked)
			}
		})
	})
	t.Run("another operation's ledger is not used", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.saved = &wave.Progress{Operation: "former", Phase: wave.PostSync, Over: true}
			res := w.run(t.Context(), mustBuild([]wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a")}, nil), wave.Config{})
			if diff := cmp.Diff([]string{"create Job/h", "apply ConfigMap/a"}, w.done()); diff != "" || res.Phase != wave.Succeeded {
				t.Errorf("%+v (-want +got):\n%s", res, diff)
			}
		})
	})
	t.Run("INV-2 a lost ledger finds its running hook again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: time.Minute}
			plan := mustBuild([]wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a")}, nil)
			interrupted(t, w, plan, 30*time.Second)
			w.saved = nil
			res := w.run(t.Context(), plan, wave.Config{})
			if diff := cmp.Diff([]string{"create Job/h", "apply ConfigMap/a"}, w.done()); diff != "" || res.Phase != wave.Succeeded {
				t.Errorf("%+v (-want +got):\n%s", res, diff)
			}
		})
	})
	t.Run("the ledger is written few times", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.run(t.Context(), mustBuild([]wave.Object{obj("0 ConfigMap a"), obj("1 ConfigMap b"), obj("2 ConfigMap c")}, nil), wave.Config{})
			if w.saves != 2 {
				t.Errorf("three waves were written %d times, want 2", w.saves)
			}
			w = newWorld()
			w.run(t.Context(), mustBuild([]wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap b")}, nil), wave.Config{})
			if w.saves != 4 { // intent, running, next step, over
				t.Errorf("a hook and a step were written %d times, want 4", w.saves)
			}
		})
	})
}

func TestStateThatCannotBeRead(t *testing.T) {
	t.Parallel()
	objects := []wave.Object{obj("0 Deployment a"), obj("1 Deployment b")}
	t.Run("FT-K1 a state is read again after a temporary error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			start := time.Now()
			w.failState = func() error {
				if time.Since(start) < time.Minute {
					return fault.New(fault.Offline, "the API server is away")
				}
				return nil
			}
			if res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{}); res.Phase != wave.Succeeded || time.Since(start) < time.Minute {
				t.Errorf("%+v", res)
			}
		})
	})
	t.Run("a state is not read again after a lasting error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.failState = func() error { return fault.New(fault.Denied, "forbidden") }
			res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{})
			if res.Phase != wave.Failed || !strings.Contains(res.Message, "Deployment shop/a: forbidden") || slices.Contains(w.done(), "apply Deployment/b") {
				t.Errorf("%+v", res)
			}
		})
	})
}

// A hook of two phases is taken away and made anew between them. Whichever
// call the agent dies at, the first run of it must not be missed.
func TestResumeBetweenTwoRunsOfAHook(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("HOOK-06 FT-A1 ENG-19 after=%v", after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				plan := mustBuild([]wave.Object{obj("0 Job h", hook("PreSync,Sync", "BeforeHookCreation")), obj("0 ConfigMap a")}, nil)
				for n, hit := 1, true; hit; n++ {
					hit = false
					w := newWorld()
					w.crash = func(i int) (bool, bool) {
						if i != n || hit {
							return false, false
						}
						hit = true
						return !after, after
					}
					res := w.run(t.Context(), plan, wave.Config{})
					if res.Phase == wave.Running {
						res = w.run(t.Context(), plan, wave.Config{})
					}
					made := slices.DeleteFunc(w.done(), func(e string) bool { return e != "create Job/h" })
					if res.Phase != wave.Succeeded || len(made) != 2 {
						t.Fatalf("crash at call %d: %s: %s; %v", n, res.Phase, res.Message, w.done())
					}
				}
			})
		})
	}
}
