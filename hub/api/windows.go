package api

import (
	"context"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// GetApplicationWindows answers how the sync windows of an application stand.
func (s *Server) GetApplicationWindows(ctx context.Context, r gen.GetApplicationWindowsRequestObject) (gen.GetApplicationWindowsResponseObject, error) {
	w, err := s.Catalog.Windows(ctx, callerOf(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetApplicationWindows200JSONResponse{
		CanSync: w.CanSync, ActiveWindows: collect(activeOnly(w.Assigned), presentWindow), AssignedWindows: collect(w.Assigned, presentWindow),
		Automated: presentDecision(w.Auto), Manual: presentDecision(w.Manual), SelfHeal: presentDecision(w.Heal), At: w.At.UTC(),
	}, nil
}

// GetProjectWindows answers how the sync windows of a project stand.
func (s *Server) GetProjectWindows(ctx context.Context, r gen.GetProjectWindowsRequestObject) (gen.GetProjectWindowsResponseObject, error) {
	all, err := s.Catalog.ProjectWindows(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetProjectWindows200JSONResponse{Windows: collect(activeOnly(all), presentWindow), All: collect(all, presentWindow)}, nil
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
