package api

import (
	"context"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/api/admin"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/version"
)

const defaultTenant = "default"

// Login signs a person in.
func (s *Server) Login(ctx context.Context, r gen.LoginRequestObject) (gen.LoginResponseObject, error) {
	cred := identity.Credential{Tenant: r.Body.Tenant, Username: r.Body.Username, Password: r.Body.Password}
	if cred.Tenant == "" {
		cred.Tenant = defaultTenant
	}
	if r.Body.Provider != "" {
		return s.loginBy(ctx, r.Body.Provider, cred, r.Body.Mode)
	}
	secret, who, expires, err := s.Identity.Login(ctx, from(ctx), cred)
	if err != nil {
		return nil, err
	}
	answer, err := s.signIn(ctx, secret, who, expires, r.Body.Mode)
	if err != nil {
		return nil, err
	}
	return gen.Login200JSONResponse{SignedInAnswerJSONResponse: answer}, nil
}

// signIn answers a new session: in a cookie for browsers, else in the body.
func (s *Server) signIn(ctx context.Context, secret string, who hub.Caller, expires time.Time, mode apimodel.SignInMode) (gen.SignedInAnswerJSONResponse, error) {
	var answer gen.SignedInAnswerJSONResponse
	me, err := s.me(ctx, who)
	if err != nil {
		return answer, err
	}
	answer.Body.Me, answer.Body.ExpiresAt = me, expires.UTC()
	if mode == apimodel.SignInModeToken {
		answer.Body.Token = secret
		return answer, nil
	}
	answer.Headers.SetCookie = s.setCookie(secret, int(time.Until(expires).Seconds()))
	return answer, nil
}

// me says who is calling and what they may do.
func (s *Server) me(ctx context.Context, who hub.Caller) (apimodel.Me, error) {
	rights, language, err := s.Catalog.Self(ctx, who)
	if err != nil {
		return apimodel.Me{}, err
	}
	roles := who.Roles
	if roles == nil {
		roles = []string{}
	}
	return apimodel.Me{Username: who.Username, Tenant: who.TenantName, Roles: roles, Groups: who.Groups, Provider: who.Provider, Via: apimodel.MeVia(who.Via), Language: apimodel.Language(language), Permissions: permissions(rights)}, nil
}

// permissions is what a face needs to show only what will work. The hub
// checks again at every write.
func permissions(rights *access.Index) []apimodel.Permission {
	crud := []string{access.Get, access.Create, access.Update, access.Delete}
	out := []apimodel.Permission{} // a list also for those who may do nothing
	ask := func(resource string, byProject bool, actions ...string) {
		for _, action := range actions {
			if !rights.Any(resource, action) {
				continue
			}
			p := apimodel.Permission{Resource: resource, Action: action, All: true, Projects: []string{}}
			if byProject {
				var projects []string
				if p.All, projects = rights.AllowedProjects(resource, action); !p.All {
					p.Projects = append(p.Projects, projects...)
				}
			}
			out = append(out, p)
		}
	}
	ask(access.Applications, true, append(crud, access.Sync, access.Rollback, access.Override, access.Action)...)
	ask(access.ApplicationSets, true, crud...)
	ask(access.Projects, true, crud...)
	ask(access.Logs, true, access.Get)
	ask(access.Exec, true, access.Create)
	ask(access.PortForward, true, access.Create)
	ask(access.Repositories, false, crud...)
	ask(access.WriteRepositories, false, crud...)
	ask(access.Certificates, false, access.Get, access.Create, access.Delete)
	ask(access.GPGKeys, false, access.Get, access.Create, access.Delete)
	ask(access.Clusters, false, append(crud, access.Override)...)
	ask(access.Accounts, false, crud...)
	ask(access.Tenants, false, append(crud, "suspend", "resume", "restore", "set-quota", "export")...)
	ask(access.Audit, false, access.Get, access.Update)
	ask(access.Settings, false, access.Get, access.Update)
	return out
}

// Logout ends the session of the caller. A token is not ended by it.
func (s *Server) Logout(ctx context.Context, _ gen.LogoutRequestObject) (gen.LogoutResponseObject, error) {
	who := callerOf(ctx)
	if err := s.Catalog.SignedOut(ctx, who); err != nil {
		return nil, err
	}
	address, err := s.SignIn.SignOut(ctx, who, secretOf(ctx), hostOf(ctx))
	if err != nil {
		s.Log.WarnContext(ctx, "the session with the identity provider goes on", logkey.Error, err)
	}
	if err := s.Identity.Logout(ctx, secretOf(ctx)); err != nil {
		return nil, err
	}
	return signedOut{cookie: s.setCookie("", -1), address: address}, nil
}

// GetMe answers who is calling.
func (s *Server) GetMe(ctx context.Context, _ gen.GetMeRequestObject) (gen.GetMeResponseObject, error) {
	me, err := s.me(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.GetMe200JSONResponse(me), nil
}

// ChangePassword changes the caller's password. All sessions end; a browser
// signs in again.
func (s *Server) ChangePassword(ctx context.Context, r gen.ChangePasswordRequestObject) (gen.ChangePasswordResponseObject, error) {
	who := callerOf(ctx)
	if err := s.Identity.CheckPassword(ctx, who, r.Body.Current); err != nil {
		return nil, err
	}
	hash, err := s.newPassword(ctx, who.Tenant, r.Body.New)
	if err != nil {
		return nil, err
	}
	if err := s.Catalog.ChangePassword(ctx, who, hash); err != nil {
		return nil, err
	}
	s.Identity.Forget(who.Tenant, who.Username)
	return gen.ChangePassword204Response{}, nil
}

// ChooseLanguage stores the language in which the caller reads the console.
func (s *Server) ChooseLanguage(ctx context.Context, r gen.ChooseLanguageRequestObject) (gen.ChooseLanguageResponseObject, error) {
	if err := s.Catalog.SetLanguage(ctx, callerOf(ctx), string(r.Body.Language)); err != nil {
		return nil, err
	}
	return gen.ChooseLanguage204Response{}, nil
}

// CheckSetup says what a setup token is for.
func (s *Server) CheckSetup(ctx context.Context, r gen.CheckSetupRequestObject) (gen.CheckSetupResponseObject, error) {
	t, link, err := s.Catalog.CheckSetup(ctx, identity.Hash(r.Body.Token))
	if err != nil {
		return nil, err
	}
	first, err := s.Catalog.HasNoUsers(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return gen.CheckSetup200JSONResponse{Tenant: t.Name, Roles: link.Roles, ExpiresAt: link.ExpiresAt.UTC(), First: first}, nil
}

// Setup makes the account of a setup token, and signs it in.
func (s *Server) Setup(ctx context.Context, r gen.SetupRequestObject) (gen.SetupResponseObject, error) {
	link := identity.Hash(r.Body.Token)
	of, _, err := s.Catalog.CheckSetup(ctx, link)
	if err != nil {
		return nil, err // before a password is hashed for a stranger
	}
	hash, err := s.newPassword(ctx, of.ID, r.Body.Password)
	if err != nil {
		return nil, err
	}
	t, u, err := s.Catalog.Setup(ctx, from(ctx), link, r.Body.Username, hash)
	if err != nil {
		return nil, err
	}
	secret, who, expires, err := s.Identity.Begin(ctx, from(ctx), t, u)
	if err != nil {
		return nil, err
	}
	answer, err := s.signIn(ctx, secret, who, expires, r.Body.Mode)
	if err != nil {
		return nil, err
	}
	return gen.Setup200JSONResponse{SignedInAnswerJSONResponse: answer}, nil
}

// ListTokens answers the caller's API tokens.
func (s *Server) ListTokens(ctx context.Context, _ gen.ListTokensRequestObject) (gen.ListTokensResponseObject, error) {
	tokens, err := s.Catalog.Tokens(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListTokens200JSONResponse{Items: collect(tokens, presentToken)}, nil
}

// CreateToken makes an API token of the caller.
func (s *Server) CreateToken(ctx context.Context, r gen.CreateTokenRequestObject) (gen.CreateTokenResponseObject, error) {
	who := callerOf(ctx)
	secret, token := identity.NewToken(who.Tenant, who.User, r.Body.Name)
	token, err := s.Catalog.CreateToken(ctx, who, token, r.Body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	return gen.CreateToken201JSONResponse{Token: secret, Info: presentToken(token)}, nil
}

// DeleteToken revokes an API token of the caller.
func (s *Server) DeleteToken(ctx context.Context, r gen.DeleteTokenRequestObject) (gen.DeleteTokenResponseObject, error) {
	who := callerOf(ctx)
	if err := s.Catalog.DeleteToken(ctx, who, hub.TokenID(r.Id)); err != nil {
		return nil, err
	}
	s.Identity.Forget(who.Tenant, who.Username)
	return gen.DeleteToken204Response{}, nil
}

// ListTenants answers all tenants.
func (s *Server) ListTenants(ctx context.Context, _ gen.ListTenantsRequestObject) (gen.ListTenantsResponseObject, error) {
	tenants, err := s.Catalog.Tenants(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListTenants200JSONResponse{Items: collect(tenants, admin.PresentTenant)}, nil
}

// GetTenant answers one tenant.
func (s *Server) GetTenant(ctx context.Context, r gen.GetTenantRequestObject) (gen.GetTenantResponseObject, error) {
	t, err := s.Catalog.Tenant(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetTenant200JSONResponse(admin.PresentTenant(t)), nil
}

// CreateTenant makes a tenant with a setup link.
func (s *Server) CreateTenant(ctx context.Context, r gen.CreateTenantRequestObject) (gen.CreateTenantResponseObject, error) {
	secret := identity.NewSecret(identity.SetupSecret)
	t, until, err := s.Catalog.CreateTenant(ctx, callerOf(ctx), hub.Tenant{ID: hub.TenantID(strings.ToLower(r.Body.Id)), Name: r.Body.Name, DisplayName: r.Body.DisplayName}, identity.Hash(secret))
	if err != nil {
		return nil, err
	}
	return gen.CreateTenant201JSONResponse(s.newTenant(t, secret, until)), nil
}

// CreateSetupLink makes another setup link for a tenant.
func (s *Server) CreateSetupLink(ctx context.Context, r gen.CreateSetupLinkRequestObject) (gen.CreateSetupLinkResponseObject, error) {
	secret := identity.NewSecret(identity.SetupSecret)
	t, until, err := s.Catalog.NewSetupLink(ctx, callerOf(ctx), r.Name, identity.Hash(secret))
	if err != nil {
		return nil, err
	}
	return gen.CreateSetupLink201JSONResponse(s.newTenant(t, secret, until)), nil
}

func (s *Server) newTenant(t hub.Tenant, secret string, until time.Time) apimodel.NewTenant {
	return apimodel.NewTenant{Tenant: admin.PresentTenant(t), SetupToken: secret, SetupLink: SetupLink(s.cfg.ExternalURL, secret), ExpiresAt: until.UTC()}
}

// ListUsers answers the local accounts.
func (s *Server) ListUsers(ctx context.Context, _ gen.ListUsersRequestObject) (gen.ListUsersResponseObject, error) {
	users, err := s.Catalog.Users(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListUsers200JSONResponse{Items: collect(users, presentUser)}, nil
}

// DeleteUser deletes an account.
func (s *Server) DeleteUser(ctx context.Context, r gen.DeleteUserRequestObject) (gen.DeleteUserResponseObject, error) {
	who := callerOf(ctx)
	if err := s.Catalog.DeleteUser(ctx, who, r.Username); err != nil {
		return nil, err
	}
	s.Identity.Forget(who.Tenant, r.Username)
	return gen.DeleteUser204Response{}, nil
}

// GetVersion answers which release this is, and where its console is.
func (s *Server) GetVersion(context.Context, gen.GetVersionRequestObject) (gen.GetVersionResponseObject, error) {
	return gen.GetVersion200JSONResponse{Version: version.String(), ConsoleURL: strings.TrimRight(s.cfg.ExternalURL, "/")}, nil
}
