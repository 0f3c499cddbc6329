package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/wave"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/trace"
)

// The phases of the protocol (APP-15).
const (
	phaseRunning     = "Running"
	phaseTerminating = "Terminating"
	phaseSucceeded   = "Succeeded"
	phaseFailed      = "Failed"
)

// startOperation runs one operation to its end, unless ctx ends before: then it
// continues after the next start.
func (a *app) startOperation(ctx context.Context, o inventory.Operation) {
	started := a.e.Clock.Now()
	if ended, phase := a.e.Secret.Ended(a.id); ended == o.ID {
		a.end(ctx, o, nil, result(o, ending{phase, "it had ended before the agent's state was lost; what it did is still there"}, started))
		return
	}
	if why := a.refuses(o, started); why != nil {
		a.end(ctx, o, nil, result(o, errored(why), started))
		return
	}
	a.eventStarted(o)
	own, cancel := context.WithDeadlineCause(ctx, a.limit(o).Add(deadlineGrace), fault.New(fault.Exceeded, "the operation's deadline has passed"))
	defer cancel()
	own, end := trace.Start(trace.Resume(own, o.Order.GetTraceparent()), "operation", logkey.Operation, o.ID, logkey.Application, a.id)
	var out *linkv1.OperationReport
	var conflicts refused
	err := lifecycle.Safely(own, "operation", func(own context.Context) error {
		out = a.runOperation(own, trace.Below(ctx, own), o, started, &conflicts)
		return nil
	})
	if err != nil { // a defect; the hub decides when to retry
		out = result(o, errored(err), started)
	}
	if out != nil {
		out.Traceparent = trace.Parent(own)
	}
	trace.Note(own, logkey.Phase, out.GetPhase())
	end(err)
	a.mu.Lock()
	a.running = nil
	a.mu.Unlock()
	if ctx.Err() != nil && out.GetFinishedUnixNano() == 0 {
		return
	}
	a.e.Secret.SetEnded(a.id, o.ID, out.GetPhase())
	a.end(ctx, o, &conflicts, out)
	a.aftermath(ctx, o, out)
}

// deadlineGrace is how long after its deadline an operation's preparation is
// cancelled; the machine itself ends earlier, in order.
const deadlineGrace = 10 * time.Second

// refuses says why an operation must not start.
func (a *app) refuses(o inventory.Operation, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	order := o.Order
	switch {
	case o.Terminated != "":
		return fault.New(fault.Conflict, "terminated by %s before it began", o.Terminated)
	case order.GetFence() < a.generation && len(o.Progress) == 0:
		return fault.New(fault.Conflict, "superseded: it was made for generation %d of the application, and generation %d is known here", order.GetFence(), a.generation)
	case now.After(a.limit(o)):
		return fault.New(fault.Exceeded, "its deadline passed before it could begin")
	case a.state == nil:
		return fault.New(fault.Conflict, "the hub sent no state of the application with it")
	case order.GetKind() == linkv1.OperationKind_OPERATION_KIND_DELETE && a.e.Inventory.Frozen() != "":
		return fault.New(fault.Conflict, "nothing is deleted while hub and cluster disagree about the past: %s", a.e.Inventory.Frozen())
	}
	_, err := a.actsAs(a.e.tenantSettings())
	return err
}

// runOperation plans and runs an operation. own ends with its deadline, outer with
// the process.
func (a *app) runOperation(own, parent context.Context, o inventory.Operation, started time.Time, refusedBy *refused) *linkv1.OperationReport {
	t := &task{app: a, op: o, hooks: map[manifest.Key]*object{}, changed: make(chan struct{}, 1), refused: refusedBy}
	p := &progress{app: a, op: o, started: started, results: map[string]wave.ItemResult{}}
	stopped := make(chan string, 1)
	gate, halt := context.WithCancel(own)
	defer halt()
	a.mu.Lock()
	a.running = &running{id: o.ID, seq: o.Seq, since: time.Now(), changed: t.changed, stop: func(actor string) {
		select {
		case stopped <- actor:
		default:
		}
		halt() // ends the preparation; the machine is terminated, too
	}}
	if o.Order.GetKind() == linkv1.OperationKind_OPERATION_KIND_DELETE {
		a.deleting = true
	} else {
		a.deleting, a.gone = false, false
	}
	a.e.leave(a, a.deleting)
	a.mu.Unlock()
	p.report(phaseRunning, "preparing")
	plan, err := t.plan(gate, p)
	if err == nil && plan.Durable() {
		err = a.e.Inventory.Flush(gate)
	}
	if err == nil {
		err = a.ready(gate, p)
	}
	if err != nil {
		return p.broken(own, parent, err, stopped)
	}
	failpoint.Here(failpoint.AgentPlanAfter)
	p.plan = plan
	g := &guarded{task: t, kinds: map[string]*timingSpan{}}
	defer g.record(parent)
	m := wave.New(plan, g, &ledger{app: a, op: o.ID}, wave.Config{
		WaveDelay: a.e.waveDelay(t.options), StepLimit: span(t.options, "StepTimeout"),
		Poll: a.e.Poll, Deadline: a.deadline(o), Report: p.update, Gate: a.gate(o),
	})
	a.mu.Lock()
	a.running.hooks = plan.Hooked()
	a.running.stop = func(actor string) {
		p.report(phaseTerminating, "being terminated by "+actor)
		m.Terminate("terminated by " + actor)
	}
	a.mu.Unlock()
	done := make(chan struct{})
	defer close(done)
	go func() { // a cancelled preparation also cancels its result
		select {
		case actor := <-stopped:
			m.Terminate("terminated by " + actor)
		case <-done:
		}
	}()
	return p.final(m.Run(parent), t.ended)
}

// mostWaveDelay is the longest pause between two waves.
const mostWaveDelay = time.Minute

// waveDelay is the pause between two waves (ENG-13): that of the application or
// the operation, else of the tenant or of the agent's flags.
func (e *Engine) waveDelay(options []string) time.Duration {
	delay := e.tenantSettings().WaveDelay
	if _, given := manifest.Option(options, "WaveDelay"); given {
		delay = span(options, "WaveDelay")
	}
	return min(delay, mostWaveDelay)
}

// span reads a sync option that is a duration, such as StepTimeout, the limit
// of one step; 0: not set.
func span(options []string, name string) time.Duration {
	v, ok := manifest.Option(options, name)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// ready waits until the lease is acquired: a successor waits until its
// predecessor cannot write any more.
func (a *app) ready(ctx context.Context, p *progress) error {
	for reminder := false; ; reminder = true {
		err := a.e.Lease()
		if err == nil {
			return nil
		}
		if !reminder {
			p.report(phaseRunning, "waiting: "+sentence(err))
		}
		if lifecycle.Sleep(ctx, a.e.Clock, 20*time.Millisecond) != nil {
			return err
		}
	}
}

// end stores the result and reports it to the hub, again until the hub
// acknowledges it. refusedBy are the causes of refused objects.
func (a *app) end(ctx context.Context, o inventory.Operation, refusedBy *refused, out *linkv1.OperationReport) {
	failpoint.Here(failpoint.AgentResultBefore)
	var causes []inventory.Refusal
	if refusedBy != nil && out.GetPhase() != phaseSucceeded {
		causes = refusedBy.all()
	}
	commit, err := a.e.Inventory.End(o.ID, out, a.e.Clock.Now(), causes)
	if err == nil {
		err = commit.Wait(context.WithoutCancel(ctx))
	}
	if err != nil {
		a.e.Log.ErrorContext(ctx, "result not stored", logkey.Operation, o.ID, logkey.Error, err)
		return // it runs again after a restart, which reports it
	}
	failpoint.Here(failpoint.AgentResultAfter)
	a.e.Secret.SetLedger(o.ID, nil)
	if refusedBy != nil && !o.Order.GetOptions().GetDryRun() {
		a.mu.Lock()
		a.refusals.set(o.ID, causes)
		a.mu.Unlock()
	}
	ended := []any{logkey.Application, a.id, logkey.Operation, o.ID, logkey.Phase, out.GetPhase()}
	if out.GetPhase() != phaseSucceeded {
		ended = append(ended, logkey.Message, out.GetMessage())
	}
	a.e.Log.InfoContext(ctx, "operation ended", ended...)
	a.e.Metrics.Operation(out.GetPhase(), time.Duration(out.GetFinishedUnixNano()-out.GetStartedUnixNano()))
	a.e.Reports.Operation(out)
	a.eventEnded(o, out)
}

// aftermath processes the application after an operation.
func (a *app) aftermath(ctx context.Context, o inventory.Operation, out *linkv1.OperationReport) {
	a.mu.Lock()
	defer a.mu.Unlock()
	deleted := o.Order.GetKind() == linkv1.OperationKind_OPERATION_KIND_DELETE
	if out.GetPhase() == phaseSucceeded {
		a.healthy, a.gone = out, deleted
	}
	if a.gone {
		a.healthy = nil
		a.e.Reports.App(&linkv1.AppReport{AppId: a.id, Generation: a.state.GetGeneration(), Gone: true, ComparedUnixNano: a.e.Clock.Now().UnixNano()})
		return
	}
	a.reassess(ctx, false)
	a.lastReport = nil
	a.lastReportAt = time.Time{}
	a.scheduleReport()
}

// ledger stores a machine's progress: in the inventory before the machine
// continues, and in the Secret soon after, in case the inventory is lost.
type ledger struct {
	app *app
	op  string
}

// Load returns the progress of an operation that was interrupted.
func (l *ledger) Load() (wave.Progress, bool) {
	o, ok := l.app.e.Inventory.Operation(l.op)
	raw := o.Progress
	if !ok || len(raw) == 0 {
		if raw, ok = l.app.e.Secret.Ledger(l.op); !ok {
			return wave.Progress{}, false
		}
	}
	var p wave.Progress
	if err := json.Unmarshal(raw, &p); err != nil {
		return wave.Progress{}, false
	}
	return p, true
}

// Save is durable when it returns.
func (l *ledger) Save(ctx context.Context, p wave.Progress) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write the ledger of operation %q: %w", l.op, err)
	}
	failpoint.Here(failpoint.AgentLedgerBefore)
	commit, err := l.app.e.Inventory.Advance(l.op, raw)
	if err != nil {
		return err
	}
	l.app.e.Secret.SetLedger(l.op, raw)
	defer failpoint.Here(failpoint.AgentLedgerAfter)
	return commit.Wait(ctx)
}

// progress collects the reports of a running operation.
type progress struct {
	app        *app
	op         inventory.Operation
	plan       wave.Plan
	started    time.Time
	message    string
	order      []string
	results    map[string]wave.ItemResult
	reportedAt time.Time

	mu   sync.Mutex
	over bool // the result exists; nothing is reported after it
}

// progressEvery is the least time between two progress reports; a millisecond
// is added for each object, because each report contains all objects.
const progressEvery = 200 * time.Millisecond

func (p *progress) report(phase, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.app.e.Reports.Operation(&linkv1.OperationReport{
		OperationId: p.op.ID, AppId: p.app.id, Phase: phase, Message: message, StartedUnixNano: p.started.UnixNano(),
	})
}

// update receives the machine's progress, from the goroutine of its Run.
func (p *progress) update(u wave.Update) {
	if u.Item != nil {
		id := u.Item.Item.ID()
		if _, known := p.results[id]; !known {
			p.order = append(p.order, id)
		}
		p.results[id] = *u.Item
	}
	newMessage := u.Message != "" && u.Message != p.message
	if newMessage {
		p.message = u.Message
	}
	now := p.app.e.Clock.Now()
	if every := progressEvery + time.Duration(len(p.order))*time.Millisecond; !newMessage && now.Sub(p.reportedAt) < every {
		return
	}
	p.reportedAt = now
	items := make([]wave.ItemResult, 0, len(p.order))
	for _, id := range p.order {
		items = append(items, p.results[id])
	}
	listed, _ := results(items)
	p.app.e.Reports.Operation(&linkv1.OperationReport{
		OperationId: p.op.ID, AppId: p.app.id, Phase: phaseRunning, Message: p.message,
		Results: truncateResults(listed), StartedUnixNano: p.started.UnixNano(),
	})
}

// broken is the result of an operation that could not start; none if the
// process is ending.
func (p *progress) broken(own, parent context.Context, err error, stopped <-chan string) *linkv1.OperationReport {
	p.close()
	if parent.Err() != nil {
		return nil
	}
	select {
	case actor := <-stopped:
		err = fault.New(fault.Conflict, "terminated by %s", actor)
	default:
		if own.Err() != nil {
			err = fault.New(fault.Exceeded, "its deadline passed while it waited: %s", sentence(err))
		}
	}
	return result(p.op, errored(err), p.started)
}

func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// final converts the machine's result to the report for the hub.
func (p *progress) final(r wave.Result, ended func(wave.Result)) *linkv1.OperationReport {
	p.close()
	ended(r)
	listed, unlisted := results(r.Items)
	out := &linkv1.OperationReport{
		OperationId: p.op.ID, AppId: p.app.id, Phase: r.Phase, Message: r.Message,
		Results: truncateResults(listed), StartedUnixNano: p.started.UnixNano(),
	}
	if unlisted > 0 {
		out.Message += fmt.Sprintf("; %d objects were unchanged and are not listed", unlisted)
	}
	if left := len(listed) - len(out.Results); left > 0 {
		out.Message += fmt.Sprintf("; %d results are not listed, because the report would be too long", left)
	}
	for _, w := range p.plan.Warnings {
		out.Message += "; " + w
	}
	if r.Phase != wave.Running {
		out.FinishedUnixNano = p.app.e.Clock.Now().UnixNano()
	}
	return out
}

// unchanged is the message for an object that was as desired.
const unchanged = "unchanged"

// mostUnchanged is how many unchanged objects of an operation a report lists.
// With more of them it lists none, so that a change of one object in thousands
// stays small.
const mostUnchanged = 100

func results(items []wave.ItemResult) (listed []*linkv1.Result, unlisted int) {
	for _, r := range items {
		if idle(r) {
			unlisted++
		}
	}
	if unlisted <= mostUnchanged {
		unlisted = 0
	}
	listed = make([]*linkv1.Result, 0, len(items)-unlisted)
	for _, r := range items {
		if unlisted > 0 && idle(r) {
			continue
		}
		it := r.Item
		one := &linkv1.Result{
			Group: it.Key.Group, Version: it.Version, Kind: it.Key.Kind, Namespace: it.Key.Namespace, Name: it.Key.Name,
			Status: r.Status, Message: r.Message, SyncPhase: string(it.Phase), Wave: it.Wave,
		}
		if it.Hook {
			one.HookType, one.HookPhase = string(it.Phase), r.HookPhase
		}
		listed = append(listed, one)
	}
	return listed, unlisted
}

// idle reports whether an object needed no change.
func idle(r wave.ItemResult) bool {
	return !r.Item.Hook && !r.Item.Prune && r.Status == wave.Synced && r.Message == unchanged
}

// An ending is the result of an operation without a plan.
type ending struct{ phase, message string }

// errored distinguishes an operation's own failure from the system's.
func errored(err error) ending {
	switch fault.KindOf(err) {
	case fault.Offline, fault.Internal:
		return ending{"Error", sentence(err)}
	}
	return ending{phaseFailed, sentence(err)}
}

func result(o inventory.Operation, e ending, started time.Time) *linkv1.OperationReport {
	now := time.Now()
	if started.IsZero() {
		started = now
	}
	return &linkv1.OperationReport{
		OperationId: o.ID, AppId: o.App, Phase: e.phase, Message: e.message,
		StartedUnixNano: started.UnixNano(), FinishedUnixNano: now.UnixNano(),
	}
}
