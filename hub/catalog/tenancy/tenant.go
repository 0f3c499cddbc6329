package tenancy

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

// SetupLifetime is how long a setup link can be used.
const SetupLifetime = time.Hour

// Tenants lists all tenants. Only platform admins may.
func (c *Tenancy) Tenants(ctx context.Context, by hub.Caller) ([]hub.Tenant, error) {
	if err := c.mayTenants(ctx, by, access.Get); err != nil {
		return nil, err
	}
	return c.directory.Tenants(ctx)
}

// Tenant returns one tenant. Only platform admins may ask.
func (c *Tenancy) Tenant(ctx context.Context, by hub.Caller, name string) (hub.Tenant, error) {
	if err := c.mayTenants(ctx, by, access.Get); err != nil {
		return hub.Tenant{}, err
	}
	t, err := c.directory.TenantByName(ctx, name)
	return t, transact.Hide(err, access.Tenants, validation.Shorten(name))
}

func (c *Tenancy) mayTenants(ctx context.Context, by hub.Caller, action string) error {
	return c.read(ctx, by, func(_ context.Context, r *reader) error { return r.May(access.Tenants, action) })
}

// CreateTenant makes a tenant and a setup link for its first admin, of which
// the hash is given. The record of it is in the platform admin's own tenant. A
// tenant with an id takes the place of one that was lost with its hub.
func (c *Tenancy) CreateTenant(ctx context.Context, by hub.Caller, t hub.Tenant, link [32]byte) (hub.Tenant, time.Time, error) {
	if err := validation.CheckLabel("tenant", t.Name); err != nil {
		return t, time.Time{}, err
	}
	given := t.ID != ""
	if !given {
		t.ID = hub.NewID[hub.TenantID]()
	}
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.Need(access.Tenants, access.Create, t.Name); err != nil {
			return err
		}
		if given {
			if err := c.unused(ctx, t.ID); err != nil {
				return err
			}
		}
		t.CreatedAt = w.Now
		w.Note(access.Create, access.Tenants, t.Name, "", nil, t)
		return nil
	})
	if err != nil {
		return t, time.Time{}, err
	}
	// A tenant is no row of another tenant: it is made after its record, and
	// a failure gets a record of its own.
	until := t.CreatedAt.Add(SetupLifetime)
	err = c.directory.CreateTenant(ctx, t)
	if err == nil {
		err = c.links.PutSetupLink(ctx, hub.SetupLink{Hash: link, Tenant: t.ID, Roles: []string{hub.RoleTenantAdmin}, ExpiresAt: until})
	}
	if err != nil {
		failed := audit.Entry{Action: access.Create, Resource: access.Tenants, Object: t.Name, Result: "failed", Reason: fault.Sentence(err)}
		if noted := c.transact.Record(ctx, by, failed); noted != nil {
			c.transact.Log.ErrorContext(ctx, "the failure to make a tenant is not in the audit log", logkey.Error, noted)
		}
	}
	return t, until, err
}

// unused refuses the id of a tenant that there is.
func (c *Tenancy) unused(ctx context.Context, id hub.TenantID) error {
	switch _, err := c.directory.Tenant(ctx, id); {
	case err == nil:
		return fault.With(fault.New(fault.Conflict, "another tenant has the id %s", id), "", "leave the id out, unless the tenant takes the place of one that was lost with its hub")
	case fault.KindOf(err) != fault.Missing:
		return err
	}
	return nil
}

// NewSetupLink makes another setup link for an admin of a tenant, of which
// the hash is given.
func (c *Tenancy) NewSetupLink(ctx context.Context, by hub.Caller, name string, link [32]byte) (hub.Tenant, time.Time, error) {
	var t hub.Tenant
	var until time.Time
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.Need(access.Tenants, access.Update, name); err != nil {
			return err
		}
		var err error
		if t, err = c.directory.TenantByName(ctx, name); err != nil {
			return transact.Hide(err, access.Tenants, validation.Shorten(name))
		}
		if !by.Fresh(w.Now) {
			return w.Stale(access.Tenants, "setup-link", name)
		}
		until = w.Now.Add(SetupLifetime)
		w.Note("setup-link", access.Tenants, name, "", nil, map[string]any{"expiresAt": until})
		return c.links.PutSetupLink(ctx, hub.SetupLink{Hash: link, Tenant: t.ID, Roles: []string{hub.RoleTenantAdmin}, ExpiresAt: until})
	})
	return t, until, err
}

// CheckSetup says what a setup link is for, without using it.
func (c *Tenancy) CheckSetup(ctx context.Context, link [32]byte) (hub.Tenant, hub.SetupLink, error) {
	l, err := c.links.SetupLink(ctx, link)
	if err == nil && !c.transact.Now().Before(l.ExpiresAt) {
		err = errSetup()
	}
	if err != nil {
		if fault.KindOf(err) == fault.Missing {
			err = errSetup()
		}
		return hub.Tenant{}, l, err
	}
	t, err := c.directory.Tenant(ctx, l.Tenant)
	return t, l, err
}

// HasNoUsers reports whether a tenant has no account yet. Holders of a setup link
// ask, who have no rights of their own.
func (c *Tenancy) HasNoUsers(ctx context.Context, tenant hub.TenantID) (none bool, err error) {
	err = c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
		users, err := tx.Users(ctx)
		none = len(users) == 0
		return err
	})
	return none, err
}

func errSetup() error {
	return fault.With(fault.New(fault.Missing, "the setup link was used already, has expired, or never was one"), "", "ask for a new link: a platform admin or the operator of the hub can make one")
}

// Setup makes the account that a setup link is for. The link dies with it.
func (c *Tenancy) Setup(ctx context.Context, from hub.Caller, link [32]byte, name, passwordHash string) (hub.Tenant, hub.User, error) {
	if err := validation.CheckUsername(name); err != nil {
		return hub.Tenant{}, hub.User{}, err
	}
	t, l, err := c.CheckSetup(ctx, link)
	if err != nil {
		return t, hub.User{}, err
	}
	by := hub.Caller{Tenant: t.ID, TenantName: t.Name, Username: name, Via: "setup", Address: from.Address, Request: from.Request}
	var u hub.User
	used := false
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		var err error
		if u, err = w.Tx.CreateUser(ctx, hub.User{Name: name, Roles: l.Roles}, passwordHash); err != nil {
			return err
		}
		w.Note("setup", access.Accounts, name, "one-time setup link", nil, userText(u))
		if used {
			return nil // by an earlier try of this transaction
		}
		_, err = c.links.UseSetupLink(ctx, link, w.Now)
		if fault.KindOf(err) == fault.Missing {
			return errSetup()
		}
		used = err == nil
		return err
	})
	return t, u, err
}
