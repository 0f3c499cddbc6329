package render

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

func TestWaits(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	spec := hub.ApplicationSpec{SyncPolicy: &hub.SyncPolicy{Automated: &hub.Automated{}}}
	failed := func(f *hub.Refresh) {
		f.Application.Status.Operation = &hub.Operation{Phase: hub.Failed, OperationTimes: hub.OperationTimes{CreatedAt: at.Add(-time.Hour)}}
	}
	for name, c := range map[string]struct {
		change func(*hub.Refresh)
		want   bool
	}{
		"AUTO-11 nothing is new":                                             {func(*hub.Refresh) {}, false},
		"WIN-09 the project was changed":                                     {func(f *hub.Refresh) { f.Project.Version++ }, true},
		"the project is gone":                                                {func(f *hub.Refresh) { f.Project = nil }, false},
		"the specification was changed":                                      {func(f *hub.Refresh) { f.Application.Generation++ }, true},
		"WIN-09 it is held":                                                  {func(f *hub.Refresh) { f.Application.Status.Hold = "closed" }, true},
		"AUTO-01 the target is not accepted":                                 {func(f *hub.Refresh) { f.Application.Status.Accepted = "s0" }, true},
		"AUTO-04 the cluster was changed":                                    {func(f *hub.Refresh) { f.Cluster.UpdatedAt = at.Add(time.Minute) }, false},
		"AUTO-04 ... after a failure":                                        {func(f *hub.Refresh) { failed(f); f.Cluster.UpdatedAt = at.Add(time.Minute) }, true},
		"AUTO-04 ... which was looked at already":                            {func(f *hub.Refresh) { failed(f); f.Cluster.UpdatedAt = at.Add(-time.Minute) }, false},
		"AUTO-04 TRK-07 the objects that its operation was refused are free": {func(f *hub.Refresh) { failed(f); f.Application.Status.Operation.Unblocked = true }, true},
		"AUTO-04 TRK-07 ... and nobody follows its revisions": {func(f *hub.Refresh) {
			failed(f)
			f.Application.Status.Operation.Unblocked = true
			f.Application.Annotations = map[string]string{"capstan.dev/" + hub.FollowAnnotation: "false"}
		}, false},
		"AUTO-01 the annotation stops the following": {func(f *hub.Refresh) {
			f.Application.Status.Accepted = "s0"
			f.Application.Annotations = map[string]string{"capstan.dev/" + hub.FollowAnnotation: "false"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := hub.Refresh{
				Application: hub.Application{Generation: 2, Status: hub.ApplicationStatus{
					Target: "s1", Accepted: "s1", PlannedGeneration: 2, PlannedProject: 3, RefreshedAt: &at,
				}},
				Project: &hub.Project{Meta: hub.Meta{Version: 3}}, Cluster: &hub.Cluster{Meta: hub.Meta{UpdatedAt: at.Add(-time.Hour)}},
			}
			c.change(&f)
			if got := waits(f, spec, "s1"); got != c.want {
				t.Errorf("waits = %v", got)
			}
		})
	}
}
