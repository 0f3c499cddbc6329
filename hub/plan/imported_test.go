package plan_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
)

// imported is an automated application that came by an import and was never
// synced; its candidate is its target.
func imported(state string, sync hub.SyncStatus, change func(*plan.Input)) plan.Input {
	return input(func(s *plan.Input) {
		s.Application.Meta.Annotations = map[string]string{hub.ImportedAnnotation: state}
		s.Application.Status = hub.ApplicationStatus{Target: fresh, PlannedGeneration: 7, Sync: sync}
		s.AcceptedObjects = 0
		if change != nil {
			change(s)
		}
	})
}

func TestImported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why                     string
		in                      plan.Input
		accept, operation, hold bool
	}{
		"FT-U3 nothing is done before the confirmation": {
			why: "whatever differs", in: imported(hub.ImportObserve, hub.OutOfSync, nil), hold: true,
		},
		"FT-U3 one without automation says nothing": {
			why: "a person decides anyway", in: imported(hub.ImportObserve, hub.OutOfSync, func(s *plan.Input) { s.Spec = hub.ApplicationSpec{} }),
		},
		"FT-U3 what equals is accepted without an operation": {
			why: "there is nothing to write", in: imported(hub.ImportConfirmed, hub.Synced, nil), accept: true,
		},
		"FT-U3 what differs is synced": {
			why: "as automation does", in: imported(hub.ImportConfirmed, hub.OutOfSync, nil), accept: true, operation: true,
		},
		"FT-U3 before the first comparison it waits": {
			why: "an operation would write objects that are equal", in: imported(hub.ImportConfirmed, hub.SyncUnknown, nil), hold: true,
		},
		"FT-U3 the comparison must be that of the candidate": {
			why: "another one says nothing", in: imported(hub.ImportConfirmed, hub.Synced, func(s *plan.Input) { s.Application.Status.Target = old }), hold: true,
		},
		"FT-U3 after its first acceptance it is one like any other": {
			why: "the import is over", in: imported(hub.ImportConfirmed, hub.Synced, func(s *plan.Input) { s.Application.Status.Target, s.Application.Status.Accepted = old, old }), accept: true, operation: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := plan.Next(c.in)
			if d.Accept != c.accept || (d.Operation != nil) != c.operation || (d.Hold != "") != c.hold {
				t.Errorf("%s: accept %v, operation %v, hold %q", c.why, d.Accept, d.Operation != nil, d.Hold)
			}
			if c.hold && c.in.Application.ImportIsConfirmed() && d.Again == nil {
				t.Error("nobody decides again")
			}
		})
	}
}
