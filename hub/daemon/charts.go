package daemon

import (
	"context"
	"net/url"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

// chartRepositories tells the client of chart repositories what tenants have
// registered.
type chartRepositories struct{ db *store.DB }

// ChartAccess returns what opens a chart repository for applications of a project.
func (c chartRepositories) ChartAccess(ctx context.Context, tenant hub.TenantID, project, address string) (out charts.Access, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return out, fault.New(fault.Invalid, "the address of the chart repository cannot be parsed")
	}
	err = c.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		values, err := t.SettingValues(ctx, hub.CertificatesMap, []string{u.Hostname()})
		if err != nil {
			return err
		}
		out.Authorities = values[u.Hostname()]
		out.Credential, out.Insecure, err = t.AccessTo(ctx, address, project)
		return err
	})
	return out, err
}

// ChartRepository returns the address of the chart repository that is registered
// under a name, for a project before one for all.
func (c chartRepositories) ChartRepository(ctx context.Context, tenant hub.TenantID, project, name string) (address string, err error) {
	var all []hub.Repository
	err = c.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		all, err = t.Repositories(ctx)
		return err
	})
	for _, r := range all {
		usable := r.Registered && r.Name == name && r.Type.Charts() && (r.Project == "" || r.Project == project)
		if usable && (address == "" || r.Project != "") {
			address = r.URL
		}
	}
	if err == nil && address == "" {
		err = fault.New(fault.Missing, "there is no chart repository %q", name)
	}
	return address, err
}
