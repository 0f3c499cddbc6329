package plan_test

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
)

func TestChangeOfCause(t *testing.T) {
	t.Parallel()
	spec := hub.ApplicationSpec{SyncPolicy: &hub.SyncPolicy{Automated: &hub.Automated{}}}
	failed := &hub.Operation{Snapshot: "s1", Phase: hub.Failed, OperationTimes: hub.OperationTimes{CreatedAt: moment()}}
	at := func(change func(*plan.Input)) plan.Input {
		s := plan.Input{
			Application: hub.Application{Generation: 2, Status: hub.ApplicationStatus{Accepted: "s1", Target: "s1", PlannedGeneration: 2}},
			Spec:        spec, Candidate: hub.Snapshot{ID: "s1", Objects: []hub.ObjectRef{{}}}, Failed: failed, Now: moment().Add(time.Hour),
		}
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		change func(*plan.Input)
		want   bool
	}{
		"AUTO-04 nothing was changed: it is not tried again": {func(*plan.Input) {}, false},
		"AUTO-04 the specification was changed":              {func(s *plan.Input) { s.Application.Generation = 3 }, true},
		"AUTO-04 the project was changed":                    {func(s *plan.Input) { s.Changed = true }, true},
		"AUTO-04 what the cluster serves was changed since":  {func(s *plan.Input) { s.Served = moment().Add(time.Minute) }, true},
		"AUTO-04 ... before it failed":                       {func(s *plan.Input) { s.Served = moment().Add(-time.Minute) }, false},
		"AUTO-04 a newer revision":                           {func(s *plan.Input) { s.Candidate.ID = "s2" }, true},
		"AUTO-04 TRK-07 the objects that it was refused are free": {func(s *plan.Input) {
			f := *failed
			f.Unblocked, f.Initiator = true, hub.Initiator{Username: "jane"}
			s.Failed = &f
		}, true},
		"AUTO-04 TRK-07 ... although a retry is planned for later": {func(s *plan.Input) {
			f := *failed
			f.Unblocked, f.RetryAt = true, &s.Now
			s.Failed = &f
		}, true},
		"AUTO-04 TRK-07 ... and something else has been rendered since": {func(s *plan.Input) {
			f := *failed
			f.Unblocked, f.Snapshot = true, "s0"
			s.Failed = &f
		}, false},
		"AUTO-01 TRK-07 without automation nobody tries again": {func(s *plan.Input) {
			f := *failed
			f.Unblocked = true
			s.Failed, s.Spec = &f, hub.ApplicationSpec{}
		}, false},
		"SYNC-28 a retry is planned already": {func(s *plan.Input) {
			s.Changed, s.Served = true, moment().Add(time.Minute)
			f := *failed
			f.RetryAt = &s.Now
			s.Failed = &f
		}, false},
		"AUTO-02 the application is being deleted": {func(s *plan.Input) { s.Candidate.ID = "s2"; s.Application.DeletingAt = &s.Now }, false},
		"AUTO-01 enabled: false keeps the settings and starts nothing": {func(s *plan.Input) {
			s.Candidate.ID = "s2"
			off := false
			s.Spec.SyncPolicy = &hub.SyncPolicy{Automated: &hub.Automated{Enabled: &off}}
		}, false},
		"AUTO-01 the annotation follows although the specification does not": {func(s *plan.Input) {
			s.Candidate.ID = "s2"
			s.Spec = hub.ApplicationSpec{}
			s.Application.Annotations = map[string]string{"capstan.dev/follow-revision": "true"}
		}, true},
		"AUTO-01 the annotation stops following although the specification does": {func(s *plan.Input) {
			s.Candidate.ID = "s2"
			s.Application.Annotations = map[string]string{"capstan.dev/follow-revision": "false"}
		}, false},
		"AUTO-02 an operation with hooks is under way: the newer one waits": {func(s *plan.Input) {
			s.Candidate.ID = "s2"
			s.Running = &hub.Operation{ID: "o", Snapshot: "s0", Phase: hub.Running}
			s.RunningHasHooks = true
		}, false},
		"AUTO-02 one without hooks is superseded": {func(s *plan.Input) {
			s.Candidate.ID = "s2"
			s.Running = &hub.Operation{ID: "o", Snapshot: "s0", Phase: hub.Running}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := plan.Next(at(c.change)); (d.Operation != nil) != c.want {
				t.Errorf("operation %+v, hold %q; want one: %v", d.Operation, d.Hold, c.want)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]time.Duration{
		"": plan.DefaultDeadline, "SyncTimeout=90s": 90 * time.Second, "SyncTimeout=0s": 7 * 24 * time.Hour, "SyncTimeout=9000h": 7 * 24 * time.Hour,
		"SyncTimeout=soon": plan.DefaultDeadline, "SyncTimeout=-1s": plan.DefaultDeadline,
	} {
		if got := plan.Timeout([]string{option}); got != want {
			t.Errorf("SYNC-10: Timeout(%q) = %s, want %s", option, got, want)
		}
	}
}
