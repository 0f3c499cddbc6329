package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

const (
	old   = hub.SnapshotID("old")
	fresh = hub.SnapshotID("fresh")
)

func moment() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

func auto(change func(*hub.ApplicationSpec)) hub.ApplicationSpec {
	s := hub.ApplicationSpec{SyncPolicy: &hub.SyncPolicy{Automated: &hub.Automated{Prune: true}}}
	if change != nil {
		change(&s)
	}
	return s
}

// input is an automated application that enforces old and got fresh.
func input(change func(*plan.Input)) plan.Input {
	s := plan.Input{
		Application: hub.Application{
			ID: "app", Cluster: "prod", Generation: 7,
			Status: hub.ApplicationStatus{Target: old, Accepted: old, PlannedGeneration: 7},
		},
		Spec:            auto(nil),
		Candidate:       hub.Snapshot{ID: fresh, Revision: "r2", Objects: []hub.ObjectRef{{Kind: "ConfigMap", Name: "a"}}},
		AcceptedObjects: 3,
		Now:             moment(),
	}
	if change != nil {
		change(&s)
	}
	return s
}

func TestNext(t *testing.T) {
	t.Parallel()
	off := false
	pin := &hub.Pin{Snapshot: old, Bad: "bad", Skipped: "r-bad", By: "jane", Reason: "broken"}
	cases := map[string]struct {
		why       string
		in        plan.Input
		target    hub.SnapshotID
		accept    bool
		operation bool
		supersede bool
		unpin     bool
		hold      bool
	}{
		"AUTO-01 a new snapshot is enforced": {
			why: "automation is on and nothing is in the way", in: input(nil),
			target: fresh, accept: true, operation: true,
		},
		"AUTO-01 without a policy it is compared only": {
			why: "a person decides", in: input(func(s *plan.Input) { s.Spec = hub.ApplicationSpec{} }), target: fresh,
		},
		"AUTO-01 enabled false keeps the settings and does nothing": {
			why:    "the switch wins over its settings",
			in:     input(func(s *plan.Input) { s.Spec.SyncPolicy.Automated.Enabled = &off }),
			target: fresh,
		},
		"AUTO-04 what is enforced is not tried again": {
			why:    "the same objects at another commit ask for nothing",
			in:     input(func(s *plan.Input) { s.Candidate.ID = old }),
			target: old,
		},
		"AUTO-04 a failed target is not tried again by looking again": {
			why: "the retry block was used up; looking at the sources changes nothing",
			in: input(func(s *plan.Input) {
				s.Candidate.ID = old
				s.Failed = &hub.Operation{Snapshot: old, Fence: 3, Phase: hub.Failed}
			}),
			target: old,
		},
		"AUTO-04 a failed target is tried again after a change of the specification": {
			why: "the change may have mended the cause",
			in: input(func(s *plan.Input) {
				s.Candidate.ID, s.Application.Generation = old, 8
				s.Failed = &hub.Operation{Snapshot: old, Fence: 7, Phase: hub.Failed}
			}),
			target: old, accept: true, operation: true,
		},
		"SYNC-28 a failed target whose retry is due waits for that": {
			why: "two tries at once would race",
			in: input(func(s *plan.Input) {
				at := moment()
				s.Candidate.ID, s.Application.Generation = old, 8
				s.Failed = &hub.Operation{Snapshot: old, Fence: 7, Phase: hub.Failed, RetryAt: &at}
			}),
			target: old,
		},
		"AUTO-09 a snapshot without objects is held": {
			why:    "a wrong path would remove everything",
			in:     input(func(s *plan.Input) { s.Candidate.Objects = nil }),
			target: fresh, hold: true,
		},
		"AUTO-09 allowEmpty lets it through": {
			why: "the person said so",
			in: input(func(s *plan.Input) {
				s.Candidate.Objects, s.Spec.SyncPolicy.Automated.AllowEmpty = nil, true
			}),
			target: fresh, accept: true, operation: true,
		},
		"AUTO-09 an application that never had objects may be empty": {
			why:    "nothing would be removed",
			in:     input(func(s *plan.Input) { s.Candidate.Objects, s.AcceptedObjects = nil, 0 }),
			target: fresh, accept: true, operation: true,
		},
		"INV-4 a newer revision ends the older operation": {
			why:    "the newest wins, one runs",
			in:     input(func(s *plan.Input) { s.Running = &hub.Operation{ID: "op", Snapshot: old, Phase: hub.Running} }),
			target: fresh, accept: true, operation: true, supersede: true,
		},
		"INV-4 an operation for the same snapshot goes on": {
			why: "another commit with the same objects is no news",
			in: input(func(s *plan.Input) {
				s.Running = &hub.Operation{ID: "op", Kind: hub.SyncOperation, Snapshot: fresh, Phase: hub.Running}
			}),
			target: fresh,
		},
		"HOOK running hooks are not cut off": {
			why: "a migration that is half done must end",
			in: input(func(s *plan.Input) {
				s.Running, s.RunningHasHooks = &hub.Operation{ID: "op", Snapshot: old, Phase: hub.Running}, true
			}),
			target: fresh, hold: true,
		},
		"HOOK hooks that no agent has begun are superseded": {
			why: "nothing has run yet",
			in: input(func(s *plan.Input) {
				s.Running, s.RunningHasHooks = &hub.Operation{ID: "op", Snapshot: old, Phase: hub.Pending}, true
			}),
			target: fresh, accept: true, operation: true, supersede: true,
		},
		"ROLL-03 the revision that was rolled back from is skipped": {
			why: "automation would undo the rollback",
			in: input(func(s *plan.Input) {
				s.Application.Pin, s.Candidate.Revision = pin, "r-bad"
			}),
			target: old, hold: true,
		},
		"ROLL-03 so is a newer one that renders the same": {
			why:    "it is as broken",
			in:     input(func(s *plan.Input) { s.Application.Pin, s.Candidate.ID = pin, "bad" }),
			target: old, hold: true,
		},
		"ROLL-03 one that renders the pinned objects keeps the pin": {
			why:    "nothing would change, and the bad one may come again",
			in:     input(func(s *plan.Input) { s.Application.Pin, s.Candidate.ID = pin, old }),
			target: old, hold: true,
		},
		"ROLL-03 a revision that renders something else ends the pin": {
			why:    "it is the repair",
			in:     input(func(s *plan.Input) { s.Application.Pin = pin }),
			target: fresh, accept: true, operation: true, unpin: true,
		},
		"ROLL-03 without automation the pin ends too": {
			why: "the target moves, a person syncs",
			in: input(func(s *plan.Input) {
				s.Application.Pin, s.Spec = pin, hub.ApplicationSpec{}
			}),
			target: fresh, unpin: true,
		},
		"DEL-01 an application that is being deleted gets nothing new": {
			why: "its objects would come back",
			in: input(func(s *plan.Input) {
				at := moment()
				s.Application.DeletingAt = &at
			}),
			target: old, hold: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := plan.Next(c.in)
			got := []any{d.Target, d.Accept, d.Operation != nil, d.Supersede, d.Unpin, d.Hold != ""}
			want := []any{c.target, c.accept, c.operation, c.supersede, c.unpin, c.hold}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: target, accept, operation, supersede, unpin, hold (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestAutomaticOperation(t *testing.T) {
	t.Parallel()
	s := input(func(s *plan.Input) { s.Spec.SyncPolicy.SyncOptions = []string{"CreateNamespace=true"} })
	op := plan.Next(s).Operation
	if op == nil || op.ID == "" {
		t.Fatalf("operation %+v", op)
	}
	want := &hub.Operation{
		ID: op.ID, Application: "app", Cluster: "prod", Kind: hub.SyncOperation, Snapshot: fresh, Revision: "r2", Phase: hub.Pending,
		Options:   hub.OperationOptions{Prune: true, Retry: &hub.Retry{Limit: 5}, SyncOptions: []string{"CreateNamespace=true"}},
		Initiator: hub.Initiator{Automated: true}, OperationTimes: hub.OperationTimes{CreatedAt: moment(), Deadline: moment().Add(plan.DefaultDeadline)},
	}
	t.Run("AUTO-05 it carries the policy, and five more tries where the policy names none", func(t *testing.T) {
		if diff := cmp.Diff(want, op); diff != "" {
			t.Error(diff)
		}
	})
}

// A decision must make sense whatever the situation is.
func TestNextProperties(t *testing.T) {
	t.Parallel()
	ids := []hub.SnapshotID{old, fresh, "bad"}
	rapid.Check(t, func(rt *rapid.T) {
		flag := func(name string) bool { return rapid.Bool().Draw(rt, name) }
		s := input(func(s *plan.Input) {
			s.Candidate.ID = rapid.SampledFrom(ids).Draw(rt, "candidate")
			s.Application.Status.Accepted = rapid.SampledFrom(ids).Draw(rt, "accepted")
			s.Application.Status.PlannedGeneration = rapid.Int64Range(6, 7).Draw(rt, "planned")
			if flag("empty") {
				s.Candidate.Objects = nil
			}
			if flag("manual") {
				s.Spec = hub.ApplicationSpec{}
			}
			if flag("pinned") {
				s.Application.Pin = &hub.Pin{Snapshot: old, Bad: "bad", Skipped: "r-bad"}
			}
			if flag("upgraded") {
				s.Renderers = &hub.RendererChange{Changed: 1}
			}
			if flag("running") {
				s.Running = &hub.Operation{ID: "op", Kind: hub.SyncOperation, Snapshot: rapid.SampledFrom(ids).Draw(rt, "of"), Phase: hub.Running}
				s.RunningHasHooks = flag("hooks")
			}
			if flag("deleting") {
				at := moment()
				s.Application.DeletingAt = &at
			}
		})
		d := plan.Next(s)
		if d.Accept != (d.Operation != nil) {
			rt.Fatal("what is enforced and what is done must go together")
		}
		if d.Operation != nil && s.Renderers != nil && s.Application.Pin == nil {
			rt.Fatal("what only other renderers changed was applied unseen")
		}
		if d.Operation != nil && (d.Operation.Snapshot != d.Target || d.Hold != "") {
			rt.Fatal("an operation is for the target, and none is made while automation waits")
		}
		if d.Supersede && (s.Running == nil || d.Operation == nil) {
			rt.Fatal("an operation ends only in favour of another")
		}
		if d.Operation != nil && s.Running != nil && !d.Supersede {
			rt.Fatal("two operations at once")
		}
		if d.Accept && len(s.Candidate.Objects) == 0 && s.AcceptedObjects > 0 {
			rt.Fatal("INV-3: an empty snapshot was enforced without consent")
		}
	})
}

func TestRetryAt(t *testing.T) {
	t.Parallel()
	factor := func(n int64) *int64 { return &n }
	cases := map[string]struct {
		why  string
		op   hub.Operation
		wait time.Duration // 0: not again
	}{
		"no retry block":  {"people's operations are not tried again unasked", hub.Operation{Phase: hub.Failed}, 0},
		"succeeded":       {"nothing to mend", hub.Operation{Phase: hub.Succeeded, Options: hub.OperationOptions{Retry: &hub.Retry{Limit: 5}}}, 0},
		"still running":   {"it is not over", hub.Operation{Phase: hub.Running, Options: hub.OperationOptions{Retry: &hub.Retry{Limit: 5}}}, 0},
		"a deletion":      {"DEL-02 it goes on until the objects are gone", hub.Operation{Kind: hub.DeleteOperation, Phase: hub.Failed, Options: hub.OperationOptions{Retry: &hub.Retry{Limit: -1}}}, 5 * time.Second},
		"ended deletion":  {"a person has terminated it", hub.Operation{Kind: hub.DeleteOperation, Phase: hub.Failed}, 0},
		"limit 0":         {"the block says none", failed(0, &hub.Retry{}), 0},
		"limit reached":   {"five more tries were made", failed(5, &hub.Retry{Limit: 5}), 0},
		"first":           {"SYNC-28 default is 5 s", failed(0, &hub.Retry{Limit: 5}), 5 * time.Second},
		"third":           {"SYNC-28 default factor is 2", failed(2, &hub.Retry{Limit: 5}), 20 * time.Second},
		"system error":    {"the cause may pass", hub.Operation{Phase: hub.Errored, Options: hub.OperationOptions{Retry: &hub.Retry{Limit: 1}}}, 5 * time.Second},
		"without end":     {"SYNC-28 limit -1 goes on, at most every 3 m", failed(1_000_000, &hub.Retry{Limit: -1}), 3 * time.Minute},
		"factor":          {"as written", failed(2, &hub.Retry{Limit: 9, Backoff: &hub.Backoff{Duration: "1s", Factor: factor(3)}}), 9 * time.Second},
		"factor 1":        {"the same wait each time", failed(40, &hub.Retry{Limit: 99, Backoff: &hub.Backoff{Duration: "7s", Factor: factor(1)}}), 7 * time.Second},
		"factor 0":        {"nonsense is the default", failed(1, &hub.Retry{Limit: 9, Backoff: &hub.Backoff{Factor: factor(0)}}), 10 * time.Second},
		"huge factor":     {"must not wrap around into the past", failed(3, &hub.Retry{Limit: 9, Backoff: &hub.Backoff{Factor: factor(1 << 62)}}), 3 * time.Minute},
		"maxDuration":     {"as written", failed(9, &hub.Retry{Limit: 99, Backoff: &hub.Backoff{MaxDuration: "1m"}}), time.Minute},
		"bare number":     {"Argo CD reads seconds", failed(0, &hub.Retry{Limit: 9, Backoff: &hub.Backoff{Duration: "30"}}), 30 * time.Second},
		"above the limit": {"the limit wins", failed(0, &hub.Retry{Limit: 9, Backoff: &hub.Backoff{Duration: "1h", MaxDuration: "1m"}}), time.Minute},
		"no duration":     {"unreadable text is the default", failed(0, &hub.Retry{Limit: 9, Backoff: &hub.Backoff{Duration: "soon"}}), 5 * time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, again := plan.RetryAt(c.op, syncwindow.Set{}, moment())
			if again != (c.wait > 0) || again && at.Sub(moment()) != c.wait {
				t.Errorf("%s: again %v after %v, want %v", c.why, again, at.Sub(moment()), c.wait)
			}
		})
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := &hub.Backoff{Factor: factor(rapid.Int64().Draw(rt, "factor")), Duration: rapid.String().Draw(rt, "duration")}
		op := failed(rapid.IntRange(0, 10_000).Draw(rt, "attempt"), &hub.Retry{Limit: -1, Backoff: b})
		if at, again := plan.RetryAt(op, syncwindow.Set{}, moment()); !again || !at.After(moment()) || at.Sub(moment()) > 3*time.Minute {
			rt.Fatalf("again %v at %v", again, at)
		}
	})
}

func failed(attempt int, r *hub.Retry) hub.Operation {
	return hub.Operation{Phase: hub.Failed, Attempt: attempt, Options: hub.OperationOptions{Retry: r}}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	now := moment()
	cases := map[string]struct {
		why     string
		app     hub.Application
		running *hub.Operation
		refused bool
	}{
		"SYNC-07 at rest":     {"nothing is in the way", hub.Application{Cluster: "prod"}, nil, false},
		"SYNC-07 deleting":    {"objects would come back", hub.Application{Cluster: "prod", DeletingAt: &now}, nil, true},
		"SYNC-07 no cluster":  {"nobody would take it", hub.Application{}, nil, true},
		"SYNC-07 in progress": {"one at a time", hub.Application{Cluster: "prod"}, &hub.Operation{ID: "op"}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := plan.Check(c.app, c.running, syncwindow.Set{}, syncwindow.Manual, now)
			if (fault.KindOf(err) == fault.Conflict) != c.refused || !c.refused && err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
			if e, ok := fault.As(err); ok && e.Fix == "" {
				t.Error("the sentence does not say what to do")
			}
		})
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"5s": 5 * time.Second, "3m": 3 * time.Minute, "30": 30 * time.Second, "": -1, "x": -1, "5 s": -1} {
		got, err := plan.ParseDuration(text)
		if want < 0 && fault.KindOf(err) != fault.Invalid || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}
