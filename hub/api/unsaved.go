package api

import (
	"context"
	"encoding/json"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// PreviewApplication answers what an application would be if it were written.
// Nothing is stored, in the hub or in the cluster.
func (s *Server) PreviewApplication(ctx context.Context, r gen.PreviewApplicationRequestObject) (gen.PreviewApplicationResponseObject, error) {
	a := *r.Body
	if err := checkType(a.ApiVersion, a.Kind, validation.KindApplication); err != nil {
		return nil, err
	}
	by := callerOf(ctx)
	u, err := s.Catalog.Unsaved(ctx, by, hub.Application{Meta: given(a.Metadata), Spec: a.Spec})
	if err != nil {
		return nil, err
	}
	made, err := s.Previews.PreviewUnsaved(ctx, by.Tenant, u.Refresh)
	if err != nil {
		return nil, fault.With(err, "application "+a.Metadata.Name, "")
	}
	var cluster hub.ClusterID
	out := apimodel.ApplicationPreview{Exists: u.Exists, Revisions: made.Revisions, Warnings: append(u.Warnings, made.Warnings...), Uncompared: u.Uncompared}
	if on := u.Refresh.Cluster; on != nil {
		cluster, out.Cluster = on.ID, on.Name
	}
	objects, err := s.Catalog.Masked(ctx, by, cluster, made.Bodies)
	if err != nil {
		return nil, err
	}
	out.Objects = collect(objects, func(o json.RawMessage) apimodel.AnyObject { return o })
	if u.On == nil {
		return gen.PreviewApplication200JSONResponse(out), nil
	}
	found, err := s.Relay.Preview(ctx, *u.On, u.Refresh.Application.ID, made)
	switch {
	case err != nil && (fault.KindOf(err) == fault.Offline || fault.KindOf(err) == fault.Missing):
		out.Uncompared = fault.Sentence(err) // what was rendered is worth showing
	case err != nil:
		return nil, err
	default:
		out.Items = collect(found, presentDifference)
	}
	return gen.PreviewApplication200JSONResponse(out), nil
}
