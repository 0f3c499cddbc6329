package admin

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/platform"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func presentUse(u platform.QuotaUse) apimodel.QuotaUsage {
	out := apimodel.QuotaUsage{Tenant: u.Tenant.Name}
	for _, name := range hub.AllQuotas() {
		_, own := u.Own[name]
		used, counted := u.Usage.Of(name)
		item := apimodel.QuotaItem{Quota: string(name), Limit: u.Limits[name], Own: own, Used: used, Rate: !counted}
		item.Reached = counted && item.Limit > 0 && used >= item.Limit
		if name == hub.QuotaStorage {
			item.MeasuredAt, item.Reached = at(u.Usage.StorageAt), item.Limit > 0 && used > item.Limit
		}
		out.Items = append(out.Items, item)
	}
	return out
}

// GetTenantUsage answers what a tenant may have and has.
func (h *Handlers) GetTenantUsage(ctx context.Context, r gen.GetTenantUsageRequestObject) (gen.GetTenantUsageResponseObject, error) {
	u, err := h.catalog.QuotaUse(ctx, h.caller(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetTenantUsage200JSONResponse(presentUse(u)), nil
}

// GetUsage answers what the caller's tenant may have and has.
func (h *Handlers) GetUsage(ctx context.Context, _ gen.GetUsageRequestObject) (gen.GetUsageResponseObject, error) {
	u, err := h.catalog.OwnQuotaUse(ctx, h.caller(ctx))
	if err != nil {
		return nil, err
	}
	return gen.GetUsage200JSONResponse(presentUse(u)), nil
}

// SetTenantQuotas sets quotas of a tenant.
func (h *Handlers) SetTenantQuotas(ctx context.Context, r gen.SetTenantQuotasRequestObject) (gen.SetTenantQuotasResponseObject, error) {
	put, drop := hub.Quotas{}, make([]hub.Quota, 0, len(r.Body.Reset))
	for name, most := range r.Body.Quotas {
		put[hub.Quota(name)] = most
	}
	for _, name := range r.Body.Reset {
		drop = append(drop, hub.Quota(name))
	}
	u, err := h.catalog.SetQuotas(ctx, h.caller(ctx), r.Name, put, drop)
	if err != nil {
		return nil, err
	}
	if h.quotas != nil {
		h.quotas.Forget(u.Tenant.ID)
	}
	return gen.SetTenantQuotas200JSONResponse(presentUse(u)), nil
}
