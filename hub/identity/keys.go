package identity

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// KeyReader finds tokens that belong to no account, by the hash of their secret.
type KeyReader interface {
	APIKey(ctx context.Context, hash [32]byte) (hub.APIKey, error)
	TouchAPIKey(ctx context.Context, hash [32]byte, at time.Time) error
}

// RoleTokens are the tokens of roles of projects.
type RoleTokens interface {
	// RoleOfToken returns a token whose project still has the role; the error is
	// fault.Missing if there is none.
	RoleOfToken(ctx context.Context, tenant hub.TenantID, id hub.TokenID) (hub.RoleToken, error)
	// Exchanged returns a token that was given for one of another issuer, while
	// the tenant trusts that; the error is fault.Missing otherwise.
	Exchanged(ctx context.Context, tenant hub.TenantID, id hub.TokenID) (hub.ExchangedToken, error)
}

// given is who calls with a token that was given for one of another issuer.
func (s *Service) given(ctx context.Context, hash [32]byte, now time.Time) (hub.Caller, error) {
	key, tenant, err := s.key(ctx, hash, hub.KeyExchange, now)
	if err != nil {
		return hub.Caller{}, err
	}
	t, err := s.accounts.Exchanged(ctx, key.Tenant, key.ID)
	if err != nil {
		return hub.Caller{}, err
	}
	if t.Account == "" {
		return hub.Caller{
			Tenant: tenant.ID, TenantName: tenant.Name, User: hub.UserID(t.ID), Username: hub.RoleSubject(t.Project, t.Role),
			ProjectRole: hub.RoleSubject(t.Project, t.Role), Via: "token", Credential: string(t.ID),
		}, nil
	}
	user, err := s.accounts.Account(ctx, key.Tenant, t.Account)
	if err != nil {
		return hub.Caller{}, err
	}
	if user.Disabled || !user.Can(hub.CanUseTokens) {
		return hub.Caller{}, errProof()
	}
	return callerOf(tenant, user, "token", string(t.ID)), nil
}

// NewExchangedToken makes a token that is given for one of another issuer, and
// its secret, which is not stored.
func NewExchangedToken() (string, hub.ExchangedToken) {
	secret := NewSecret(GivenSecret)
	return secret, hub.ExchangedToken{ID: hub.NewID[hub.TokenID](), Hash: Hash(secret)}
}

// TenantByName returns a tenant. The error is fault.Missing if there is none.
func (s *Service) TenantByName(ctx context.Context, name string) (hub.Tenant, error) {
	return s.dir.TenantByName(ctx, name)
}

// Tenant returns a tenant by its id. The error is fault.Missing if there is none.
func (s *Service) Tenant(ctx context.Context, id hub.TenantID) (hub.Tenant, error) {
	return s.dir.Tenant(ctx, id)
}

// key finds a key of a kind, and notes that it was used.
func (s *Service) key(ctx context.Context, hash [32]byte, kind hub.KeyKind, now time.Time) (hub.APIKey, hub.Tenant, error) {
	key, err := s.dir.APIKey(ctx, hash)
	if err != nil {
		return key, hub.Tenant{}, err
	}
	if key.Kind != kind || !now.Before(key.ExpiresAt) {
		return key, hub.Tenant{}, errProof()
	}
	tenant, err := s.dir.Tenant(ctx, key.Tenant)
	if err != nil {
		return key, tenant, err
	}
	if tenant.Suspended {
		return key, tenant, errProof()
	}
	if key.UsedAt == nil || now.Sub(*key.UsedAt) >= touchEvery {
		err = s.dir.TouchAPIKey(ctx, hash, now)
	}
	return key, tenant, err
}

// role is who calls with a token of a role of a project: the role, which has its
// own rights and is no account.
func (s *Service) role(ctx context.Context, hash [32]byte, now time.Time) (hub.Caller, error) {
	key, tenant, err := s.key(ctx, hash, hub.KeyRole, now)
	if err != nil {
		return hub.Caller{}, err
	}
	t, err := s.accounts.RoleOfToken(ctx, key.Tenant, key.ID)
	if err != nil {
		return hub.Caller{}, err
	}
	return hub.Caller{
		Tenant: tenant.ID, TenantName: tenant.Name, User: hub.UserID(t.ID), Username: hub.RoleSubject(t.Project, t.Role),
		ProjectRole: hub.RoleSubject(t.Project, t.Role), Via: "token", Credential: string(t.ID),
	}, nil
}

// NewRoleToken makes a token of a role of a project and its secret, which is not
// stored.
func NewRoleToken(project, role, name string) (string, hub.RoleToken) {
	secret := NewSecret(RoleSecret)
	return secret, hub.RoleToken{
		ID: hub.NewID[hub.TokenID](), Project: project, Role: role, Name: name, Prefix: Shown(secret), Hash: Hash(secret),
	}
}

// Provisioner finds the identity provider that calls with a token for SCIM. The
// token is good for nothing else, and no other is good for SCIM. The error is
// fault.Unknown.
func (s *Service) Provisioner(ctx context.Context, secret string) (hub.Caller, error) {
	if KindOf(secret) != SCIMSecret {
		return hub.Caller{}, errProof()
	}
	key, tenant, err := s.key(ctx, Hash(secret), hub.KeySCIM, s.cfg.Now())
	if fault.KindOf(err) == fault.Missing {
		err = errProof()
	}
	if err != nil {
		return hub.Caller{}, err
	}
	return hub.Caller{Tenant: tenant.ID, TenantName: tenant.Name, User: hub.UserID(key.ID), Username: "scim:" + Shown(secret), Via: "scim", Credential: string(key.ID)}, nil
}

// NewSCIMToken makes a token of an identity provider and its secret, which is
// not stored.
func NewSCIMToken(name string) (string, hub.SCIMToken) {
	secret := NewSecret(SCIMSecret)
	return secret, hub.SCIMToken{ID: hub.NewID[hub.TokenID](), Name: name, Prefix: Shown(secret), Hash: Hash(secret)}
}
