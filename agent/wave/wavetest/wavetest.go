// Package wavetest draws random operations for the tests of the engine: the
// same seed gives the same objects, waves, hooks, faults and crashes, whether a
// model or a real cluster is the target. Only tests use it. It does not depend
// on a target. A scenario that fails can be shrunk.
package wavetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A Fate is the result of applying an object.
type Fate string

// The fates. A refused object is one that the API server does not accept.
const (
	Well     Fate = "well"
	Refused  Fate = "refused"
	Degraded Fate = "degraded"
)

// An Object is one manifest, or with Prune one that is to be deleted.
type Object struct {
	Kind     string // ConfigMap, Service, Deployment, Job (hooks alone)
	Name     string
	Wave     int32
	Hooks    []string // phases; empty: an ordinary object
	Policy   string   // of a hook: its deletion policies
	Prune    bool
	Last     bool // PruneLast=true
	There    bool // it exists in the cluster already, as desired
	Leftover bool // a hook of an earlier operation has the name
	Takes    int  // seconds until it is healthy, or a hook is done
	Fate     Fate
}

// A Crash is a kill of the agent.
type Crash struct {
	Call  int  // of the model: before or after the call of this number
	After bool // its effect had already happened
	Point int  // of a real agent: number of the step, modulo their count
}

// A Scenario is one operation with all its faults.
type Scenario struct {
	Seed    uint64
	Objects []Object
	Crashes []Crash
}

// Draw makes the scenario of a seed.
func Draw(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 0x6361707374616e))
	s := Scenario{Seed: seed}
	wave := func() int32 { return r.Int32N(4) - 1 }
	for i := range r.IntN(7) {
		o := Object{Kind: pick(r, "ConfigMap", "ConfigMap", "Service", "Deployment"), Name: fmt.Sprintf("o%d", i), Wave: wave(), Fate: Well}
		switch r.IntN(14) {
		case 0:
			o.Kind, o.Fate = "ConfigMap", Refused
		case 1, 2:
			o.There = true
		}
		if o.Kind == "Deployment" {
			o.Takes = r.IntN(4)
		}
		s.Objects = append(s.Objects, o)
	}
	for i := range r.IntN(4) {
		o := Object{
			Kind: "Job", Name: fmt.Sprintf("h%d", i), Wave: wave(), Takes: r.IntN(3), Fate: Well,
			Hooks:    strings.Split(pick(r, "PreSync", "Sync", "PostSync", "SyncFail", "PreSync,PostSync"), ","),
			Policy:   pick(r, "BeforeHookCreation", "HookSucceeded", "HookFailed", "BeforeHookCreation,HookSucceeded"),
			Leftover: r.IntN(3) == 0,
		}
		if r.IntN(9) == 0 {
			o.Fate = Degraded
		}
		s.Objects = append(s.Objects, o)
	}
	for i := range r.IntN(4) {
		s.Objects = append(s.Objects, Object{Kind: "ConfigMap", Name: fmt.Sprintf("p%d", i), Wave: wave(), Prune: true, Last: r.IntN(4) == 0, Fate: Well})
	}
	for range r.IntN(4) {
		s.Crashes = append(s.Crashes, Crash{Call: 1 + r.IntN(50), After: r.IntN(2) == 0, Point: r.IntN(1000)})
	}
	return s
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// Shrink removes parts of a failing scenario as long as it still fails.
func Shrink(s Scenario, fails func(Scenario) bool) Scenario {
	for again := true; again; {
		again = false
		for _, smaller := range s.smaller() {
			if fails(smaller) {
				s, again = smaller, true
				break
			}
		}
	}
	return s
}

// smaller returns the scenarios with one part less.
func (s Scenario) smaller() []Scenario {
	var out []Scenario
	for i := range s.Crashes {
		t := s
		t.Crashes = slices.Delete(slices.Clone(s.Crashes), i, i+1)
		out = append(out, t)
	}
	for i := range s.Objects {
		t := s
		t.Objects = slices.Delete(slices.Clone(s.Objects), i, i+1)
		out = append(out, t)
	}
	for i, o := range s.Objects {
		for _, simpler := range o.simpler() {
			t := s
			t.Objects = slices.Clone(s.Objects)
			t.Objects[i] = simpler
			out = append(out, t)
		}
	}
	return out
}

func (o Object) simpler() []Object {
	var out []Object
	with := func(differs bool, change func(*Object)) {
		if differs {
			c := o
			change(&c)
			out = append(out, c)
		}
	}
	with(o.Wave != 0, func(c *Object) { c.Wave = 0 })
	with(o.Takes != 0, func(c *Object) { c.Takes = 0 })
	with(o.There, func(c *Object) { c.There = false })
	with(o.Leftover, func(c *Object) { c.Leftover = false })
	with(o.Last, func(c *Object) { c.Last = false })
	with(len(o.Hooks) > 1, func(c *Object) { c.Hooks = o.Hooks[:1] })
	return out
}

// String formats a scenario, one part per line.
func (s Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", s.Seed)
	for _, o := range s.Objects {
		fmt.Fprintf(&b, "  wave %2d %s %s %s", o.Wave, o.Kind, o.Name, o.Fate)
		for _, say := range [...]struct {
			on   bool
			text string
		}{
			{len(o.Hooks) > 0, "hook " + strings.Join(o.Hooks, ",") + " " + o.Policy}, {o.Prune, "prune"}, {o.Last, "last"},
			{o.There, "there"}, {o.Leftover, "leftover"}, {o.Takes > 0, fmt.Sprintf("takes %d s", o.Takes)},
		} {
			if say.on {
				b.WriteString(", " + say.text)
			}
		}
		b.WriteByte('\n')
	}
	for _, c := range s.Crashes {
		fmt.Fprintf(&b, "  crash at call %d (after its effect: %v), point %d\n", c.Call, c.After, c.Point)
	}
	return b.String()
}
