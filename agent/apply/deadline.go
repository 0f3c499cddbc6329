package apply

import (
	"time"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// The time of an operation does not run while windows block it or while it
// waits for approval. Until the machine starts, it is computed here from the
// windows and the ledger; after that the machine measures its own waits.

// longest is the time of an operation whose row has no deadline.
const longest = 24 * time.Hour

// A period is a span of time.
type period struct{ from, to time.Time }

// left is how much of an operation's time remains at a moment. asked is the
// period of the approval request, which ends now if it is open.
func left(set syncwindow.Set, use syncwindow.Use, whole, asked period, now time.Time) time.Duration {
	rest := whole.to.Sub(whole.from)
	if asked.from.IsZero() || asked.from.After(now) {
		return rest - set.Runs(use, whole.from, now)
	}
	return rest - set.Runs(use, whole.from, asked.from) - set.Runs(use, asked.to, now)
}

// asking is the period of the approval request up to a moment.
func asking(p wave.Progress, now time.Time) period {
	if p.Asked.IsZero() {
		return period{}
	}
	if p.Waits() {
		return period{p.Asked, now}
	}
	return period{p.Asked, p.Granted}
}

// remains is how much time an operation has left, and how long it has waited
// for approval; false if no deadline is known.
func (a *app) remains(o inventory.Operation, now time.Time) (rest, asked time.Duration, known bool) {
	at, created := o.Order.GetDeadlineUnix(), o.Order.GetCreatedUnixNano()
	if at <= 0 {
		return longest, 0, false
	}
	p, _ := (&ledger{app: a, op: o.ID}).Load()
	ask, offset := asking(p, now), a.e.Offset()
	asked = ask.to.Sub(ask.from)
	end := time.Unix(at, 0).Add(-offset) // it is a time of the hub's clock
	if created == 0 {
		return end.Add(asked).Sub(now), asked, true
	}
	set := a.newest()
	if exempt(o.Order) {
		set = syncwindow.Set{}
	}
	whole := period{time.Unix(0, created), end.Add(offset)}
	if !ask.from.IsZero() {
		ask = period{ask.from.Add(offset), ask.to.Add(offset)} // windows are evaluated by the hub's time
	}
	return left(set, syncwindow.Of(o.Order.GetAutomated()), whole, ask, now.Add(offset)), asked, true
}

// deadline is when an operation must be over, by the agent's clock, unless it
// waits from now on. The machine adds its waits, and all of the time for
// approvals.
func (a *app) deadline(o inventory.Operation) time.Time {
	now := a.e.Clock.Now()
	rest, asked, _ := a.remains(o, now)
	return now.Add(rest - asked)
}

// limit is until when an operation may be prepared: its deadline, extended by
// the time for which windows will block it.
func (a *app) limit(o inventory.Operation) time.Time {
	now := a.e.Clock.Now()
	if p, _ := (&ledger{app: a, op: o.ID}).Load(); p.Waits() {
		return now.Add(longest)
	}
	rest, _, known := a.remains(o, now)
	if !known || rest <= 0 || exempt(o.Order) {
		return now.Add(rest)
	}
	hubNow := now.Add(a.e.Offset())
	at, ok := a.newest().Extend(syncwindow.Of(o.Order.GetAutomated()), hubNow, hubNow.Add(rest))
	if !ok {
		return now.Add(longest)
	}
	return now.Add(at.Sub(hubNow))
}
