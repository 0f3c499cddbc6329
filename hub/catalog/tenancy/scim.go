package tenancy

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Limits of what an identity provider provisions.
const (
	maxSCIMTokens     = 10
	scimTokenLifetime = 366 * 24 * time.Hour
	maxAttributes     = 64 << 10 // bytes of one user
	maxGroupName      = 256
)

// SCIMTokens lists the tokens of identity providers.
func (c *Tenancy) SCIMTokens(ctx context.Context, by hub.Caller) ([]hub.SCIMToken, error) {
	var out []hub.SCIMToken
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		if !r.Rights.Check(access.Accounts, access.Get, scimObject) {
			return transact.Denied(access.Rule{Resource: access.Accounts, Action: access.Get, Object: scimObject})
		}
		out, err = r.Tx.SCIMTokens(ctx)
		return err
	})
	return out, err
}

// scimObject is what rights call provisioning: it concerns any account.
const scimObject = "*"

// CreateSCIMToken stores a token with which an identity provider provisions
// people and groups. It makes accounts, but gives them no roles.
func (c *Tenancy) CreateSCIMToken(ctx context.Context, by hub.Caller, t hub.SCIMToken, lifetime string) (hub.SCIMToken, error) {
	if err := validation.CheckLabel("token name", t.Name); err != nil {
		return t, err
	}
	lasts, err := validation.BoundedDuration(lifetime, scimTokenLifetime, scimTokenLifetime)
	if err != nil {
		return t, err
	}
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		for _, action := range []string{access.Create, access.Update, access.Delete} {
			if err := w.Need(access.Accounts, action, scimObject); err != nil {
				return err
			}
		}
		if err := w.noToken("create-scim-token", t.Name); err != nil {
			return err
		}
		held, err := w.Tx.SCIMTokens(ctx)
		if err != nil {
			return err
		}
		if len(held) >= maxSCIMTokens {
			return fault.With(fault.New(fault.Exceeded, "the organisation has %d tokens for SCIM, which is the limit", len(held)), "", "revoke those that are not used")
		}
		t.CreatedBy, t.CreatedAt, t.ExpiresAt = by.Username, w.Now, w.Now.Add(lasts)
		w.Note("create-scim-token", access.Accounts, t.Name, "", nil, map[string]any{"id": t.ID, "prefix": t.Prefix, "expiresAt": t.ExpiresAt})
		return w.PutSCIMToken(ctx, t)
	})
	return t, err
}

// DeleteSCIMToken revokes a token of an identity provider. What it has
// provisioned stays.
func (c *Tenancy) DeleteSCIMToken(ctx context.Context, by hub.Caller, id hub.TokenID) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.Need(access.Accounts, access.Delete, scimObject); err != nil {
			return err
		}
		w.Note("delete-scim-token", access.Accounts, string(id), "", map[string]any{"id": id}, nil)
		return w.Tx.DeleteSCIMToken(ctx, id)
	})
}

// provision runs do for an identity provider, whose token must be good as of the
// transaction. It needs no other right, and has no other.
func (c *Tenancy) provision(ctx context.Context, by hub.Caller, do func(ctx context.Context, w *writer) error) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		held, err := w.Tx.SCIMTokens(ctx)
		if err != nil {
			return err
		}
		good := func(t hub.SCIMToken) bool { return string(t.ID) == by.Credential && w.Now.Before(t.ExpiresAt) }
		if !slices.ContainsFunc(held, good) {
			return fault.New(fault.Unknown, "the token for SCIM is not valid")
		}
		return do(ctx, w)
	})
}

// SCIMUsers returns a page of users, and how many there are on all pages.
func (c *Tenancy) SCIMUsers(ctx context.Context, by hub.Caller, q hub.SCIMQuery) (out []hub.SCIMUser, total int, err error) {
	err = c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out, total, err = r.Tx.SCIMUsers(ctx, q)
		return err
	})
	return out, total, err
}

// SCIMGroups returns a page of groups, and how many there are on all pages.
func (c *Tenancy) SCIMGroups(ctx context.Context, by hub.Caller, q hub.SCIMQuery) (out []hub.SCIMGroup, total int, err error) {
	err = c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out, total, err = r.Tx.SCIMGroups(ctx, q)
		return err
	})
	return out, total, err
}

// PutSCIMUser makes a user with an account, or changes the user of that version.
// A user who is not active is signed out, and the account's tokens are refused.
func (c *Tenancy) PutSCIMUser(ctx context.Context, by hub.Caller, u hub.SCIMUser) (hub.SCIMUser, error) {
	name := strings.ToLower(u.UserName)
	if err := validation.CheckUsername(name); err != nil {
		return u, err
	}
	if len(u.Attributes) > maxAttributes || len(u.ExternalID) > maxGroupName {
		return u, fault.New(fault.Invalid, "the user has more than %d bytes", maxAttributes)
	}
	var out hub.SCIMUser
	err := c.provision(ctx, by, func(ctx context.Context, w *writer) error {
		out = u
		account := hub.User{ID: u.ID, Name: name, Disabled: !u.Active, Capabilities: hub.Capabilities(), Origin: hub.OriginSCIM}
		out.UpdatedAt = w.Now
		w.Credentials = true
		if u.Version == 0 {
			created, err := w.Tx.CreateUser(ctx, account, "")
			if err != nil {
				return err
			}
			out.ID = created.ID
			w.Note(access.Create, access.Accounts, name, "by SCIM", nil, userText(created))
		} else {
			old, err := w.Tx.User(ctx, u.ID)
			if err != nil {
				return err
			}
			if old.Origin != hub.OriginSCIM {
				return fault.New(fault.Missing, "there is no such user")
			}
			account.Roles, account.Capabilities = old.Roles, old.Capabilities
			w.Note(access.Update, access.Accounts, name, "by SCIM", userText(old), userText(account))
			if err := w.Tx.UpdateUser(ctx, account); err != nil {
				return err
			}
		}
		var err error
		out, err = w.Tx.PutSCIMUser(ctx, out)
		return err
	})
	return out, err
}

// DeleteSCIMUser deletes a user with the account, its sessions and tokens.
func (c *Tenancy) DeleteSCIMUser(ctx context.Context, by hub.Caller, id hub.UserID) error {
	return c.provision(ctx, by, func(ctx context.Context, w *writer) error {
		u, err := w.Tx.User(ctx, id)
		if err == nil && u.Origin != hub.OriginSCIM {
			err = fault.New(fault.Missing, "there is no such user")
		}
		if err != nil {
			return err
		}
		w.Credentials = true
		w.Note(access.Delete, access.Accounts, u.Name, "by SCIM", userText(u), nil)
		return w.Tx.DeleteUser(ctx, id)
	})
}

// checkGroupName refuses a name that would be a role, or an account of people.
func (w *writer) checkGroupName(ctx context.Context, name string) error {
	if name == "" || len(name) > maxGroupName || strings.HasPrefix(name, "role:") || strings.HasPrefix(name, hub.RolePrefix) || strings.ContainsAny(name, ",\n\r") {
		return fault.New(fault.Invalid, "a group has a name of up to %d bytes without commas and line breaks, which does not begin with role: or proj:", maxGroupName)
	}
	_, _, err := w.UserByName(ctx, name)
	if err == nil {
		return fault.New(fault.Conflict, "an account is called %s", name)
	}
	if fault.KindOf(err) == fault.Missing {
		err = nil
	}
	return err
}

// PutSCIMGroup makes a group, or changes the group of that version. The members
// are those that are given.
func (c *Tenancy) PutSCIMGroup(ctx context.Context, by hub.Caller, g hub.SCIMGroup) (hub.SCIMGroup, error) {
	var out hub.SCIMGroup
	err := c.provision(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.checkGroupName(ctx, g.DisplayName); err != nil {
			return err
		}
		out = g
		action := access.Update
		if g.Version == 0 {
			out.ID, action = hub.NewID[string](), access.Create
		}
		out.UpdatedAt = w.Now
		w.Credentials = true
		w.Note(action, access.Accounts, "group "+g.DisplayName, "by SCIM", nil, map[string]any{"members": len(g.Members)})
		var err error
		out, err = w.Tx.PutSCIMGroup(ctx, out)
		return err
	})
	return out, err
}

// DeleteSCIMGroup deletes a group.
func (c *Tenancy) DeleteSCIMGroup(ctx context.Context, by hub.Caller, id string) error {
	return c.provision(ctx, by, func(ctx context.Context, w *writer) error {
		w.Credentials = true
		w.Note(access.Delete, access.Accounts, "group "+id, "by SCIM", nil, nil)
		return w.Tx.DeleteSCIMGroup(ctx, id)
	})
}
