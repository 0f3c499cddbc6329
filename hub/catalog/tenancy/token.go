package tenancy

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Lifetimes and number of API tokens.
const (
	tokenLifetime    = 90 * 24 * time.Hour
	maxTokenLifetime = 366 * 24 * time.Hour
	maxTokens        = 50 // of one account, or of one role of a project
)

// Tokens lists the caller's API tokens.
func (c *Tenancy) Tokens(ctx context.Context, by hub.Caller) ([]hub.APIToken, error) {
	var out []hub.APIToken
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out, err = r.Tx.Tokens(ctx, by.User)
		return err
	})
	return out, err
}

// AccountTokens lists the API tokens of an account.
func (c *Tenancy) AccountTokens(ctx context.Context, by hub.Caller, name string) ([]hub.APIToken, error) {
	var out []hub.APIToken
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		u, err := r.user(ctx, name)
		if err == nil {
			out, err = r.Tx.Tokens(ctx, u.ID)
		}
		return err
	})
	return out, err
}

// User returns one account.
func (c *Tenancy) User(ctx context.Context, by hub.Caller, name string) (hub.User, error) {
	var u hub.User
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		u, err = r.user(ctx, name)
		return err
	})
	return u, err
}

// user returns an account that the caller may see: their own, or with the right
// to it.
func (r *reader) user(ctx context.Context, name string) (hub.User, error) {
	if name != r.By.Username && !r.Rights.Check(access.Accounts, access.Get, name) {
		if err := r.May(access.Accounts, access.Get); err != nil {
			return hub.User{}, err
		}
		return hub.User{}, transact.Missing(access.Accounts, validation.Shorten(name))
	}
	u, _, err := r.UserByName(ctx, name)
	return u, transact.Hide(err, access.Accounts, validation.Shorten(name))
}

// CreateToken stores an API token of the caller. A token cannot make another:
// a stolen one would outlive its end.
func (c *Tenancy) CreateToken(ctx context.Context, by hub.Caller, t hub.APIToken, lifetime string) (hub.APIToken, error) {
	return c.createToken(ctx, by, t, lifetime, func(ctx context.Context, w *writer) (hub.User, error) { return w.Tx.User(ctx, by.User) })
}

// CreateAccountToken stores an API token of an account, which acts with the
// rights of that account and not of the caller.
func (c *Tenancy) CreateAccountToken(ctx context.Context, by hub.Caller, name string, t hub.APIToken, lifetime string) (hub.APIToken, error) {
	return c.createToken(ctx, by, t, lifetime, func(ctx context.Context, w *writer) (hub.User, error) {
		if name == by.Username {
			return w.Tx.User(ctx, by.User)
		}
		u, err := w.userForWrite(ctx, name, access.Update)
		if err == nil {
			err = w.above(access.Update, name, u.Roles)
		}
		return u, err
	})
}

func (c *Tenancy) createToken(ctx context.Context, by hub.Caller, t hub.APIToken, lifetime string, whose func(context.Context, *writer) (hub.User, error)) (hub.APIToken, error) {
	if err := validation.CheckLabel("token name", t.Name); err != nil {
		return t, err
	}
	lasts, err := validation.BoundedDuration(lifetime, tokenLifetime, maxTokenLifetime)
	if err != nil {
		return t, err
	}
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.noToken("create-token", by.Username); err != nil {
			return err
		}
		u, err := whose(ctx, w)
		if err != nil {
			return err
		}
		if !u.Can(hub.CanUseTokens) {
			return fault.With(fault.New(fault.Conflict, "the account is not used by tokens"), "account "+u.Name, "give it the capability apiKey first")
		}
		held, err := w.Tx.Tokens(ctx, u.ID)
		if err != nil {
			return err
		}
		if len(held) >= maxTokens {
			return fault.With(fault.New(fault.Exceeded, "the account has %d tokens, which is the limit", len(held)), "account "+u.Name, "revoke those that are not used")
		}
		until := w.Now.Add(lasts)
		t.User, t.CreatedAt, t.ExpiresAt = u.ID, w.Now, &until
		w.Note("create-token", access.Accounts, u.Name, "", nil, map[string]any{"id": t.ID, "name": t.Name, "prefix": t.Prefix, "expiresAt": until})
		return w.PutToken(ctx, t)
	})
	return t, err
}

// noToken refuses what only somebody who has signed in may do.
func (w *writer) noToken(action, object string) error {
	if w.By.Via == "session" {
		return nil
	}
	return w.Refuse(access.Accounts, action, object,
		fault.With(fault.New(fault.Denied, "a token cannot make another token"), "", "sign in with a password and make it there"))
}

// DeleteToken revokes an API token of the caller.
func (c *Tenancy) DeleteToken(ctx context.Context, by hub.Caller, id hub.TokenID) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		return w.deleteToken(ctx, hub.User{ID: by.User, Name: by.Username}, string(id))
	})
}

// DeleteAccountToken revokes an API token of an account, by its id or its name.
func (c *Tenancy) DeleteAccountToken(ctx context.Context, by hub.Caller, name, id string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if name == by.Username {
			return w.deleteToken(ctx, hub.User{ID: by.User, Name: name}, id)
		}
		u, err := w.userForWrite(ctx, name, access.Update)
		if err != nil {
			return err
		}
		return w.deleteToken(ctx, u, id)
	})
}

func (w *writer) deleteToken(ctx context.Context, of hub.User, id string) error {
	held, err := w.Tx.Tokens(ctx, of.ID)
	if err != nil {
		return err
	}
	for _, t := range held {
		if t.Name == id {
			id = string(t.ID)
		}
	}
	w.Note("delete-token", access.Accounts, of.Name, "", map[string]any{"id": id}, nil)
	w.Credentials = true
	return w.Tx.DeleteToken(ctx, of.ID, hub.TokenID(id))
}
