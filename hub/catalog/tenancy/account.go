package tenancy

import (
	"context"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// AccountByName returns an account and the hash of its password. Identity asks,
// before anybody is signed in.
func (c *Tenancy) AccountByName(ctx context.Context, tenant hub.TenantID, name string) (hub.User, string, error) {
	var u hub.User
	var hash string
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		u, hash, err = tx.UserByName(ctx, name)
		return err
	})
	return u, hash, err
}

// Account returns an account with its groups of SCIM. Identity asks.
func (c *Tenancy) Account(ctx context.Context, tenant hub.TenantID, id hub.UserID) (hub.User, error) {
	var u hub.User
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		u, err = tx.User(ctx, id)
		if err == nil && u.Origin == hub.OriginSCIM {
			u.Groups, err = tx.GroupsOf(ctx, id)
		}
		return err
	})
	return u, err
}

// SessionDuration is how long a session of the tenant lasts that begins now
// (AUTH-05). Identity asks.
func (c *Tenancy) SessionDuration(ctx context.Context, tenant hub.TenantID) (time.Duration, error) {
	var values map[string]string
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		values, err = tx.SettingValues(ctx, hub.SettingsMap, []string{settings.SessionKey})
		return err
	})
	return settings.SessionDuration(values), err
}

// SignedIn notes a sign-in.
func (c *Tenancy) SignedIn(ctx context.Context, by hub.Caller) error {
	return c.transact.Record(ctx, by, audit.Entry{Action: "login", Resource: access.Accounts, Object: by.Username, Result: audit.Allowed})
}

// SignInRefused notes a sign-in that failed.
func (c *Tenancy) SignInRefused(ctx context.Context, by hub.Caller, reason string) error {
	return c.transact.Record(ctx, by, audit.Entry{Action: "login", Resource: access.Accounts, Object: by.Username, Result: audit.Denied, Reason: reason})
}

// Rights returns the compiled rights of the caller, for those who must say what
// a person may do.
func (c *Tenancy) Rights(ctx context.Context, by hub.Caller) (*access.Index, error) {
	var ix *access.Index
	err := c.read(ctx, by, func(_ context.Context, r *reader) error {
		ix = r.Rights
		return nil
	})
	return ix, err
}

// hasAccount reports whether the caller is one of the accounts: not a stranger,
// and not the token of a project's role.
func hasAccount(by hub.Caller) bool { return by.User != "" && by.ProjectRole == "" }

// Self returns the compiled rights of the caller and the language in which the
// caller's account reads the console; empty: none is chosen.
func (c *Tenancy) Self(ctx context.Context, by hub.Caller) (rights *access.Index, language string, err error) {
	err = c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		rights, language = r.Rights, ""
		if hasAccount(by) {
			language, err = r.Tx.Language(ctx, by.User)
		}
		return err
	})
	return rights, language, err
}

// SetLanguage chooses the language in which the caller's account reads the
// console; empty: the browser's languages decide.
func (c *Tenancy) SetLanguage(ctx context.Context, by hub.Caller, language string) error {
	if !hasAccount(by) {
		return fault.New(fault.Missing, "a caller without an account has no language")
	}
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		w.Note(access.Update, access.Accounts, by.Username, "own language", nil, nil)
		return w.SetLanguage(ctx, by.User, language)
	})
}

// Users lists the local accounts of the tenant.
func (c *Tenancy) Users(ctx context.Context, by hub.Caller) ([]hub.User, error) {
	var out []hub.User
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Accounts, access.Get); err != nil {
			return err
		}
		all, err := r.Tx.Users(ctx)
		for _, u := range all {
			if r.Rights.Check(access.Accounts, access.Get, u.Name) {
				out = append(out, u)
			}
		}
		return err
	})
	return out, err
}

// above refuses to touch the platform's rights without having them: a
// tenant's admin must neither give the role platform-admin nor take over an
// account that has it.
func (w *writer) above(action, name string, roles ...[]string) error {
	for _, list := range roles {
		if slices.Contains(list, hub.RolePlatformAdmin) && !w.Rights.Check(access.Tenants, access.Update, "*") {
			return w.Refuse(access.Accounts, action, name,
				fault.With(fault.New(fault.Denied, "only a platform admin may change accounts of platform admins"), "account "+name, "ask a platform admin"))
		}
	}
	return nil
}

// CreateUser makes a local account.
func (c *Tenancy) CreateUser(ctx context.Context, by hub.Caller, u hub.User, passwordHash string) (hub.User, error) {
	if err := validation.CheckUsername(u.Name); err != nil {
		return u, err
	}
	if err := validation.CheckRoles(u.Roles); err != nil {
		return u, err
	}
	if err := validation.CheckCapabilities(u.Capabilities, passwordHash != ""); err != nil {
		return u, err
	}
	var out hub.User
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.Need(access.Accounts, access.Create, u.Name); err != nil {
			return err
		}
		if err := w.above(access.Create, u.Name, u.Roles); err != nil {
			return err
		}
		var err error
		if out, err = w.Tx.CreateUser(ctx, u, passwordHash); err == nil {
			w.Note(access.Create, access.Accounts, u.Name, "", nil, userText(out))
		}
		return err
	})
	return out, err
}

// A UserChange is what to change of an account; nil fields stay.
type UserChange struct {
	Roles        *[]string
	Disabled     *bool
	Capabilities *[]string
	PasswordHash string // empty: stays
}

// UpdateUser changes an account. Its sessions end when it is disabled or gets
// another password.
func (c *Tenancy) UpdateUser(ctx context.Context, by hub.Caller, name string, ch UserChange) (hub.User, error) {
	if ch.Roles != nil {
		if err := validation.CheckRoles(*ch.Roles); err != nil {
			return hub.User{}, err
		}
	}
	var out hub.User
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		old, err := w.userForWrite(ctx, name, access.Update)
		if err != nil {
			return err
		}
		out = old
		if ch.Roles != nil {
			out.Roles = *ch.Roles
		}
		if ch.Disabled != nil {
			out.Disabled = *ch.Disabled
		}
		if ch.Capabilities != nil {
			out.Capabilities = *ch.Capabilities
		}
		if err := w.above(access.Update, name, old.Roles, out.Roles); err != nil {
			return err
		}
		if by.User == old.ID && (out.Disabled || len(out.Roles) < len(old.Roles) || !out.Can(hub.CanSignIn)) {
			return fault.With(fault.New(fault.Conflict, "you cannot disable your own account or remove its roles"), "account "+name, "let another admin do it")
		}
		reason := ""
		if ch.PasswordHash != "" {
			reason = "with a new password"
			if err := w.SetPassword(ctx, old.ID, ch.PasswordHash); err != nil {
				return err
			}
		}
		w.Note(access.Update, access.Accounts, name, reason, userText(old), userText(out))
		return w.changeUser(ctx, old, out)
	})
	return out, err
}

// DeleteUser deletes an account with its sessions and tokens.
func (c *Tenancy) DeleteUser(ctx context.Context, by hub.Caller, name string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		u, err := w.userForWrite(ctx, name, access.Delete)
		if err != nil {
			return err
		}
		if err := w.above(access.Delete, name, u.Roles); err != nil {
			return err
		}
		if by.User == u.ID {
			return fault.With(fault.New(fault.Conflict, "you cannot delete your own account"), "account "+name, "let another admin do it")
		}
		w.Note(access.Delete, access.Accounts, name, "", userText(u), nil)
		w.Credentials = true
		return w.Tx.DeleteUser(ctx, u.ID)
	})
}

// changeUser stores an account that has changed. Its sessions end where it may
// not sign in any more.
func (w *writer) changeUser(ctx context.Context, old, changed hub.User) error {
	w.Credentials = true
	if old.Can(hub.CanSignIn) && !changed.Can(hub.CanSignIn) && w.By.User != old.ID {
		if err := w.EndSessions(ctx, old.ID); err != nil {
			return err
		}
	}
	return w.Tx.UpdateUser(ctx, changed)
}

func (w *writer) userForWrite(ctx context.Context, name, action string) (hub.User, error) {
	u, _, err := w.UserByName(ctx, name)
	if err != nil {
		if fault.KindOf(err) == fault.Missing && !w.Rights.Check(access.Accounts, access.Get, name) {
			return u, w.Need(access.Accounts, action, name)
		}
		return u, transact.Hide(err, access.Accounts, validation.Shorten(name))
	}
	return u, w.Need(access.Accounts, action, name)
}

func userText(u hub.User) any {
	return map[string]any{"roles": u.Roles, "disabled": u.Disabled, "capabilities": u.Capabilities}
}

// ChangePassword sets the caller's own password and ends the caller's
// sessions. The current one was checked already.
func (c *Tenancy) ChangePassword(ctx context.Context, by hub.Caller, passwordHash string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		w.Note(access.Update, access.Accounts, by.Username, "own password", nil, nil)
		w.Credentials = true
		return w.SetPassword(ctx, by.User, passwordHash)
	})
}

// SignedOut notes that the caller ended a session.
func (c *Tenancy) SignedOut(ctx context.Context, by hub.Caller) error {
	return c.transact.Record(ctx, by, audit.Entry{Action: "logout", Resource: access.Accounts, Object: by.Username, Result: audit.Allowed})
}
