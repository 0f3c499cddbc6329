package clients

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// GetApplicationWindows answers how the sync windows of an application stand.
func (a *Answers) GetApplicationWindows(ctx context.Context, r gen.GetApplicationWindowsRequestObject) (gen.GetApplicationWindowsResponseObject, error) {
	w, err := a.catalog.Windows(ctx, a.caller(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetApplicationWindows200JSONResponse{
		CanSync: w.CanSync, ActiveWindows: presentWindows(activeOnly(w.Assigned)), AssignedWindows: presentWindows(w.Assigned),
		Automated: presentDecision(w.Auto), Manual: presentDecision(w.Manual), SelfHeal: presentDecision(w.Heal), At: w.At.UTC(),
	}, nil
}

// GetProjectWindows answers how the sync windows of a project stand.
func (a *Answers) GetProjectWindows(ctx context.Context, r gen.GetProjectWindowsRequestObject) (gen.GetProjectWindowsResponseObject, error) {
	all, err := a.catalog.ProjectWindows(ctx, a.caller(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetProjectWindows200JSONResponse{Windows: presentWindows(activeOnly(all)), All: presentWindows(all)}, nil
}

func activeOnly(in []syncwindow.State) []syncwindow.State {
	var out []syncwindow.State
	for _, w := range in {
		if w.Active {
			out = append(out, w)
		}
	}
	return out
}

func presentWindow(w syncwindow.State) apimodel.SyncWindow {
	return apimodel.SyncWindow{
		Kind: w.Kind, Schedule: w.Schedule, Duration: w.Duration, TimeZone: w.TimeZone, Description: w.Description,
		Applications: w.Applications, Namespaces: w.Namespaces, Clusters: w.Clusters,
		ManualSync: w.ManualSync, AndOperator: w.AndOperator, SyncOverrun: w.SyncOverrun, SelfHeal: w.SelfHeal,
		Active: w.Active, Opens: at(w.Opens), Closes: at(w.Closes), Error: w.Error,
	}
}

func presentDecision(d catalog.WindowDecision) apimodel.WindowDecision {
	return apimodel.WindowDecision{Allowed: d.Allowed, Reason: d.Reason, NextChange: at(d.NextChange)}
}

func presentWindows(all []syncwindow.State) []apimodel.SyncWindow {
	out := make([]apimodel.SyncWindow, len(all))
	for i, w := range all {
		out[i] = presentWindow(w)
	}
	return out
}

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
