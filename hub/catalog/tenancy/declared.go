package tenancy

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// CheckPassword refuses a new password that the tenant's pattern does not allow
// (AUTH-03).
func (c *Tenancy) CheckPassword(ctx context.Context, tenant hub.TenantID, password string) error {
	var values map[string]string
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		values, err = tx.SettingValues(ctx, hub.SettingsMap, []string{hub.PasswordPatternKey})
		return err
	})
	if err == nil && !settings.PasswordAllowed(values, password) {
		err = fault.With(fault.New(fault.Invalid, "the password does not match the organisation's rule"), "", "the rule is the regular expression "+values[hub.PasswordPatternKey])
	}
	return err
}

// HasOldPasswords reports whether an account of the tenant has a password hash in
// the form of Argo CD. Identity asks.
func (c *Tenancy) HasOldPasswords(ctx context.Context, tenant hub.TenantID) (some bool, err error) {
	err = c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		some, err = tx.HasOldPasswords(ctx)
		return err
	})
	return some, err
}

// UpgradePassword replaces the hash of a password by another one of the same
// password. Identity asks, after the password has proved right.
func (c *Tenancy) UpgradePassword(ctx context.Context, tenant hub.TenantID, user hub.UserID, old, hash string) error {
	return c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
		return tx.UpgradePassword(ctx, user, old, hash)
	})
}

// applyAccounts makes accounts what argocd-cm and argocd-secret say of them
// (AUTH-01, AUTH-02). Besides the right to the settings, the caller needs that
// to the accounts.
func (w *writer) applyAccounts(ctx context.Context, after []hub.Setting, changes []hub.SettingChange) error {
	values := map[string]string{}
	for _, s := range after {
		if s.Map == hub.SettingsMap {
			values[s.Key] = s.Value
		}
	}
	for _, name := range accountsOf(changes) {
		if err := w.applyAccount(ctx, name, values, changes); err != nil {
			return transact.WithObject(err, "account "+name)
		}
	}
	return nil
}

// effective are those of the changes that have put or removed something.
func effective(changes []hub.SettingChange, put, drop []hub.Setting) []hub.SettingChange {
	return slices.DeleteFunc(slices.Clone(changes), func(c hub.SettingChange) bool {
		same := func(s hub.Setting) bool { return s.Map == c.Map && s.Key == c.Key }
		return !slices.ContainsFunc(put, same) && !slices.ContainsFunc(drop, same)
	})
}

// accountsOf are the accounts that changes are about, in order.
func accountsOf(changes []hub.SettingChange) []string {
	var out []string
	for _, c := range changes {
		name, _, about := settings.ParseAccountKey(c.Key)
		switch {
		case c.Map == hub.SettingsMap && c.Key == hub.AdminEnabledKey, c.Map == hub.SecretMap && c.Key == hub.AdminPasswordKey:
			out = append(out, hub.AdminName)
		case about && (c.Map == hub.SettingsMap || c.Map == hub.SecretMap):
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// passwordKey is the key of an account's password in argocd-secret.
func passwordKey(name string) string {
	if name == hub.AdminName {
		return hub.AdminPasswordKey
	}
	return hub.AccountPrefix + name + hub.PasswordSuffix
}

func (w *writer) applyAccount(ctx context.Context, name string, values map[string]string, changes []hub.SettingChange) error {
	old, _, err := w.UserByName(ctx, name)
	there := err == nil
	if err != nil && fault.KindOf(err) != fault.Missing {
		return err
	}
	_, listed := values[hub.AccountPrefix+name]
	switch {
	case !there && !listed:
		return nil // a password of an account that is not declared yet
	case !there:
		return w.declareAccount(ctx, name, values)
	case !listed && old.Origin == hub.OriginSettings:
		return w.undeclareAccount(ctx, old)
	case old.Origin == hub.OriginSCIM:
		return fault.With(fault.New(fault.Conflict, "the identity provider decides about it"), "", "change it there")
	}
	wanted, err := declared(old, values)
	if err != nil {
		return err
	}
	if err := w.setDeclaredPassword(ctx, old, changes); err != nil || wanted.Disabled == old.Disabled && wanted.Origin == old.Origin && slices.Equal(wanted.Capabilities, old.Capabilities) {
		return err
	}
	if err := w.needDeclared(access.Update, old); err != nil {
		return err
	}
	if wanted.Disabled && w.By.User == old.ID {
		return fault.With(fault.New(fault.Conflict, "you cannot disable your own account"), "", "let another admin do it")
	}
	w.Note(access.Update, access.Accounts, name, "by settings", userText(old), userText(wanted))
	return w.changeUser(ctx, old, wanted)
}

// declared is an account as the settings have it. The account admin needs no
// key of its own; without admin.enabled it can be used for nothing.
func declared(old hub.User, values map[string]string) (hub.User, error) {
	out := old
	line, listed := values[hub.AccountPrefix+old.Name]
	if listed {
		capabilities, err := settings.Account(line)
		if err != nil {
			return out, err
		}
		out.Capabilities, out.Origin = capabilities, hub.OriginSettings
		out.Disabled = !settings.Switch(values, hub.AccountPrefix+old.Name+hub.EnabledSuffix, true)
	}
	if old.Name != hub.AdminName {
		return out, nil
	}
	out.Origin = old.Origin
	switch {
	case slices.Contains(old.Roles, hub.RolePlatformAdmin): // whom no tenant shuts out
	case !settings.Switch(values, hub.AdminEnabledKey, true):
		out.Capabilities = []string{}
	case !listed:
		out.Capabilities = hub.Capabilities()
	case !out.Can(hub.CanSignIn):
		out.Capabilities = append(out.Capabilities, hub.CanSignIn)
	}
	slices.SortFunc(out.Capabilities, func(a, b string) int {
		return slices.Index(hub.Capabilities(), a) - slices.Index(hub.Capabilities(), b)
	})
	return out, nil
}

// needDeclared is the right to change an account by settings.
func (w *writer) needDeclared(action string, u hub.User) error {
	if err := w.Need(access.Accounts, action, u.Name); err != nil {
		return err
	}
	return w.above(action, u.Name, u.Roles)
}

// setDeclaredPassword stores a password that the changes contain.
func (w *writer) setDeclaredPassword(ctx context.Context, u hub.User, changes []hub.SettingChange) error {
	i := slices.IndexFunc(changes, func(c hub.SettingChange) bool { return c.Map == hub.SecretMap && c.Key == passwordKey(u.Name) })
	if i < 0 {
		return nil
	}
	if err := w.needDeclared(access.Update, u); err != nil {
		return err
	}
	hash := ""
	if v := changes[i].Value; v != nil {
		hash = *v
	}
	w.Note(access.Update, access.Accounts, u.Name, "with a new password, by settings", nil, nil)
	w.Credentials = true
	return w.SetPassword(ctx, u.ID, hash)
}

// declareAccount makes an account that argocd-cm lists. Without a password it
// can be used by tokens alone.
func (w *writer) declareAccount(ctx context.Context, name string, values map[string]string) error {
	if err := validation.CheckUsername(name); err != nil {
		return err
	}
	u, err := declared(hub.User{Name: name}, values)
	if err != nil {
		return err
	}
	if err := w.needDeclared(access.Create, u); err != nil {
		return err
	}
	hash, _, err := w.SettingSecret(ctx, hub.SecretMap, passwordKey(name))
	if err != nil {
		return err
	}
	if name == hub.AdminName { // who may do everything in Argo CD
		u.Roles, u.Origin = []string{hub.RoleTenantAdmin}, hub.OriginSettings
	}
	if u, err = w.Tx.CreateUser(ctx, u, hash); err == nil {
		w.Note(access.Create, access.Accounts, name, "by settings", nil, userText(u))
	}
	return err
}

// undeclareAccount deletes an account that argocd-cm has made and lists no more.
func (w *writer) undeclareAccount(ctx context.Context, u hub.User) error {
	if err := w.needDeclared(access.Delete, u); err != nil {
		return err
	}
	if w.By.User == u.ID {
		return fault.With(fault.New(fault.Conflict, "you cannot delete your own account"), "", "let another admin do it")
	}
	w.Note(access.Delete, access.Accounts, u.Name, "by settings", userText(u), nil)
	w.Credentials = true
	return w.Tx.DeleteUser(ctx, u.ID)
}
