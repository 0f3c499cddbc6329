package api

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// GetDetailedProject answers a project with what counts besides it.
func (s *Server) GetDetailedProject(ctx context.Context, r gen.GetDetailedProjectRequestObject) (gen.GetDetailedProjectResponseObject, error) {
	v, err := s.Catalog.DetailedProject(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	out := apimodel.DetailedProject{
		Project: presentProject(v.Project), Problem: v.Broken, GlobalProjects: collect(v.Globals, presentProject),
		Repositories: collect(v.Repositories, presentRepository),
		Clusters:     collect(v.Clusters, func(c hub.Cluster) apimodel.Cluster { return presentCluster(c, nil) }),
	}
	if out.EffectiveSpec, err = v.EffectiveJSON(); err != nil {
		return nil, err
	}
	return gen.GetDetailedProject200JSONResponse(out), nil
}

// GetGlobalProjects answers the projects that a project inherits from.
func (s *Server) GetGlobalProjects(ctx context.Context, r gen.GetGlobalProjectsRequestObject) (gen.GetGlobalProjectsResponseObject, error) {
	v, err := s.Catalog.DetailedProject(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetGlobalProjects200JSONResponse{Items: collect(v.Globals, presentProject)}, nil
}

// CheckImpersonation answers what the service account of an application lacks,
// from the cluster's agent.
func (s *Server) CheckImpersonation(ctx context.Context, r gen.CheckImpersonationRequestObject) (gen.CheckImpersonationResponseObject, error) {
	v, err := s.Catalog.LiveTarget(ctx, callerOf(ctx), r.Namespace, r.Name, nil)
	if err != nil {
		return nil, err
	}
	report, err := s.Relay.CheckAccess(ctx, *v.On, v.ID)
	if err != nil {
		return nil, err
	}
	return gen.CheckImpersonation200JSONResponse{
		ServiceAccount: report.ServiceAccount, Enabled: report.Enabled, Enforced: report.Enforced, Objects: int64(report.Objects), Incomplete: report.Incomplete,
		Missing: collect(report.Missing, func(m hub.MissingRight) apimodel.MissingRight {
			return apimodel.MissingRight{Verb: m.Verb, Group: m.Group, Resource: m.Resource, Namespace: m.Namespace, Name: m.Name, Fix: m.Fix}
		}),
	}, nil
}
