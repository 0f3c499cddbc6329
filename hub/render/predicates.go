package render

import (
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// passes reports whether the same try may go well later: the cause lies neither
// in the sources nor in the specification.
func passes(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Offline || kind == fault.Internal
}

// waits reports whether automation should sync the target although no input
// changed: after a change of policy or of the project, for instance.
func waits(f hub.Refresh, spec hub.ApplicationSpec, target hub.SnapshotID) bool {
	app := f.Application
	return app.Status.Hold != "" || app.Pin != nil || app.Follows(spec) && app.Status.Accepted != target ||
		app.Status.PlannedGeneration != app.Generation || app.Follows(spec) && unblocked(app) || moved(f)
}

// unblocked reports whether the newest operation failed because of who owned
// objects, and these are free now.
func unblocked(app hub.Application) bool {
	op := app.Status.Operation
	return op != nil && (op.Phase == hub.Failed || op.Phase == hub.Errored) && op.Unblocked
}

// moved reports whether the project has changed since the last plan, or the
// cluster since the last refresh. The cluster counts if the newest operation
// was created before that change and failed.
func moved(f hub.Refresh) bool {
	st := f.Application.Status
	if f.Project != nil && f.Project.Version != st.PlannedProject {
		return true
	}
	op := st.Operation
	return op != nil && (op.Phase == hub.Failed || op.Phase == hub.Errored) && f.Cluster != nil && f.Cluster.UpdatedAt.After(op.CreatedAt) &&
		(st.RefreshedAt == nil || f.Cluster.UpdatedAt.After(*st.RefreshedAt))
}

func hasProblem(app hub.Application) bool {
	for _, c := range app.Status.Conditions {
		if c.Type == hub.ComparisonError || c.Type == hub.InvalidSpecError {
			return true
		}
	}
	return false
}

// skipped reports whether an application is to be left as it is. One that waits
// for manifests of its own is not: its operation must end.
func skipped(f hub.Refresh) bool {
	var cluster hub.Meta
	if f.Cluster != nil {
		cluster = f.Cluster.Meta
	}
	return hub.Skipped(f.Application.Meta, cluster) != "" && f.Application.Awaited() == nil
}

// refuse notes why a specification cannot be carried out. On a cluster that is
// disabled as a destination, automation stops as well.
func (r *round) refuse(j *job, err error) {
	if on := j.refresh.Cluster; on != nil && on.Admits(j.spec.Destination) != nil && j.asked == "" {
		r.skipped = append(r.skipped, j.refresh.Application.ID)
	}
	r.fail(j, hub.InvalidSpecError, err)
}

// isRequestedRefresh reports whether this is the refresh that the application's
// annotation requests: all of its repositories have been tried since it was
// set.
func isRequestedRefresh(f hub.Refresh) bool {
	if asked, _ := f.Application.AsksRefresh(); !asked {
		return false
	}
	for _, s := range f.Sources {
		fetched, failed := s.Repository.FetchedAt, s.Repository.ErrorAt
		if (fetched == nil || fetched.Before(f.Application.UpdatedAt)) && (failed == nil || failed.Before(f.Application.UpdatedAt)) {
			return false
		}
	}
	return true
}
