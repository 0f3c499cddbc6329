package wave_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func mustBuild(objects, prunes []wave.Object, change ...func(*wave.Options)) wave.Plan {
	o := wave.Options{Operation: "op", Prune: true, Namespace: "shop"}
	for _, c := range change {
		c(&o)
	}
	p, err := wave.Build(objects, prunes, o)
	if err != nil {
		panic(err)
	}
	return p
}

func TestOneStepCostsOneApplyEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.preflight = func([]wave.Item) []wave.Check { t.Error("a pre-flight"); return nil }
		plan := mustBuild([]wave.Object{obj("0 ServiceAccount a"), obj("0 ConfigMap a"), obj("0 Service a"), obj("0 Deployment a"), obj("0 Ingress a")}, nil)
		w.behaviours["Sync|/Deployment/shop/a"] = behaviour{takes: -1}
		start := time.Now()
		var updates []wave.Update
		res := w.run(t.Context(), plan, wave.Config{Report: func(u wave.Update) { updates = append(updates, u) }})
		if res.Phase != wave.Succeeded || res.Message != "applied 5 objects" {
			t.Errorf("ENG-09: result %+v", res)
		}
		if diff := cmp.Diff(map[string]int{"Apply": 5}, w.calls); diff != "" || w.saves != 0 {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if len(updates) != 5 || updates[4].Item == nil || updates[4].Item.Status != wave.Synced {
			t.Errorf("%d results were reported while it ran", len(updates))
		}
		if time.Since(start) != 0 {
			t.Error("ENG-09: something was waited for")
		}
	})
}

func TestMachine(t *testing.T) {
	t.Parallel()
	refused := fault.New(fault.Invalid, "spec.replicas: must be positive")
	type result struct {
		phase, says string
		took        time.Duration // virtual; -1: do not look
	}
	cases := map[string]struct {
		objects, prunes []wave.Object
		world           func(w *world)
		config          wave.Config
		options         func(*wave.Options)
		want            []string
		result          result
	}{
		"ENG-02 ENG-09 a wave waits for the health of the one before": {
			objects: []wave.Object{obj("0 Deployment a"), obj("1 Deployment b")},
			world: func(w *world) {
				w.behaviours["Sync|/Deployment/shop/a"] = behaviour{takes: 10 * time.Second}
				w.behaviours["Sync|/Deployment/shop/b"] = behaviour{takes: -1}
			},
			want: []string{"apply Deployment/a", "apply Deployment/b"}, result: result{wave.Succeeded, "applied 2 objects", 10 * time.Second},
		},
		"ENG-10 no health rule counts as healthy": {
			objects: []wave.Object{obj("0 ConfigMap a"), obj("1 Deployment b")},
			world:   func(w *world) { w.behaviours["Sync|/ConfigMap/shop/a"] = behaviour{end: "none"} },
			want:    []string{"apply ConfigMap/a", "apply Deployment/b"}, result: result{wave.Succeeded, "", 0},
		},
		"ENG-11 a degraded object ends it": {
			objects: []wave.Object{obj("0 Deployment a"), obj("1 Deployment b")},
			world: func(w *world) {
				w.behaviours["Sync|/Deployment/shop/a"] = behaviour{takes: 3 * time.Second, end: "Degraded"}
			},
			want: []string{"apply Deployment/a"}, result: result{wave.Failed, "Deployment shop/a: degraded: it is Degraded", -1},
		},
		"ENG-11 a suspended object is waited for": {
			objects: []wave.Object{obj("0 Deployment a"), obj("1 Deployment b")}, config: wave.Config{Deadline: time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)},
			world: func(w *world) { w.behaviours["Sync|/Deployment/shop/a"] = behaviour{end: "Suspended"} },
			want:  []string{"apply Deployment/a"}, result: result{wave.Failed, "deadline has passed; it was step 1 of 2 (Sync, wave 0): waiting for healthy Deployment shop/a: it is Suspended", time.Minute},
		},
		"ENG-09 wait=false is not waited for": {
			objects: []wave.Object{obj("0 Deployment a", func(o *wave.Object) { o.NoWait = true }), obj("1 Deployment b")},
			world:   func(w *world) { w.behaviours["Sync|/Deployment/shop/a"] = behaviour{takes: -1} },
			want:    []string{"apply Deployment/a", "apply Deployment/b"}, result: result{wave.Succeeded, "", 0},
		},
		"ENG-09 hooks in the last step make it wait for everything in it": {
			objects: []wave.Object{obj("0 Deployment a"), obj("0 Job h", hook("Sync"))},
			world:   func(w *world) { w.behaviours["Sync|/Deployment/shop/a"] = behaviour{takes: 7 * time.Second} },
			want:    []string{"apply Deployment/a", "create Job/h"}, result: result{wave.Succeeded, "applied 1 objects, ran 1 hooks", -1},
		},
		"ENG-12 pruned objects that linger are waited for before the next step": {
			objects: []wave.Object{obj("1 Deployment b")}, prunes: []wave.Object{obj("0 ConfigMap old")},
			world: func(w *world) { w.is(obj("0 ConfigMap old"), func(t *thing) { t.behave.deletion = 20 * time.Second }) },
			want:  []string{"delete ConfigMap/old", "apply Deployment/b"}, result: result{wave.Succeeded, "applied 1 objects, pruned 1", -1},
		},
		"ENG-12 not in the last step": {
			prunes: []wave.Object{obj("0 ConfigMap old")},
			world:  func(w *world) { w.is(obj("0 ConfigMap old"), func(t *thing) { t.behave.deletion = time.Hour }) },
			want:   []string{"delete ConfigMap/old"}, result: result{wave.Succeeded, "", 0},
		},
		"ENG-13 the wave delay is kept between steps": {
			objects: []wave.Object{obj("0 ConfigMap a"), obj("1 ConfigMap b"), obj("2 ConfigMap c")}, config: wave.Config{WaveDelay: 2 * time.Second},
			want: []string{"apply ConfigMap/a", "apply ConfigMap/b", "apply ConfigMap/c"}, result: result{wave.Succeeded, "", 4 * time.Second},
		},
		"ENG-14 objects of a new kind wait for its definition": {
			objects: []wave.Object{obj("0 CustomResourceDefinition c"), obj("0 Widget w")},
			world:   func(w *world) { w.behaviours["Sync|/CustomResourceDefinition//c"] = behaviour{takes: 3 * time.Second} },
			want:    []string{"apply CustomResourceDefinition/c", "apply Widget/w"}, result: result{wave.Succeeded, "", 3 * time.Second},
		},
		"ENG-14 an unchanged definition is not waited for": {
			objects: []wave.Object{obj("0 CustomResourceDefinition c"), obj("0 Widget w")},
			world: func(w *world) {
				w.is(obj("0 CustomResourceDefinition c"), func(t *thing) { t.content, t.behave.takes = "desired", -1 })
			},
			want: []string{"apply Widget/w"}, result: result{wave.Succeeded, "", 0},
		},
		"ENG-17 a waited-for object that disappears ends it in Error": {
			objects: []wave.Object{obj("0 Deployment a"), obj("1 Deployment b")},
			world:   func(w *world) { w.behaviours["Sync|/Deployment/shop/a"] = behaviour{vanish: true} },
			want:    []string{"apply Deployment/a"}, result: result{wave.Errored, "might have been deleted", -1},
		},
		"ENG-17 a hook that disappears ends it in Error": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 Deployment a")},
			world:   func(w *world) { w.behaviours["PreSync|/Job/shop/h"] = behaviour{vanish: true} },
			want:    []string{"create Job/h"}, result: result{wave.Errored, "might have been deleted", -1},
		},
		"ENG-18 a failed apply stops later kinds and waves, and runs SyncFail hooks": {
			objects: []wave.Object{obj("0 ConfigMap a"), obj("0 ConfigMap b"), obj("0 Deployment c"), obj("1 Deployment d"), obj("0 Job fail", hook("SyncFail"))},
			world:   func(w *world) { w.behaviours["Sync|/ConfigMap/shop/a"] = behaviour{refuse: refused} },
			want:    []string{"apply ConfigMap/b", "create Job/fail"}, result: result{wave.Failed, "one or more objects failed to apply: ConfigMap shop/a: spec.replicas: must be positive", -1},
		},
		"ENG-18 the system's fault is Error": {
			objects: []wave.Object{obj("0 ConfigMap a")},
			world: func(w *world) {
				w.behaviours["Sync|/ConfigMap/shop/a"] = behaviour{refuse: fault.New(fault.Offline, "the API server is away")}
			},
			result: result{wave.Errored, "the API server is away", 0},
		},
		"ENG-18 an error that nobody classified shows nothing": {
			objects: []wave.Object{obj("0 ConfigMap a")},
			world:   func(w *world) { w.behaviours["Sync|/ConfigMap/shop/a"] = behaviour{refuse: errors.New("hunter2")} },
			result:  result{wave.Errored, "something went wrong on our side", 0},
		},
		"ENG-06 a failed prune stops the step": {
			objects: []wave.Object{obj("0 ConfigMap a")}, prunes: []wave.Object{obj("0 ConfigMap old")},
			world: func(w *world) {
				w.is(obj("0 ConfigMap old"), nil)
				w.behaviours["delete /ConfigMap/shop/old"] = behaviour{refuse: fault.New(fault.Denied, "forbidden")}
			},
			result: result{wave.Failed, "ConfigMap shop/old: forbidden", 0},
		},
		"INV-3 what is not ours is not pruned": {
			prunes: []wave.Object{obj("0 ConfigMap old")},
			world:  func(w *world) { w.is(obj("0 ConfigMap old"), func(t *thing) { t.ours = false }) },
			result: result{wave.Succeeded, "kept 1 that need pruning", 0},
		},
		"INV-3 without prune objects are only reported": {
			prunes: []wave.Object{obj("0 ConfigMap old")}, options: func(o *wave.Options) { o.Prune = false },
			world:  func(w *world) { w.is(obj("0 ConfigMap old"), nil) },
			result: result{wave.Succeeded, "kept 1 that need pruning", 0},
		},
		"SYNC-26 the namespace is made first": {
			objects: []wave.Object{obj("0 ConfigMap a"), obj("0 Job h", hook("PreSync"))}, options: func(o *wave.Options) { o.SyncOptions = []string{"CreateNamespace=true"} },
			want: []string{"apply Namespace/shop", "create Job/h", "apply ConfigMap/a"}, result: result{wave.Succeeded, "", 0},
		},
		"HOOK-08 a hook is waited for": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 Deployment a"), obj("0 Job p", hook("PostSync"))},
			world: func(w *world) {
				w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: 30 * time.Second}
				w.behaviours["Sync|/Deployment/shop/a"] = behaviour{takes: 20 * time.Second}
				w.behaviours["PostSync|/Job/shop/p"] = behaviour{takes: 10 * time.Second}
			},
			want: []string{"create Job/h", "apply Deployment/a", "create Job/p"}, result: result{wave.Succeeded, "applied 1 objects, ran 2 hooks", -1},
		},
		"HOOK-08 a hook without a health rule has succeeded at once": {
			objects: []wave.Object{obj("0 ConfigMap h", hook("PreSync")), obj("0 Deployment a")},
			world:   func(w *world) { w.behaviours["PreSync|/ConfigMap/shop/h"] = behaviour{end: "none"} },
			want:    []string{"create ConfigMap/h", "apply Deployment/a"}, result: result{wave.Succeeded, "", 0},
		},
		"HOOK-08 Unknown is a failure": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 Deployment a")},
			world:   func(w *world) { w.behaviours["PreSync|/Job/shop/h"] = behaviour{end: "Unknown"} },
			want:    []string{"create Job/h"}, result: result{wave.Failed, "Job shop/h: the hook failed: it is Unknown", -1},
		},
		"HOOK-11 a failed PreSync hook stops the sync": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 Deployment a"), obj("0 Job fail", hook("SyncFail"))},
			world:   func(w *world) { w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: time.Second, end: "Degraded"} },
			want:    []string{"create Job/h", "create Job/fail"}, result: result{wave.Failed, "Job shop/h: the hook failed", -1},
		},
		"HOOK-12 PostSync runs only when all is healthy": {
			objects: []wave.Object{obj("0 Deployment a"), obj("0 Job p", hook("PostSync"))},
			world:   func(w *world) { w.behaviours["Sync|/Deployment/shop/a"] = behaviour{end: "Degraded"} },
			want:    []string{"apply Deployment/a"}, result: result{wave.Failed, "degraded", -1},
		},
		"HOOK-13 a failed SyncFail hook is only added to the message": {
			objects: []wave.Object{obj("0 ConfigMap a"), obj("0 Job fail", hook("SyncFail"))},
			world: func(w *world) {
				w.behaviours["Sync|/ConfigMap/shop/a"] = behaviour{refuse: refused}
				w.behaviours["SyncFail|/Job/shop/fail"] = behaviour{end: "Degraded"}
			},
			want: []string{"create Job/fail"}, result: result{wave.Failed, "must be positive; also, SyncFail: one or more tasks did not succeed: Job shop/fail", -1},
		},
		"HOOK-06 BeforeHookCreation takes the old one away and waits": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a")},
			world: func(w *world) {
				w.is(obj("0 Job h"), func(t *thing) { t.instance, t.behave.deletion = "old/PreSync", 5*time.Second })
			},
			want: []string{"delete Job/h", "create Job/h", "apply ConfigMap/a"}, result: result{wave.Succeeded, "", -1},
		},
		"HOOK-06 HookSucceeded takes it away when done": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync", "HookSucceeded")), obj("0 ConfigMap a")},
			want:    []string{"create Job/h", "apply ConfigMap/a", "delete Job/h"}, result: result{wave.Succeeded, "", -1},
		},
		"HOOK-06 HookSucceeded keeps a failed one": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync", "HookSucceeded"))}, world: func(w *world) { w.behaviours["PreSync|/Job/shop/h"] = behaviour{end: "Degraded"} },
			want: []string{"create Job/h"}, result: result{wave.Failed, "", -1},
		},
		"HOOK-06 HookFailed takes a failed one away": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync", "HookFailed"))}, world: func(w *world) { w.behaviours["PreSync|/Job/shop/h"] = behaviour{end: "Degraded"} },
			want: []string{"create Job/h", "delete Job/h"}, result: result{wave.Failed, "", -1},
		},
		"HOOK-07 policies act at the end of the sync": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync", "HookSucceeded")), obj("0 ConfigMap a")}, world: func(w *world) { w.behaviours["Sync|/ConfigMap/shop/a"] = behaviour{refuse: refused} },
			want: []string{"create Job/h", "delete Job/h"}, result: result{wave.Failed, "", -1},
		},
		"HOOK-05 a succeeded one that its policy keeps is not run again": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync", "HookFailed")), obj("0 ConfigMap a")},
			world:   func(w *world) { w.is(obj("0 Job h"), func(t *thing) { t.instance = "old/PreSync" }) },
			want:    []string{"apply ConfigMap/a"}, result: result{wave.Succeeded, "", -1},
		},
		"HOOK-05 a failed one of a former operation makes room": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync", "HookSucceeded"))},
			world: func(w *world) {
				w.is(obj("0 Job h"), func(t *thing) { t.instance, t.behave.end = "old/PreSync", "Degraded" })
			},
			want: []string{"delete Job/h", "create Job/h", "delete Job/h"}, result: result{wave.Succeeded, "", -1},
		},
		"INV-3 an object of a hook's name that is not ours stays": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a")},
			world:   func(w *world) { w.is(obj("0 Job h"), func(t *thing) { t.ours = false }) },
			result:  result{wave.Failed, "Job shop/h: an object of this name exists and is no hook of ours: not ours", -1},
		},
		"HOOK-01 one hook in two phases runs twice": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync,PostSync")), obj("0 ConfigMap a")},
			want:    []string{"create Job/h", "apply ConfigMap/a", "delete Job/h", "create Job/h"}, result: result{wave.Succeeded, "ran 2 hooks", -1},
		},
		"a running hook is let finish when something beside it fails": {
			objects: []wave.Object{obj("0 Job h", hook("Sync")), obj("0 Zebra z")},
			world: func(w *world) {
				w.behaviours["Sync|/Zebra/shop/z"] = behaviour{refuse: refused}
				w.behaviours["Sync|/Job/shop/h"] = behaviour{takes: time.Minute}
			},
			want: []string{"create Job/h"}, result: result{wave.Failed, "must be positive", -1},
		},
		"a hook that cannot be created": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a")}, world: func(w *world) { w.behaviours["PreSync|/Job/shop/h"] = behaviour{refuse: refused} },
			result: result{wave.Failed, "Job shop/h: spec.replicas", -1},
		},
		"a ledger that cannot be written stops before the first hook": {
			objects: []wave.Object{obj("0 Job h", hook("PreSync")), obj("0 Job fail", hook("SyncFail"))}, world: func(w *world) { w.failSave = fault.New(fault.Offline, "disk full") },
			result: result{wave.Errored, "the progress of the operation cannot be stored: disk full", -1},
		},
		"ENG-11 what else is not healthy is then not waited for": {
			objects: []wave.Object{obj("0 Deployment a"), obj("0 Deployment b"), obj("1 Deployment c")},
			world: func(w *world) {
				w.behaviours["Sync|/Deployment/shop/a"] = behaviour{end: "Degraded"}
				w.behaviours["Sync|/Deployment/shop/b"] = behaviour{takes: -1}
			},
			want: []string{"apply Deployment/a", "apply Deployment/b"}, result: result{wave.Failed, "Deployment shop/a: degraded", 0},
		},
		"nothing to do": {result: result{wave.Succeeded, "applied 0 objects", 0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				if c.world != nil {
					c.world(w)
				}
				var options []func(*wave.Options)
				if c.options != nil {
					options = append(options, c.options)
				}
				start := time.Now()
				res := w.run(t.Context(), mustBuild(c.objects, c.prunes, options...), c.config)
				if res.Phase != c.result.phase || !strings.Contains(res.Message, c.result.says) {
					t.Errorf("result %s: %s\nwant %s: %s", res.Phase, res.Message, c.result.phase, c.result.says)
				}
				if diff := cmp.Diff(c.want, w.done()); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
				if took := time.Since(start); c.result.took >= 0 && (took < c.result.took || took > c.result.took+3*time.Second) {
					t.Errorf("it took %s, want %s", took, c.result.took)
				}
				if strings.Contains(res.Message, "hunter2") {
					t.Error("the message shows an internal error")
				}
			})
		})
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	released := false
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.is(obj("0 ConfigMap old"), nil)
		w.behaviours["Sync|/Deployment/shop/bad"] = behaviour{refuse: fault.New(fault.Invalid, "no")}
		plan := mustBuild([]wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a"), obj("0 Deployment bad"), obj("5 ConfigMap late")},
			[]wave.Object{obj("0 ConfigMap old"), obj("0 Secret kept", options("Prune=false"))})
		res := w.run(t.Context(), plan, wave.Config{})
		var got []string
		for _, r := range res.Items {
			got = append(got, fmt.Sprintf("%s/%s %s %s %s", r.Item.Key.Kind, r.Item.Key.Name, r.Status, r.HookPhase, r.Message))
		}
		want := []string{
			"Secret/kept PruneSkipped  kept: its sync option Prune=false, or Helm's resource policy, forbids deleting it",
			"Job/h Synced Succeeded it is Healthy", "ConfigMap/old Pruned  pruned", "ConfigMap/a Synced  configured", "Deployment/bad SyncFailed  no",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("APP-16 (-want +got):\n%s", diff)
		}
		released = w.released[obj("0 Job h").Key]
	})
	t.Run("HOOK-09 the finalizer of a retained hook is removed at its end", func(t *testing.T) {
		if !released {
			t.Error("it is still held")
		}
	})
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	slow := func(t *thing) { t.behave.deletion = 10 * time.Second }
	build := func(hooks ...wave.Object) wave.Plan {
		return wave.BuildDelete(hooks, []wave.Object{obj("0 ConfigMap a"), obj("1 Deployment b"), obj("0 CustomResourceDefinition c")}, wave.Options{Operation: "op"})
	}
	fill := func(w *world) {
		w.is(obj("0 ConfigMap a"), slow)
		w.is(obj("1 Deployment b"), slow)
		w.is(obj("0 CustomResourceDefinition c"), nil)
	}
	t.Run("DEL-02 DEL-03 HOOK-16 HOOK-17 waves of a deletion and its hooks run in order", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			fill(w)
			start := time.Now()
			res := w.run(t.Context(), build(obj("0 Job before", hook("PreDelete", "HookSucceeded")), obj("0 Job after", hook("PostDelete", "HookSucceeded"))), wave.Config{})
			want := []string{"create Job/before", "delete Deployment/b", "delete ConfigMap/a", "create Job/after"}
			got := w.done()
			if len(got) == 6 {
				got = got[:4] // the two hooks go at the end, in any order
			}
			if diff := cmp.Diff(want, got); diff != "" || res.Phase != wave.Succeeded || time.Since(start) < 20*time.Second {
				t.Errorf("%+v after %s (-want +got):\n%s", res, time.Since(start), diff)
			}
			if len(w.things) != 1 || res.Message != "deleted 2 objects, kept 1 that need pruning, ran 2 hooks" {
				t.Errorf("left: %v, message %q", w.things, res.Message)
			}
		})
	})
	t.Run("HOOK-16 a failed PreDelete hook deletes nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			fill(w)
			w.behaviours["PreDelete|/Job/shop/before"] = behaviour{end: "Degraded"}
			res := w.run(t.Context(), build(obj("0 Job before", hook("PreDelete"))), wave.Config{})
			if diff := cmp.Diff([]string{"create Job/before"}, w.done()); diff != "" || res.Phase != wave.Failed {
				t.Errorf("%+v (-want +got):\n%s", res, diff)
			}
		})
	})
	t.Run("FT-K7 the finalizers that delay a deletion are named", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.is(obj("1 Deployment b"), func(t *thing) { t.behave.deletion = time.Hour })
			res := w.run(t.Context(), build(), wave.Config{Deadline: time.Now().Add(time.Minute)})
			if res.Phase != wave.Failed || !strings.Contains(res.Message, "waiting for deletion of Deployment shop/b: it is Healthy") {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestAwaitHealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := &session{world: w, kill: func() {}}
		w.behaviours["Sync|/Deployment/shop/a"] = behaviour{takes: 10 * time.Second}
		w.behaviours["Sync|/Deployment/shop/b"] = behaviour{takes: -1}
		plan := mustBuild([]wave.Object{obj("0 Deployment a"), obj("0 Deployment b", func(o *wave.Object) { o.NoWait = true }), obj("0 ConfigMap c")}, nil)
		m := wave.New(plan, s, nil, wave.Config{Poll: time.Second})
		start := time.Now()
		if res := m.Run(t.Context()); res.Phase != wave.Succeeded || time.Since(start) != 0 {
			t.Fatalf("Run() = %+v after %s", res, time.Since(start))
		}
		at, err := m.AwaitHealthy(t.Context())
		if err != nil || at.Sub(start) < 10*time.Second || at.Sub(start) > 12*time.Second {
			t.Errorf("behaviour 1: healthy after %s, %v", at.Sub(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.things[obj("0 Deployment a").Key].behave = behaviour{end: "Degraded"}
		if _, err := m.AwaitHealthy(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitHealthy() of what is degraded: %v", err)
		}
		only := wave.New(mustBuild([]wave.Object{obj("0 Deployment b", func(o *wave.Object) { o.NoWait = true })}, nil), s, nil, wave.Config{})
		if at, err := only.AwaitHealthy(t.Context()); err != nil || !at.IsZero() {
			t.Errorf("AwaitHealthy() with wait=false = %s, %v", at, err)
		}
	})
}

// notifying is a target that tells when something has changed.
type notifying struct {
	*session
	notify chan struct{}
}

func (h notifying) Changed() <-chan struct{} { return h.notify }

func TestNotificationsAreHandledAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		h := notifying{&session{world: w, kill: func() {}}, make(chan struct{}, 1)}
		w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: 10 * time.Second}
		time.AfterFunc(10*time.Second, func() { h.notify <- struct{}{} })
		start := time.Now()
		res := wave.New(mustBuild([]wave.Object{obj("0 Job h", hook("PreSync"))}, nil), h, ledger{h.session}, wave.Config{Poll: time.Hour}).Run(t.Context())
		if took := time.Since(start); res.Phase != wave.Succeeded || took > 11*time.Second {
			t.Errorf("%+v after %s", res, took)
		}
		busy := make(chan struct{})
		close(busy)
		h.notify = busy
		w.calls = map[string]int{}
		w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: -1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wave.New(mustBuild([]wave.Object{obj("0 Job h", hook("PreSync"))}, nil, func(o *wave.Options) { o.Operation = "op2" }), h, ledger{h.session}, wave.Config{}).Run(ctx)
		if n := w.calls["State"]; n > 50 {
			t.Errorf("a target that hints all the time was asked %d times in a second", n)
		}
	})
}

func TestKeysOfTheModel(t *testing.T) {
	t.Parallel()
	if k := obj("0 Widget w").Key; k != (manifest.Key{Group: "x.io", Kind: "Widget", Namespace: "shop", Name: "w"}) {
		t.Error(k)
	}
}
