package tenancy

import (
	"context"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// testSignIn is what the audit log calls a test sign-in.
const testSignIn = "test-sign-in"

// MayTestSignIn checks that somebody may test what would be the settings of
// sign-ins. It needs what storing them needs: a test sends the stored secrets to
// the provider that the draft names.
func (c *Tenancy) MayTestSignIn(ctx context.Context, by hub.Caller, draft hub.SignInDraft) error {
	for _, key := range slices.Sorted(maps.Keys(draft.Values)) {
		if err := settings.Check(hub.SettingsMap, key, draft.Values[key]); err != nil {
			return err
		}
	}
	return c.write(ctx, by, func(_ context.Context, w *writer) error { return w.mayTestSignIn(draft) })
}

func (w *writer) mayTestSignIn(draft hub.SignInDraft) error {
	if w.By.User == "" {
		return w.Refuse(access.Settings, access.Update, hub.SettingsMap, fault.With(fault.New(fault.Denied, "a role of a project cannot test a sign-in"), "", "sign in with an account"))
	}
	names := []string{validation.SettingName(hub.SettingsMap, settings.OIDCKey), validation.SettingName(hub.SettingsMap, settings.DexKey)}
	for reference := range draft.Secrets {
		names = append(names, validation.SettingName(settings.Referred(reference)))
	}
	slices.Sort(names)
	for _, name := range names {
		if err := w.Need(access.Settings, access.Update, name); err != nil {
			return err
		}
		if !w.By.Fresh(w.Now) {
			return w.Stale(access.Settings, access.Update, name)
		}
	}
	return nil
}

// BeginSignInTest stores a test that begins, and the sign-in that it is.
func (c *Tenancy) BeginSignInTest(ctx context.Context, by hub.Caller, t hub.SignInTest, s hub.SignIn) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.mayTestSignIn(t.Draft); err != nil {
			return err
		}
		if err := w.PutSignInTest(ctx, t); err != nil {
			return err
		}
		w.Note(testSignIn, access.Settings, t.Provider, "begun", nil, map[string]any{"draft": slices.Sorted(maps.Keys(t.Draft.Values))})
		return w.PutSignIn(ctx, s)
	})
}

// SignInSecret returns a secret that the draft of a test refers to. Single sign-on
// asks for somebody who may store that draft.
func (c *Tenancy) SignInSecret(ctx context.Context, tenant hub.TenantID, name, key string) (value string, found bool, err error) {
	err = c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		value, found, err = tx.SettingSecret(ctx, name, key)
		return err
	})
	return value, found, err
}

// TakeSignInDraft returns a test with what it tests, once.
func (c *Tenancy) TakeSignInDraft(ctx context.Context, tenant hub.TenantID, id hub.SignInTestID) (hub.SignInTest, error) {
	var t hub.SignInTest
	err := c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		t, err = tx.TakeSignInDraft(ctx, id, c.transact.Now())
		return err
	})
	return t, err
}

// ExpectedAccount is the account that a person of a provider would get, and
// whether it is there. It makes none.
func (c *Tenancy) ExpectedAccount(ctx context.Context, tenant hub.TenantID, p hub.Person) (u hub.User, known bool, err error) {
	err = c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		u, err = tx.UserBySubject(ctx, p)
		return err
	})
	if fault.KindOf(err) == fault.Missing {
		return hub.User{Name: personNames(p)[0]}, false, nil
	}
	return u, err == nil, err
}

// FinishSignInTest stores the outcome of a test, and notes it.
func (c *Tenancy) FinishSignInTest(ctx context.Context, from hub.Caller, tenant hub.TenantID, t hub.SignInTest, report hub.SignInReport) error {
	entry := audit.Entry{Action: testSignIn, Resource: access.Settings, Object: t.Provider, Result: audit.Allowed, Reason: "as " + report.Account}
	if report.Problem != nil {
		entry.Result, entry.Reason = audit.Denied, report.Problem.Cause
	}
	by := hub.Caller{Tenant: tenant, Username: t.Provider, Via: "provider", Address: from.Address, Request: from.Request}
	if err := c.transact.Record(ctx, by, entry); err != nil {
		return err
	}
	return c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error { return tx.FinishSignInTest(ctx, t.ID, report) })
}

// A SubjectRoles is what the policy says of a value of a provider.
type SubjectRoles struct {
	Subject string
	Roles   []string // those it has, directly or through others
	Rules   bool     // the policy has rules or roles for it
}

// A SignInOutcome is a test with what the policy of today makes of it.
type SignInOutcome struct {
	hub.SignInTest
	Mapped []SubjectRoles
	Rights *access.Index // nil without a report
}

// SignInTest returns a test of the caller.
func (c *Tenancy) SignInTest(ctx context.Context, by hub.Caller, id hub.SignInTestID) (SignInOutcome, error) {
	var out SignInOutcome
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out = SignInOutcome{}
		if err := r.May(access.Settings, access.Get); err != nil {
			return err
		}
		if out.SignInTest, err = r.Tx.SignInTest(ctx, id, by.User, c.transact.Now()); err != nil || out.Report == nil {
			return err
		}
		rights, err := c.transact.AllRights(ctx, r.Tx)
		if err != nil {
			return err
		}
		for _, s := range out.Report.Subjects {
			roles := rights.RolesOf(s)
			out.Mapped = append(out.Mapped, SubjectRoles{Subject: s, Roles: roles, Rules: len(roles) > 0 || slices.Contains(rights.Subjects(), s)})
		}
		out.Rights = rights.For(access.Subject{User: out.Report.Account, Roles: out.Report.Roles, Groups: out.Report.Subjects})
		return nil
	})
	return out, err
}
