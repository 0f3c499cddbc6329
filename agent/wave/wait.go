package wave

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/failpoint"
)

// A waitList is what a step waits for.
type waitList struct {
	name    string // of the step
	healthy []Item // objects that must become healthy (ENG-09)
	hooks   []Item // hooks that must complete (HOOK-08)
	pruned  []Item // pruned objects that must be gone (ENG-12)
}

func (w waitList) empty() bool { return w.len() == 0 }

func (w waitList) len() int { return len(w.healthy) + len(w.hooks) + len(w.pruned) }

// waitingFor is the message while the list is not empty. first describes one
// item; empty: no state could be read.
func (w waitList) waitingFor(first string) string {
	text := w.name + ": waiting for " + orElse(first, "the cluster's current state")
	if n := w.len() - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// wait checks everything on the list until nothing is left to wait for. A
// failure ends it, but only when no hook runs any more, so that no hook is
// abandoned.
func (r *run) wait(ctx context.Context, w waitList) error {
	var failed problems
	for !w.empty() {
		changed := r.target.Changed() // before checking, so that no change is missed
		first := r.checkStates(ctx, &w, &failed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(failed.texts) > 0 {
			w.healthy, w.pruned = nil, nil
		}
		if w.empty() {
			break
		}
		r.say(w.waitingFor(first))
		if len(w.hooks) > 0 {
			failpoint.Here(failpoint.WaveHookRunning)
		}
		if err := rest(ctx, changed, r.config.Poll); err != nil {
			return err
		}
	}
	r.say("")
	return failed.failure("one or more tasks did not succeed", false)
}

// checkStates reads the states of everything on the list, removes what is done,
// and describes the first of what is left.
func (r *run) checkStates(ctx context.Context, w *waitList, failed *problems) (first string) {
	note := func(it Item, what, why string) {
		if text := what + " " + it.Key.Describe(); first == "" || text < first {
			first = text
			if why != "" {
				first += ": " + why
			}
		}
	}
	w.hooks = r.refreshStates(ctx, w.hooks, func(it Item, s State) bool { return r.hookDone(it, s, failed, note) }, failed)
	w.healthy = r.refreshStates(ctx, w.healthy, func(it Item, s State) bool { return r.isHealthy(it, s, failed, note) }, failed)
	w.pruned = r.refreshStates(ctx, w.pruned, func(it Item, s State) bool { return isGone(it, s, note) }, failed)
	return first
}

// rest waits for a notification, within a minimum and a maximum.
func rest(ctx context.Context, changed <-chan struct{}, long time.Duration) error {
	if err := pause(ctx, leastPause); err != nil {
		return err
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type observed struct {
	state State
	err   error
}

// refreshStates reads the state of items and returns those that are not done. A
// temporary error is no failure: it is read again.
func (r *run) refreshStates(ctx context.Context, items []Item, done func(Item, State) bool, failed *problems) []Item {
	var left []Item
	each(r.config.Parallel, items, func(it Item) observed {
		s, err := r.target.State(ctx, it)
		return observed{s, err}
	}, func(it Item, a observed) {
		switch {
		case ctx.Err() != nil:
		case a.err != nil && lasting(a.err):
			failed.add(it, a.err)
			if it.Hook {
				r.hookOver(it, HookFailed, "its state cannot be read")
			}
		case a.err != nil || !done(it, a.state):
			left = append(left, it)
		}
	})
	slices.SortFunc(left, compareItems)
	return left
}

// isHealthy is the gate for one object (ENG-10, ENG-11, ENG-17).
func (r *run) isHealthy(it Item, s State, failed *problems, note func(Item, string, string)) bool {
	fail := func(why string) bool {
		failed.say(it.Key, why)
		res := *r.results[it.ID()]
		res.Message = why
		r.record(res)
		return true
	}
	switch {
	case !s.Found:
		failed.system = true
		return fail("it is not there any more; it might have been deleted")
	case s.Health == "" || s.Health == health.Healthy:
		return !s.Deleting
	case s.Health == health.Degraded:
		return fail("degraded: " + orElse(s.Message, "no reason given"))
	}
	note(it, "healthy", s.Message)
	return false
}

func isGone(it Item, s State, note func(Item, string, string)) bool {
	if !s.Found || !s.Deleting { // not being deleted: it was recreated
		return true
	}
	note(it, "deletion of", s.Message)
	return false
}

// hookDone checks a running hook (HOOK-08).
func (r *run) hookDone(it Item, s State, failed *problems, note func(Item, string, string)) bool {
	lost := func(why string) bool {
		failed.say(it.Key, why)
		failed.system = true
		r.hookOver(it, HookFailed, why)
		return true
	}
	switch {
	case !s.Found:
		return lost("the hook is not there any more; it might have been deleted")
	case s.Health == "" || s.Health == health.Healthy:
		r.hookOver(it, HookSucceeded, orElse(s.Message, "succeeded"))
		return true
	case s.Health == health.Degraded || s.Health == health.Unknown:
		why := orElse(s.Message, "no reason given")
		failed.say(it.Key, "the hook failed: "+why)
		r.hookOver(it, HookFailed, why)
		return true
	case s.Deleting:
		return lost("the hook is being deleted before it was done")
	}
	note(it, "hook", s.Message)
	return false
}

// hookOver records how a hook ended.
func (r *run) hookOver(it Item, state HookState, message string) {
	r.progress.Hooks[it.ID()] = HookRecord{State: state, Message: message}
	res := ItemResult{Item: it, Status: Synced, Message: message, HookPhase: string(state)}
	if old := r.results[it.ID()]; old != nil {
		res.Changed = old.Changed
	}
	r.record(res)
}

// AwaitHealthy waits, after Run has succeeded, until all that the plan applied
// is healthy at the same time, and says when that was. An object that is
// degraded or missing is waited for like any other, until ctx ends. The time is
// zero if no object is awaited because of capstan.dev/wait=false.
func (m *Machine) AwaitHealthy(ctx context.Context) (time.Time, error) {
	r := &run{Machine: m}
	var items []Item
	exempt := false
	for _, it := range m.plan.Items() {
		switch {
		case it.Hook || it.Prune || it.Namespace:
		case it.NoWait:
			exempt = true
		default:
			items = append(items, it)
		}
	}
	if len(items) == 0 && exempt {
		return time.Time{}, nil
	}
	for {
		changed := m.target.Changed()
		left := r.refreshStates(ctx, items, func(_ Item, s State) bool {
			return s.Found && !s.Deleting && (s.Health == "" || s.Health == health.Healthy)
		}, &problems{})
		if ctx.Err() != nil {
			return time.Time{}, fmt.Errorf("wait for health: %w", context.Cause(ctx))
		}
		if len(left) == 0 {
			return time.Now(), nil
		}
		if err := rest(ctx, changed, m.config.Poll); err != nil {
			return time.Time{}, fmt.Errorf("wait for health: %w", context.Cause(ctx))
		}
	}
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
