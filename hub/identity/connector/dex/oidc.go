package dex

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Builders make the connectors that other packages have.
type Builders struct {
	// OIDC makes a connector of type oidc. Nil: that type is refused.
	OIDC func(OIDCConfig, *http.Client) (connector.Redirect, error)
	// Dial opens the connections of connectors that do not speak HTTP.
	Dial ldapDial
}

// An OIDCConfig is the configuration of a connector of type oidc, with the
// fields of Dex.
type OIDCConfig struct {
	Issuer       string   `json:"issuer"`
	IssuerAlias  string   `json:"issuerAlias"` // the issuer that tokens name, if it differs
	ClientID     string   `json:"clientID"`
	ClientSecret string   `json:"clientSecret"`
	Scopes       []string `json:"scopes"` // besides openid; empty: profile and email
	// RootCAs are authorities in PEM, or that as base64; files are refused.
	RootCAs []string `json:"rootCAs"`

	ProviderDiscoveryOverrides OIDCEndpoints `json:"providerDiscoveryOverrides"`
	// BasicAuthUnsupported sends the client secret in the form.
	BasicAuthUnsupported      *bool    `json:"basicAuthUnsupported"`
	InsecureSkipEmailVerified bool     `json:"insecureSkipEmailVerified"` // an absent email_verified counts as true
	InsecureEnableGroups      bool     `json:"insecureEnableGroups"`      // without it there are no groups
	AllowedGroups             []string `json:"allowedGroups"`
	AcrValues                 []string `json:"acrValues"`
	GetUserInfo               bool     `json:"getUserInfo"`
	UserIDKey                 string   `json:"userIDKey"`   // empty: sub
	UserNameKey               string   `json:"userNameKey"` // empty: name
	PromptType                *string  `json:"promptType"`
	PKCEChallenge             string   `json:"pkceChallenge"` // S256 in any case; plain is refused
	// OverrideClaimMapping prefers ClaimMapping to the standard claims.
	OverrideClaimMapping bool             `json:"overrideClaimMapping"`
	ClaimMapping         OIDCClaims       `json:"claimMapping"`
	ClaimModifications   OIDCModification `json:"claimModifications"`
	// TokenExchange lets machines exchange tokens of the issuer; nil: none may.
	// Dex has no such field, and exchanges the tokens of every issuer.
	TokenExchange *OIDCExchange `json:"tokenExchange"`
}

// An OIDCExchange says whose tokens are exchanged.
type OIDCExchange struct {
	Audiences []string        `json:"audiences"` // the hub's names in tokens; empty: clientID
	Rules     []exchange.Rule `json:"rules"`     // one has to match
}

// exchange is the issuer whose tokens are exchanged, or nil.
func (c OIDCConfig) exchange(id string) *exchange.Issuer {
	if c.TokenExchange == nil {
		return nil
	}
	out := &exchange.Issuer{
		ID: id, Issuer: c.Issuer, Audiences: c.TokenExchange.Audiences, Rules: c.TokenExchange.Rules,
		SubjectClaim: c.UserIDKey, UsernameClaim: c.UserNameKey,
	}
	if len(out.Audiences) == 0 {
		out.Audiences = []string{c.ClientID}
	}
	if c.InsecureEnableGroups {
		out.GroupsClaim = "groups"
		if c.ClaimMapping.Groups != "" {
			out.GroupsClaim = c.ClaimMapping.Groups
		}
	}
	return out
}

// OIDCEndpoints replace those that the provider publishes.
type OIDCEndpoints struct {
	TokenURL      string `json:"tokenURL"`
	AuthURL       string `json:"authURL"`
	JWKSURL       string `json:"jwksURL"`
	UserInfoURL   string `json:"userInfoURL"`
	DeviceAuthURL string `json:"deviceAuthURL"` // has no effect
	EndSessionURL string `json:"endSessionURL"`
}

// OIDCClaims are the names of claims.
type OIDCClaims struct {
	PreferredUsername string `json:"preferred_username"`
	Email             string `json:"email"`
	Groups            string `json:"groups"`
}

// OIDCModification changes the groups.
type OIDCModification struct {
	NewGroupFromClaims []OIDCGroupFromClaims `json:"newGroupFromClaims"`
	FilterGroupClaims  struct {
		GroupsFilter string `json:"groupsFilter"` // regular expression of groups that stay
	} `json:"filterGroupClaims"`
	ModifyGroupNames struct {
		Prefix string `json:"prefix"`
		Suffix string `json:"suffix"`
	} `json:"modifyGroupNames"`
}

// An OIDCGroupFromClaims makes a group of several claims.
type OIDCGroupFromClaims struct {
	Claims         []string `json:"claims"`
	Delimiter      string   `json:"delimiter"`
	ClearDelimiter bool     `json:"clearDelimiter"`
	Prefix         string   `json:"prefix"`
}

// Validate returns the first mistake as fault.Invalid.
func (c OIDCConfig) Validate() error {
	switch {
	case !strings.HasPrefix(c.Issuer, "https://"):
		return fault.New(fault.Invalid, "issuer is an address with https")
	case c.ClientID == "":
		return fault.New(fault.Invalid, "clientID is missing")
	case c.PKCEChallenge == "plain":
		return fault.New(fault.Invalid, "pkceChallenge: plain proves nothing; leave the field out")
	}
	if issuer := c.exchange(""); issuer != nil {
		if err := issuer.Validate(); err != nil {
			return err
		}
	}
	_, err := c.Authorities()
	return err
}

// Authorities are RootCAs in PEM.
func (c OIDCConfig) Authorities() ([]byte, error) {
	const begin = "-----BEGIN CERTIFICATE-----"
	var out strings.Builder
	for _, text := range c.RootCAs {
		if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil && strings.Contains(string(decoded), begin) {
			text = string(decoded)
		}
		if !strings.Contains(text, begin) {
			return nil, fault.New(fault.Invalid, "rootCAs: write the certificates in PEM, or that as base64; the hub reads no files of its own disk for a tenant")
		}
		out.WriteString(strings.TrimSpace(text) + "\n")
	}
	return []byte(out.String()), nil
}
