package api

import (
	"cmp"
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// newPassword returns the hash of a new password that the hub and the tenant
// allow.
func (s *Server) newPassword(ctx context.Context, tenant hub.TenantID, password string) (string, error) {
	if err := s.Catalog.CheckPassword(ctx, tenant, password); err != nil {
		return "", err
	}
	return s.Passwords.Hash(ctx, password)
}

// GetUser answers one account.
func (s *Server) GetUser(ctx context.Context, r gen.GetUserRequestObject) (gen.GetUserResponseObject, error) {
	u, err := s.Catalog.User(ctx, callerOf(ctx), r.Username)
	if err != nil {
		return nil, err
	}
	return gen.GetUser200JSONResponse(presentUser(u)), nil
}

// CreateUser makes a local account. One without a password is a service account.
func (s *Server) CreateUser(ctx context.Context, r gen.CreateUserRequestObject) (gen.CreateUserResponseObject, error) {
	who, hash := callerOf(ctx), ""
	if r.Body.Password != "" {
		var err error
		if hash, err = s.newPassword(ctx, who.Tenant, r.Body.Password); err != nil {
			return nil, err
		}
	}
	u := hub.User{Name: r.Body.Name}
	for _, role := range r.Body.Roles {
		u.Roles = append(u.Roles, string(role))
	}
	for _, c := range r.Body.Capabilities {
		u.Capabilities = append(u.Capabilities, string(c))
	}
	u, err := s.Catalog.CreateUser(ctx, who, u, hash)
	if err != nil {
		return nil, err
	}
	return gen.CreateUser201JSONResponse(presentUser(u)), nil
}

// UpdateUser changes an account.
func (s *Server) UpdateUser(ctx context.Context, r gen.UpdateUserRequestObject) (gen.UpdateUserResponseObject, error) {
	who := callerOf(ctx)
	ch := tenancy.UserChange{Disabled: r.Body.Disabled}
	if r.Body.Roles != nil {
		roles := collect(*r.Body.Roles, func(v apimodel.UpdateUserJSONBodyRoles) string { return string(v) })
		ch.Roles = &roles
	}
	if r.Body.Capabilities != nil {
		capabilities := collect(*r.Body.Capabilities, func(v apimodel.UpdateUserJSONBodyCapabilities) string { return string(v) })
		ch.Capabilities = &capabilities
	}
	if r.Body.Password != "" {
		var err error
		if ch.PasswordHash, err = s.newPassword(ctx, who.Tenant, r.Body.Password); err != nil {
			return nil, err
		}
	}
	u, err := s.Catalog.UpdateUser(ctx, who, r.Username, ch)
	if err != nil {
		return nil, err
	}
	s.Identity.Forget(who.Tenant, u.Name)
	return gen.UpdateUser200JSONResponse(presentUser(u)), nil
}

// ListAccountTokens answers the API tokens of an account.
func (s *Server) ListAccountTokens(ctx context.Context, r gen.ListAccountTokensRequestObject) (gen.ListAccountTokensResponseObject, error) {
	tokens, err := s.Catalog.AccountTokens(ctx, callerOf(ctx), r.Username)
	if err != nil {
		return nil, err
	}
	return gen.ListAccountTokens200JSONResponse{Items: collect(tokens, presentToken)}, nil
}

// CreateAccountToken makes an API token that acts as an account.
func (s *Server) CreateAccountToken(ctx context.Context, r gen.CreateAccountTokenRequestObject) (gen.CreateAccountTokenResponseObject, error) {
	who := callerOf(ctx)
	secret, token := identity.NewToken(who.Tenant, "", "")
	token.Name = cmp.Or(r.Body.Name, madeUpName(token.ID))
	token, err := s.Catalog.CreateAccountToken(ctx, who, r.Username, token, r.Body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	return gen.CreateAccountToken201JSONResponse{Token: secret, Info: presentToken(token)}, nil
}

// DeleteAccountToken revokes an API token of an account.
func (s *Server) DeleteAccountToken(ctx context.Context, r gen.DeleteAccountTokenRequestObject) (gen.DeleteAccountTokenResponseObject, error) {
	who := callerOf(ctx)
	if err := s.Catalog.DeleteAccountToken(ctx, who, r.Username, r.Id); err != nil {
		return nil, err
	}
	s.Identity.Forget(who.Tenant, r.Username)
	return gen.DeleteAccountToken204Response{}, nil
}

// ListAccountSessions answers where an account is signed in.
func (s *Server) ListAccountSessions(ctx context.Context, r gen.ListAccountSessionsRequestObject) (gen.ListAccountSessionsResponseObject, error) {
	all, err := s.Catalog.AccountSessions(ctx, callerOf(ctx), r.Username)
	if err != nil {
		return nil, err
	}
	own := identity.Hash(secretOf(ctx))
	return gen.ListAccountSessions200JSONResponse{Items: collect(all, func(v hub.Session) apimodel.Session {
		return apimodel.Session{
			Id: string(v.ID), CreatedAt: v.CreatedAt.UTC(), SeenAt: v.SeenAt.UTC(), ExpiresAt: v.ExpiresAt.UTC(), Address: v.Address, Client: v.Client,
			Provider: v.Provider, Current: v.Hash == own,
		}
	})}, nil
}

// DeleteAccountSession ends one session of an account.
func (s *Server) DeleteAccountSession(ctx context.Context, r gen.DeleteAccountSessionRequestObject) (gen.DeleteAccountSessionResponseObject, error) {
	who := callerOf(ctx)
	if err := s.Catalog.EndAccountSession(ctx, who, r.Username, r.Id); err != nil {
		return nil, err
	}
	s.Identity.Forget(who.Tenant, r.Username)
	return gen.DeleteAccountSession204Response{}, nil
}

// DeleteAccountSessions signs an account out everywhere.
func (s *Server) DeleteAccountSessions(ctx context.Context, r gen.DeleteAccountSessionsRequestObject) (gen.DeleteAccountSessionsResponseObject, error) {
	who := callerOf(ctx)
	var spared *[32]byte
	if r.Params.Others {
		own := identity.Hash(secretOf(ctx))
		spared = &own
	}
	ended, err := s.Catalog.EndAccountSessions(ctx, who, r.Username, spared)
	if err != nil {
		return nil, err
	}
	s.Identity.Forget(who.Tenant, r.Username)
	return gen.DeleteAccountSessions200JSONResponse{Ended: ended}, nil
}
