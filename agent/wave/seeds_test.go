package wave_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/agent/wave/wavetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// seeds is how many scenarios are played.
const seeds = 1000

// A broken is how a rule that does not hold ends the check of a scenario.
type broken struct{ why string }

// scenarioResult is a verdict that ends the scenario and not the test.
type scenarioResult struct{}

func (scenarioResult) Helper()                   {}
func (scenarioResult) Fatal(args ...any)         { panic(broken{fmt.Sprint(args...)}) }
func (scenarioResult) Fatalf(f string, a ...any) { panic(broken{fmt.Sprintf(f, a...)}) }

// world makes the model's cluster of a scenario.
func modelOf(d wavetest.Scenario) scenario {
	s := scenario{world: newWorld(), options: wave.Options{Operation: "op", Prune: true, Namespace: "shop"}}
	for _, o := range d.Objects {
		x := obj(fmt.Sprintf("%d %s %s", o.Wave, o.Kind, o.Name))
		b := behaviour{takes: time.Duration(o.Takes) * time.Second}
		switch o.Fate {
		case wavetest.Refused:
			b.refuse = fault.New(fault.Invalid, "refused")
		case wavetest.Degraded:
			b.end = "Degraded"
		}
		switch {
		case o.Prune:
			if o.Last {
				x.Options = []string{"PruneLast=true"}
			}
			s.prunes = append(s.prunes, x)
			s.world.is(x, func(th *thing) { th.behave.deletion = time.Second })
			continue
		case len(o.Hooks) > 0:
			hook(strings.Join(o.Hooks, ","), strings.Split(o.Policy, ",")...)(&x)
			if o.Leftover {
				s.world.is(x, func(th *thing) { th.instance, th.behave = "former/"+o.Hooks[0], behaviour{deletion: time.Second} })
			}
		case o.There:
			s.world.is(x, func(th *thing) { th.content = "desired" })
		}
		for _, p := range []wave.Phase{wave.PreSync, wave.Sync, wave.PostSync, wave.SyncFail} {
			s.world.behaviours[string(p)+"|"+x.Key.String()] = b
		}
		s.objects = append(s.objects, x)
	}
	for i := range 3 {
		x := obj(fmt.Sprintf("0 ConfigMap foreign%d", i))
		s.world.is(x, func(th *thing) { th.ours = i == 0 })
		s.foreign = append(s.foreign, x.Key)
	}
	return s
}

// play runs a scenario with its crashes, and says which rule does not hold.
func play(t *testing.T, d wavetest.Scenario) (why string, history []string) {
	t.Helper()
	s := modelOf(d)
	defer func() {
		history = s.world.done()
		if b, ok := recover().(broken); ok {
			why = b.why
		}
	}()
	full := s.planned(scenarioResult{})
	s.world.crash = func(n int) (before, after bool) {
		for _, c := range d.Crashes {
			before, after = before || (c.Call == n && !c.After), after || (c.Call == n && c.After)
		}
		return before, after && !before
	}
	var res wave.Result
	for range len(d.Crashes) + 1 {
		res = s.world.run(t.Context(), s.planned(scenarioResult{}), wave.Config{Deadline: time.Now().Add(time.Hour)})
		if res.Phase != wave.Running {
			break
		}
	}
	checkRun(scenarioResult{}, s, full, res)
	return "", nil
}

// TestSeeds plays a thousand random operations on the pure machine, in virtual
// time, with crashes before and after its calls. The same seeds are played on
// a real cluster by the agent's tests.
func TestSeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		crashed := 0
		for seed := range uint64(seeds) {
			d := wavetest.Draw(seed + 1)
			crashed += len(d.Crashes)
			why, _ := play(t, d)
			if why == "" {
				continue
			}
			d = wavetest.Shrink(d, func(d wavetest.Scenario) bool { why, _ := play(t, d); return why != "" })
			why, history := play(t, d)
			t.Fatalf("INV-1 INV-2 INV-3 INV-5: %s\nshortest history:\n  %s\nof %s", why, strings.Join(history, "\n  "), d)
		}
		t.Logf("%d operations with up to %d crashes", seeds, crashed)
	})
}

// TestShrink: a failing scenario is made as small as it can be.
func TestShrink(t *testing.T) {
	t.Parallel()
	d := wavetest.Draw(7)
	d.Objects = append(d.Objects, wavetest.Object{Kind: "ConfigMap", Name: "culprit", Wave: 2, Takes: 3})
	got := wavetest.Shrink(d, func(s wavetest.Scenario) bool {
		return slices.ContainsFunc(s.Objects, func(o wavetest.Object) bool { return o.Name == "culprit" })
	})
	if len(got.Objects) != 1 || len(got.Crashes) != 0 || got.Objects[0].Wave != 0 || got.Objects[0].Takes != 0 {
		t.Errorf("the shortest is %s", got)
	}
	if a, b := wavetest.Draw(42).String(), wavetest.Draw(42).String(); a != b {
		t.Error("one seed gave two scenarios")
	}
}
