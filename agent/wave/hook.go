package wave

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// prepareHooks prepares a step's hooks for creation: hooks of former operations
// are deleted and awaited (ENG-06), hooks that this operation has created
// before a restart are found again, and the intent to create the rest is stored
// before anything is created.
func (r *run) prepareHooks(ctx context.Context, s Step, name string) error {
	open := slices.DeleteFunc(slices.Concat(s.Groups...), func(it Item) bool {
		state := r.progress.Hooks[it.ID()].State
		return !it.Hook || (state != "" && state != HookIntended)
	})
	if len(open) == 0 {
		return nil
	}
	old, err := r.findHooks(ctx, open)
	if err != nil {
		return err
	}
	if len(old) > 0 && r.hooksEnded() {
		// A hook of several phases is deleted to run again: after a restart it
		// must be known that its first run is over, not that it is missing.
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	if err := r.removeOld(ctx, old, name); err != nil {
		return err
	}
	for _, it := range open {
		if r.progress.Hooks[it.ID()].State == "" {
			r.progress.Hooks[it.ID()] = HookRecord{State: HookIntended}
		}
	}
	return r.save(ctx)
}

// hooksEnded reports whether a hook of this operation has ended.
func (r *run) hooksEnded() bool {
	for _, h := range r.progress.Hooks {
		if h.State == HookSucceeded || h.State == HookFailed {
			return true
		}
	}
	return false
}

// findHooks checks which hooks exist: our own instances run; older ones whose
// policy says so, or which failed, must be deleted first. (Otherwise a hook
// with only HookSucceeded would fail for ever after its first failure.)
func (r *run) findHooks(ctx context.Context, open []Item) (old []Item, err error) {
	var failed problems
	each(r.config.Parallel, open, func(it Item) observed {
		s, err := r.target.State(ctx, it)
		return observed{s, err}
	}, func(it Item, a observed) {
		switch {
		case ctx.Err() != nil:
		case a.err != nil:
			failed.add(it, a.err)
		case a.state.Found && a.state.Ours:
			r.progress.Hooks[it.ID()] = HookRecord{State: HookRunning}
			r.record(ItemResult{Item: it, Status: Synced, Message: "created before the restart", HookPhase: string(HookRunning)})
		case a.state.Found && (it.Has(manifest.BeforeHookCreation) || a.state.Deleting || a.state.Health == health.Degraded):
			old = append(old, it)
		}
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	slices.SortFunc(old, compareItems)
	return old, failed.failure("the state of hooks cannot be read", false)
}

// removeOld deletes hooks of former operations and waits until they are gone.
func (r *run) removeOld(ctx context.Context, old []Item, name string) error {
	var failed problems
	var going []Item
	each(r.config.Parallel, old, func(it Item) answer {
		out, err := r.target.Delete(ctx, it)
		return answer{out, err}
	}, func(it Item, a answer) {
		switch {
		case ctx.Err() != nil:
		case a.err != nil:
			failed.add(it, a.err)
		case a.out.Kept:
			failed.say(it.Key, "an object of this name exists and is no hook of ours: "+orElse(a.out.Message, "it is left alone"))
		case !a.out.Gone:
			going = append(going, it)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := failed.failure("older hooks could not be deleted", false); err != nil {
		return err
	}
	return r.wait(ctx, waitList{name: name, pruned: going})
}

// cleanUp deletes finished hooks by their policies (HOOK-07) and releases the
// others. A failed deletion is no failure: the next operation's
// BeforeHookCreation or a person will handle it.
func (r *run) cleanUp(ctx context.Context) error {
	var done []Item
	for _, it := range r.plan.Items() {
		if s := r.progress.Hooks[it.ID()].State; it.Hook && (s == HookSucceeded || s == HookFailed) {
			done = append(done, it)
		}
	}
	failpoint.Here(failpoint.WaveCleanUp)
	each(r.config.Parallel, done, func(it Item) error { return r.dismiss(ctx, it) }, func(it Item, err error) {
		if res := r.results[it.ID()]; err != nil && ctx.Err() == nil && res != nil {
			c := *res
			c.Message += "; cleaning up: " + fault.Sentence(err)
			r.record(c)
		}
	})
	return ctx.Err()
}

// dismiss deletes one finished hook, or removes its finalizer.
func (r *run) dismiss(ctx context.Context, it Item) error {
	state := r.progress.Hooks[it.ID()].State
	if (state == HookSucceeded && it.Has(manifest.HookSucceeded)) || (state == HookFailed && it.Has(manifest.HookFailed)) {
		_, err := r.target.Delete(ctx, it)
		return err
	}
	if releaser, ok := r.target.(Releaser); ok {
		return releaser.Release(ctx, it)
	}
	return nil
}

// abort deletes running hooks after a termination (SYNC-09), for the reason
// given, and returns what it could not delete. ctx is one that has not ended.
func (r *run) abort(ctx context.Context, why string) string {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	var open []Item
	for _, it := range r.plan.Items() {
		if s := r.progress.Hooks[it.ID()].State; it.Hook && (s == HookRunning || s == HookIntended) {
			open = append(open, it)
		}
	}
	var stuck []string
	type stopped struct {
		ours bool
		err  error
	}
	each(r.config.Parallel, open, func(it Item) stopped {
		ours, err := r.stop(ctx, it)
		return stopped{ours, err}
	}, func(it Item, s stopped) {
		if s.err != nil {
			stuck = append(stuck, fmt.Sprintf("%s could not be stopped: %s", it.Key.Describe(), fault.Sentence(s.err)))
			return
		}
		r.hookOver(it, HookFailed, why)
		if !s.ours {
			delete(r.progress.Hooks, it.ID()) // the existing object is of an older operation and is left unchanged
		}
	})
	_ = r.cleanUp(ctx) // only the deadline can expire; the next operation continues from there
	slices.Sort(stuck)
	return strings.Join(stuck, "; ")
}

// stop deletes a hook of this operation, and nothing else of its name.
func (r *run) stop(ctx context.Context, it Item) (ours bool, err error) {
	s, err := r.target.State(ctx, it)
	if err != nil {
		return false, err
	}
	if !s.Found || !s.Ours {
		return false, nil
	}
	_, err = r.target.Delete(ctx, it)
	return true, err
}

// lasting reports whether a retry would not help.
func lasting(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Denied:
		return true
	}
	return false
}
