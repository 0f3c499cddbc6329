package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/quota"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	// tenantsEvery is how often each replica follows which tenants are
	// suspended or gone. Their agents are disconnected within that time.
	tenantsEvery = 5 * time.Second
	// purgesEvery is how often tenants are sought whose grace period is over.
	purgesEvery = time.Minute
)

// addTenants follows the life of tenants: each replica disconnects the agents
// of suspended ones and forgets those that are gone, and any of them purges what
// has been deleted.
func (p *parts) addTenants(context.Context) error {
	failed := func(what string) func(context.Context) func(error) {
		return func(ctx context.Context) func(error) {
			return func(err error) {
				p.log.WarnContext(ctx, "tenants could not be followed; the next round tries again", logkey.Where, what, logkey.Error, err)
			}
		}
	}
	known := map[hub.TenantID]bool{}
	p.add("tenants", func(ctx context.Context) error {
		return lifecycle.Every(ctx, p.clock, tenantsEvery, 0.1, failed("states")(ctx), func(ctx context.Context) error { return p.followTenants(ctx, known) })
	})
	p.add("purges", func(ctx context.Context) error {
		return lifecycle.Every(ctx, p.clock, purgesEvery, 0.2, failed("purges")(ctx), p.purge)
	})
	return nil
}

// addRates makes the limits of tenants' rates, which the replicas share.
func (p *parts) addRates(context.Context) error {
	load := func(ctx context.Context, tenant hub.TenantID) (l quota.Limits, err error) {
		err = p.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
			own, err := t.Quotas(ctx)
			if err != nil {
				return err
			}
			l.Quotas = own.Over(p.cfg.Tenants.Quotas)
			if l.Quotas[hub.QuotaStorage] == 0 {
				return nil
			}
			l.Storage, err = t.Storage(ctx)
			return err
		})
		return l, err
	}
	p.rates = quota.New(load, func() int { return len(p.replicas.Among()) }, p.clock, p.log)
	return nil
}

// followTenants compares the tenants with those that this replica knows.
func (p *parts) followTenants(ctx context.Context, known map[hub.TenantID]bool) error {
	// Mirrors are listed first: one that is made meanwhile is of a tenant that
	// the directory has by then.
	mirrored, err := p.mirrors.Tenants()
	if err != nil {
		return err
	}
	for _, kind := range p.archives {
		stored, err := kind.Tenants()
		if err != nil {
			return err
		}
		mirrored = append(mirrored, stored...)
	}
	states, err := p.db.System().TenantStates(ctx)
	if err != nil {
		return err
	}
	now := make(map[hub.TenantID]bool, len(states))
	suspended := map[hub.TenantID]bool{}
	for _, s := range states {
		now[s.ID], known[s.ID] = true, true
		if s.Suspended {
			suspended[s.ID] = true
		}
	}
	p.fleet.Part(func(t hub.TenantID) bool { return suspended[t] || !now[t] }, errTenantSuspended())
	for _, t := range mirrored {
		known[t] = true
	}
	var errs []error
	for t := range known {
		if now[t] {
			continue
		}
		if err := p.forget(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("forget tenant %s: %w", t, err))
			continue
		}
		delete(known, t)
	}
	return errors.Join(errs...)
}

func errTenantSuspended() error {
	return fault.With(fault.New(fault.Denied, "this cluster may not connect for now"), "", "ask an administrator of the hub")
}

// forget removes what this replica has of a tenant that is gone: mirrors on its
// disk, keys, rights and cached rows in its memory.
func (p *parts) forget(ctx context.Context, t hub.TenantID) error {
	p.db.Forget(t)
	p.rights.Forget(t)
	p.rates.Forget(t)
	p.charts.Forget(t)
	p.files.Forget(t)
	if err := p.mirrors.RemoveTenant(ctx, t); err != nil {
		return err
	}
	for _, kind := range p.archives {
		if err := kind.RemoveTenant(ctx, t); err != nil {
			return err
		}
	}
	p.log.InfoContext(ctx, "a tenant is gone, and what this replica had of it", logkey.Tenant, t)
	return nil
}

// purge removes the tenants whose grace period is over. Replicas may do it side
// by side.
func (p *parts) purge(ctx context.Context) error {
	system := p.db.System()
	begun, err := system.BeginPurges(ctx, p.clock.Now())
	for _, t := range begun {
		p.log.WarnContext(ctx, "the grace period of a deleted tenant is over: everything of it is removed", logkey.Tenant, t.ID, logkey.Name, t.Name)
		if noted := p.notePurge(ctx, t); noted != nil {
			p.log.ErrorContext(ctx, "the purge of a tenant is not in the audit log", logkey.Tenant, t.ID, logkey.Error, noted)
		}
	}
	if err != nil {
		return err
	}
	left, err := system.Purges(ctx, p.clock.Now())
	errs := []error{err}
	for _, id := range left {
		err := p.inParts(ctx, func() (bool, error) { return system.PurgeTenant(ctx, id) })
		if fault.KindOf(err) == fault.Missing {
			err = nil // another replica was faster
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// notePurge records the purge in the log of the platform's admins.
func (p *parts) notePurge(ctx context.Context, t hub.Tenant) error {
	home, err := p.db.System().TenantByName(ctx, defaultTenant)
	if err != nil {
		return err
	}
	record := audit.Record(hub.Caller{Tenant: home.ID, Username: "(hub)", Via: "system"}, audit.Entry{
		Action: "purge", Resource: "tenants", Object: t.Name, Result: audit.Allowed, Reason: "the grace period of its deletion is over",
		Before: map[string]any{"id": t.ID, "deletedAt": t.DeletedAt},
	}, p.clock.Now())
	return p.db.InTenant(ctx, home.ID, func(ctx context.Context, tx *store.Tenant) error { return tx.AppendAudit(ctx, record) })
}
