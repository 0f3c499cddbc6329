package render

import (
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// passes says whether the same try may go well later: the cause lies neither
// in the sources nor in the specification.
func passes(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Offline || kind == fault.Internal
}

// waits says whether the application has a target that automation should
// take up though no input changed: after a change of policy or of the project,
// for instance.
func waits(f hub.Refresh, spec hub.ApplicationSpec, target hub.SnapshotID) bool {
	app := f.Application
	return app.Status.Hold != "" || app.Follows(spec) && app.Status.Accepted != target && app.Pin == nil ||
		app.Status.PlannedGeneration != app.Generation || moved(f)
}

// moved says whether the project is another one than the application was
// planned for, or what the cluster serves was changed since the application
// was looked at, after its newest operation had begun and failed.
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
