package admin

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
)

// GetClusterDeletion says what the deletion of a cluster would do.
func (h *Handlers) GetClusterDeletion(ctx context.Context, r gen.GetClusterDeletionRequestObject) (gen.GetClusterDeletionResponseObject, error) {
	p, err := h.catalog.PlanClusterDeletion(ctx, h.caller(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetClusterDeletion200JSONResponse{Applications: p.Applications, Effects: p.Effects}, nil
}

// GetRepositoryDeletion says what the deletion of a repository would do.
func (h *Handlers) GetRepositoryDeletion(ctx context.Context, r gen.GetRepositoryDeletionRequestObject) (gen.GetRepositoryDeletionResponseObject, error) {
	p, err := h.catalog.PlanRepositoryDeletion(ctx, h.caller(ctx), hub.RepositoryID(r.Id))
	if err != nil {
		return nil, err
	}
	return gen.GetRepositoryDeletion200JSONResponse{Applications: p.Applications, Effects: p.Effects}, nil
}
