package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// lunch is closed from 11:30 to 13:00; moment is 12:00.
func lunch(change func(*syncwindow.Window)) syncwindow.Set {
	w := syncwindow.Window{Kind: syncwindow.Deny, Schedule: "30 11 * * *", Duration: "90m", Applications: []string{"*"}}
	if change != nil {
		change(&w)
	}
	return syncwindow.New([]syncwindow.Window{w})
}

func TestWindows(t *testing.T) {
	t.Parallel()
	opening := time.Date(2026, 5, 1, 13, 0, 0, 0, time.UTC)
	t.Run("WIN-09 a new revision waits for the opening, with a condition", func(t *testing.T) {
		t.Parallel()
		d := plan.Next(input(func(s *plan.Input) { s.Windows = lunch(nil) }))
		if d.Target != fresh || d.Accept || d.Operation != nil || d.Again == nil || !d.Again.Equal(opening) {
			t.Errorf("%+v", d)
		}
		if !strings.Contains(d.Hold, "next opening 2026-05-01 13:00 UTC") || !strings.Contains(d.Hold, "revision r2") {
			t.Error(d.Hold)
		}
	})
	t.Run("AUTO-02 at the opening it is applied", func(t *testing.T) {
		t.Parallel()
		d := plan.Next(input(func(s *plan.Input) { s.Windows, s.Now = lunch(nil), opening }))
		if !d.Accept || d.Operation == nil || d.Hold != "" || d.Again != nil {
			t.Errorf("%+v", d)
		}
	})
	t.Run("WIN-06 manualSync is only for users", func(t *testing.T) {
		t.Parallel()
		byHand := lunch(func(w *syncwindow.Window) { w.ManualSync = true })
		if d := plan.Next(input(func(s *plan.Input) { s.Windows = byHand })); d.Operation != nil {
			t.Errorf("%+v", d)
		}
		if err := plan.Check(hub.Application{Cluster: "prod"}, nil, byHand, syncwindow.Manual, moment()); err != nil {
			t.Error(err)
		}
		if err := plan.Check(hub.Application{Cluster: "prod"}, nil, byHand, syncwindow.Automated, moment()); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a rollout may sync: %v", err)
		}
	})
	t.Run("WIN-09 what runs is not superseded while closed", func(t *testing.T) {
		t.Parallel()
		d := plan.Next(input(func(s *plan.Input) {
			s.Windows, s.Running = lunch(nil), &hub.Operation{ID: "op", Snapshot: old, Phase: hub.Running}
		}))
		if d.Supersede || d.Operation != nil || d.Again == nil {
			t.Errorf("%+v", d)
		}
	})
	t.Run("WIN-09 nothing waits where nothing is new", func(t *testing.T) {
		t.Parallel()
		d := plan.Next(input(func(s *plan.Input) { s.Windows, s.Candidate.ID = lunch(nil), old }))
		if d.Hold != "" || d.Again != nil {
			t.Errorf("%+v", d)
		}
	})
	t.Run("AUTO-04 a failed target whose cause has changed is tried at the opening", func(t *testing.T) {
		t.Parallel()
		s := input(func(s *plan.Input) {
			s.Windows, s.Candidate.ID, s.Changed = lunch(nil), old, true
			s.Failed = &hub.Operation{Snapshot: old, Phase: hub.Failed}
		})
		d := plan.Next(s)
		if d.Hold == "" || d.Again == nil {
			t.Fatalf("%+v", d)
		}
		s.Application.Status.Hold, s.Changed, s.Now = d.Hold, false, opening
		if d = plan.Next(s); d.Operation == nil {
			t.Errorf("%+v", d)
		}
	})
	t.Run("WIN-09 a person's sync is refused, with the next opening and what to do", func(t *testing.T) {
		t.Parallel()
		err := plan.Check(hub.Application{Cluster: "prod", Meta: hub.Meta{Name: "web"}, Project: "shop"}, nil, lunch(nil), syncwindow.Manual, moment())
		f, ok := fault.As(err)
		if !ok || f.Kind != fault.Conflict || !strings.Contains(f.Cause, "next opening 2026-05-01 13:00 UTC") || !strings.Contains(f.Fix, "windows list shop") {
			t.Error(err)
		}
	})
	t.Run("WIN-09 a retry waits for the opening, a person's by the person's rule", func(t *testing.T) {
		t.Parallel()
		op := failed(0, &hub.Retry{Limit: 5})
		op.Initiator.Automated = true
		byHand := lunch(func(w *syncwindow.Window) { w.ManualSync = true })
		if at, again := plan.RetryAt(op, byHand, moment()); !again || !at.Equal(opening) {
			t.Errorf("%v %v", at, again)
		}
		gone := op
		gone.Kind = hub.DeleteOperation
		if at, again := plan.RetryAt(gone, lunch(nil), moment()); !again || at.Sub(moment()) != 5*time.Second {
			t.Errorf("the deletion of the application waits for windows: %v %v", at, again)
		}
		op.Initiator.Automated = false
		if at, again := plan.RetryAt(op, byHand, moment()); !again || at.Sub(moment()) != 5*time.Second {
			t.Errorf("%v %v", at, again)
		}
	})
}
