// Package github signs people in with GitHub, github.com or GitHub Enterprise
// Server, by the rules of Dex: who is in an organization or team of the
// configuration. Groups are "organization:team". It keeps nothing between two
// steps of a sign-in and stores no token.
package github

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/oauth"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Config is the configuration with the fields of Dex.
type Config struct {
	ClientID     string `json:"clientID"`
	ClientSecret string `json:"clientSecret"`
	Org          string `json:"org"` // the former form of one organization
	Orgs         []Org  `json:"orgs"`
	HostName     string `json:"hostName"` // of GitHub Enterprise Server; empty: github.com
	// RootCAData are the authorities of HostName in PEM, as base64.
	RootCAData           []byte `json:"rootCAData"`
	TeamNameField        string `json:"teamNameField"` // name, slug or both; empty: name
	LoadAllGroups        bool   `json:"loadAllGroups"` // all organizations and teams, if none is configured
	UseLoginAsID         bool   `json:"useLoginAsID"`
	PreferredEmailDomain string `json:"preferredEmailDomain"` // may have * for a label
}

// An Org is an organization whose members may sign in, or only those of teams.
type Org struct {
	Name  string   `json:"name"`
	Teams []string `json:"teams"`
}

// Validate returns the first mistake as fault.Invalid.
func (c Config) Validate() error {
	switch {
	case c.ClientID == "" || c.ClientSecret == "":
		return fault.New(fault.Invalid, "clientID and clientSecret are needed")
	case c.Org != "" && len(c.Orgs) > 0:
		return fault.New(fault.Invalid, "org and orgs exclude each other")
	case strings.ContainsAny(c.HostName, "/?#@ "):
		return fault.New(fault.Invalid, "hostName is a host, not a URL")
	case len(c.RootCAData) > 0 && c.HostName == "":
		return fault.New(fault.Invalid, "rootCAData is only for hostName")
	case c.TeamNameField != "" && c.TeamNameField != "name" && c.TeamNameField != "slug" && c.TeamNameField != "both":
		return fault.New(fault.Invalid, "teamNameField is name, slug or both")
	case strings.HasSuffix(c.PreferredEmailDomain, "*"):
		return fault.New(fault.Invalid, "preferredEmailDomain cannot end with *")
	}
	for _, o := range c.Orgs {
		if o.Name == "" {
			return fault.New(fault.Invalid, "an organization of orgs has no name")
		}
	}
	return nil
}

// A Connector signs people in with GitHub.
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
	client, err := oauth.WithAuthorities(client, "rootCAData", cfg.RootCAData)
	if err != nil {
		return nil, err
	}
	host, api := "github.com", "https://api.github.com"
	if cfg.HostName != "" {
		host, api = cfg.HostName, "https://"+cfg.HostName+"/api/v3"
	}
	if cfg.Org != "" {
		cfg.Orgs = []Org{{Name: cfg.Org}}
	}
	object := "GitHub at " + host
	return &Connector{
		cfg: cfg, client: client,
		flow: oauth.Flow{
			Provider: object, AuthURL: "https://" + host + "/login/oauth/authorize", TokenURL: "https://" + host + "/login/oauth/access_token",
			ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Scopes: []string{"user:email", "read:org"},
		},
		api: oauth.API{
			Provider: object, Base: api, Client: client, Header: http.Header{"X-Github-Api-Version": {"2022-11-28"}},
			Permission: "let the person grant user:email and read:org, and an owner of the organization approve the OAuth app",
		},
	}, nil
}

// Begin returns the address to send the browser to.
func (c *Connector) Begin(_ context.Context, r connector.Request) (string, error) {
	return c.flow.Begin(r), nil
}

// Finish reads who the person is, and decides by organizations and teams.
func (c *Connector) Finish(ctx context.Context, r connector.Request, answer url.Values) (connector.Identity, error) {
	token, err := c.flow.Finish(ctx, c.client, r, answer)
	if err != nil {
		return connector.Identity{}, err
	}
	api := c.api
	api.Token = token.AccessToken
	var user struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
		Name  string `json:"name"`
	}
	if _, err := api.Get(ctx, "/user", &user); err != nil {
		return connector.Identity{}, err
	}
	if user.ID <= 0 || user.Login == "" {
		return connector.Identity{}, fault.With(fault.New(fault.Unknown, "it does not say who the person is"), api.Provider, "check hostName")
	}
	id := connector.Identity{Subject: strconv.FormatInt(user.ID, 10), Username: user.Login, Name: user.Name}
	if c.cfg.UseLoginAsID {
		id.Subject = user.Login
	}
	if id.Email, id.EmailVerified, err = c.email(ctx, api); err != nil {
		return connector.Identity{}, err
	}
	groups, err := c.groups(ctx, api, user.Login)
	if err != nil {
		return connector.Identity{}, err
	}
	id.Groups, err = connector.Groups(api.Provider, groups)
	return id, err
}

// email is the preferred or else the primary address, and whether GitHub has
// verified it. GitHub Enterprise Server verifies none.
func (c *Connector) email(ctx context.Context, api oauth.API) (address string, verified bool, err error) {
	type record struct {
		Email    string `json:"email"`
		Primary  bool   `json:"primary"`
		Verified bool   `json:"verified"`
	}
	var preferred, primary record
	err = oauth.Pages(ctx, api, "/user/emails?per_page=100", func(records []record) {
		for _, r := range records {
			_, domain, _ := strings.Cut(r.Email, "@")
			usable := r.Verified || c.cfg.HostName != ""
			if usable && preferred.Email == "" && c.cfg.PreferredEmailDomain != "" && inDomain(domain, c.cfg.PreferredEmailDomain) {
				preferred = r
			}
			if usable && r.Primary {
				primary = r
			}
		}
	})
	if preferred.Email != "" {
		primary = preferred
	}
	return primary.Email, primary.Verified, err
}

func inDomain(domain, pattern string) bool {
	have, want := strings.Split(strings.ToLower(domain), "."), strings.Split(strings.ToLower(pattern), ".")
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if want[i] != "*" && want[i] != have[i] {
			return false
		}
	}
	return true
}

// A team is a team of the person, as the API describes it.
type team struct {
	Name string       `json:"name"`
	Slug string       `json:"slug"`
	Org  organization `json:"organization"`
}

type organization struct {
	Login string `json:"login"`
}

// groups are the groups of the person. The error is fault.Denied if the
// configuration names organizations or teams, and the person is in none.
func (c *Connector) groups(ctx context.Context, api oauth.API, login string) ([]string, error) {
	if len(c.cfg.Orgs) == 0 && !c.cfg.LoadAllGroups {
		return nil, nil
	}
	var teams []team
	if err := oauth.Pages(ctx, api, "/user/teams?per_page=100", func(page []team) { teams = append(teams, page...) }); err != nil {
		return nil, err
	}
	if len(c.cfg.Orgs) > 0 {
		return c.ofOrganizations(ctx, api, login, teams)
	}
	var groups []string
	err := oauth.Pages(ctx, api, "/user/orgs?per_page=100", func(page []organization) {
		for _, o := range page {
			groups = append(groups, o.Login)
			groups = append(groups, c.names(o.Login, teams, nil)...)
		}
	})
	return groups, err
}

func (c *Connector) ofOrganizations(ctx context.Context, api oauth.API, login string, teams []team) ([]string, error) {
	var (
		groups   []string
		admitted bool
		hidden   string
	)
	for _, org := range c.cfg.Orgs {
		member, err := c.member(ctx, api, org.Name, login)
		if err != nil && fault.KindOf(err) != fault.Denied {
			return nil, err
		}
		if err != nil { // another organization may still admit the person
			hidden = org.Name
			continue
		}
		if !member {
			continue
		}
		names := c.names(org.Name, teams, org.Teams)
		admitted = admitted || len(org.Teams) == 0 || len(names) > 0
		groups = append(groups, names...)
	}
	switch {
	case admitted:
		return groups, nil
	case hidden != "":
		return nil, fault.With(fault.New(fault.Denied, "the organization %s does not show its members to this OAuth app", hidden), api.Provider,
			"let an owner of the organization approve the OAuth app, or the person authorize it for single sign-on")
	}
	return nil, fault.With(fault.New(fault.Denied, "the person is in none of the organizations and teams that may sign in"), api.Provider,
		"add the person to one of them; if that is done, let an owner of the organization approve the OAuth app")
}

// member asks whether the person is in an organization. GitHub answers a
// person who is no member with 302 or 404.
func (c *Connector) member(ctx context.Context, api oauth.API, org, login string) (bool, error) {
	answer, err := api.Get(ctx, "/orgs/"+url.PathEscape(org)+"/members/"+url.PathEscape(login), nil)
	if answer.Status == http.StatusFound || answer.Status == http.StatusNotFound {
		return false, nil
	}
	return err == nil && answer.Status == http.StatusNoContent, err
}

// names are the groups of an organization by the person's teams; with allowed
// teams only by these.
func (c *Connector) names(org string, teams []team, allowed []string) []string {
	var out []string
	for _, t := range teams {
		if !strings.EqualFold(t.Org.Login, org) {
			continue
		}
		for _, name := range c.teamNames(t) {
			if len(allowed) == 0 || slices.Contains(allowed, name) {
				out = append(out, org+":"+name)
			}
		}
	}
	return out
}

func (c *Connector) teamNames(t team) []string {
	switch c.cfg.TeamNameField {
	case "slug":
		return []string{t.Slug}
	case "both":
		return []string{t.Name, t.Slug}
	}
	return []string{t.Name}
}
