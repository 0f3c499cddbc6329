package platform

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
)

// ActionQuota is the right to set a tenant's quotas.
const ActionQuota = "set-quota"

// A QuotaUse is what a tenant may have and has.
type QuotaUse struct {
	Tenant hub.Tenant
	Limits hub.Quotas // that count: own ones before the hub's
	Own    hub.Quotas // that a platform admin has set
	Usage  hub.Usage
}

// QuotaUse returns what a tenant may have and has. Platform admins may ask.
func (p *Platform) QuotaUse(ctx context.Context, by hub.Caller, name string) (QuotaUse, error) {
	var t hub.Tenant
	err := p.transact.Read(ctx, by, func(ctx context.Context, r *transact.Reader) error {
		if err := r.May(access.Tenants, access.Get); err != nil {
			return err
		}
		var err error
		t, err = p.directory.TenantByName(ctx, name)
		return transact.Hide(err, access.Tenants, validation.Shorten(name))
	})
	if err != nil {
		return QuotaUse{}, err
	}
	return p.use(ctx, t)
}

// OwnQuotaUse is QuotaUse of the caller's tenant. Whoever may read its settings
// may ask.
func (p *Platform) OwnQuotaUse(ctx context.Context, by hub.Caller) (QuotaUse, error) {
	err := p.transact.Read(ctx, by, func(_ context.Context, r *transact.Reader) error { return r.May(access.Settings, access.Get) })
	if err != nil {
		return QuotaUse{}, err
	}
	return p.use(ctx, hub.Tenant{ID: by.Tenant, Name: by.TenantName})
}

func (p *Platform) use(ctx context.Context, t hub.Tenant) (QuotaUse, error) {
	out := QuotaUse{Tenant: t}
	err := p.transact.Store.ReadTenant(ctx, t.ID, func(ctx context.Context, tx transact.Tx) (err error) {
		if out.Own, err = tx.Quotas(ctx); err != nil {
			return err
		}
		out.Usage, err = tx.Usage(ctx)
		return err
	})
	out.Limits = out.Own.Over(p.defaults)
	return out, err
}

// SetQuotas sets limits of a tenant; 0 means none, whatever the hub's is. Those
// in drop become the hub's again. What is there stays, also beyond a limit.
func (p *Platform) SetQuotas(ctx context.Context, by hub.Caller, name string, put hub.Quotas, drop []hub.Quota) (QuotaUse, error) {
	all := hub.Quotas{}
	for _, k := range drop {
		all[k] = 0
	}
	for k, v := range put {
		all[k] = v
	}
	if err := all.Check(); err != nil {
		return QuotaUse{}, err
	}
	t, err := p.carryOut(ctx, by, name, ActionQuota, func(ctx context.Context, t hub.Tenant, _ time.Time) (act, error) {
		old, err := p.use(ctx, t)
		if err != nil {
			return act{}, err
		}
		after := hub.Quotas{}
		for k, v := range old.Own {
			after[k] = v
		}
		for _, k := range drop {
			delete(after, k)
		}
		for k, v := range put {
			after[k] = v
		}
		return act{action: ActionQuota, before: old.Own, after: after, do: func(ctx context.Context, t hub.Tenant, _ time.Time) error {
			return p.transact.Store.InTenant(ctx, t.ID, func(ctx context.Context, tx transact.Tx) error { return tx.PutQuotas(ctx, put, drop) })
		}}, nil
	})
	if err != nil {
		return QuotaUse{}, err
	}
	return p.use(ctx, t)
}
