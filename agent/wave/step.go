package wave

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// preflight dry-runs all objects before the first change (ENG-08).
func (r *run) preflight(ctx context.Context) error {
	if !r.plan.Check || r.progress.Checked || r.progress.Over || r.progress.Failure != "" || (r.resumed && r.progress.Phase != "") {
		return nil
	}
	target, ok := r.target.(Preflighter)
	if !ok {
		return nil
	}
	if err := r.try(ctx, target, false); err != nil {
		return err
	}
	r.progress.Checked = true
	return nil
}

// dryRun is an operation that changes nothing (SYNC-04).
func (r *run) dryRun(ctx context.Context) error {
	target, ok := r.target.(Preflighter)
	if !ok {
		return &failure{message: "a dry run is not possible here", final: true}
	}
	if err := r.try(ctx, target, true); err != nil {
		return err
	}
	for _, it := range r.plan.Items() {
		if it.Prune && it.Keep == "" {
			r.record(ItemResult{Item: it, Status: Pruned, Message: "would be pruned (dry run)"})
		}
	}
	return nil
}

func (r *run) try(ctx context.Context, target Preflighter, report bool) error {
	items := slices.DeleteFunc(r.plan.Items(), func(it Item) bool { return it.Prune })
	r.say("dry-running the changes")
	checks := target.Preflight(ctx, items)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(checks) != len(items) {
		return fault.New(fault.Internal, "a pre-flight of %d items returned %d results", len(items), len(checks))
	}
	var failed problems
	for i, c := range checks {
		if c.Err != nil {
			failed.add(items[i], c.Err)
			r.record(ItemResult{Item: items[i], Status: SyncFailed, Message: fault.Sentence(c.Err), HookPhase: hookPhase(items[i], HookFailed)})
		} else if report {
			r.record(ItemResult{Item: items[i], Status: Synced, Message: c.Message})
		}
	}
	r.say("")
	return failed.failure("one or more objects failed to apply (dry run)", true)
}

// hookPhase is the phase for the result of an item; empty if it is not a hook.
func hookPhase(it Item, s HookState) string {
	if !it.Hook {
		return ""
	}
	return string(s)
}

// steps applies the namespaces to create and then runs all steps in order.
func (r *run) steps(ctx context.Context) error {
	if err := r.applyAll(ctx, [][]Item{r.plan.Prelude}); err != nil {
		return err
	}
	left := r.late()
	for i, s := range r.plan.Steps {
		if r.complete(s) {
			r.recall(s)
			continue
		}
		s.Prunes = slices.Concat(left, s.Prunes)
		left = nil
		if err := r.numbered(ctx, i, s); err != nil {
			return err
		}
	}
	if err := r.confirmed(ctx, Step{Prunes: left}); err != nil {
		return err
	}
	return r.prune(ctx, left, &[]Item{})
}

// numbered runs the step with a number: it saves where the operation is, waits
// for the gate, runs the step, and pauses before the next one.
func (r *run) numbered(ctx context.Context, i int, s Step) error {
	follows := i+1 < len(r.plan.Steps)
	r.progress.Phase, r.progress.Wave = s.Phase, s.Wave
	if i > 0 && !s.hooks() { // a step with hooks is saved together with them
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	if i > 0 {
		if err := r.pass(ctx); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.WaveStepBefore)
	if err := r.step(ctx, s, fmt.Sprintf("step %d of %d (%s, wave %d)", i+1, len(r.plan.Steps), s.Phase, s.Wave), follows); err != nil {
		return err
	}
	failpoint.Here(failpoint.WaveStepAfter)
	if !follows || r.config.WaveDelay <= 0 {
		return nil
	}
	return pause(ctx, r.config.WaveDelay)
}

// pass waits while the operation must not continue; the deadline is stopped
// during that time.
func (r *run) pass(ctx context.Context) error {
	if r.config.Gate == nil {
		return nil
	}
	r.wind(false)
	since := time.Now()
	err := r.config.Gate(ctx, r.say)
	r.held += time.Since(since)
	r.wind(true)
	r.say("")
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return &failure{message: fault.Sentence(err), final: true}
}

// complete reports whether a step was done before a restart.
func (r *run) complete(s Step) bool {
	return r.progress.Phase != "" && order(s.Phase, s.Wave, r.progress.Phase, r.progress.Wave) < 0
}

// late returns the prunes of complete steps once more. The wave of a prune
// depends on the others, so a new one after a restart could otherwise be
// skipped. Pruning twice is harmless.
func (r *run) late() [][]Item {
	var out [][]Item
	for _, s := range r.plan.Steps {
		if r.complete(s) {
			out = append(out, s.Prunes...)
		}
	}
	return out
}

// recall restores the results of a step that was done before a restart.
func (r *run) recall(s Step) {
	for _, it := range slices.Concat(s.Groups...) {
		res := ItemResult{Item: it, Status: Synced, Message: "applied before the restart"}
		if it.Hook {
			h := r.progress.Hooks[it.ID()]
			res.HookPhase, res.Message = string(h.State), h.Message
		}
		r.record(res)
	}
}

// step runs one wave within the step's timeout. After the timeout its hooks are
// deleted and the operation fails.
func (r *run) step(ctx context.Context, s Step, name string, follows bool) error {
	if err := r.confirmed(ctx, s); err != nil {
		return err
	}
	if r.config.StepLimit <= 0 {
		return r.wave(ctx, s, name, follows)
	}
	own, cancel := context.WithTimeout(ctx, r.config.StepLimit)
	defer cancel()
	err := r.wave(own, s, name, follows)
	if own.Err() == nil || ctx.Err() != nil || err == nil {
		return err
	}
	text := fmt.Sprintf("%s took longer than its limit of %s", name, r.config.StepLimit)
	if r.waiting != "" {
		text += "; it was " + strings.TrimPrefix(r.waiting, name+": ")
	}
	if stuck := r.abort(ctx, "its step exceeded its time limit"); stuck != "" {
		text += "; " + stuck
	}
	r.say("")
	return &failure{message: text}
}

// wave does prunes first, then deletes old hooks, then applies kind after kind,
// then waits for health. follows means that another step comes after it.
func (r *run) wave(ctx context.Context, s Step, name string, follows bool) error {
	var going []Item
	applied := r.failedBefore(s)
	if applied == nil {
		if err := r.prune(ctx, s.Prunes, &going); err != nil {
			return err
		}
		if err := r.prepareHooks(ctx, s, name); err != nil {
			return err
		}
		applied = r.applyAll(ctx, s.Groups)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w := waitList{name: name, hooks: r.runningHooks(s)}
	if applied == nil && (follows || r.plan.deletion) {
		w.pruned = going
	}
	if applied == nil && (follows || s.hooks()) {
		w.healthy = slices.DeleteFunc(slices.Concat(s.Groups...), func(it Item) bool { return it.Hook || it.NoWait })
	}
	waited := r.wait(ctx, w)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return both(applied, waited)
}

// runningHooks returns the hooks of a step that have not ended.
func (r *run) runningHooks(s Step) []Item {
	return slices.DeleteFunc(slices.Concat(s.Groups...), func(it Item) bool {
		return !it.Hook || r.progress.Hooks[it.ID()].State != HookRunning
	})
}

// failedBefore restores the results of a step's hooks that ended before a
// restart, and returns a failure if one of them failed.
func (r *run) failedBefore(s Step) error {
	var failed problems
	for _, it := range slices.Concat(s.Groups...) {
		h := r.progress.Hooks[it.ID()]
		if !it.Hook || (h.State != HookSucceeded && h.State != HookFailed) {
			continue
		}
		r.hookOver(it, h.State, h.Message)
		if h.State == HookFailed {
			failed.say(it.Key, "the hook failed: "+h.Message)
		}
	}
	return failed.failure("one or more tasks did not succeed", false)
}

// both returns the first failure, with the others added to its message.
func both(a, b error) error {
	var f, g *failure
	if errors.As(a, &f) && errors.As(b, &g) {
		return &failure{message: f.message + "; " + g.message, system: f.system || g.system, final: f.final || g.final}
	}
	if a != nil {
		return a
	}
	return b
}

// prune deletes group after group and adds objects that still exist to going.
func (r *run) prune(ctx context.Context, groups [][]Item, going *[]Item) error {
	var failed problems
	for _, g := range groups {
		each(r.config.Parallel, g, func(it Item) answer {
			out, err := r.target.Delete(ctx, it)
			return answer{out, err}
		}, func(it Item, a answer) {
			if ctx.Err() != nil && a.err != nil {
				return
			}
			res := ItemResult{Item: it, Status: Pruned, Message: a.out.Message, Changed: a.out.Changed}
			switch {
			case a.err != nil:
				failed.add(it, a.err)
				res.Status, res.Message = SyncFailed, fault.Sentence(a.err)
			case a.out.Kept:
				res.Status = PruneSkipped
			case !a.out.Gone:
				*going = append(*going, it)
			}
			r.record(res)
		})
		failpoint.Here(failpoint.WavePruned)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := failed.failure("one or more objects could not be deleted", false); err != nil {
			return err
		}
	}
	return nil
}

type answer struct {
	out Outcome
	err error
}

// applyAll applies group after group and stops at the first that fails.
func (r *run) applyAll(ctx context.Context, groups [][]Item) error {
	for i, g := range groups {
		if err := r.applyGroup(ctx, g); err != nil {
			return err
		}
		if crds := r.needed(g, groups[i+1:]); len(crds) > 0 {
			if err := r.wait(ctx, waitList{name: "in the middle of a step", healthy: crds}); err != nil {
				return err
			}
		}
	}
	return nil
}

// needed returns the changed CustomResourceDefinitions of a group that later
// groups of the step depend on (ENG-14).
func (r *run) needed(g []Item, later [][]Item) []Item {
	var out []Item
	for _, crd := range g {
		if r.crds[crd.ID()] && slices.ContainsFunc(slices.Concat(later...), func(it Item) bool { return needs(it, crd) }) {
			out = append(out, crd)
		}
	}
	return out
}

func (r *run) applyGroup(ctx context.Context, g []Item) error {
	todo := slices.DeleteFunc(slices.Clone(g), func(it Item) bool {
		return it.Hook && r.progress.Hooks[it.ID()].State != HookIntended
	})
	var failed problems
	hooks := false
	each(r.config.Parallel, todo, func(it Item) answer {
		out, err := r.target.Apply(ctx, it)
		return answer{out, err}
	}, func(it Item, a answer) {
		if ctx.Err() != nil && a.err != nil {
			return
		}
		r.applied(it, a, &failed)
		hooks = hooks || it.Hook
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if hooks {
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	return failed.failure("one or more objects failed to apply", false)
}

// applied processes the result of one apply.
func (r *run) applied(it Item, a answer, failed *problems) {
	res := ItemResult{Item: it, Status: Synced, Message: a.out.Message, Changed: a.out.Changed}
	state := HookRunning
	if a.err != nil {
		failed.add(it, a.err)
		res.Status, res.Message = SyncFailed, fault.Sentence(a.err)
		state = HookFailed
	}
	if it.Hook {
		r.progress.Hooks[it.ID()] = HookRecord{State: state, Message: res.Message}
		res.HookPhase = string(state)
	}
	if a.out.Changed && len(it.defines) > 0 {
		r.crds[it.ID()] = true
	}
	r.record(res)
}

// each runs fn for all items, at most limit at a time, and passes the results
// to done in the caller's goroutine. It returns when all are done.
func each[T any](limit int, items []Item, fn func(Item) T, done func(Item, T)) {
	if len(items) == 1 {
		done(items[0], fn(items[0]))
		return
	}
	type pair struct {
		i int
		v T
	}
	answers := make(chan pair)
	next := make(chan int, len(items)) // capacity for all work, so that filling it never blocks
	for i := range items {
		next <- i
	}
	close(next)
	var group sync.WaitGroup
	for range min(limit, len(items)) {
		group.Go(func() {
			for i := range next {
				answers <- pair{i, fn(items[i])}
			}
		})
	}
	for range items {
		a := <-answers
		done(items[a.i], a.v)
	}
	group.Wait()
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// problems collects what failed in a step.
type problems struct {
	texts  []string
	more   int
	system bool
}

func (p *problems) add(it Item, err error) {
	p.say(it.Key, fault.Sentence(err))
	kind := fault.KindOf(err)
	p.system = p.system || kind == fault.Internal || kind == fault.Offline
}

func (p *problems) say(k manifest.Key, sentence string) {
	const most = 10
	if len(p.texts) == most {
		p.more++
		return
	}
	if !strings.Contains(sentence, k.Describe()) {
		sentence = k.Describe() + ": " + sentence
	}
	p.texts = append(p.texts, sentence)
}

// failure is nil if nothing failed.
func (p *problems) failure(what string, final bool) error {
	if len(p.texts) == 0 {
		return nil
	}
	slices.Sort(p.texts)
	text := what + ": " + strings.Join(p.texts, "; ")
	if p.more > 0 {
		text += fmt.Sprintf("; and %d more", p.more)
	}
	return &failure{message: text, system: p.system, final: final}
}
