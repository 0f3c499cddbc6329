package oidc

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// Settings are those of `oidc.config`, under the names of Argo CD (AUTH-09).
type Settings struct {
	Name           string            `json:"name"`
	Issuer         string            `json:"issuer"`
	ClientID       string            `json:"clientID"`
	ClientSecret   string            `json:"clientSecret"`
	CLIClientID    string            `json:"cliClientID"` // only an audience: the CLI signs in through the hub
	Scopes         []string          `json:"requestedScopes"`
	IDTokenClaims  map[string]*Claim `json:"requestedIDTokenClaims"`
	Audiences      []string          `json:"allowedAudiences"`
	NoAudienceFine bool              `json:"skipAudienceCheckWhenTokenHasNoAudience"`
	PKCE           *bool             `json:"enablePKCEAuthentication"` // it is always used
	UserInfoGroups bool              `json:"enableUserInfoGroups"`
	UserInfoBase   string            `json:"userInfoBaseURL"`
	UserInfoPath   string            `json:"userInfoPath"`
	UserInfoExpiry string            `json:"userInfoCacheExpiration"` // groups are read at each sign-in
	LogoutURL      string            `json:"logoutURL"`
	RootCA         string            `json:"rootCA"`
	Refresh        string            `json:"refreshTokenThreshold"` // a session does not end with the ID token
	LoginDomain    string            `json:"domainHint"`
	Azure          *Azure            `json:"azure"`
}

// A Claim is one that is requested by name.
type Claim struct {
	Essential bool     `json:"essential,omitempty"`
	Value     string   `json:"value,omitempty"`
	Values    []string `json:"values,omitempty"`
}

// Azure are settings for Microsoft Entra ID.
type Azure struct {
	WorkloadIdentity bool   `json:"useWorkloadIdentity"`
	Overage          bool   `json:"enableUserGroupOverageClaim"`
	OverageExpiry    string `json:"userGroupOverageClaimCacheExpiration"`
	Graph            string `json:"graphApiEndpoint"`
}

const (
	graphAPI      = "https://graph.microsoft.com/v1.0"
	maxAuthority  = 256 << 10 // bytes of rootCA
	tokenTemplate = "{{token}}"
	backTemplate  = "{{logoutRedirectURL}}"
)

// Parse reads and checks the text of oidc.config. References to secrets are
// left as they are. The error is fault.Invalid, with line and cause.
func Parse(text string) (Settings, error) {
	var s Settings
	if err := yamltext.Decode("oidc.config", []byte(text), &s); err != nil {
		return s, err
	}
	return s, s.check(text)
}

// check reports the first value that cannot be.
func (s Settings) check(text string) error {
	for _, c := range []struct {
		field string
		err   error
	}{
		{"issuer", checkEndpoint(s.Issuer)},
		{"clientID", s.checkClient()},
		{"useWorkloadIdentity", s.Azure.checkIdentity()},
		{"graphApiEndpoint", s.Azure.checkGraph()},
		{"userInfoPath", s.checkUserInfoPath()},
		{"userInfoBaseURL", checkOptional(s.UserInfoBase)},
		{"logoutURL", checkOptional(strings.NewReplacer(tokenTemplate, "x", backTemplate, "x").Replace(s.LogoutURL))},
		{"userInfoCacheExpiration", checkDuration(s.UserInfoExpiry)},
		{"refreshTokenThreshold", checkDuration(s.Refresh)},
		{"rootCA", s.checkAuthority()},
	} {
		if c.err == nil {
			continue
		}
		line := lineOf(text, c.field)
		where := "oidc.config"
		if line > 0 {
			where += fmt.Sprintf(", line %d", line)
		}
		return &fault.Error{Kind: fault.Invalid, Object: where, Line: line, Cause: c.field + ": " + fault.Sentence(c.err)}
	}
	return nil
}

func (s Settings) checkClient() error {
	if s.ClientID == "" {
		return fault.New(fault.Invalid, "it is missing; it is what the provider calls this client")
	}
	return nil
}

func (s Settings) checkUserInfoPath() error {
	if s.UserInfoPath != "" && (!strings.HasPrefix(s.UserInfoPath, "/") || strings.HasPrefix(s.UserInfoPath, "//")) {
		return fault.New(fault.Invalid, "it must begin with one /; it is a path below the issuer or userInfoBaseURL")
	}
	return nil
}

func (s Settings) checkAuthority() error {
	if len(s.RootCA) > maxAuthority {
		return fault.New(fault.Invalid, "it is longer than %d bytes", maxAuthority)
	}
	if s.RootCA != "" && !strings.HasPrefix(s.RootCA, "$") && !strings.Contains(s.RootCA, "-----BEGIN CERTIFICATE-----") {
		return fault.New(fault.Invalid, "it contains no certificate in PEM")
	}
	return nil
}

func (a *Azure) checkIdentity() error {
	if a != nil && a.WorkloadIdentity {
		return fault.New(fault.Invalid, "the hub has no workload identity that a tenant may use; use a client secret")
	}
	return nil
}

func (a *Azure) checkGraph() error {
	if a == nil {
		return nil
	}
	return checkOptional(a.Graph)
}

func checkOptional(address string) error {
	if address == "" {
		return nil
	}
	return checkEndpoint(address)
}

func checkDuration(text string) error {
	if text == "" {
		return nil
	}
	if d, err := time.ParseDuration(text); err != nil || d < 0 {
		return fault.New(fault.Invalid, "it is no duration; write it like 5m")
	}
	return nil
}

// lineOf finds the line of a field, from 1; 0: it is not there.
func lineOf(text, field string) int {
	at := regexp.MustCompile(`(?m)^[ \t-]*["']?` + regexp.QuoteMeta(field) + `["']?[ \t]*:`).FindStringIndex(text)
	if at == nil {
		return 0
	}
	return strings.Count(text[:at[0]], "\n") + 1
}

// checkEndpoint accepts the addresses of providers: https, and http on the
// machine of the hub alone, because tokens would be readable on the way.
func checkEndpoint(address string) error {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return fault.New(fault.Invalid, "it is missing; write the URL of the provider, such as https://example.okta.com")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fault.New(fault.Invalid, "it is no URL; write it like https://example.okta.com")
	case u.User != nil || u.Fragment != "":
		return fault.New(fault.Invalid, "it must have neither a user name nor a fragment")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fault.New(fault.Invalid, "it must begin with https://, because tokens would be readable on the way")
	}
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}

// Resolve replaces the values that refer to secrets; secret returns the value
// of a reference without its $. Argo CD replaces whole values alone (AUTH-13).
func (s Settings) Resolve(secret func(ref string) (string, error)) (Settings, error) {
	for _, value := range []*string{&s.Name, &s.Issuer, &s.ClientID, &s.ClientSecret, &s.CLIClientID, &s.RootCA, &s.LogoutURL, &s.LoginDomain} {
		if !strings.HasPrefix(*value, "$") || len(*value) < 2 {
			continue
		}
		found, err := secret((*value)[1:])
		if err != nil {
			return s, err
		}
		*value = strings.TrimSpace(found)
	}
	return s, nil
}

// Config is what a provider is made of.
func (s Settings) Config() (Config, error) {
	if err := checkEndpoint(s.Issuer); err != nil { // it may have been a reference
		return Config{}, fault.With(err, "oidc.config, issuer", "")
	}
	c := Config{
		Issuer: s.Issuer, ClientID: s.ClientID, ClientSecret: s.ClientSecret, Scopes: s.Scopes, RequestClaims: s.IDTokenClaims,
		Audiences: s.Audiences, NoAudienceFine: s.NoAudienceFine, LoginDomain: s.LoginDomain, SignOutURL: s.LogoutURL,
	}
	if len(c.Scopes) == 0 {
		c.Scopes = []string{"openid", "profile", "email", "groups"}
	}
	if len(c.Audiences) == 0 {
		c.Audiences = []string{s.ClientID}
		if s.CLIClientID != "" {
			c.Audiences = append(c.Audiences, s.CLIClientID)
		}
	}
	if s.UserInfoGroups {
		c.UserInfo = true
		if s.UserInfoPath != "" {
			base := s.UserInfoBase
			if base == "" {
				base = s.Issuer
			}
			c.UserInfoURL = strings.TrimSuffix(base, "/") + s.UserInfoPath
		}
	}
	if s.Azure != nil && s.Azure.Overage {
		c.Graph = graphAPI
		if s.Azure.Graph != "" {
			c.Graph = strings.TrimSuffix(s.Azure.Graph, "/")
		}
	}
	return c, nil
}

// hostOf is what people read of an address.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if host, _, err := net.SplitHostPort(u.Host); err == nil {
		return host
	}
	return u.Host
}
