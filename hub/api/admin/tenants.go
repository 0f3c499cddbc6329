package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// PresentTenant is a tenant as the API shows it.
func PresentTenant(t hub.Tenant) apimodel.Tenant {
	return apimodel.Tenant{
		Id: string(t.ID), Name: t.Name, DisplayName: t.DisplayName, Suspended: t.Suspended, SuspendedReason: t.SuspendedReason,
		SuspendedAt: at(t.SuspendedAt), DeletedAt: at(t.DeletedAt), PurgeAt: at(t.PurgeAt), CreatedAt: t.CreatedAt.UTC(),
	}
}

func presentCounts(n hub.TenantCounts) apimodel.TenantCounts {
	return apimodel.TenantCounts{
		Applications: n.Applications, Projects: n.Projects, Clusters: n.Clusters, Repositories: n.Repositories,
		Users: n.Users, Tokens: n.Tokens, AuditRecords: n.AuditRecords,
	}
}

// UpdateTenant changes what a tenant is called for people.
func (h *Handlers) UpdateTenant(ctx context.Context, r gen.UpdateTenantRequestObject) (gen.UpdateTenantResponseObject, error) {
	t, err := h.catalog.UpdateTenant(ctx, h.caller(ctx), r.Name, r.Body.DisplayName)
	if err != nil {
		return nil, err
	}
	return gen.UpdateTenant200JSONResponse(PresentTenant(t)), nil
}

// GetTenantDeletion says what the deletion of a tenant would do.
func (h *Handlers) GetTenantDeletion(ctx context.Context, r gen.GetTenantDeletionRequestObject) (gen.GetTenantDeletionResponseObject, error) {
	d, err := h.catalog.PlanDeletion(ctx, h.caller(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetTenantDeletion200JSONResponse{Tenant: PresentTenant(d.Tenant), Counts: presentCounts(d.Counts), PurgeAt: d.PurgeAt.UTC(), Effects: d.Effects}, nil
}

// DeleteTenant begins the grace period of a deletion.
func (h *Handlers) DeleteTenant(ctx context.Context, r gen.DeleteTenantRequestObject) (gen.DeleteTenantResponseObject, error) {
	t, err := h.catalog.DeleteTenant(ctx, h.caller(ctx), r.Name, r.Params.Confirm)
	if err != nil {
		return nil, err
	}
	h.identity.ForgetTenant(t.ID)
	return gen.DeleteTenant202JSONResponse(PresentTenant(t)), nil
}

// RestoreTenant takes a deletion back.
func (h *Handlers) RestoreTenant(ctx context.Context, r gen.RestoreTenantRequestObject) (gen.RestoreTenantResponseObject, error) {
	t, err := h.catalog.RestoreTenant(ctx, h.caller(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.RestoreTenant200JSONResponse(PresentTenant(t)), nil
}

// SuspendTenant ends the service of a tenant until it is resumed.
func (h *Handlers) SuspendTenant(ctx context.Context, r gen.SuspendTenantRequestObject) (gen.SuspendTenantResponseObject, error) {
	reason := ""
	if r.Body != nil {
		reason = r.Body.Reason
	}
	t, err := h.catalog.SuspendTenant(ctx, h.caller(ctx), r.Name, reason)
	if err != nil {
		return nil, err
	}
	h.identity.ForgetTenant(t.ID)
	return gen.SuspendTenant200JSONResponse(PresentTenant(t)), nil
}

// ResumeTenant takes a suspension back.
func (h *Handlers) ResumeTenant(ctx context.Context, r gen.ResumeTenantRequestObject) (gen.ResumeTenantResponseObject, error) {
	t, err := h.catalog.ResumeTenant(ctx, h.caller(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.ResumeTenant200JSONResponse(PresentTenant(t)), nil
}

type tenantArchive struct{ download }

// VisitExportTenantResponse writes the archive.
func (a tenantArchive) VisitExportTenantResponse(w http.ResponseWriter) error { return a.send(w) }

// ExportTenant returns an archive of all that a tenant owns.
func (h *Handlers) ExportTenant(ctx context.Context, r gen.ExportTenantRequestObject) (gen.ExportTenantResponseObject, error) {
	e, err := h.catalog.ExportTenant(ctx, h.caller(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	name := e.Tenant.Name + "-" + time.Now().UTC().Format("20060102T150405Z") + ".zip"
	return tenantArchive{download{ctx, "application/zip", name, e.WriteTo}}, nil
}
