package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
)

var rolloutStart = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func stepOf(most *hub.MaxUpdate, values ...string) hub.RolloutStep {
	return hub.RolloutStep{MatchExpressions: []hub.LabelSelectorMember{{Key: "env", Operator: "In", Values: values}}, MaxUpdate: most}
}

func number(n int) *hub.MaxUpdate     { return &hub.MaxUpdate{Number: n} }
func percent(s string) *hub.MaxUpdate { return &hub.MaxUpdate{Text: s} }

// A fleet is what a rollout acts on: a sync that it begins ends when the test
// says so.
type fleet struct {
	rollout plan.Rollout
	last    plan.RolloutDecision
}

func newFleet(steps []hub.RolloutStep, envs ...string) *fleet {
	f := &fleet{rollout: plan.Rollout{Steps: steps, Now: rolloutStart}}
	for i, env := range envs {
		f.rollout.Applications = append(f.rollout.Applications, plan.RolloutApplication{
			Name: fmt.Sprintf("%s%d", env, i), Labels: map[string]string{"env": env}, Current: true, Revisions: []string{"r1"}, Sync: hub.OutOfSync, Health: hub.MissingHealth,
		})
	}
	return f
}

// decide decides, and begins the operations that the decision names.
func (f *fleet) decide() plan.RolloutDecision {
	f.rollout.Now = f.rollout.Now.Add(time.Minute)
	f.last = plan.RollOut(f.rollout)
	f.rollout.States = f.last.States
	for i := range f.rollout.Applications {
		f.rollout.Applications[i].Changed = false
	}
	for _, name := range f.last.Sync {
		f.app(name).Operation = &plan.RolloutOperation{Began: f.rollout.Now}
	}
	return f.last
}

func (f *fleet) app(name string) *plan.RolloutApplication {
	i := slices.IndexFunc(f.rollout.Applications, func(a plan.RolloutApplication) bool { return a.Name == name })
	return &f.rollout.Applications[i]
}

// finish ends the sync of applications, which are healthy then.
func (f *fleet) finish(names ...string) {
	for _, name := range names {
		a := f.app(name)
		a.Operation, a.Sync, a.Health = &plan.RolloutOperation{Began: f.rollout.Now, Over: true}, hub.Synced, hub.Healthy
	}
}

func (f *fleet) status(name string) hub.RolloutStatus { return f.state(name).Status }

func (f *fleet) state(name string) hub.RolloutState {
	for _, s := range f.last.States {
		if s.Application == name {
			return s
		}
	}
	return hub.RolloutState{}
}

func (f *fleet) want(t *testing.T, step int, sync ...string) {
	t.Helper()
	d := f.decide()
	if d.Step != step || !slices.Equal(d.Sync, sync) {
		t.Fatalf("step %d syncs %v, want step %d and %v; states %+v", d.Step, d.Sync, step, sync, d.States)
	}
}

func TestRollout(t *testing.T) {
	t.Parallel()
	t.Run("APRG-05 an application is Waiting, Pending, Progressing and Healthy, and the next step begins when all are Healthy", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "dev", "prod")
		f.want(t, 1, "dev0", "dev1")
		if got := []hub.RolloutStatus{f.status("dev0"), f.status("prod2")}; got[0] != hub.RolloutPending || got[1] != hub.RolloutWaiting {
			t.Errorf("states are %v", got)
		}
		f.want(t, 1)
		if f.status("dev0") != hub.RolloutProgressing {
			t.Errorf("the state is %+v", f.state("dev0"))
		}
		f.finish("dev0")
		f.want(t, 1)
		if f.status("dev0") != hub.RolloutHealthy || f.status("prod2") != hub.RolloutWaiting {
			t.Errorf("states are %+v", f.last.States)
		}
		f.finish("dev1")
		f.want(t, 2, "prod2")
		f.decide()
		f.finish("prod2")
		f.want(t, 0)
	})
	t.Run("APRG-05 a new revision begins again with the first step", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "prod")
		f.finish("dev0", "prod1")
		f.want(t, 0)
		for _, name := range []string{"dev0", "prod1"} {
			f.app(name).Revisions, f.app(name).Sync = []string{"r2"}, hub.OutOfSync
		}
		f.want(t, 1, "dev0")
		if f.status("prod1") != hub.RolloutWaiting || !slices.Equal(f.state("prod1").Revisions, []string{"r2"}) {
			t.Errorf("the state is %+v", f.state("prod1"))
		}
	})
	t.Run("APRG-05 a change of the spec alone begins again", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev")}, "dev")
		f.finish("dev0")
		f.want(t, 0)
		f.app("dev0").Changed = true
		f.want(t, 1, "dev0")
	})
	t.Run("APRG-05 what is synced and healthy already needs no sync", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "prod")
		f.app("dev0").Sync, f.app("dev0").Health = hub.Synced, hub.Healthy
		f.want(t, 2, "prod1")
	})
	t.Run("APRG-05 a status of an older spec decides nothing", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "prod")
		a := f.app("dev0")
		a.Sync, a.Health, a.Current = hub.Synced, hub.Healthy, false
		f.want(t, 1, "dev0")
		f.want(t, 1)
	})
	t.Run("APRG-05 an application that is not created yet holds later steps", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "prod")
		f.app("dev0").Missing = true
		f.want(t, 1)
		if len(f.last.States) != 1 {
			t.Errorf("states are %+v", f.last.States)
		}
	})
	t.Run("APRG-05 a step without applications is complete", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "none"), stepOf(nil, "prod")}, "prod")
		f.want(t, 2, "prod0")
	})
	t.Run("APRG-05 a sync that was not begun is named again", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev")}, "dev")
		f.want(t, 1, "dev0")
		f.app("dev0").Operation = nil
		f.want(t, 1, "dev0")
	})
	t.Run("APRG-09 an application that fails holds later steps, without a rollback", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "prod")
		f.decide()
		f.app("dev0").Operation = &plan.RolloutOperation{Began: f.rollout.Now, Over: true, Failure: "one object is refused"}
		f.want(t, 1)
		f.want(t, 1)
		if s := f.state("dev0"); s.Status != hub.RolloutProgressing || !strings.Contains(s.Message, "one object is refused") {
			t.Errorf("the state is %+v", s)
		}
		f.finish("dev0")
		f.want(t, 2, "prod1")
	})
	t.Run("APRG-09 an application that stays unhealthy holds later steps", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "prod")
		f.decide()
		f.finish("dev0")
		f.app("dev0").Health = hub.Degraded
		f.want(t, 1)
		f.want(t, 1)
	})
	t.Run("APRG-09 an application that cannot be synced holds later steps until it can", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}, "dev", "prod")
		f.app("dev0").Broken = "its destination is unknown"
		f.want(t, 1)
		f.want(t, 1)
		f.app("dev0").Broken = ""
		f.want(t, 1, "dev0")
	})
}

func TestRolloutSteps(t *testing.T) {
	t.Parallel()
	t.Run("APRG-03 applications are selected by their labels, NotIn also selects those without the label, and others are in step -1 and never synced", func(t *testing.T) {
		t.Parallel()
		notIn := hub.RolloutStep{MatchExpressions: []hub.LabelSelectorMember{{Key: "env", Operator: "NotIn", Values: []string{"dev", "other"}}}}
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), notIn}, "dev", "prod", "other", "none")
		f.app("none3").Labels = nil
		d := f.decide()
		got := map[string]string{}
		for _, s := range d.States {
			got[s.Application] = s.Step
		}
		if diff := cmp.Diff(map[string]string{"dev0": "1", "prod1": "2", "other2": "-1", "none3": "2"}, got); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		f.finish("dev0")
		f.want(t, 2, "prod1", "none3")
		f.finish("prod1", "none3")
		f.want(t, 0)
		if f.status("other2") != hub.RolloutWaiting {
			t.Errorf("the state is %+v", f.state("other2"))
		}
	})
	t.Run("APRG-03 all expressions of a step must match", func(t *testing.T) {
		t.Parallel()
		step := stepOf(nil, "dev")
		step.MatchExpressions = append(step.MatchExpressions, hub.LabelSelectorMember{Key: "region", Operator: "In", Values: []string{"eu"}})
		f := newFleet([]hub.RolloutStep{step}, "dev", "dev")
		f.app("dev1").Labels["region"] = "eu"
		f.want(t, 1, "dev1")
	})
	for _, c := range []struct {
		most *hub.MaxUpdate
		of   int
		want int
	}{
		{nil, 7, 7}, {number(2), 7, 2}, {number(0), 7, 0}, {number(10), 7, 7}, {percent("25%"), 7, 1}, {percent("50%"), 7, 3}, {percent("1%"), 7, 1}, {percent("0%"), 7, 0},
		{percent("100%"), 7, 7}, {percent("10%"), 1, 1},
	} {
		t.Run(fmt.Sprintf("APRG-04 a maxUpdate of %v updates %d of %d", c.most, c.want, c.of), func(t *testing.T) {
			t.Parallel()
			envs := slices.Repeat([]string{"dev"}, c.of)
			f := newFleet([]hub.RolloutStep{stepOf(c.most, "dev")}, envs...)
			if d := f.decide(); len(d.Sync) != c.want {
				t.Errorf("it syncs %v", d.Sync)
			}
			if d := f.decide(); len(d.Sync) != 0 {
				t.Errorf("it syncs %v before the first are healthy", d.Sync)
			}
		})
	}
	t.Run("APRG-04 with a maxUpdate of 0 a sync by hand goes on", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(number(0), "dev"), stepOf(nil, "prod")}, "dev", "prod")
		f.want(t, 1)
		f.finish("dev0")
		f.want(t, 2, "prod1")
	})
	for name, step := range map[string]hub.RolloutStep{
		"an unknown operator":          {MatchExpressions: []hub.LabelSelectorMember{{Key: "env", Operator: "Exists"}}},
		"a maxUpdate that is a word":   stepOf(percent("many"), "dev"),
		"a maxUpdate that is a text":   stepOf(percent("25"), "dev"),
		"a maxUpdate that is negative": stepOf(number(-1), "dev"),
	} {
		t.Run("APRG-08 with "+name+" the steps are invalid, and nothing is synced", func(t *testing.T) {
			t.Parallel()
			f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), step}, "dev")
			if d := f.decide(); d.Invalid == "" || len(d.Sync) > 0 {
				t.Errorf("the decision is %+v", d)
			}
		})
	}
	t.Run("APRG-08 steps that overlap are reported, and the first one counts", func(t *testing.T) {
		t.Parallel()
		f := newFleet([]hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "dev", "prod")}, "dev", "prod")
		f.want(t, 1, "dev0")
		if !strings.Contains(f.last.Invalid, "steps 1 and 2") || f.state("dev0").Step != "1" {
			t.Errorf("the decision is %+v", f.last)
		}
	})
	t.Run("APRG-02 only RollingSync with steps syncs in steps", func(t *testing.T) {
		t.Parallel()
		steps := &hub.RollingSync{Steps: []hub.RolloutStep{{}}}
		for want, all := range map[bool][]*hub.ApplicationSetStrategy{
			false: {nil, {}, {Type: hub.AllAtOnce, RollingSync: steps}, {RollingSync: steps}, {Type: hub.RollingSyncType}, {Type: hub.RollingSyncType, RollingSync: &hub.RollingSync{}}},
			true:  {{Type: hub.RollingSyncType, RollingSync: steps}},
		} {
			for _, s := range all {
				if plan.Rolls(s) != want {
					t.Errorf("Rolls(%+v) = %v", s, !want)
				}
			}
		}
	})
}

func TestDeletionOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(nil, "dev", "prod", "none", "prod")
	strategy := func(order string) *hub.ApplicationSetStrategy {
		return &hub.ApplicationSetStrategy{Type: hub.RollingSyncType, DeletionOrder: order, RollingSync: &hub.RollingSync{Steps: []hub.RolloutStep{stepOf(nil, "dev"), stepOf(nil, "prod")}}}
	}
	t.Run("APRG-07 AllAtOnce deletes all", func(t *testing.T) {
		t.Parallel()
		for _, s := range []*hub.ApplicationSetStrategy{nil, strategy(""), strategy(hub.AllAtOnce)} {
			if got := plan.NextDeleted(s, f.rollout.Applications); len(got) != 4 {
				t.Errorf("it deletes %v", got)
			}
		}
	})
	t.Run("APRG-07 Reverse deletes the last step first, and those of no step last", func(t *testing.T) {
		t.Parallel()
		var got [][]string
		for left := slices.Clone(f.rollout.Applications); len(left) > 0; {
			next := plan.NextDeleted(strategy("reverse"), left)
			got = append(got, next)
			left = slices.DeleteFunc(left, func(a plan.RolloutApplication) bool { return slices.Contains(next, a.Name) })
		}
		if diff := cmp.Diff([][]string{{"prod1", "prod3"}, {"dev0"}, {"none2"}}, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// TestRolloutProperties has revisions, failures and manual syncs happen in any
// order.
func TestRolloutProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var steps []hub.RolloutStep
		for i := range rapid.IntRange(1, 4).Draw(t, "steps") {
			most := rapid.SampledFrom([]*hub.MaxUpdate{nil, number(1), number(2), percent("30%"), percent("100%")}).Draw(t, "most")
			steps = append(steps, stepOf(most, fmt.Sprint("e", i)))
		}
		envs := rapid.SliceOfN(rapid.SampledFrom([]string{"e0", "e1", "e2", "e3", "other"}), 1, 12).Draw(t, "applications")
		f := newFleet(steps, envs...)
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			a := &f.rollout.Applications[rapid.IntRange(0, len(envs)-1).Draw(t, "application")]
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1, 2:
				if a.Operation != nil && !a.Operation.Over {
					f.finish(a.Name)
				}
			case 3:
				a.Revisions, a.Sync = append(slices.Clone(a.Revisions), "x"), hub.OutOfSync
			case 4:
				if a.Operation != nil {
					a.Operation = &plan.RolloutOperation{Began: a.Operation.Began, Over: true, Failure: "failed"}
				}
			case 5:
				a.Health = hub.Degraded
			}
			f.checkRound(t)
		}
		f.checkEnd(t, steps)
	})
}

// checkRound checks that no two steps begin at once, that none begins before
// all earlier ones are healthy, and that maxUpdate holds.
func (f *fleet) checkRound(t *rapid.T) {
	before := map[string]hub.RolloutStatus{}
	for _, s := range f.rollout.States {
		before[s.Application] = s.Status
	}
	d := f.decide()
	began := map[string]int{}
	for _, name := range d.Sync {
		began[f.state(name).Step]++
		if f.state(name).Step == "-1" {
			t.Fatalf("%s is in no step and is synced", name)
		}
	}
	if len(began) > 1 {
		t.Fatalf("two steps are synced at once: %v", d.Sync)
	}
	for step := range began {
		updating := 0
		for _, s := range d.States {
			if s.Step == "-1" {
				continue
			}
			if s.Step < step && s.Status != hub.RolloutHealthy {
				t.Fatalf("step %s begins while %+v", step, s)
			}
			if s.Step == step && (s.Status == hub.RolloutPending || s.Status == hub.RolloutProgressing) {
				updating++
			}
		}
		if most := f.most(step); updating > most && updating > f.updatingBefore(before, step) {
			t.Fatalf("%d of step %s are updated, of at most %d", updating, step, most)
		}
	}
}

func (f *fleet) updatingBefore(before map[string]hub.RolloutStatus, step string) int {
	n := 0
	for name, status := range before {
		if f.state(name).Step == step && (status == hub.RolloutPending || status == hub.RolloutProgressing) {
			n++
		}
	}
	return n
}

func (f *fleet) most(step string) int {
	of := 0
	for _, s := range f.last.States {
		if s.Step == step {
			of++
		}
	}
	m := f.rollout.Steps[step[0]-'1'].MaxUpdate
	switch {
	case m == nil || m.Text == "100%":
		return of
	case m.Text == "30%":
		return max(1, of*30/100)
	}
	return m.Number
}

// checkEnd checks that a rollout whose syncs all succeed ends.
func (f *fleet) checkEnd(t *rapid.T, steps []hub.RolloutStep) {
	for range 4 * (len(f.rollout.Applications) + len(steps) + 1) {
		d := f.decide()
		for i := range f.rollout.Applications {
			a := &f.rollout.Applications[i]
			if f.status(a.Name) == hub.RolloutPending || f.status(a.Name) == hub.RolloutProgressing {
				f.finish(a.Name)
			}
		}
		if d.Step == 0 {
			return
		}
	}
	t.Fatalf("the rollout does not end: %+v", f.last)
}
