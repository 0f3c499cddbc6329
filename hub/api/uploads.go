package api

import (
	"context"
	"encoding/json"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// DiffUpload answers what files of the caller would change (REPO-12). The
// rights are checked before any of them is read.
func (s *Server) DiffUpload(ctx context.Context, r gen.DiffUploadRequestObject) (gen.DiffUploadResponseObject, error) {
	v, err := s.Catalog.UploadTarget(ctx, callerOf(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	made, err := s.Previews.PreviewUpload(ctx, callerOf(ctx).Tenant, v.ID, hub.Upload{Position: r.Params.SourcePosition, Archive: r.Body})
	if err != nil {
		return nil, fault.With(err, "application "+r.Name, "")
	}
	found, err := s.Relay.Preview(ctx, *v.On, v.ID, made)
	if err != nil {
		return nil, err
	}
	return gen.DiffUpload200JSONResponse{
		Items: collect(found, presentDifference), Paused: presentPaused(v.Application), Revisions: made.Revisions, Warnings: made.Warnings,
	}, nil
}

// RenderUpload answers the objects that files of the caller make.
func (s *Server) RenderUpload(ctx context.Context, r gen.RenderUploadRequestObject) (gen.RenderUploadResponseObject, error) {
	by := callerOf(ctx)
	m, err := s.Catalog.Uploaded(ctx, by, r.Namespace, r.Name, func(ctx context.Context, app hub.ApplicationID) (hub.Preview, error) {
		return s.Previews.PreviewUpload(ctx, by.Tenant, app, hub.Upload{Position: r.Params.SourcePosition, Archive: r.Body})
	})
	if err != nil {
		return nil, err
	}
	return gen.RenderUpload200JSONResponse{
		Revision: m.Revision, Items: collect(m.Objects, func(o json.RawMessage) apimodel.AnyObject { return o }), Paused: presentPaused(m.Application),
	}, nil
}
