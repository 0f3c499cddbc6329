package wave_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A scenario is one random operation and the world that it meets.
type scenario struct {
	objects, prunes []wave.Object
	options         wave.Options
	world           *world
	foreign         []manifest.Key
}

func drawScenario(t *rapid.T) scenario {
	s := scenario{world: newWorld(), options: wave.Options{Operation: "op", Prune: true, Namespace: "shop"}}
	waves := rapid.Int32Range(-1, 2)
	seconds := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(0, 4).Draw(t, name)) * time.Second
	}
	kinds := rapid.SampledFrom([]string{"ConfigMap", "Deployment", "Zebra", "Namespace", "CustomResourceDefinition", "Widget"})
	for i := range rapid.IntRange(0, 7).Draw(t, "objects") {
		kind := kinds.Draw(t, "kind")
		o := obj(fmt.Sprintf("%d %s o%d", waves.Draw(t, "wave"), kind, i))
		if kind == "Namespace" {
			o.Key.Name = []string{"shop", "other"}[i%2]
		}
		if kind == "ConfigMap" && rapid.Bool().Draw(t, "other namespace") {
			o.Key.Namespace = "other"
		}
		o.NoWait = rapid.IntRange(0, 5).Draw(t, "no wait") == 0
		s.objects = append(s.objects, o)
		b := behaviour{takes: seconds("takes")}
		switch rapid.IntRange(0, 12).Draw(t, "fate") {
		case 0:
			b.refuse = fault.New(fault.Invalid, "refused")
		case 1:
			b.end = "Degraded"
		case 2:
			b.end = "none"
		case 3:
			s.world.is(o, func(th *thing) { th.content = "desired"; th.behave.takes = 0 }) // unchanged
		}
		s.world.behaviours["Sync|"+o.Key.String()] = b
		for _, p := range []wave.Phase{wave.PreSync, wave.PostSync} { // where bubbling may have moved it
			s.world.behaviours[string(p)+"|"+o.Key.String()] = b
		}
	}
	phases := rapid.SampledFrom([]string{"PreSync", "Sync", "PostSync", "SyncFail", "PreSync,PostSync"})
	policies := rapid.SampledFrom([]string{"BeforeHookCreation", "HookSucceeded", "HookFailed", "BeforeHookCreation,HookSucceeded"})
	for i := range rapid.IntRange(0, 4).Draw(t, "hooks") {
		o := obj(fmt.Sprintf("%d Job h%d", waves.Draw(t, "wave"), i), hook(phases.Draw(t, "phases"), policies.Draw(t, "policy")))
		s.objects = append(s.objects, o)
		for _, p := range []wave.Phase{wave.PreSync, wave.Sync, wave.PostSync, wave.SyncFail} {
			b := behaviour{takes: seconds("takes"), deletion: seconds("deletion")}
			switch rapid.IntRange(0, 10).Draw(t, "fate") {
			case 0:
				b.end = "Degraded"
			case 1:
				b.refuse = fault.New(fault.Invalid, "refused")
			}
			s.world.behaviours[string(p)+"|"+o.Key.String()] = b
		}
		if rapid.IntRange(0, 2).Draw(t, "leftover") == 0 {
			end := rapid.SampledFrom([]string{"", "Degraded"}).Draw(t, "leftover end")
			s.world.is(o, func(th *thing) {
				th.instance, th.behave = "former/"+o.Hooks[0], behaviour{end: end, deletion: time.Second}
			})
		}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "prunes") {
		o := obj(fmt.Sprintf("%d ConfigMap p%d", waves.Draw(t, "wave"), i))
		if rapid.IntRange(0, 4).Draw(t, "last") == 0 {
			o.Options = []string{"PruneLast=true"}
		}
		s.prunes = append(s.prunes, o)
		s.world.is(o, func(th *thing) { th.behave.deletion = seconds("deletion") })
	}
	for i := range 3 {
		o := obj(fmt.Sprintf("0 ConfigMap foreign%d", i))
		s.world.is(o, func(th *thing) { th.ours = i == 0 })
		s.foreign = append(s.foreign, o.Key)
	}
	return s
}

// plan builds the plan anew, as an agent does after a restart: tombstones
// whose objects are gone are closed and no longer there.
func (s scenario) planned(t checker) wave.Plan {
	s.world.settle()
	open := slices.DeleteFunc(slices.Clone(s.prunes), func(o wave.Object) bool { return s.world.things[o.Key] == nil })
	p, err := wave.Build(s.objects, open, s.options)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A checker ends a check whose rule does not hold.
type checker interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// A bubble is a test without the deadline, which virtual time does not have.
type bubble struct{ testing.TB }

// TestEngineProperty runs random operations with crashes before and after
// random calls of the target and the ledger, and checks what must hold
// whatever happens.
func TestEngineProperty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(t *rapid.T) {
			s := drawScenario(t)
			full := s.planned(t)
			crashes := rapid.SliceOfN(rapid.IntRange(1, 60), 0, 4).Draw(t, "crashes")
			after := rapid.Bool().Draw(t, "after the effect")
			s.world.crash = func(n int) (bool, bool) {
				hit := slices.Contains(crashes, n)
				return hit && !after, hit && after
			}
			var res wave.Result
			for range len(crashes) + 1 {
				res = s.world.run(t.Context(), s.planned(t), wave.Config{Deadline: time.Now().Add(time.Hour)})
				if res.Phase != wave.Running {
					break
				}
			}
			checkRun(t, s, full, res)
		})
	})
}

func checkRun(t checker, s scenario, full wave.Plan, res wave.Result) {
	t.Helper()
	if res.Phase != wave.Succeeded && res.Phase != wave.Failed {
		t.Fatalf("the operation ended %s: %s", res.Phase, res.Message)
	}
	checkOnce(t, s)
	checkDeletions(t, s)
	checkOrder(t, s, full)
	if res.Phase == wave.Succeeded {
		checkDone(t, s, full)
	} else {
		checkFailed(t, s, full)
	}
	checkCleanUp(t, s)
}

// checkOnce: INV-2, each hook instance is created and each object changed at
// most once.
func checkOnce(t checker, s scenario) {
	seen := map[string]int{}
	for _, e := range s.world.log {
		if e.what == "delete" {
			continue
		}
		id := e.item.Key.String() + e.item.Instance
		if seen[id]++; seen[id] > 1 {
			t.Fatalf("INV-2: %s %s happened twice", e.what, e.item.ID())
		}
	}
}

// checkDeletions: INV-3, only what is to be pruned and hooks are deleted.
func checkDeletions(t checker, s scenario) {
	for _, e := range s.world.log {
		if e.what != "delete" || e.item.Hook {
			continue
		}
		if !slices.ContainsFunc(s.prunes, func(o wave.Object) bool { return o.Key == e.item.Key }) {
			t.Fatalf("INV-3: %s was deleted and nobody asked for it", e.item.Key)
		}
	}
	for _, k := range s.foreign {
		if s.world.things[k] == nil {
			t.Fatalf("INV-3: %s is gone", k)
		}
	}
}

// checkOrder: ENG-01 to ENG-06, ENG-09, HOOK-10 to HOOK-12. Where one thing
// must come before another, it was done, and healthy, before the other began.
func checkOrder(t checker, s scenario, full wave.Plan) {
	steps := slices.Concat(full.Steps, full.OnFailure)
	began := map[string]time.Time{} // of the first change by item id
	place := map[string]int{}       // in the log
	for i, e := range s.world.log {
		if id := e.item.ID(); e.what != "delete" {
			began[id], place[id] = e.at, i
		}
	}
	for i, early := range steps {
		for _, late := range steps[i+1:] {
			if late.Phase == wave.SyncFail {
				continue
			}
			for _, b := range slices.Concat(late.Groups...) {
				at, ok := began[b.ID()]
				if !ok {
					continue
				}
				for _, a := range slices.Concat(early.Groups...) {
					checkBefore(t, s, a, b, at, began, place)
				}
			}
		}
		for g, group := range early.Groups {
			for _, later := range early.Groups[g+1:] {
				for _, b := range later {
					for _, a := range group {
						if i, ok := place[a.ID()]; ok && place[b.ID()] > 0 && place[b.ID()] < i {
							t.Fatalf("ENG-03: %s came before %s", b.ID(), a.ID())
						}
					}
				}
			}
		}
	}
}

func checkBefore(t checker, s scenario, a, b wave.Item, at time.Time, began map[string]time.Time, place map[string]int) {
	t.Helper()
	behave := s.world.behaviours[a.ID()]
	if behave.refuse != nil {
		t.Fatalf("ENG-18: %s was applied after %s had failed", b.ID(), a.ID())
	}
	start, ok := began[a.ID()]
	if !ok { // it was there before, or is a hook that its policy keeps
		return
	}
	if place[a.ID()] > place[b.ID()] {
		t.Fatalf("ENG-02: %s came before %s", b.ID(), a.ID())
	}
	if a.NoWait {
		return
	}
	if behave.end == "Degraded" {
		t.Fatalf("ENG-11, HOOK-11: %s was applied after %s was degraded", b.ID(), a.ID())
	}
	if ready := start.Add(behave.takes); behave.end != "none" && at.Before(ready) {
		t.Fatalf("ENG-09: %s began %s before %s was healthy", b.ID(), ready.Sub(at), a.ID())
	}
}

// checkDone: a succeeded operation has done everything that it had to.
func checkDone(t checker, s scenario, full wave.Plan) {
	created := map[string]bool{}
	for _, e := range s.world.log {
		if e.what == "create" {
			created[e.item.ID()] = true
		}
	}
	for _, step := range full.Steps {
		for _, it := range slices.Concat(step.Groups...) {
			th := s.world.things[it.Key]
			switch {
			case !it.Hook && (th == nil || th.content != "desired"):
				t.Fatalf("INV-5: %s is not as desired", it.ID())
			case it.Hook && !created[it.ID()] && it.Has(manifest.BeforeHookCreation):
				t.Fatalf("HOOK-06: %s did not run", it.ID())
			}
		}
		for _, it := range slices.Concat(step.Prunes...) {
			if th := s.world.things[it.Key]; th != nil && !th.deleting {
				t.Fatalf("INV-5: %s was not pruned", it.ID())
			}
		}
	}
	for _, e := range s.world.log {
		if e.item.Phase == wave.SyncFail {
			t.Fatalf("ENG-01: %s ran after a success", e.item.ID())
		}
	}
}

// checkFailed: an operation fails only for a reason, and its SyncFail hooks
// have run up to the first of them that failed.
func checkFailed(t checker, s scenario, full wave.Plan) {
	reason := slices.ContainsFunc(full.Items(), func(it wave.Item) bool {
		b := s.world.behaviours[it.ID()]
		return b.refuse != nil || b.end == "Degraded" || s.kept(it)
	})
	if !reason {
		t.Fatal("it failed without a reason")
	}
	created := map[string]bool{}
	for _, e := range s.world.log {
		created[e.item.ID()] = created[e.item.ID()] || e.what == "create"
	}
	for _, step := range full.OnFailure {
		for _, it := range slices.Concat(step.Groups...) {
			if !created[it.ID()] && it.Has(manifest.BeforeHookCreation) && s.world.behaviours[it.ID()].refuse == nil {
				t.Fatalf("ENG-18: %s did not run", it.ID())
			}
		}
		if slices.ContainsFunc(slices.Concat(step.Groups...), func(it wave.Item) bool {
			b := s.world.behaviours[it.ID()]
			return b.end == "Degraded" || b.refuse != nil || s.kept(it)
		}) {
			return
		}
	}
}

// kept reports whether an older hook of the name may stand in for this one.
func (s scenario) kept(it wave.Item) bool { return it.Hook && !it.Has(manifest.BeforeHookCreation) }

// checkCleanUp: HOOK-07 and HOOK-09, finished hooks are gone or released.
func checkCleanUp(t checker, s scenario) {
	for _, e := range s.world.log {
		th := s.world.things[e.item.Key]
		if e.what != "create" || th == nil || th.deleting || th.instance != e.item.Instance {
			continue
		}
		if !s.world.released[e.item.Key] {
			t.Fatalf("HOOK-09: %s still has its finalizer", e.item.ID())
		}
		if policy := map[string]string{"Healthy": manifest.HookSucceeded, "Degraded": manifest.HookFailed}[th.health()]; e.item.Has(policy) {
			t.Fatalf("HOOK-07: %s should have been deleted by %s", e.item.ID(), policy)
		}
	}
}

// TestCrashAtEveryCall crashes one rich operation before and after each of its
// calls, one at a time.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("FT-A1 INV-2 ENG-19 after=%v fails=%v", after, fails), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for n := 1; ; n++ {
						if !crashAt(t, n, after, fails) {
							if n < 30 {
								t.Errorf("only %d calls were made", n)
							}
							return
						}
					}
				})
			})
		}
	}
}

// crashAt runs the operation with a crash at call n, and says whether there
// was such a call.
func crashAt(t *testing.T, n int, after, fails bool) bool {
	t.Helper()
	w := newWorld()
	hit := false
	w.crash = func(i int) (bool, bool) {
		if i != n || hit {
			return false, false
		}
		hit = true
		return !after, after
	}
	objects := []wave.Object{
		obj("0 Job pre", hook("PreSync", "HookSucceeded")), obj("-1 ConfigMap a"), obj("0 Deployment b"), obj("0 Job mid", hook("Sync")),
		obj("1 Zebra z"), obj("0 Job post", hook("PostSync")), obj("0 Job fail", hook("SyncFail")),
	}
	prunes := []wave.Object{obj("-1 ConfigMap p"), obj("1 ConfigMap q"), obj("0 ConfigMap r", options("PruneLast=true"))}
	for _, o := range prunes {
		w.is(o, func(th *thing) { th.behave.deletion = 2 * time.Second })
	}
	w.is(objects[3], func(th *thing) { th.instance = "former/Sync" })
	for _, id := range []string{"PreSync|/Job/shop/pre", "Sync|/Deployment/shop/b", "Sync|/Job/shop/mid", "PostSync|/Job/shop/post", "SyncFail|/Job/shop/fail"} {
		w.behaviours[id] = behaviour{takes: 3 * time.Second}
	}
	want, phase := 9, wave.Succeeded // 3 hooks, 3 objects, 3 prunes
	if fails {
		w.behaviours["Sync|/Zebra/shop/z"] = behaviour{refuse: fault.New(fault.Invalid, "refused")}
		phase = wave.Failed
	}
	s := scenario{objects: objects, prunes: prunes, options: wave.Options{Operation: "op", Prune: true}, world: w}
	var res wave.Result
	for range 3 {
		w.settle()
		open := slices.DeleteFunc(slices.Clone(s.prunes), func(o wave.Object) bool { return w.things[o.Key] == nil })
		p, err := wave.Build(objects, open, s.options)
		if err != nil {
			t.Fatal(err)
		}
		if res = w.run(t.Context(), p, wave.Config{}); res.Phase != wave.Running {
			break
		}
	}
	if res.Phase != phase {
		t.Fatalf("crash at call %d: %s: %s", n, res.Phase, res.Message)
	}
	made := map[string]int{}
	for _, e := range w.log {
		made[e.what+e.item.Key.String()+e.item.Instance]++
	}
	for id, count := range made {
		if count > 1 {
			t.Fatalf("INV-2: crash at call %d: %s %d times: %v", n, id, count, w.done())
		}
	}
	if !fails && countOf(w, "create", "apply")+countOf(w, "delete") != want+2 { // and two hooks deleted: the former one, and pre
		t.Fatalf("crash at call %d: %v", n, w.done())
	}
	if fails && !slices.Contains(w.done(), "create Job/fail") {
		t.Fatalf("crash at call %d: the SyncFail hook did not run: %v", n, w.done())
	}
	return hit
}

func countOf(w *world, whats ...string) int {
	n := 0
	for _, e := range w.log {
		if slices.Contains(whats, e.what) {
			n++
		}
	}
	return n
}
