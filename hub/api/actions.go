package api

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// recordFor limits the time for recording the result of an action.
const recordFor = 10 * time.Second

// ListResourceActions answers what a live object offers.
func (s *Server) ListResourceActions(ctx context.Context, r gen.ListResourceActionsRequestObject) (gen.ListResourceActionsResponseObject, error) {
	p := r.Params
	ref := hub.ObjectRef{Group: p.Group, Version: p.Version, Kind: p.Kind, Namespace: p.ResourceNamespace, Name: p.ResourceName}
	on, may, err := s.Catalog.Actions(ctx, callerOf(ctx), r.Namespace, r.Name, ref)
	if err != nil {
		return nil, err
	}
	all, err := s.actionsOf(ctx, on, ref)
	if err != nil {
		return nil, err
	}
	return gen.ListResourceActions200JSONResponse{Items: collect(all, func(a hub.Action) apimodel.ResourceAction {
		return apimodel.ResourceAction{
			Name: a.Name, DisplayName: a.DisplayName, IconClass: a.IconClass, Disabled: a.Disabled, Permitted: may(a.Name),
			Params: collect(a.Params, func(p hub.ActionParam) apimodel.ResourceActionParam {
				return apimodel.ResourceActionParam{Name: p.Name, Value: p.Value, Type: p.Type, Default: p.Default}
			}),
		}
	})}, nil
}

// RunResourceAction runs an action in the agent of the cluster. It continues if
// the caller disconnects.
func (s *Server) RunResourceAction(ctx context.Context, r gen.RunResourceActionRequestObject) (gen.RunResourceActionResponseObject, error) {
	b := r.Body
	ref := hub.ObjectRef{Group: b.Group, Version: b.Version, Kind: b.Kind, Namespace: b.ResourceNamespace, Name: b.ResourceName}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	a := hub.ActionRequest{ID: id.String(), Name: b.Action, Params: map[string]string{}}
	for _, p := range b.ResourceActionParameters {
		if _, twice := a.Params[p.Name]; twice {
			return nil, fault.New(fault.Invalid, "parameter %q is there twice", p.Name)
		}
		a.Params[p.Name] = p.Value
	}
	by := callerOf(ctx)
	on, a, err := s.Catalog.BeginAction(ctx, by, r.Namespace, r.Name, ref, a)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	changes, failed := s.act(ctx, on, ref, a)
	recording, cancel := context.WithTimeout(ctx, recordFor)
	defer cancel()
	if err := s.Catalog.EndAction(recording, by, on, ref, a, changes, failed); err != nil {
		s.Log.ErrorContext(ctx, "the result of an action is not in the audit log", logkey.Action, a.ID, logkey.Error, err)
	}
	if failed != nil {
		return nil, failed
	}
	return gen.RunResourceAction200JSONResponse{Changes: collect(changes, func(c hub.ActionChange) apimodel.ResourceActionChange {
		return apimodel.ResourceActionChange{Created: c.Created, Group: c.Group, Version: c.Version, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
	})}, nil
}
