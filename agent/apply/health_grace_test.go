package apply

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/health"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// child is an object of an application with a health.
func child(a *app, group, kind, name, state, message string) *object {
	key := manifest.Key{Group: group, Kind: kind, Namespace: "n", Name: name}
	x := &object{app: a, key: key, gvk: kindOf(key, "v1"), namespaced: true, target: &desired{key: key}}
	x.live = live{known: true, found: state != health.Missing, health: state, message: message, created: a.e.Clock.Now().Add(-time.Hour).Unix()}
	x.settleHealth(a.e.Clock.Now())
	a.objects[key] = x
	return x
}

func healthApp() (*app, *runtest.Clock) {
	clock := runtest.NewClock(time.Unix(1_800_000_000, 0))
	return &app{e: &Engine{Config: Config{Clock: clock}}, objects: map[manifest.Key]*object{}}, clock
}

func TestHealthOfApplications(t *testing.T) {
	t.Parallel()
	type c struct{ group, kind, name, state, message string }
	for name, x := range map[string]struct {
		children      []c
		state, reason string
	}{
		"HLT-02 all is well":                              {[]c{{"apps", "Deployment", "web", "Healthy", ""}}, "Healthy", ""},
		"HLT-02 the worst counts and is named":            {[]c{{"apps", "Deployment", "web", "Progressing", "1 of 2"}, {"", "Pod", "x", "Degraded", "crash"}}, "Degraded", "Pod n/x: crash"},
		"HLT-02 of several the same ones are named":       {[]c{{"", "Pod", "d", "Degraded", ""}, {"", "Pod", "b", "Degraded", ""}, {"", "Pod", "a", "Degraded", ""}, {"", "Pod", "c", "Degraded", ""}}, "Degraded", "Pod n/a; Pod n/b; Pod n/c; and 1 more"},
		"HLT-01 Suspended is worse than Healthy":          {[]c{{"", "Pod", "b", "Healthy", ""}, {"batch", "CronJob", "a", "Suspended", "held"}}, "Suspended", "CronJob n/a: held"},
		"HLT-01 Unknown is worst":                         {[]c{{"", "Pod", "b", "Degraded", ""}, {"x.io", "Thing", "a", "Unknown", "script"}}, "Unknown", "Thing n/a: script"},
		"HLT-05 what has no rule counts for nothing":      {[]c{{"", "ConfigMap", "b", "", ""}}, "Healthy", ""},
		"HLT-04 one missing object alone, which is named": {[]c{{"", "ConfigMap", "b", "Missing", ""}, {"", "Pod", "a", "Healthy", ""}}, "Healthy", "ConfigMap n/b: missing"},
		"HLT-04 all missing is Missing":                   {[]c{{"", "ConfigMap", "b", "Missing", ""}, {"", "Pod", "a", "Missing", ""}}, "Missing", "nothing of the application is in the cluster"},
		"HLT-03 a child application that is Unknown":      {[]c{{"argoproj.io", "Application", "b", "Unknown", ""}, {"", "Pod", "a", "Healthy", ""}}, "Healthy", ""},
		"HLT-03 a child application that is Missing":      {[]c{{"argoproj.io", "Application", "b", "Missing", ""}}, "Healthy", ""},
		"HLT-25 a child application that is Degraded":     {[]c{{"argoproj.io", "Application", "b", "Degraded", "why"}}, "Degraded", "Application n/b: why"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := healthApp()
			for _, k := range x.children {
				child(a, k.group, k.kind, k.name, k.state, k.message)
			}
			r := &linkv1.AppReport{}
			a.fold(r)
			if r.GetHealth() != x.state || r.GetHealthCause() != x.reason {
				t.Errorf("health %s (%s), want %s (%s)", r.GetHealth(), r.GetHealthCause(), x.state, x.reason)
			}
		})
	}
	t.Run("HLT-03 hooks and objects to prune are ignored", func(t *testing.T) {
		t.Parallel()
		a, _ := healthApp()
		child(a, "batch", "Job", "hook", "Degraded", "").hook = "op"
		child(a, "batch", "Job", "old", "Degraded", "").target = nil
		r := &linkv1.AppReport{}
		if a.fold(r); r.GetHealth() != "Healthy" {
			t.Errorf("health %s (%s)", r.GetHealth(), r.GetHealthCause())
		}
	})
}

func TestHooksDoNotCount(t *testing.T) {
	t.Parallel()
	t.Run("HOOK-14 a degraded or different hook affects neither health nor sync", func(t *testing.T) {
		t.Parallel()
		for _, state := range []string{health.Degraded, health.Progressing, health.Missing, health.Unknown} {
			a, _ := healthApp()
			before := &linkv1.AppReport{}
			a.fold(before)
			child(a, "batch", "Job", "hook", state, "why").hook = "op"
			after := &linkv1.AppReport{}
			a.fold(after)
			if before.GetHealth() != after.GetHealth() || before.GetSync() != after.GetSync() || after.GetHealthCause() != "" {
				t.Errorf("%s: %s and %s (%s), without the hook %s and %s", state, after.GetSync(), after.GetHealth(), after.GetHealthCause(), before.GetSync(), before.GetHealth())
			}
		}
	})
}

func TestHealthGracePeriod(t *testing.T) {
	t.Parallel()
	set := func(a *app, x *object, state, message string) {
		x.live.health, x.live.message = state, message
		x.settleHealth(a.e.Clock.Now())
	}
	state := func(a *app) string {
		r := &linkv1.AppReport{}
		a.fold(r)
		return r.GetHealth()
	}
	autoscaler := func() (*app, *runtest.Clock, *object) {
		a, clock := healthApp()
		x := child(a, "autoscaling", "HorizontalPodAutoscaler", "web", health.Healthy, "")
		x.live.healthGrace = holdOf(&manifest.Object{Object: map[string]any{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}})
		return a, clock, x
	}
	t.Run("HLT-21 a scale-up never turns the application Degraded", func(t *testing.T) {
		t.Parallel()
		a, clock, x := autoscaler()
		for range 20 {
			set(a, x, health.Degraded, "unable to get metrics for resource cpu")
			if got := state(a); got != health.Healthy || a.graceLeft == 0 {
				t.Fatalf("health %s, held for %s", got, a.graceLeft)
			}
			clock.Advance(scalerHold / 2)
			set(a, x, health.Healthy, "")
			clock.Advance(time.Second)
		}
	})
	t.Run("HLT-21 an autoscaler that stays Degraded counts after its grace period", func(t *testing.T) {
		t.Parallel()
		a, clock, x := autoscaler()
		set(a, x, health.Degraded, "no metrics")
		clock.Advance(scalerHold - time.Second)
		set(a, x, health.Degraded, "still no metrics")
		if got := state(a); got != health.Healthy || a.graceLeft != time.Second {
			t.Errorf("health %s, held for %s", got, a.graceLeft)
		}
		clock.Advance(time.Second)
		if got := state(a); got != health.Degraded || a.graceLeft != 0 {
			t.Errorf("health %s, held for %s", got, a.graceLeft)
		}
	})
	t.Run("an object that was Degraded before the agent started counts at once", func(t *testing.T) {
		t.Parallel()
		a, _, _ := autoscaler()
		x := &object{app: a, live: live{known: true, found: true, health: health.Degraded, healthGrace: time.Minute, created: a.e.Clock.Now().Add(-time.Hour).Unix()}}
		x.settleHealth(a.e.Clock.Now())
		if got, _, _ := x.counts(a.e.Clock.Now()); got != health.Degraded {
			t.Errorf("it counts as %s", got)
		}
	})
	t.Run("a new Degraded object is Progressing during its grace period", func(t *testing.T) {
		t.Parallel()
		a, clock, _ := autoscaler()
		x := &object{app: a, live: live{known: true, found: true, health: health.Degraded, message: "why", healthGrace: time.Minute, created: a.e.Clock.Now().Unix()}}
		x.settleHealth(a.e.Clock.Now())
		if got, message, wait := x.counts(a.e.Clock.Now()); got != health.Progressing || message != "why" || wait != time.Minute {
			t.Errorf("it counts as %s (%s) for %s", got, message, wait)
		}
		clock.Advance(time.Minute)
		if got, _, _ := x.counts(a.e.Clock.Now()); got != health.Degraded {
			t.Errorf("it counts as %s", got)
		}
	})
	t.Run("other kinds count at once", func(t *testing.T) {
		t.Parallel()
		a, _ := healthApp()
		x := child(a, "apps", "Deployment", "web", health.Healthy, "")
		set(a, x, health.Degraded, "")
		if got := state(a); got != health.Degraded {
			t.Errorf("health %s", got)
		}
	})
	for text, want := range map[string]time.Duration{"2m": 2 * time.Minute, "0s": 0, "99h": mostHold, "soon": 0, "-1s": 0} {
		o := &manifest.Object{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"annotations": map[string]any{"capstan.dev/health-hold": text}}}}
		if got := holdOf(o); got != want {
			t.Errorf("hold %q is %s, want %s", text, got, want)
		}
	}
}

func TestMergedDetectsAnAppliedPatch(t *testing.T) {
	t.Parallel()
	live := map[string]any{"spec": map[string]any{"replicas": int64(3), "paused": true}, "list": []any{int64(1)}}
	for _, c := range []struct {
		patch map[string]any
		want  bool
	}{
		{map[string]any{"spec": map[string]any{"replicas": int64(3)}}, true},
		{map[string]any{"spec": map[string]any{"replicas": int64(4)}}, false},
		{map[string]any{"spec": map[string]any{"gone": nil}}, true},
		{map[string]any{"spec": map[string]any{"paused": nil}}, false},
		{map[string]any{"none": map[string]any{"x": nil}}, true},
		{map[string]any{"list": []any{int64(1), int64(2)}}, false},
	} {
		if got := merged(c.patch, live); got != c.want {
			t.Errorf("merged(%v) = %v", c.patch, got)
		}
	}
}
