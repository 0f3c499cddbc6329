package api

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// SyncApplication starts a sync.
func (s *Server) SyncApplication(ctx context.Context, r gen.SyncApplicationRequestObject) (gen.SyncApplicationResponseObject, error) {
	b := r.Body
	ask := hub.SyncRequest{Revision: b.Revision, Reason: b.Reason, Options: hub.OperationOptions{
		Prune: b.Prune, DryRun: b.DryRun, SkipHooks: b.SkipHooks, Force: b.Force, SyncOptions: b.SyncOptions, Retry: retryOf(b),
	}}
	for _, o := range b.Resources {
		ask.Options.Resources = append(ask.Options.Resources, selector(o))
	}
	for _, i := range b.Infos {
		ask.Options.Infos = append(ask.Options.Infos, hub.Info(i))
	}
	op, err := s.Catalog.Sync(ctx, callerOf(ctx), r.Namespace, r.Name, ask)
	if err != nil {
		return nil, err
	}
	return gen.SyncApplication202JSONResponse{OperationAnswerJSONResponse: gen.OperationAnswerJSONResponse(presentOperation(op, false))}, nil
}

// retryOf is nil if nothing was asked.
func retryOf(b *gen.SyncRequest) *hub.Retry {
	r := b.Retry
	if r.Limit == 0 && r.Backoff.Duration == "" && r.Backoff.MaxDuration == "" && r.Backoff.Factor == 0 {
		return nil
	}
	out := &hub.Retry{Limit: r.Limit}
	if r.Backoff.Duration != "" || r.Backoff.MaxDuration != "" || r.Backoff.Factor != 0 {
		out.Backoff = &hub.Backoff{Duration: r.Backoff.Duration, MaxDuration: r.Backoff.MaxDuration}
		if r.Backoff.Factor != 0 {
			out.Backoff.Factor = &r.Backoff.Factor
		}
	}
	return out
}

// RollbackApplication starts a rollback.
func (s *Server) RollbackApplication(ctx context.Context, r gen.RollbackApplicationRequestObject) (gen.RollbackApplicationResponseObject, error) {
	op, err := s.Catalog.Rollback(ctx, callerOf(ctx), r.Namespace, r.Name, catalog.RollbackRequest{Entry: r.Body.Id, Prune: r.Body.Prune, Reason: r.Body.Reason})
	if err != nil {
		return nil, err
	}
	return gen.RollbackApplication202JSONResponse{OperationAnswerJSONResponse: gen.OperationAnswerJSONResponse(presentOperation(op, false))}, nil
}

// TerminateOperation ends what runs.
func (s *Server) TerminateOperation(ctx context.Context, r gen.TerminateOperationRequestObject) (gen.TerminateOperationResponseObject, error) {
	op, err := s.Catalog.Terminate(ctx, callerOf(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.TerminateOperation202JSONResponse{OperationAnswerJSONResponse: gen.OperationAnswerJSONResponse(presentOperation(op, false))}, nil
}

// RefreshApplication has sources and cluster looked at anew. The agent is
// asked if it is there; it compares by itself otherwise.
func (s *Server) RefreshApplication(ctx context.Context, r gen.RefreshApplicationRequestObject) (gen.RefreshApplicationResponseObject, error) {
	v, err := s.Catalog.Refresh(ctx, callerOf(ctx), r.Namespace, r.Name, r.Params.Hard)
	if err != nil {
		return nil, err
	}
	if v.On != nil {
		if err := s.Relay.Refresh(ctx, *v.On, v.ID); err != nil {
			s.Log.DebugContext(ctx, "agent not asked to compare", logkey.Cluster, v.On.ID, logkey.Error, err)
		}
	}
	return gen.RefreshApplication202Response{}, nil
}

// ListOperations answers the operations of an application.
func (s *Server) ListOperations(ctx context.Context, r gen.ListOperationsRequestObject) (gen.ListOperationsResponseObject, error) {
	limit := r.Params.Limit
	if limit == 0 {
		limit = 20
	}
	ops, err := s.Catalog.Operations(ctx, callerOf(ctx), r.Namespace, r.Name, limit)
	if err != nil {
		return nil, err
	}
	return gen.ListOperations200JSONResponse{Items: collect(ops, func(op hub.Operation) gen.Operation { return presentOperation(op, false) })}, nil
}

func presentDifference(d relay.Difference) gen.ObjectDiff {
	return gen.ObjectDiff{
		Group: d.Group, Version: d.Version, Kind: d.Kind, Namespace: d.Namespace, Name: d.Name, Status: gen.SyncStatusCode(d.Sync),
		Summary: d.Summary, Fields: d.Fields, Desired: d.Desired, Live: d.Live, Applied: d.Applied,
		NormalizedLive: d.Normal, Predicted: d.Predicted, Problem: d.Problem,
	}
}
