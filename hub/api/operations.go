package api

import (
	"context"
	"encoding/json"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// SyncApplication starts a sync.
func (s *Server) SyncApplication(ctx context.Context, r gen.SyncApplicationRequestObject) (gen.SyncApplicationResponseObject, error) {
	b := r.Body
	ask := hub.SyncRequest{Reason: b.Reason, Options: hub.OperationOptions{
		Prune: b.Prune, DryRun: b.DryRun, SkipHooks: b.SkipHooks, Force: b.Force, SyncOptions: b.SyncOptions, Retry: retryOf(b),
	}}
	switch {
	case b.Strategy.Apply != nil && b.Strategy.Hook != nil:
		return nil, fault.With(fault.New(fault.Invalid, "strategy has both apply and hook"), "", "keep one of them")
	case b.Strategy.Apply != nil:
		ask.Options.SkipHooks, ask.Options.Force = true, ask.Options.Force || b.Strategy.Apply.Force
	case b.Strategy.Hook != nil:
		ask.Options.Force = ask.Options.Force || b.Strategy.Hook.Force
	}
	var err error
	if ask.Override, err = overrideOf(b); err != nil {
		return nil, err
	}
	if len(b.Manifests) > 0 {
		if ask.Local, err = validation.ReadLocal(b.Manifests); err != nil {
			return nil, err
		}
	}
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

// overrideOf is nil if the target is to be applied.
func overrideOf(b *apimodel.SyncRequest) (*hub.Override, error) {
	o := hub.Override{Revision: b.Revision, Revisions: b.Revisions, Positions: b.SourcePositions}
	if b.Source.RepoURL != "" {
		source, err := sourceOf(b.Source)
		if err != nil {
			return nil, err
		}
		o.Source = &source
	}
	for _, given := range b.Sources {
		source, err := sourceOf(given)
		if err != nil {
			return nil, err
		}
		o.Sources = append(o.Sources, source)
	}
	if o.Revision == "" && len(o.Revisions) == 0 && o.Source == nil && len(o.Sources) == 0 {
		return nil, nil
	}
	return &o, nil
}

// sourceOf reads a source with all settings of renderers.
func sourceOf(given apimodel.Source) (hub.Source, error) {
	var out hub.Source
	text, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, fault.New(fault.Invalid, "a source is not readable: %w", err)
	}
	return out, nil
}

// ApproveOperation approves what an operation deletes.
func (s *Server) ApproveOperation(ctx context.Context, r gen.ApproveOperationRequestObject) (gen.ApproveOperationResponseObject, error) {
	op, err := s.Catalog.Approve(ctx, callerOf(ctx), r.Namespace, r.Name, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	return gen.ApproveOperation202JSONResponse{OperationAnswerJSONResponse: gen.OperationAnswerJSONResponse(presentOperation(op, false))}, nil
}

// AbandonApplication removes an application whose cluster no longer exists.
func (s *Server) AbandonApplication(ctx context.Context, r gen.AbandonApplicationRequestObject) (gen.AbandonApplicationResponseObject, error) {
	left, err := s.Catalog.Abandon(ctx, callerOf(ctx), r.Namespace, r.Name, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	return gen.AbandonApplication200JSONResponse{LeftBehind: collect(left, func(o hub.ObjectRef) apimodel.ResourceSelector {
		return apimodel.ResourceSelector{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
	})}, nil
}

// DeleteLiveResource deletes one live object.
func (s *Server) DeleteLiveResource(ctx context.Context, r gen.DeleteLiveResourceRequestObject) (gen.DeleteLiveResourceResponseObject, error) {
	b := r.Body
	ref := hub.ObjectRef{Group: b.Group, Version: b.Version, Kind: b.Kind, Namespace: b.Namespace, Name: b.Name}
	how := hub.ObjectDeletion{Force: b.Force, Propagation: string(b.Propagation)}
	v, err := s.Catalog.DeleteLive(ctx, callerOf(ctx), r.Namespace, r.Name, ref, how)
	if err != nil {
		return nil, err
	}
	if err := s.Relay.Delete(ctx, *v.On, v.ID, ref, how); err != nil {
		return nil, err
	}
	return gen.DeleteLiveResource204Response{}, nil
}

// retryOf is nil if nothing was asked.
func retryOf(b *apimodel.SyncRequest) *hub.Retry {
	r := b.Retry
	if r.Limit == 0 && r.Backoff.Duration == "" && r.Backoff.MaxDuration == "" && r.Backoff.Factor == 0 && !r.Refresh {
		return nil
	}
	out := &hub.Retry{Limit: r.Limit, Refresh: r.Refresh}
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
	op, err := s.Catalog.Rollback(ctx, callerOf(ctx), r.Namespace, r.Name, transact.RollbackRequest{
		Entry: r.Body.Id, Prune: r.Body.Prune, Hooks: r.Body.Hooks, DryRun: r.Body.DryRun, Reason: r.Body.Reason,
	})
	if err != nil {
		return nil, err
	}
	return gen.RollbackApplication202JSONResponse{OperationAnswerJSONResponse: gen.OperationAnswerJSONResponse(presentOperation(op, false))}, nil
}

// ResumeApplication ends the pause of an application.
func (s *Server) ResumeApplication(ctx context.Context, r gen.ResumeApplicationRequestObject) (gen.ResumeApplicationResponseObject, error) {
	v, err := s.Catalog.Resume(ctx, callerOf(ctx), r.Namespace, r.Name, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	return gen.ResumeApplication200JSONResponse{ApplicationAnswerJSONResponse: applicationAnswer(v)}, nil
}

// TerminateOperation ends what runs.
func (s *Server) TerminateOperation(ctx context.Context, r gen.TerminateOperationRequestObject) (gen.TerminateOperationResponseObject, error) {
	op, err := s.Catalog.Terminate(ctx, callerOf(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.TerminateOperation202JSONResponse{OperationAnswerJSONResponse: gen.OperationAnswerJSONResponse(presentOperation(op, false))}, nil
}

// RefreshApplication refreshes sources and comparison. The agent is called if
// it is connected; otherwise it compares when it reconnects.
func (s *Server) RefreshApplication(ctx context.Context, r gen.RefreshApplicationRequestObject) (gen.RefreshApplicationResponseObject, error) {
	if _, err := s.askRefresh(ctx, r.Namespace, r.Name, r.Params.Hard); err != nil {
		return nil, err
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
	return gen.ListOperations200JSONResponse{Items: collect(ops, func(op hub.Operation) apimodel.Operation { return presentOperation(op, false) })}, nil
}

func presentDifference(d relay.Difference) apimodel.ObjectDiff {
	return apimodel.ObjectDiff{
		Group: d.Group, Version: d.Version, Kind: d.Kind, Namespace: d.Namespace, Name: d.Name, Status: apimodel.SyncStatusCode(d.Sync),
		Summary: d.Summary, Fields: d.Fields, Desired: d.Desired, Live: d.Live, Applied: d.Applied,
		NormalizedLive: d.Normal, Predicted: d.Predicted, Problem: d.Problem,
	}
}
