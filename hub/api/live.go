package api

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// GetApplicationEvents answers the Kubernetes events of objects.
func (s *Server) GetApplicationEvents(ctx context.Context, r gen.GetApplicationEventsRequestObject) (gen.GetApplicationEventsResponseObject, error) {
	p := r.Params
	of := hub.ObjectRef{Group: p.Group, Kind: p.Kind, Namespace: p.ResourceNamespace, Name: p.ResourceName}
	if (of.Kind == "") != (of.Name == "") {
		return nil, fault.New(fault.Invalid, "kind and resourceName belong together")
	}
	v, namespaces, err := s.Catalog.EventTarget(ctx, callerOf(ctx), r.Namespace, r.Name, of)
	if err != nil {
		return nil, err
	}
	events, err := s.Relay.Events(ctx, *v.On, v.ID, of, namespaces)
	if err != nil {
		return nil, err
	}
	return gen.GetApplicationEvents200JSONResponse{Items: collect(events, func(e hub.Event) apimodel.KubernetesEvent {
		return apimodel.KubernetesEvent{
			Type: e.Type, Reason: e.Reason, Message: e.Message, Count: int(e.Count), FirstSeen: e.First.UTC(), LastSeen: e.Last.UTC(), Source: e.Source,
			Group: e.Group, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name,
		}
	})}, nil
}

// PatchLiveResource changes one live object.
func (s *Server) PatchLiveResource(ctx context.Context, r gen.PatchLiveResourceRequestObject) (gen.PatchLiveResourceResponseObject, error) {
	b := r.Body
	ref := hub.ObjectRef{Group: b.Group, Version: b.Version, Kind: b.Kind, Namespace: b.Namespace, Name: b.Name}
	patch := hub.ObjectPatch{Type: string(b.PatchType), Patch: b.Patch, DryRun: b.DryRun}
	v, err := s.Catalog.PatchLive(ctx, callerOf(ctx), r.Namespace, r.Name, ref, patch)
	if err != nil {
		return nil, err
	}
	live, err := s.Relay.Patch(ctx, *v.On, v.ID, ref, patch)
	if err != nil {
		return nil, err
	}
	return gen.PatchLiveResource200JSONResponse{Live: live}, nil
}
