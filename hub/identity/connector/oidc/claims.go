package oidc

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/oauth2"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

// identity reads a person from the claims of a token that was checked.
func (p *Provider) identity(ctx context.Context, d *document, claims map[string]any, token *oauth2.Token) (connector.Identity, error) {
	var id connector.Identity
	if err := p.addUserInfo(ctx, d, claims, token); err != nil {
		return id, err
	}
	id.Subject = text(claims[p.cfg.SubjectClaim])
	if id.Subject == "" || len(id.Subject) > maxClaim {
		return id, unproven(nil, "the ID token has no usable claim %s", p.cfg.SubjectClaim)
	}
	id.Username, id.Name, id.Email = text(claims[p.cfg.UsernameClaim]), text(claims["name"]), text(claims[p.cfg.EmailClaim])
	id.EmailVerified = id.Email != "" && (claims["email_verified"] == true || claims["email_verified"] == "true" ||
		p.cfg.TrustEmail && claims["email_verified"] == nil)
	id.Claims = map[string][]string{}
	for name, v := range claims {
		if values, ok := texts(v); ok {
			id.Claims[name] = values
		}
	}
	var err error
	id.Groups, err = p.admitted(ctx, claims, token)
	return id, err
}

// addUserInfo replaces the groups by those of the userinfo endpoint.
func (p *Provider) addUserInfo(ctx context.Context, d *document, claims map[string]any, token *oauth2.Token) error {
	if !p.cfg.UserInfo {
		return nil
	}
	more, err := p.userInfo(ctx, d, token)
	if err != nil {
		return err
	}
	if !equal(text(more["sub"]), text(claims["sub"])) {
		return unproven(nil, "the userinfo endpoint answers for somebody else")
	}
	if groups, there := more[p.cfg.GroupsClaim]; there {
		claims[p.cfg.GroupsClaim] = groups
	}
	return nil
}

// admitted returns the groups of a person, who must have one of those that are
// allowed.
func (p *Provider) admitted(ctx context.Context, claims map[string]any, token *oauth2.Token) ([]string, error) {
	if p.cfg.NoGroups {
		return nil, nil
	}
	groups, err := p.groups(ctx, claims, token)
	if err != nil || len(p.cfg.AllowedGroups) == 0 {
		return groups, err
	}
	if !slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(p.cfg.AllowedGroups, g) }) {
		return nil, fault.With(fault.New(fault.Denied, "you are in none of the groups that may sign in"), "provider "+hostOf(p.cfg.Issuer), "ask an admin of the tenant")
	}
	return groups, nil
}

// groups returns the groups of a person. A provider that left them out is
// asked, or the sign-in refused: no groups would mean other rights (AUTH-11).
func (p *Provider) groups(ctx context.Context, claims map[string]any, token *oauth2.Token) ([]string, error) {
	if overage(claims, p.cfg.GroupsClaim) {
		if p.cfg.Graph == "" {
			return nil, &fault.Error{
				Kind: fault.Denied, Err: connector.Overage, Object: "provider " + hostOf(p.cfg.Issuer),
				Cause: "you are in so many groups that the provider leaves them out of the token",
				Fix:   "an admin lets the provider send only groups of the application, or sets azure.enableUserGroupOverageClaim",
			}
		}
		return p.graph(ctx, token)
	}
	v, there := claims[p.cfg.GroupsClaim]
	if !there || v == nil {
		return nil, nil
	}
	values, ok := texts(v)
	if !ok || len(values) > maxGroups {
		return nil, unproven(nil, "the claim %s is no list of at most %d texts", word(p.cfg.GroupsClaim), maxGroups)
	}
	return values, nil
}

// overage reports whether a token says that the groups are elsewhere.
func overage(claims map[string]any, name string) bool {
	if _, there := claims[name]; there {
		return false
	}
	if names, ok := claims["_claim_names"].(map[string]any); ok {
		if _, there := names[name]; there {
			return true
		}
	}
	return claims["hasgroups"] == true || claims["hasgroups"] == "true"
}

// graph asks Microsoft Graph for the ids of a person's groups.
func (p *Provider) graph(ctx context.Context, token *oauth2.Token) ([]string, error) {
	address := p.cfg.Graph + "/me/getMemberGroups"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader([]byte(`{"securityEnabledOnly": false}`)))
	if err != nil {
		return nil, p.away(err)
	}
	r.Header.Set("Content-Type", "application/json")
	token.SetAuthHeader(r)
	var answer struct {
		Value *[]string `json:"value"`
		Next  string    `json:"@odata.nextLink"`
	}
	if err := p.read(r, &answer); err != nil {
		return nil, err
	}
	if answer.Value == nil || answer.Next != "" || len(*answer.Value) > maxGroups {
		return nil, fault.With(fault.New(fault.Denied, "Microsoft Graph did not send all groups"), "provider "+hostOf(p.cfg.Issuer), "an admin lets the provider send only groups of the application")
	}
	return *answer.Value, nil
}

// userInfo reads the claims of the userinfo endpoint.
func (p *Provider) userInfo(ctx context.Context, d *document, token *oauth2.Token) (map[string]any, error) {
	var claims map[string]any
	if p.cfg.UserInfoURL == "" {
		info, err := d.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return nil, p.away(err)
		}
		if err := info.Claims(&claims); err != nil {
			return nil, p.away(err)
		}
		return claims, nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.cfg.UserInfoURL, nil)
	if err != nil {
		return nil, p.away(err)
	}
	token.SetAuthHeader(r)
	return claims, p.read(r, &claims)
}

// text is a claim that is a text, without what surrounds it.
func text(v any) string {
	s, _ := v.(string)
	return strings.TrimSpace(s)
}

// texts is a claim that is a text or a list of texts.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		if v == "" || len(v) > maxClaim {
			return nil, v == ""
		}
		return []string{v}, true
	case []any:
		out := make([]string, 0, len(v))
		for _, item := range v {
			s, ok := item.(string)
			if !ok || len(s) > maxClaim {
				return nil, false
			}
			if s != "" {
				out = append(out, s)
			}
		}
		return out, true
	}
	return nil, false
}
