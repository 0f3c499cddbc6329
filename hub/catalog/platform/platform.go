// Package platform is what platform admins do with whole tenants: suspend and
// resume, delete and restore, export, quotas. It changes nothing inside of a
// tenant. hub/catalog offers its methods beside its own.
//
// What always holds: every act, and every refused one, is in the audit log of
// the admin's tenant, and an act that touched a tenant is in that tenant's log
// too; the tenant in which platform admins live cannot be suspended or deleted.
package platform

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// DefaultGrace is how long a deleted tenant can be restored.
const DefaultGrace = 7 * 24 * time.Hour

// homeTenant is the tenant of the platform's admins.
const homeTenant = "default"

// Directory is the list of tenants.
type Directory interface {
	Life
	TenantByName(ctx context.Context, name string) (hub.Tenant, error)
	UpdateTenant(ctx context.Context, id hub.TenantID, displayName string) error
}

// Life is what begins and ends a tenant's service. The error of each is
// fault.Missing if the tenant is in no state for it.
type Life interface {
	SuspendTenant(ctx context.Context, id hub.TenantID, reason string, at time.Time) error
	SetSuspended(ctx context.Context, id hub.TenantID, suspended bool) error
	DeleteTenant(ctx context.Context, id hub.TenantID, at, purge time.Time) error
	RestoreTenant(ctx context.Context, id hub.TenantID, at time.Time) error
}

// Platform is for the platform's admins. Many goroutines may use it.
type Platform struct {
	transact  *transact.Service
	directory Directory
	grace     time.Duration
	defaults  hub.Quotas
}

// New makes it. A grace of zero means DefaultGrace. The quotas are those of
// tenants without own ones.
func New(s *transact.Service, directory Directory, grace time.Duration, quotas hub.Quotas) *Platform {
	if grace == 0 {
		grace = DefaultGrace
	}
	return &Platform{transact: s, directory: directory, grace: grace, defaults: quotas}
}

// An act is what is done with a tenant, and what its records say.
type act struct {
	action        string
	reason        string
	before, after any
	do            func(ctx context.Context, t hub.Tenant, now time.Time) error
}

// carryOut checks the right, writes the records of both tenants, and then does
// what check has decided. A tenant is no row of another tenant, so a failure
// gets a record of its own.
func (p *Platform) carryOut(ctx context.Context, by hub.Caller, name, action string, check func(ctx context.Context, t hub.Tenant, now time.Time) (act, error)) (hub.Tenant, error) {
	var t hub.Tenant
	var a act
	var now time.Time
	err := p.transact.Write(ctx, by, func(ctx context.Context, r *transact.Reader, ch *transact.Changes) error {
		if err := r.Need(access.Tenants, action, name); err != nil {
			return err
		}
		var err error
		if t, err = p.directory.TenantByName(ctx, name); err != nil {
			return transact.Hide(err, access.Tenants, validation.Shorten(name))
		}
		now = ch.Now
		if (action == access.Delete || action == ActionExport) && !by.Fresh(now) {
			return r.Stale(access.Tenants, action, t.Name)
		}
		if a, err = check(ctx, t, now); err != nil {
			return err
		}
		ch.Note(a.action, access.Tenants, t.Name, a.reason, a.before, a.after)
		return nil
	})
	if err != nil {
		return t, err
	}
	return p.finish(ctx, by, t, a, now)
}

// finish records an act in the log of the tenant that it touches, and does it.
func (p *Platform) finish(ctx context.Context, by hub.Caller, t hub.Tenant, a act, now time.Time) (hub.Tenant, error) {
	entry := audit.Entry{Action: a.action, Resource: access.Tenants, Object: t.Name, Result: audit.Allowed, Reason: a.reason, Before: a.before, After: a.after}
	if t.ID != by.Tenant {
		if err := p.transact.Record(ctx, onBehalf(by, t), entry); err != nil {
			return t, err
		}
	}
	if a.do == nil {
		return t, nil
	}
	if err := a.do(ctx, t, now); err != nil {
		entry.Result, entry.Reason = "failed", fault.Sentence(err)
		for _, who := range []hub.Caller{by, onBehalf(by, t)} {
			if noted := p.transact.Record(ctx, who, entry); noted != nil {
				p.transact.Log.ErrorContext(ctx, "a failure to change a tenant is not in the audit log", logkey.Error, noted)
			}
		}
		return t, err
	}
	return p.directory.TenantByName(ctx, t.Name)
}

// onBehalf is a platform admin as the log of a tenant names them.
func onBehalf(by hub.Caller, t hub.Tenant) hub.Caller {
	return hub.Caller{
		Tenant: t.ID, TenantName: t.Name, Username: by.Username + " (platform admin)", Via: by.Via, Address: by.Address, Request: by.Request,
	}
}
