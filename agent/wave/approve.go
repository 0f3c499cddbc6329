package wave

import (
	"context"
	"fmt"
	"time"
)

// confirmed waits until a person has approved the deletions of a step that
// require it (SYNC-11).
func (r *run) confirmed(ctx context.Context, s Step) error {
	var first *Item
	more := -1
	for _, g := range s.Prunes {
		for i := range g {
			if g[i].Confirm {
				more++
				if first == nil || compareItems(g[i], *first) < 0 {
					first = &g[i]
				}
			}
		}
	}
	if first == nil {
		return nil
	}
	why := first.Key.Describe() + " asks for it with Prune=confirm"
	if r.plan.deletion {
		why = first.Key.Describe() + " asks for it with Delete=confirm"
	}
	if more > 0 {
		why += fmt.Sprintf(", and %d more", more)
	}
	return r.approved(ctx, why)
}

// approved waits until a person has approved the plan's deletions. One approval
// is enough for the whole operation; the deadline is stopped during that time.
func (r *run) approved(ctx context.Context, why string) error {
	if !r.progress.Granted.IsZero() {
		return nil
	}
	target, able := r.target.(Approver)
	asked := false
	for ; ; asked = true {
		changed := r.target.Changed() // before the check, so that no approval is missed
		if able && target.Approved() {
			break
		}
		if !asked {
			if err := r.awaitApproval(ctx); err != nil {
				return err
			}
			r.say("waiting for approval to delete: " + why)
		}
		if err := rest(ctx, changed, r.config.Poll); err != nil {
			return err
		}
	}
	r.say("")
	r.progress.Granted = time.Now()
	if r.progress.Asked.IsZero() {
		r.progress.Asked = r.progress.Granted
	}
	r.wind(true)
	if err := r.save(ctx); err != nil || !asked {
		return err
	}
	return r.pass(ctx) // the state may have changed since
}

// awaitApproval stops the deadline and records the request for approval.
func (r *run) awaitApproval(ctx context.Context) error {
	r.wind(false)
	if !r.progress.Asked.IsZero() {
		return nil
	}
	r.progress.Asked = time.Now()
	return r.save(ctx)
}

// wind starts or stops the deadline timer. The time of an approval and of the
// gate is added to it.
func (r *run) wind(on bool) {
	if r.clock != nil {
		r.clock.Stop()
		r.clock = nil
	}
	p := r.progress
	if !on || r.config.Deadline.IsZero() || (!p.Asked.IsZero() && p.Granted.IsZero()) {
		return
	}
	r.clock = time.AfterFunc(time.Until(p.Extended(r.config.Deadline).Add(r.held)), r.expire)
}

// Waits reports whether an operation with this progress waits for approval, so
// that its deadline is stopped.
func (p Progress) Waits() bool { return !p.Asked.IsZero() && p.Granted.IsZero() }

// Extended moves a deadline by the time until the approval.
func (p Progress) Extended(deadline time.Time) time.Time {
	return deadline.Add(max(0, p.Granted.Sub(p.Asked)))
}
