// Package microsoft signs people in with Microsoft Entra ID, by the rules of
// Dex. Groups are read from Microsoft Graph, by name or by id, so that a person
// with too many groups for a token gets all of them. It keeps nothing between
// two steps of a sign-in and stores no token.
package microsoft

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/oauth2"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/oauth"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Config is the configuration with the fields of Dex.
type Config struct {
	ClientID             string   `json:"clientID"`
	ClientSecret         string   `json:"clientSecret"`
	Tenant               string   `json:"tenant"` // id or domain, or common, organizations, consumers; empty: common
	OnlySecurityGroups   bool     `json:"onlySecurityGroups"`
	Groups               []string `json:"groups"`          // only members of one of them sign in
	GroupNameFormat      string   `json:"groupNameFormat"` // name or id; empty: name
	UseGroupsAsWhitelist bool     `json:"useGroupsAsWhitelist"`
	EmailToLowercase     bool     `json:"emailToLowercase"`
	APIURL               string   `json:"apiURL"`   // of a national cloud; empty: https://login.microsoftonline.com
	GraphURL             string   `json:"graphURL"` // of a national cloud; empty: https://graph.microsoft.com
	PromptType           string   `json:"promptType"`
	Domain               string   `json:"domainHint"`             // whose sign-in page is shown
	Scopes               []string `json:"scopes"`                 // empty: user.read
	PreferredUsername    string   `json:"preferredUsernameField"` // name, email, mailNickname or onPremisesSamAccountName; empty: email
	// BatchGroupLookups has no effect: names are always read in batches.
	BatchGroupLookups bool `json:"batchGroupLookups"`
}

var tenantName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// Validate returns the first mistake as fault.Invalid.
func (c Config) Validate() error {
	switch {
	case c.ClientID == "" || c.ClientSecret == "":
		return fault.New(fault.Invalid, "clientID and clientSecret are needed")
	case c.Tenant != "" && !tenantName.MatchString(c.Tenant):
		return fault.New(fault.Invalid, "tenant is the id or a domain of the directory")
	case !slices.Contains([]string{"", "name", "id"}, c.GroupNameFormat):
		return fault.New(fault.Invalid, "groupNameFormat is name or id")
	case !slices.Contains([]string{"", "name", "email", "mailNickname", "onPremisesSamAccountName"}, c.PreferredUsername):
		return fault.New(fault.Invalid, "preferredUsernameField is name, email, mailNickname or onPremisesSamAccountName")
	case len(c.Groups) > 0 && !c.ofOneOrganization():
		return fault.New(fault.Invalid, "groups need tenant: Microsoft has groups only within one directory")
	}
	for field, address := range map[string]string{"apiURL": c.APIURL, "graphURL": c.GraphURL} {
		if u, err := url.Parse(address); address != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
			return fault.New(fault.Invalid, "%s is an address with https", field)
		}
	}
	return nil
}

func (c Config) ofOneOrganization() bool {
	return !slices.Contains([]string{"", "common", "consumers", "organizations"}, c.Tenant)
}

// A Connector signs people in with Microsoft Entra ID.
type Connector struct {
	cfg    Config
	client *http.Client
	flow   oauth.Flow
	api    oauth.API
}

// New returns a connector that sends its requests with the client. The error
// is fault.Invalid if the configuration is wrong.
func New(cfg Config, client *http.Client) (*Connector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	login, graph := strings.TrimRight(cfg.APIURL, "/"), strings.TrimRight(cfg.GraphURL, "/")
	if login == "" {
		login = "https://login.microsoftonline.com"
	}
	if graph == "" {
		graph = "https://graph.microsoft.com"
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "common"
	}
	scopes := slices.Clone(cfg.Scopes)
	if len(scopes) == 0 {
		scopes = []string{"user.read"}
	}
	if cfg.ofOneOrganization() {
		scopes = append(scopes, "directory.read.all")
	}
	object := "Microsoft directory " + cfg.Tenant
	return &Connector{
		cfg: cfg, client: client,
		flow: oauth.Flow{
			Provider: object, AuthURL: login + "/" + cfg.Tenant + "/oauth2/v2.0/authorize", TokenURL: login + "/" + cfg.Tenant + "/oauth2/v2.0/token",
			ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Scopes: scopes,
		},
		api: oauth.API{
			Provider: object, Base: graph, Client: client,
			Permission: "give the application in Entra ID the delegated permissions User.Read and Directory.Read.All, and grant admin consent",
		},
	}, nil
}

// Begin returns the address to send the browser to.
func (c *Connector) Begin(_ context.Context, r connector.Request) (string, error) {
	var parameters []oauth2.AuthCodeOption
	for name, value := range map[string]string{"prompt": c.cfg.PromptType, "domain_hint": c.cfg.Domain, "login_hint": r.Hint} {
		if value != "" {
			parameters = append(parameters, oauth2.SetAuthURLParam(name, value))
		}
	}
	return c.flow.Begin(r, parameters...), nil
}

// A user is a person as Microsoft Graph describes them.
type user struct {
	ID                       string `json:"id"`
	DisplayName              string `json:"displayName"`
	UserPrincipalName        string `json:"userPrincipalName"`
	MailNickname             string `json:"mailNickname"`
	OnPremisesSamAccountName string `json:"onPremisesSamAccountName"`
}

// Finish reads who the person is, and decides by groups.
func (c *Connector) Finish(ctx context.Context, r connector.Request, answer url.Values) (connector.Identity, error) {
	token, err := c.flow.Finish(ctx, c.client, r, answer)
	if err != nil {
		return connector.Identity{}, err
	}
	api := c.api
	api.Token = token.AccessToken
	var u user
	if _, err := api.Get(ctx, "/v1.0/me?$select=id,displayName,userPrincipalName,mailNickname,onPremisesSamAccountName", &u); err != nil {
		return connector.Identity{}, err
	}
	if u.ID == "" || u.UserPrincipalName == "" {
		return connector.Identity{}, fault.With(fault.New(fault.Unknown, "it does not say who the person is"), api.Provider, "check graphURL")
	}
	if c.cfg.EmailToLowercase {
		u.UserPrincipalName = strings.ToLower(u.UserPrincipalName)
	}
	id := connector.Identity{
		Subject: u.ID, Username: c.username(u), Name: u.DisplayName, Email: u.UserPrincipalName,
		// A principal name has a domain that its directory has proven to own. A
		// directory that anybody may bring proves it only to Microsoft.
		EmailVerified: c.cfg.ofOneOrganization(),
	}
	if !c.cfg.ofOneOrganization() {
		return id, nil
	}
	id.Groups, err = c.groups(ctx, api)
	return id, err
}

func (c *Connector) username(u user) string {
	name := map[string]string{
		"name": u.DisplayName, "mailNickname": u.MailNickname, "onPremisesSamAccountName": u.OnPremisesSamAccountName,
	}[c.cfg.PreferredUsername]
	if name == "" {
		return u.UserPrincipalName
	}
	return name
}

// groups are the person's groups, also those that contain others of them.
func (c *Connector) groups(ctx context.Context, api oauth.API) ([]string, error) {
	ids, err := list[string](ctx, api, "/v1.0/me/getMemberGroups", map[string]any{"securityEnabledOnly": c.cfg.OnlySecurityGroups})
	if err != nil {
		return nil, err
	}
	all := ids
	if c.cfg.GroupNameFormat != "id" {
		if all, err = names(ctx, api, ids); err != nil {
			return nil, err
		}
	}
	admitted, err := connector.Admit(api.Provider, all, c.cfg.Groups)
	if err != nil {
		return nil, err
	}
	if c.cfg.UseGroupsAsWhitelist {
		all = admitted
	}
	return connector.Groups(api.Provider, all)
}

// maxIDs is how many ids Microsoft Graph resolves at once.
const maxIDs = 1000

func names(ctx context.Context, api oauth.API, ids []string) ([]string, error) {
	type group struct {
		DisplayName string `json:"displayName"`
	}
	var out []string
	for batch := range slices.Chunk(ids, maxIDs) {
		groups, err := list[group](ctx, api, "/v1.0/directoryObjects/getByIds", map[string]any{"ids": batch, "types": []string{"group"}})
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			out = append(out, g.DisplayName)
		}
	}
	return out, nil
}

// list reads all pages of an answer.
func list[T any](ctx context.Context, api oauth.API, target string, value any) ([]T, error) {
	var all []T
	for range oauth.MaxPages {
		var page struct {
			Value []T    `json:"value"`
			Next  string `json:"@odata.nextLink"`
		}
		if _, err := api.Post(ctx, target, value, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Value...)
		if page.Next == "" {
			return all, nil
		}
		target = page.Next
	}
	return nil, api.TooMany()
}
