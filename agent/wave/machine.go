package wave

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Config sets the limits of a machine. Zero fields mean the defaults.
type Config struct {
	Parallel  int           // tasks of one kind at the same time; default 16
	WaveDelay time.Duration // pause between two steps; default none
	Poll      time.Duration // interval at which awaited objects are checked without a notification; default 5 s
	Deadline  time.Time     // when the operation fails; zero: never. It is stopped while a person is asked to approve something
	StepLimit time.Duration // timeout of one step; 0: as long as the operation
	Report    func(Update)  // called from the goroutine of Run only; may be nil
	// Gate is called before each step but the first, and after an approval, and
	// waits while the operation must not continue; why sets the reason for
	// users. An error ends the operation without running anything more. The
	// wait does not count towards the deadline. May be nil.
	Gate func(ctx context.Context, why func(string)) error
}

// leastPause limits how often a target with many notifications is checked.
const leastPause = 25 * time.Millisecond

// stopTime is the time for deleting running hooks after a termination.
const stopTime = 8 * time.Second

// A Terminated is the context cause that ends an operation. A context that ends
// with any other cause only interrupts it.
type Terminated struct{ Why string }

// Error is the sentence for the operation's message.
func (t *Terminated) Error() string { return t.Why }

// A Machine runs one plan once. Terminate may be called from any goroutine.
type Machine struct {
	plan   Plan
	target Target
	ledger Ledger
	config Config

	mu         sync.Mutex
	cancel     context.CancelCauseFunc // of the running Run
	terminated *Terminated
}

// New makes a machine. ledger may be nil for a plan that is not Durable.
func New(plan Plan, target Target, ledger Ledger, config Config) *Machine {
	if config.Parallel <= 0 {
		config.Parallel = 16
	}
	if config.Poll <= 0 {
		config.Poll = 5 * time.Second
	}
	if !plan.Durable() {
		ledger = nil
	}
	return &Machine{plan: plan, target: target, ledger: ledger, config: config}
}

// Terminate ends the operation: running tasks are cancelled, running hooks are
// deleted, and Run returns Failed. why is a sentence such as "terminated by
// alice". It returns at once; calls after the first have no effect.
func (m *Machine) Terminate(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.terminated != nil {
		return
	}
	m.terminated = &Terminated{Why: why}
	if m.cancel != nil {
		m.cancel(m.terminated)
	}
}

// Run runs the plan to its end and returns the result. If ctx ends, other than
// with Terminated as its cause, the operation is only interrupted: nothing is
// reverted, the result is Running, and a new machine with the same plan and
// ledger continues it.
func (m *Machine) Run(ctx context.Context) Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.mu.Lock()
	m.cancel = cancel
	if m.terminated != nil {
		cancel(m.terminated)
	}
	m.mu.Unlock()
	r := newRun(m)
	r.expire = func() { cancel(&Terminated{Why: "the operation's deadline has passed"}) }
	defer r.wind(false)
	r.wind(true)
	return r.all(ctx)
}

// A run is the state of one Run. Only its own goroutine touches it.
type run struct {
	*Machine
	progress Progress
	resumed  bool
	order    []string // ids of items with a result, in the order of the first one
	results  map[string]*ItemResult
	crds     map[string]bool // items that changed a CustomResourceDefinition
	waiting  string          // the last message about waiting
	held     time.Duration   // time for which the gate delayed steps
	expire   func()          // ends the operation at its deadline
	clock    *time.Timer     // timer of the deadline; nil while it is stopped
}

func newRun(m *Machine) *run {
	r := &run{
		Machine: m, results: make(map[string]*ItemResult), crds: make(map[string]bool),
		progress: Progress{Operation: m.plan.Operation, Hooks: make(map[string]HookRecord), Started: time.Now()},
	}
	if m.ledger == nil {
		return r
	}
	if p, ok := m.ledger.Load(); ok && p.Operation == m.plan.Operation {
		r.progress, r.resumed = p.clone(), true
	}
	return r
}

func (p Progress) clone() Progress {
	hooks := make(map[string]HookRecord, len(p.Hooks))
	for k, v := range p.Hooks {
		hooks[k] = v
	}
	p.Hooks = hooks
	return p
}

// all is the whole operation: pre-flight, steps, SyncFail hooks, clean-up.
func (r *run) all(ctx context.Context) Result {
	for _, it := range r.plan.Skipped {
		r.record(ItemResult{Item: it, Status: PruneSkipped, Message: it.Keep})
	}
	if r.plan.DryRun {
		return r.ended(ctx, r.dryRun(ctx))
	}
	if err := r.preflight(ctx); err != nil {
		return r.ended(ctx, err)
	}
	if r.progress.Failure == "" && !r.progress.Over {
		if err := r.noteFailure(ctx, r.sync(ctx)); err != nil {
			return r.ended(ctx, err)
		}
	}
	if r.progress.Failure != "" {
		return r.afterFailure(ctx)
	}
	if err := r.cleanUp(ctx); err != nil {
		return r.ended(ctx, err)
	}
	return r.result(Succeeded, r.summary())
}

// sync waits for the approval of the plan, if it needs one, and runs its steps.
func (r *run) sync(ctx context.Context) error {
	if r.plan.Approve != "" {
		if err := r.approved(ctx, r.plan.Approve); err != nil {
			return err
		}
	}
	if err := r.steps(ctx); err != nil {
		return err
	}
	r.progress.Over = true
	return r.saveHooked(ctx)
}

// noteFailure saves a failure that SyncFail hooks follow. It returns an error
// if the operation ends without them.
func (r *run) noteFailure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	f, goesOn := followed(ctx, err)
	if !goesOn {
		return err
	}
	r.progress.Failure, r.progress.System = f.message, f.system
	return r.saveHooked(ctx)
}

// followed returns the failure that an error is, if SyncFail hooks may follow it.
func followed(ctx context.Context, err error) (*failure, bool) {
	var f *failure
	if ctx.Err() != nil || !errors.As(err, &f) || f.final {
		return nil, false
	}
	return f, true
}

// afterFailure runs the SyncFail hooks. If one of them fails, that is only
// added to the message (HOOK-13).
func (r *run) afterFailure(ctx context.Context) Result {
	message := r.progress.Failure
	if !r.progress.Over {
		more, err := r.failureHooks(ctx)
		if err != nil {
			return r.ended(ctx, err)
		}
		message += more
		r.progress.Over, r.progress.Failure = true, message
		if err := r.saveHooked(ctx); err != nil {
			return r.ended(ctx, err)
		}
	}
	if err := r.cleanUp(ctx); err != nil {
		return r.ended(ctx, err)
	}
	if r.progress.System {
		return r.result(Errored, message)
	}
	return r.result(Failed, message)
}

// failureHooks runs the steps of the SyncFail hooks up to the first that fails,
// and returns what that adds to the operation's message.
func (r *run) failureHooks(ctx context.Context) (message string, err error) {
	for i, s := range r.plan.OnFailure {
		if r.complete(s) {
			continue
		}
		err := r.step(ctx, s, fmt.Sprintf("after the failure, step %d of %d", i+1, len(r.plan.OnFailure)), true)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err == nil {
			continue
		}
		f, goesOn := followed(ctx, err)
		if !goesOn {
			return "", err
		}
		return "; also, SyncFail: " + f.message, nil
	}
	return "", nil
}

// ended turns an error that ends the operation into its result.
func (r *run) ended(ctx context.Context, err error) Result {
	if ctx.Err() != nil {
		var t *Terminated
		if !errors.As(context.Cause(ctx), &t) {
			return r.result(Running, "interrupted; it continues after the restart")
		}
		message := t.Why
		if r.waiting != "" {
			message += "; it was " + r.waiting
		}
		if stuck := r.abort(context.WithoutCancel(ctx), "terminated"); stuck != "" {
			message += "; " + stuck
		}
		res := r.result(Failed, message)
		res.Terminated = true
		return res
	}
	var f *failure
	if !errors.As(err, &f) {
		if err == nil {
			return r.result(Succeeded, r.summary())
		}
		return r.result(Errored, fault.Sentence(err))
	}
	if f.system {
		return r.result(Errored, f.message)
	}
	return r.result(Failed, f.message)
}

// A failure ends the operation, after SyncFail hooks unless it is final.
type failure struct {
	message string
	system  bool
	final   bool
}

// Error is the message for people.
func (f *failure) Error() string { return f.message }

// save writes progress ahead of what follows. A plan without a ledger has none.
func (r *run) save(ctx context.Context) error {
	if r.ledger == nil {
		return nil
	}
	if err := r.ledger.Save(ctx, r.progress.clone()); err != nil {
		return &failure{message: "the progress of the operation cannot be stored: " + fault.Sentence(err), system: true, final: true}
	}
	return nil
}

// saveHooked saves the progress if hooks would otherwise run again.
func (r *run) saveHooked(ctx context.Context) error {
	if len(r.progress.Hooks) == 0 && len(r.plan.OnFailure) == 0 {
		return nil
	}
	return r.save(ctx)
}

// record stores the newest result of an item and reports it.
func (r *run) record(res ItemResult) {
	id := res.Item.ID()
	if _, known := r.results[id]; !known {
		r.order = append(r.order, id)
	}
	r.results[id] = &res
	if r.config.Report != nil {
		c := res
		r.config.Report(Update{Item: &c})
	}
}

// say reports what the operation waits for or does, if that has changed.
func (r *run) say(message string) {
	if message == r.waiting {
		return
	}
	r.waiting = message
	if message != "" && r.config.Report != nil {
		r.config.Report(Update{Message: message})
	}
}

func (r *run) result(phase, message string) Result {
	out := Result{Phase: phase, Message: message}
	for _, id := range r.order {
		out.Items = append(out.Items, *r.results[id])
	}
	return out
}

// summary says what was done, for the message of a success.
func (r *run) summary() string {
	var applied, pruned, kept, hooks int
	for _, res := range r.results {
		switch {
		case res.Item.Hook:
			hooks++
		case res.Status == Pruned:
			pruned++
		case res.Status == PruneSkipped:
			kept++
		case res.Status == Synced:
			applied++
		}
	}
	verb, done := "applied", applied
	if r.plan.deletion {
		verb, done, pruned = "deleted", pruned, 0
	}
	text := fmt.Sprintf("%s %d objects", verb, done)
	if pruned > 0 {
		text += fmt.Sprintf(", pruned %d", pruned)
	}
	if kept > 0 {
		text += fmt.Sprintf(", kept %d that need pruning", kept)
	}
	if hooks > 0 {
		text += fmt.Sprintf(", ran %d hooks", hooks)
	}
	if r.plan.DryRun {
		text += " (dry run)"
	}
	return text
}
