package tenancy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxPersonName is the length, in characters, of the name of an account that a
// provider's person gets.
const maxPersonName = 120

// SignInSettings returns what the tenant has set about sign-ins, with the
// secrets that it refers to. Those that are not stored are left out. Single
// sign-on asks, before anybody is signed in.
func (c *Tenancy) SignInSettings(ctx context.Context, tenant hub.TenantID) (hub.SignInSettings, error) {
	out := hub.SignInSettings{Secrets: map[string]string{}}
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		if out.Values, err = tx.SettingValues(ctx, hub.SettingsMap, settings.SignInKeys()); err != nil {
			return err
		}
		policy, err := tx.SettingValues(ctx, settings.PolicyMap, []string{settings.ScopesKey})
		if err != nil {
			return err
		}
		out.Scopes = policy[settings.ScopesKey]
		for _, reference := range settings.References(out.Values) {
			name, key := settings.Referred(reference)
			value, found, err := tx.SettingSecret(ctx, name, key)
			if err != nil {
				return err
			}
			if found {
				out.Secrets[reference] = value
			}
		}
		return nil
	})
	return out, err
}

// LocalSignIn reports whether a local account may sign in with a password
// (AUTH-02). Identity asks.
func (c *Tenancy) LocalSignIn(ctx context.Context, tenant hub.TenantID, u hub.User) (bool, error) {
	var values map[string]string
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		values, err = tx.SettingValues(ctx, hub.SettingsMap, []string{settings.AdminKey, settings.AccountKey(u.Name)})
		return err
	})
	return settings.LocalSignIn(values, u), err
}

// PutSignIn stores a sign-in that begins at a provider.
func (c *Tenancy) PutSignIn(ctx context.Context, tenant hub.TenantID, s hub.SignIn) error {
	return c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error { return tx.PutSignIn(ctx, s) })
}

// TakeSignIn returns a sign-in of this browser that has not expired, once.
func (c *Tenancy) TakeSignIn(ctx context.Context, tenant hub.TenantID, hash, browser [32]byte) (hub.SignIn, error) {
	var s hub.SignIn
	err := c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		s, err = tx.TakeSignIn(ctx, hash, browser, c.transact.Now())
		return err
	})
	return s, err
}

// PutSessionClaims stores what a provider said of a person.
func (c *Tenancy) PutSessionClaims(ctx context.Context, tenant hub.TenantID, claims hub.SessionClaims) error {
	return c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error { return tx.PutSessionClaims(ctx, claims) })
}

// SessionClaims returns what a provider said of the person of a session,
// without the proof. Identity asks.
func (c *Tenancy) SessionClaims(ctx context.Context, tenant hub.TenantID, hash [32]byte) (hub.SessionClaims, error) {
	var claims hub.SessionClaims
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		claims, err = tx.SessionClaims(ctx, hash, c.transact.Now())
		return err
	})
	return claims, err
}

// TakeSessionClaims returns the claims of a session that ends, or of a command
// line's code with this challenge, once.
func (c *Tenancy) TakeSessionClaims(ctx context.Context, tenant hub.TenantID, hash [32]byte, challenge string) (hub.SessionClaims, error) {
	var claims hub.SessionClaims
	err := c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		claims, err = tx.TakeSessionClaims(ctx, hash, challenge, c.transact.Now())
		return err
	})
	return claims, err
}

// Subjects returns those of a provider's values that policies may name as a
// subject. A value must not stand for a local account or for a role: a person
// who may choose a group's name would get the rights of either (RBAC-15).
func (c *Tenancy) Subjects(ctx context.Context, tenant hub.TenantID, values []string) ([]string, error) {
	var locals []string
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		locals, err = tx.LocalNames(ctx, values)
		return err
	})
	out := []string{}
	for _, v := range values {
		if v == "" || strings.HasPrefix(v, "role:") || strings.HasPrefix(v, "proj:") || slices.Contains(locals, v) || slices.Contains(out, v) {
			continue
		}
		out = append(out, v)
	}
	return out, err
}

// PersonAccount returns the account of a provider's person, and makes it at the
// first sign-in. It is never a local account, whatever that is called.
func (c *Tenancy) PersonAccount(ctx context.Context, tenant hub.TenantID, from hub.Caller, p hub.Person) (hub.User, error) {
	var u hub.User
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		u, err = tx.UserBySubject(ctx, p)
		return err
	})
	if fault.KindOf(err) != fault.Missing {
		return u, err
	}
	names := personNames(p)
	for _, name := range names {
		by := hub.Caller{Tenant: tenant, Username: name, Via: "provider", Address: from.Address, Request: from.Request}
		err = c.transact.WriteAs(ctx, tenant, false, func(context.Context, transact.Tx) (hub.Caller, *access.Index, error) {
			return by, nil, nil
		}, func(ctx context.Context, r *transact.Reader, ch *transact.Changes) error {
			var err error
			if u, err = r.Tx.UserBySubject(ctx, p); fault.KindOf(err) != fault.Missing {
				return err // another sign-in was faster
			}
			ch.Note(access.Create, access.Accounts, name, "at the first sign-in by the provider "+p.Provider, nil, map[string]any{"provider": p.Provider, "realm": p.Realm})
			u, err = r.Tx.CreateUser(ctx, hub.User{Name: name, Provider: p.Provider, Realm: p.Realm, Subject: p.Subject, Roles: []string{}}, "")
			return err
		})
		if fault.KindOf(err) != fault.Conflict {
			return u, err
		}
	}
	return u, err
}

// personNames are the names to try for a new account: PROVIDER:LABEL, and with
// a part that only this person has. No local account has a colon in its name.
func personNames(p hub.Person) []string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(",\"\\", r) {
			return -1
		}
		return r
	}, p.Label)
	if clean = strings.TrimSpace(clean); clean == "" {
		clean = "someone"
	}
	if runes := []rune(clean); len(runes) > maxPersonName {
		clean = string(runes[:maxPersonName])
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s", p.Realm, p.Subject))
	name := p.Provider + ":" + clean
	return []string{name, name, name + "#" + hex.EncodeToString(sum[:4])}
}

// SignInBy notes a sign-in by a provider that was refused.
func (c *Tenancy) SignInBy(ctx context.Context, by hub.Caller, provider, reason string) error {
	return c.transact.Record(ctx, by, audit.Entry{Action: "login", Resource: access.Accounts, Object: provider, Result: audit.Denied, Reason: reason})
}

// warnSignIn says what is missing for the sign-ins that a change is about.
func (w *writer) warnSignIn(ctx context.Context, changes []hub.SettingChange) (warnings []string, err error) {
	if !validation.Sets(changes, settings.SignInKeys()...) {
		return nil, nil
	}
	values, err := w.SettingValues(ctx, hub.SettingsMap, settings.SignInKeys())
	if err != nil {
		return nil, err
	}
	warnings = settings.DexWarnings(values[settings.DexKey])
	for _, reference := range settings.References(values) {
		name, key := settings.Referred(reference)
		_, found, err := w.SettingSecret(ctx, name, key)
		if err != nil {
			return nil, err
		}
		if !found {
			warnings = append(warnings, fmt.Sprintf("$%s is not stored yet: apply the Secret %s with the key %s", reference, strings.TrimPrefix(name, hub.SecretPrefix), key))
		}
	}
	if validation.Sets(changes, settings.AdminKey) && values[settings.AdminKey] != "" && !settings.Truth(values[settings.AdminKey]) {
		warnings = append(warnings, "local accounts sign in no more unless "+hub.SettingsMap+" lists them with the capability login; sessions that have begun go on, and a platform admin can make a setup link")
	}
	if settings.Truth(values[settings.NoTLSCheckKey]) {
		warnings = append(warnings, settings.NoTLSCheckKey+" is on: certificates of identity providers are not checked, so anybody on the way can sign in as anybody")
	}
	return warnings, nil
}
