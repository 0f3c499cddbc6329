package sso

import (
	"net/http"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/dex"
	"github.com/capstan-cd/capstan/hub/identity/connector/oidc"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// brokered builds the connectors of dex.config. One whose secrets are missing
// stays in the list with the reason.
func (s *Service) brokered(set hub.SignInSettings) []provider {
	text := set.Values[settings.DexKey]
	if strings.TrimSpace(text) == "" {
		return nil
	}
	issuer := "" // of the connector that is built
	builders := dex.Builders{Dial: s.Dial, OIDC: func(c dex.OIDCConfig, _ *http.Client) (connector.Redirect, error) {
		issuer = c.Issuer
		return s.byDex(c, set)
	}}
	all, _, err := dex.Parse(text, nil, builders) // for the names alone
	if err != nil {
		return []provider{{Provider: Provider{ID: dexPrefix, Name: "SSO", Kind: KindRedirect}, err: err}}
	}
	resolved, _, missing := dex.Parse(text, dex.Secret(secretOf(set)), builders)
	out := make([]provider, len(all))
	for i, c := range all {
		p := provider{Provider: Provider{ID: dexPrefix + c.ID, Name: c.Name, Kind: KindRedirect}, realm: c.Type, path: DexCallback, posts: c.Type == "saml", machine: c.Machine, err: missing}
		if c.Type == "ldap" {
			p.Kind = KindPassword
		}
		if missing == nil {
			issuer = ""
			p.redirect, p.password, p.err = build(s, set, resolved[i])
			if issuer != "" {
				p.realm = issuer
			}
		}
		out[i] = p
	}
	return out
}

func build(s *Service, set hub.SignInSettings, c dex.Connector) (connector.Redirect, connector.Password, error) {
	client, err := s.client(set)
	if err != nil {
		return nil, nil, err
	}
	return c.Build(client)
}

// byDex makes the connector of Dex's type oidc.
func (s *Service) byDex(c dex.OIDCConfig, set hub.SignInSettings) (connector.Redirect, error) {
	for name, set := range map[string]bool{
		"issuerAlias": c.IssuerAlias != "", "providerDiscoveryOverrides": c.ProviderDiscoveryOverrides != dex.OIDCEndpoints{},
		"claimModifications": len(c.ClaimModifications.NewGroupFromClaims) > 0 || c.ClaimModifications.FilterGroupClaims.GroupsFilter != "" ||
			c.ClaimModifications.ModifyGroupNames.Prefix != "" || c.ClaimModifications.ModifyGroupNames.Suffix != "",
	} {
		if set {
			return nil, fault.With(fault.New(fault.Invalid, "the field %s is not supported for connectors of type oidc", name), "", "leave it out, and let the provider send what is needed")
		}
	}
	authorities, err := c.Authorities()
	if err != nil {
		return nil, err
	}
	client, err := s.Client(string(authorities), settings.Truth(set.Values[settings.NoTLSCheckKey]))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "rootCAs cannot be used")
	}
	scopes := c.Scopes
	if len(scopes) == 0 {
		scopes = []string{"openid", "profile", "email"}
	}
	extra := map[string]string{"acr_values": strings.Join(c.AcrValues, " ")}
	if c.PromptType != nil {
		extra["prompt"] = *c.PromptType
	}
	cfg := oidc.Config{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, Scopes: scopes, UserInfo: c.GetUserInfo,
		GroupsClaim: c.ClaimMapping.Groups, EmailClaim: c.ClaimMapping.Email, UsernameClaim: c.ClaimMapping.PreferredUsername, SubjectClaim: c.UserIDKey,
		NoGroups: !c.InsecureEnableGroups, AllowedGroups: c.AllowedGroups, TrustEmail: c.InsecureSkipEmailVerified, Extra: extra, Now: s.Now,
	}
	if cfg.UsernameClaim == "" {
		cfg.UsernameClaim = c.UserNameKey
	}
	return oidc.New(cfg, client), nil
}
