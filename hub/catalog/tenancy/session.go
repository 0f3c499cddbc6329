package tenancy

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// AccountSessions lists where an account is signed in.
func (c *Tenancy) AccountSessions(ctx context.Context, by hub.Caller, name string) ([]hub.Session, error) {
	var out []hub.Session
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		u, err := r.user(ctx, name)
		if err != nil {
			return err
		}
		out, err = r.Tx.Sessions(ctx, u.ID)
		return err
	})
	return out, err
}

// EndAccountSession ends one session of an account.
func (c *Tenancy) EndAccountSession(ctx context.Context, by hub.Caller, name, id string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		u, err := w.signedOut(ctx, name)
		if err != nil {
			return err
		}
		w.Note("delete-session", access.Accounts, u.Name, "", map[string]any{"id": id}, nil)
		return w.Tx.EndSession(ctx, u.ID, hub.SessionID(id))
	})
}

// EndAccountSessions signs an account out everywhere and returns how many
// sessions have ended. The session with the hash goes on; nil spares none.
func (c *Tenancy) EndAccountSessions(ctx context.Context, by hub.Caller, name string, spared *[32]byte) (ended int, err error) {
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		u, err := w.signedOut(ctx, name)
		if err != nil {
			return err
		}
		var but hub.SessionID
		if spared != nil {
			held, err := w.Tx.Sessions(ctx, u.ID)
			if err != nil {
				return err
			}
			at := slices.IndexFunc(held, func(s hub.Session) bool { return s.Hash == *spared })
			if at < 0 {
				return fault.With(fault.New(fault.Conflict, "this request is not sent by a session of the account"), "account "+u.Name, "leave out the parameter others")
			}
			but = held[at].ID
		}
		ended, err = w.Tx.EndOtherSessions(ctx, u.ID, but)
		w.Note("delete-sessions", access.Accounts, u.Name, "", map[string]any{"sessions": ended}, nil)
		return err
	})
	return ended, err
}

// signedOut returns the account whose sessions the caller may end: their own,
// or one that they may update and that has no role above theirs.
func (w *writer) signedOut(ctx context.Context, name string) (hub.User, error) {
	w.Credentials = true
	if name == w.By.Username && w.By.User != "" {
		return w.Tx.User(ctx, w.By.User)
	}
	u, err := w.userForWrite(ctx, name, access.Update)
	if err != nil {
		return u, err
	}
	return u, w.above(access.Update, name, u.Roles)
}
