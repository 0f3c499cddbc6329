package apply

import (
	"context"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// The agent enforces sync windows as well: an operation that arrives late does
// not start while they are closed, a running one stops at its next step, and
// self-heal waits. Windows are evaluated by the hub's time.

// now is the hub's time.
func (e *Engine) now() time.Time { return e.Clock.Now().Add(e.Offset()) }

// windowsOf reads the windows of a state. An invalid window closes the
// application.
func windowsOf(state *linkv1.AppState) syncwindow.Set {
	given := state.GetPolicy().GetWindows()
	out := make([]syncwindow.Window, len(given))
	for i, w := range given {
		out[i] = syncwindow.Window{
			Kind: w.GetKind(), Schedule: w.GetSchedule(), Duration: w.GetDuration(), TimeZone: w.GetTimeZone(), Description: w.GetDescription(),
			ManualSync: w.GetManualSync(), SyncOverrun: w.GetSyncOverrun(), SelfHeal: w.GetSelfHeal(),
		}
	}
	return syncwindow.New(out)
}

// windowQueue contains when the windows of applications change next.
type windowQueue struct {
	mu    sync.Mutex
	times map[*app]time.Time
}

func (t *windowQueue) set(a *app, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times == nil {
		t.times = map[*app]time.Time{}
	}
	t.times[a] = at
}

func (t *windowQueue) forget(a *app) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.times, a)
}

// wait is the time until the first change, at most most.
func (t *windowQueue) wait(now time.Time, most time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.times {
		most = min(most, at.Sub(now))
	}
	return max(most, time.Millisecond)
}

// due removes and returns the applications whose time has come.
func (t *windowQueue) due(now time.Time) []*app {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*app
	for a, at := range t.times {
		if !at.After(now) {
			out = append(out, a)
			delete(t.times, a)
		}
	}
	return out
}

// recheckWindowsAfter is the interval for windows without a known next change.
const recheckWindowsAfter = 24 * time.Hour

// schedule records when the application's windows change next. The caller holds
// mu.
func (a *app) schedule() {
	if a.windows.Empty() || a.closed {
		a.e.turns.forget(a)
		return
	}
	now := a.e.now()
	at, ok := a.windows.Next(now)
	if !ok {
		at = now.Add(recheckWindowsAfter)
	}
	a.e.turns.set(a, at)
}

// runDueWindows continues applications whose windows have changed: it heals
// drift and starts permitted operations.
func (e *Engine) runDueWindows(ctx context.Context) {
	for _, a := range e.turns.due(e.now()) {
		a.mu.Lock()
		if a.state != nil && !a.closed {
			a.schedule()
			a.reassess(ctx, false)
			a.start()
			a.scheduleReport()
		}
		a.mu.Unlock()
	}
}

// heals reports whether self-heal is allowed now. The caller holds mu.
func (a *app) heals() bool {
	return a.windows.Empty() || a.windows.Allows(syncwindow.Heal, a.e.now())
}

// unhealed is the message that windows block self-heal; empty if nothing waits
// for them. The caller holds mu.
func (a *app) unhealed() string {
	if a.heals() {
		return ""
	}
	if a.nsHealable() {
		return "self-heal waits: " + a.windows.Why(syncwindow.Heal, a.e.now())
	}
	for _, x := range a.objects {
		if a.healable(x) {
			return "self-heal waits: " + a.windows.Why(syncwindow.Heal, a.e.now())
		}
	}
	return ""
}

// exempt reports whether windows do not apply to an operation: the deletion of
// the application, and dry runs.
func exempt(order *linkv1.Operation) bool {
	return order.GetKind() == linkv1.OperationKind_OPERATION_KIND_DELETE || order.GetOptions().GetDryRun()
}

// mayBegin reports whether the next operation may start or continue, and sets
// the reason for users if not. The caller holds mu.
func (a *app) mayBegin() bool {
	if a.windows.Empty() || len(a.queue) > 1 { // the newest supersedes the others, which then end
		return true
	}
	o, ok := a.e.Inventory.Operation(a.queue[0])
	if !ok || !o.Open() || o.Terminated != "" || exempt(o.Order) {
		return true
	}
	use, now := syncwindow.Of(o.Order.GetAutomated()), a.e.now()
	if a.windows.Allows(use, now) || len(o.Progress) > 0 && a.windows.Continues(use, now) {
		a.waits = ""
		return true
	}
	if why := "waiting: " + a.windows.Why(use, now); a.waits != o.ID+why {
		a.waits = o.ID + why
		a.e.Reports.Operation(&linkv1.OperationReport{OperationId: o.ID, AppId: a.id, Phase: phaseRunning, Message: why})
	}
	return false
}

// gate waits before a step of an operation while windows block it.
func (a *app) gate(o inventory.Operation) func(ctx context.Context, say func(string)) error {
	if exempt(o.Order) {
		return nil
	}
	use := syncwindow.Of(o.Order.GetAutomated())
	return func(ctx context.Context, say func(string)) error {
		for {
			set, now := a.newest(), a.e.now()
			if set.Continues(use, now) {
				return nil
			}
			if next := a.successor(); next != "" {
				return fault.New(fault.Conflict, "superseded by operation %s while it waited for its sync windows", next)
			}
			say("stopped between two steps: " + set.Why(use, now))
			wait := windowPoll
			if at, ok := set.Next(now); ok {
				wait = min(wait, at.Sub(now))
			}
			if err := lifecycle.Sleep(ctx, a.e.Clock, wait); err != nil {
				return err
			}
		}
	}
}

// windowPoll is the interval at which an operation that waits between two steps
// checks for changed windows and newer operations.
const windowPoll = time.Second

// newest reads the windows of the newest state, which the application itself
// processes once its operation is over.
func (a *app) newest() syncwindow.Set {
	row, ok := a.e.Inventory.App(a.id)
	if !ok {
		return syncwindow.Set{} // the hub has deleted it, and its operation is being ended
	}
	return windowsOf(row.State)
}

// successor is the newest operation of the queue; empty: there is none.
func (a *app) successor() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return ""
	}
	return a.queue[len(a.queue)-1]
}
