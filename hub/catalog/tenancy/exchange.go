package tenancy

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Federations returns the issuers whose tokens a tenant accepts for exchange.
func (c *Tenancy) Federations(ctx context.Context, tenant hub.TenantID) ([]hub.Federation, error) {
	var out []hub.Federation
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		out, err = federations(ctx, tx)
		return err
	})
	return out, err
}

func federations(ctx context.Context, tx transact.Tx) ([]hub.Federation, error) {
	values, err := tx.SettingValues(ctx, hub.SettingsMap, []string{hub.FederationKey})
	return settings.Federations(values[hub.FederationKey]), err
}

// A Proof is a token of another issuer that was verified.
type Proof struct {
	Trust   string             // name of the federation
	Rule    hub.FederationRule // that it was verified against
	Subject string
	Expires time.Time
	Hash    [32]byte
}

// ExchangeToken stores a token for a verified one of another issuer, which
// counts once. It acts as the rules of the tenant say, and lives no longer than
// the other one (AUTH-10).
func (c *Tenancy) ExchangeToken(ctx context.Context, tenant hub.TenantID, from hub.Caller, p Proof, t hub.ExchangedToken) (hub.ExchangedToken, error) {
	by := hub.Caller{Tenant: tenant, Username: "exchange:" + p.Trust, Via: "exchange", Address: from.Address, Request: from.Request}
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		all, err := federations(ctx, w.Tx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(f hub.Federation) bool { return f.Name == p.Trust })
		if i < 0 {
			return errExchange()
		}
		rule := p.Rule
		if !slices.ContainsFunc(all[i].Rules, func(r hub.FederationRule) bool { return reflect.DeepEqual(r, rule) }) {
			return errExchange() // it was taken away meanwhile
		}
		if err := w.exchangeTarget(ctx, rule, &t); err != nil {
			return err
		}
		t.Proof, t.Trust, t.Subject, t.ProofUntil = p.Hash, p.Trust, p.Subject, p.Expires.Add(time.Hour)
		t.ExpiresAt = w.Now.Add(all[i].Lifetime)
		if p.Expires.Before(t.ExpiresAt) {
			t.ExpiresAt = p.Expires
		}
		as := rule.Account
		if as == "" {
			as = hub.RoleSubject(rule.Project, rule.Role)
		}
		w.Note("exchange-token", access.Accounts, as, "token of "+p.Trust+" for "+p.Subject, nil,
			map[string]any{"id": t.ID, "expiresAt": t.ExpiresAt})
		return w.PutExchangedToken(ctx, t)
	})
	return t, err
}

// errExchange is the one answer to tokens that prove nothing here.
func errExchange() error {
	return fault.New(fault.Unknown, "the token is not accepted for exchange")
}

// exchangeTarget finds the account or the role that a rule names.
func (w *writer) exchangeTarget(ctx context.Context, rule hub.FederationRule, t *hub.ExchangedToken) error {
	if rule.Account != "" {
		u, _, err := w.UserByName(ctx, rule.Account)
		if fault.KindOf(err) == fault.Missing || err == nil && (u.Disabled || !u.Can(hub.CanUseTokens) || slices.Contains(u.Roles, hub.RolePlatformAdmin)) {
			return fault.With(fault.New(fault.Denied, "the account of the rule cannot be used by tokens"), "account "+rule.Account, "enable it, with the capability apiKey; it is no platform admin")
		}
		t.Account = u.ID
		return err
	}
	p, err := w.Tx.Project(ctx, rule.Project)
	if err == nil && !hasRole(p, rule.Role) {
		err = fault.New(fault.Missing, "there is no such role")
	}
	if fault.KindOf(err) == fault.Missing {
		return fault.With(fault.New(fault.Denied, "the role of the rule does not exist"), "role "+rule.Project+"/"+rule.Role, "create it")
	}
	t.ProjectID, t.Project, t.Role = p.ID, p.Name, rule.Role
	return err
}

func hasRole(p hub.Project, role string) bool {
	spec, err := hub.DecodeProject(p.Spec)
	return err == nil && slices.ContainsFunc(spec.Roles, func(r hub.ProjectRole) bool { return r.Name == role })
}

// Exchanged returns a token that was given for one of another issuer, if the
// tenant still trusts that, and what it acts as still exists. Identity asks. The
// error is fault.Missing otherwise.
func (c *Tenancy) Exchanged(ctx context.Context, tenant hub.TenantID, id hub.TokenID) (hub.ExchangedToken, error) {
	var t hub.ExchangedToken
	err := c.transact.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
		var err error
		if t, err = tx.ExchangedToken(ctx, id, c.transact.Now()); err != nil {
			return err
		}
		all, err := federations(ctx, tx)
		if err != nil {
			return err
		}
		gone := !slices.ContainsFunc(all, func(f hub.Federation) bool { return f.Name == t.Trust })
		if !gone && t.Account == "" {
			p, err := tx.Project(ctx, t.Project)
			if err != nil {
				return err
			}
			gone = !hasRole(p, t.Role)
		}
		if gone {
			return fault.New(fault.Missing, "the token's issuer or role is trusted no more")
		}
		return nil
	})
	return t, err
}
