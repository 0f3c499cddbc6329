package tenancy

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// AnonymousTenant returns the tenant of a name if it lets people read who have not
// signed in (RBAC-17). The error is fault.Missing in all other cases, so that an
// answer says nothing about the tenants that there are.
func (c *Tenancy) AnonymousTenant(ctx context.Context, name string) (hub.Tenant, error) {
	return c.openTenant(ctx, name, settings.AnonymousKey)
}

// BadgeTenant returns the tenant of a name if it lets everybody see badges of its
// applications (UI-24). The error is fault.Missing in all other cases.
func (c *Tenancy) BadgeTenant(ctx context.Context, name string) (hub.Tenant, error) {
	return c.openTenant(ctx, name, settings.BadgeKey)
}

// openTenant returns the tenant of a name if a switch of its argocd-cm is on.
func (c *Tenancy) openTenant(ctx context.Context, name, key string) (hub.Tenant, error) {
	none := fault.New(fault.Missing, "nobody may read here without a sign-in")
	tenant, err := c.directory.TenantByName(ctx, name)
	if fault.KindOf(err) == fault.Missing || err == nil && tenant.Suspended {
		return hub.Tenant{}, none
	}
	if err != nil {
		return hub.Tenant{}, err
	}
	err = c.transact.Store.ReadTenant(ctx, tenant.ID, func(ctx context.Context, tx transact.Tx) error {
		values, err := tx.SettingValues(ctx, hub.SettingsMap, []string{key})
		if err == nil && !settings.On(values, key) {
			err = none
		}
		return err
	})
	return tenant, err
}
