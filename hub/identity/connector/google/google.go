// Package google signs people in with Google accounts, by the rules of Dex:
// those of hosted domains, and those in groups that the directory of Google
// Workspace lists. It keeps nothing between two steps of a sign-in and stores
// no token.
package google

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/oauth"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The addresses that Google documents.
const (
	issuer        = "https://accounts.google.com"
	authURL       = issuer + "/o/oauth2/v2/auth"
	tokenURL      = "https://oauth2.googleapis.com/token"
	keysBase      = "https://www.googleapis.com"
	keysPath      = "/oauth2/v3/certs"
	directoryBase = "https://admin.googleapis.com"
	groupsScope   = "https://www.googleapis.com/auth/admin.directory.group.readonly"
)

const (
	object = "Google"
	// anyDomain is the entry of DomainToAdminEmail for all other domains.
	anyDomain = "*"
	// maxLookups is how many groups are asked which groups they are in.
	maxLookups = 200
)

// Config is the configuration with the fields of Dex. Where Dex reads a file of
// its own disk, there is a field with the content instead.
type Config struct {
	ClientID      string   `json:"clientID"`
	ClientSecret  string   `json:"clientSecret"`
	Scopes        []string `json:"scopes"`        // besides openid; empty: profile and email
	HostedDomains []string `json:"hostedDomains"` // only accounts of these domains sign in
	Groups        []string `json:"groups"`        // only members of one of them sign in, and only these are passed on
	// ServiceAccountJSON is the key file of a service account that may list
	// groups on behalf of an administrator; empty: no groups.
	ServiceAccountJSON string `json:"serviceAccountJSON"`
	// DomainToAdminEmail is the administrator of each domain; "*" is for others.
	DomainToAdminEmail             map[string]string `json:"domainToAdminEmail"`
	AdminEmail                     string            `json:"adminEmail"` // the former form of "*"
	FetchTransitiveGroupMembership bool              `json:"fetchTransitiveGroupMembership"`
	PromptType                     *string           `json:"promptType"`
}

// A serviceAccount is the part of a key file that is needed.
type serviceAccount struct {
	Type         string `json:"type"`
	ClientEmail  string `json:"client_email"`
	PrivateKey   string `json:"private_key"`
	PrivateKeyID string `json:"private_key_id"`
}

// Validate returns the first mistake as fault.Invalid.
func (c Config) Validate() error {
	if c.ClientID == "" || c.ClientSecret == "" {
		return fault.New(fault.Invalid, "clientID and clientSecret are needed")
	}
	if c.ServiceAccountJSON == "" {
		if len(c.Groups) > 0 {
			return fault.New(fault.Invalid, "groups need serviceAccountJSON and domainToAdminEmail: without them nobody's groups are known")
		}
		return nil
	}
	if len(c.admins()) == 0 {
		return fault.New(fault.Invalid, "serviceAccountJSON needs domainToAdminEmail")
	}
	_, err := c.account()
	return err
}

func (c Config) admins() map[string]string {
	out := map[string]string{}
	if c.AdminEmail != "" {
		out[anyDomain] = c.AdminEmail
	}
	for domain, admin := range c.DomainToAdminEmail {
		out[strings.ToLower(domain)] = admin
	}
	return out
}

func (c Config) account() (serviceAccount, error) {
	var a serviceAccount
	if err := json.Unmarshal([]byte(c.ServiceAccountJSON), &a); err != nil || a.Type != "service_account" || a.ClientEmail == "" || !strings.Contains(a.PrivateKey, "PRIVATE KEY") {
		return serviceAccount{}, fault.New(fault.Invalid, "serviceAccountJSON is not the key file of a service account")
	}
	return a, nil
}

// A Connector signs people in with Google.
type Connector struct {
	cfg    Config
	client *http.Client
	flow   oauth.Flow
}

// New returns a connector that sends its requests with the client. The error
// is fault.Invalid if the configuration is wrong.
func New(cfg Config, client *http.Client) (*Connector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	scopes := []string{oidc.ScopeOpenID, "profile", "email"}
	if len(cfg.Scopes) > 0 {
		scopes = append([]string{oidc.ScopeOpenID}, cfg.Scopes...)
	}
	return &Connector{cfg: cfg, client: client, flow: oauth.Flow{
		Provider: object, AuthURL: authURL, TokenURL: tokenURL, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Scopes: scopes,
	}}, nil
}

// Begin returns the address to send the browser to.
func (c *Connector) Begin(_ context.Context, r connector.Request) (string, error) {
	parameters := []oauth2.AuthCodeOption{oidc.Nonce(r.Nonce)}
	switch len(c.cfg.HostedDomains) {
	case 0:
	case 1:
		parameters = append(parameters, oauth2.SetAuthURLParam("hd", c.cfg.HostedDomains[0]))
	default:
		parameters = append(parameters, oauth2.SetAuthURLParam("hd", "*"))
	}
	if c.cfg.PromptType != nil && *c.cfg.PromptType != "" {
		parameters = append(parameters, oauth2.SetAuthURLParam("prompt", *c.cfg.PromptType))
	}
	if r.Hint != "" {
		parameters = append(parameters, oauth2.SetAuthURLParam("login_hint", r.Hint))
	}
	return c.flow.Begin(r, parameters...), nil
}

// claims are those of an ID token that are used.
type claims struct {
	Name          string `json:"name"`
	Email         string `json:"email"`
	EmailVerified bool   `json:"email_verified"`
	HostedDomain  string `json:"hd"`
	Party         string `json:"azp"`
}

// Finish reads who the person is, and decides by domain and groups.
func (c *Connector) Finish(ctx context.Context, r connector.Request, answer url.Values) (connector.Identity, error) {
	token, err := c.flow.Finish(ctx, c.client, r, answer)
	if err != nil {
		return connector.Identity{}, err
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return connector.Identity{}, c.unknown(nil, "its answer has no ID token")
	}
	subject, who, err := c.verify(ctx, r, raw)
	if err != nil {
		return connector.Identity{}, err
	}
	if len(c.cfg.HostedDomains) > 0 && !slices.ContainsFunc(c.cfg.HostedDomains, func(d string) bool { return d != "" && strings.EqualFold(d, who.HostedDomain) }) {
		return connector.Identity{}, fault.With(fault.New(fault.Denied, "the account is of none of the domains that may sign in"), object, "sign in with an account of one of hostedDomains")
	}
	id := connector.Identity{Subject: subject, Username: who.Email, Name: who.Name, Email: who.Email, EmailVerified: who.EmailVerified}
	if id.Username == "" {
		id.Username = subject
	}
	if c.cfg.ServiceAccountJSON == "" {
		return id, nil
	}
	groups, err := c.groups(ctx, who)
	if err != nil {
		return connector.Identity{}, err
	}
	if groups, err = connector.Admit(object, groups, c.cfg.Groups); err != nil {
		return connector.Identity{}, err
	}
	id.Groups, err = connector.Groups(object, groups)
	return id, err
}

func (c *Connector) unknown(err error, cause string) error {
	return fault.With(fault.Wrap(fault.Unknown, err, "%s", cause), object, "sign in again")
}

// verify checks an ID token: signature, issuer, audience, time and nonce.
func (c *Connector) verify(ctx context.Context, r connector.Request, raw string) (subject string, who claims, err error) {
	keys, err := c.keys(ctx)
	if err != nil {
		return "", claims{}, err
	}
	token, err := oidc.NewVerifier(issuer, keys, &oidc.Config{ClientID: c.cfg.ClientID, SupportedSigningAlgs: []string{oidc.RS256}}).Verify(ctx, raw)
	switch {
	case err != nil:
		return "", claims{}, c.unknown(err, "its ID token is not valid")
	case token.Nonce != r.Nonce:
		return "", claims{}, c.unknown(nil, "its ID token belongs to another sign-in")
	case token.Subject == "":
		return "", claims{}, c.unknown(nil, "its ID token does not say who the person is")
	}
	if err := token.Claims(&who); err != nil {
		return "", claims{}, c.unknown(err, "its ID token is not valid")
	}
	if who.Party != "" && who.Party != c.cfg.ClientID {
		return "", claims{}, c.unknown(nil, "its ID token is for another client")
	}
	return token.Subject, who, nil
}

// keys are those that Google signs with now.
func (c *Connector) keys(ctx context.Context) (oidc.KeySet, error) {
	var set jose.JSONWebKeySet
	api := oauth.API{Provider: object, Base: keysBase, Client: c.client}
	if _, err := api.Get(ctx, keysPath, &set); err != nil {
		return nil, err
	}
	out := &oidc.StaticKeySet{}
	for _, k := range set.Keys {
		if k.Valid() && k.IsPublic() {
			out.PublicKeys = append(out.PublicKeys, k.Key)
		}
	}
	return out, nil
}

// groups are the mail addresses of the person's groups.
func (c *Connector) groups(ctx context.Context, who claims) ([]string, error) {
	if who.Email == "" || !who.EmailVerified {
		return nil, fault.With(fault.New(fault.Denied, "the account has no verified mail address, by which its groups are found"), object, "sign in with another account")
	}
	api, err := c.directory(ctx, who.Email)
	if err != nil {
		return nil, err
	}
	all := newNames()
	waiting := []string{who.Email}
	for lookups := 0; len(waiting) > 0; lookups++ {
		if lookups > maxLookups {
			return nil, fault.With(fault.New(fault.Denied, "the person is in more than %d groups, which are asked one by one for theirs", maxLookups), object,
				"switch fetchTransitiveGroupMembership off")
		}
		found, err := directGroups(ctx, api, waiting[0])
		if err != nil {
			return nil, err
		}
		added := all.add(found)
		waiting = waiting[1:]
		if c.cfg.FetchTransitiveGroupMembership {
			waiting = append(waiting, added...)
		}
	}
	return all.list, nil
}

// names are different texts in the order in which they were found.
type names struct {
	list []string
	seen map[string]bool
}

func newNames() *names { return &names{seen: map[string]bool{"": true}} }

// add returns those that are new.
func (n *names) add(found []string) (added []string) {
	for _, name := range found {
		if !n.seen[name] {
			n.seen[name] = true
			added = append(added, name)
		}
	}
	n.list = append(n.list, added...)
	return added
}

// directory is the API of the directory, on behalf of the administrator of a
// person's domain.
func (c *Connector) directory(ctx context.Context, email string) (oauth.API, error) {
	account, err := c.cfg.account()
	if err != nil {
		return oauth.API{}, err
	}
	admins := c.cfg.admins()
	_, domain, _ := strings.Cut(strings.ToLower(email), "@")
	admin := admins[domain]
	if admin == "" {
		admin = admins[anyDomain]
	}
	if admin == "" {
		return oauth.API{}, fault.With(fault.New(fault.Denied, "no administrator is configured for the domain of the account"), object, `add the domain, or "*", to domainToAdminEmail`)
	}
	signer := jwt.Config{
		Email: account.ClientEmail, PrivateKey: []byte(account.PrivateKey), PrivateKeyID: account.PrivateKeyID,
		Scopes: []string{groupsScope}, TokenURL: tokenURL, Subject: admin,
	}
	token, err := signer.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, oauth.Client(c.client))).Token()
	var (
		refused *oauth2.RetrieveError
		network *url.Error
	)
	switch {
	case errors.As(err, &refused):
		return oauth.API{}, fault.With(fault.New(fault.Offline, "it refuses the service account that lists groups (%s)", oauth.Printable(refused.ErrorCode)), object,
			"check serviceAccountJSON, domainToAdminEmail and the domain-wide delegation of "+groupsScope)
	case errors.As(err, &network):
		return oauth.API{}, connector.Unreachable(object, err)
	case err != nil:
		return oauth.API{}, fault.With(fault.New(fault.Offline, "the service account that lists groups gets no token"), object, "check serviceAccountJSON")
	}
	return oauth.API{
		Provider: object, Base: directoryBase, Token: token.AccessToken, Client: c.client,
		Permission: "let the administrator in domainToAdminEmail read groups, and switch the Admin SDK API on",
	}, nil
}

// directGroups are the groups of a person or of a group.
func directGroups(ctx context.Context, api oauth.API, member string) ([]string, error) {
	query := url.Values{"userKey": {member}, "maxResults": {"200"}}
	var all []string
	for range oauth.MaxPages {
		var page struct {
			Groups []struct {
				Email string `json:"email"`
			} `json:"groups"`
			Next string `json:"nextPageToken"`
		}
		if _, err := api.Get(ctx, "/admin/directory/v1/groups?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		for _, g := range page.Groups {
			all = append(all, g.Email)
		}
		if page.Next == "" {
			return all, nil
		}
		query.Set("pageToken", page.Next)
	}
	return nil, api.TooMany()
}
