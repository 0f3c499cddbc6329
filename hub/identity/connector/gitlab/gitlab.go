// Package gitlab signs people in with GitLab, gitlab.com or an instance of
// one's own, by the rules of Dex. Groups are full paths, such as "shop/sre". It
// keeps nothing between two steps of a sign-in and stores no token.
package gitlab

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/oauth"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Config is the configuration with the fields of Dex.
type Config struct {
	BaseURL      string   `json:"baseURL"` // empty: https://gitlab.com
	ClientID     string   `json:"clientID"`
	ClientSecret string   `json:"clientSecret"`
	Groups       []string `json:"groups"` // only members of one of them sign in, and only these are passed on
	UseLoginAsID bool     `json:"useLoginAsID"`
	// GetGroupsPermission adds groups with the role, such as "shop:owner".
	GetGroupsPermission bool `json:"getGroupsPermission"`
	// InheritedGroups reads the groups from the API, with those that a group is
	// shared with; it needs the scope read_api.
	InheritedGroups bool   `json:"inheritedGroups"`
	RootCAData      []byte `json:"rootCAData"` // authorities of BaseURL in PEM, as base64
}

// Validate returns the first mistake as fault.Invalid.
func (c Config) Validate() error {
	if c.ClientID == "" || c.ClientSecret == "" {
		return fault.New(fault.Invalid, "clientID and clientSecret are needed")
	}
	if c.BaseURL == "" {
		return nil
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fault.New(fault.Invalid, "baseURL is an address with https, such as https://gitlab.example.com")
	}
	return nil
}

// A Connector signs people in with GitLab.
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
	base := strings.TrimRight(cfg.BaseURL, "/")
	if base == "" {
		base = "https://gitlab.com"
	}
	scopes := []string{"read_user", "openid"}
	if cfg.InheritedGroups {
		scopes = append(scopes, "read_api")
	}
	object := "GitLab at " + strings.TrimPrefix(base, "https://")
	return &Connector{
		cfg: cfg, client: client,
		flow: oauth.Flow{
			Provider: object, AuthURL: base + "/oauth/authorize", TokenURL: base + "/oauth/token",
			ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Scopes: scopes,
		},
		api: oauth.API{
			Provider: object, Base: base, Client: client,
			Permission: "give the application in GitLab the scopes " + strings.Join(scopes, ", "),
		},
	}, nil
}

// Begin returns the address to send the browser to.
func (c *Connector) Begin(_ context.Context, r connector.Request) (string, error) {
	return c.flow.Begin(r), nil
}

// Finish reads who the person is, and decides by groups.
func (c *Connector) Finish(ctx context.Context, r connector.Request, answer url.Values) (connector.Identity, error) {
	token, err := c.flow.Finish(ctx, c.client, r, answer)
	if err != nil {
		return connector.Identity{}, err
	}
	api := c.api
	api.Token = token.AccessToken
	var user struct {
		ID          int64  `json:"id"`
		Username    string `json:"username"`
		Name        string `json:"name"`
		Email       string `json:"email"`
		State       string `json:"state"`
		ConfirmedAt string `json:"confirmed_at"`
	}
	if _, err := api.Get(ctx, "/api/v4/user", &user); err != nil {
		return connector.Identity{}, err
	}
	switch {
	case user.ID <= 0 || user.Username == "":
		return connector.Identity{}, fault.With(fault.New(fault.Unknown, "it does not say who the person is"), api.Provider, "check baseURL")
	case user.State != "" && user.State != "active":
		return connector.Identity{}, fault.With(fault.New(fault.Denied, "the person's account is %s", oauth.Printable(user.State)), api.Provider, "let an administrator of GitLab activate it")
	}
	id := connector.Identity{
		Subject: strconv.FormatInt(user.ID, 10), Username: user.Username, Name: user.Name,
		Email: user.Email, EmailVerified: user.Email != "" && user.ConfirmedAt != "",
	}
	if c.cfg.UseLoginAsID {
		id.Subject = user.Username
	}
	groups, err := c.groups(ctx, api, user.ID)
	if err != nil {
		return connector.Identity{}, err
	}
	if groups, err = connector.Admit(api.Provider, groups, c.cfg.Groups); err != nil {
		return connector.Identity{}, err
	}
	id.Groups, err = connector.Groups(api.Provider, groups)
	return id, err
}

// userInfo is the part of the answer of /oauth/userinfo that is about groups.
type userInfo struct {
	Groups     []string `json:"groups"`
	Owner      []string `json:"https://gitlab.org/claims/groups/owner"`
	Maintainer []string `json:"https://gitlab.org/claims/groups/maintainer"`
	Developer  []string `json:"https://gitlab.org/claims/groups/developer"`
}

// A group is one of the API.
type group struct {
	ID       int64  `json:"id"`
	FullPath string `json:"full_path"`
}

func (c *Connector) groups(ctx context.Context, api oauth.API, user int64) ([]string, error) {
	var info userInfo
	if !c.cfg.InheritedGroups || c.cfg.GetGroupsPermission {
		if _, err := api.Get(ctx, "/oauth/userinfo", &info); err != nil {
			return nil, err
		}
	}
	groups := info.Groups
	var records []group
	if c.cfg.InheritedGroups {
		groups = nil
		err := oauth.Pages(ctx, api, "/api/v4/groups?all_available=false&per_page=100", func(page []group) { records = append(records, page...) })
		if err != nil {
			return nil, err
		}
		for _, g := range records {
			groups = append(groups, g.FullPath)
		}
	}
	if !c.cfg.GetGroupsPermission {
		return groups, nil
	}
	return c.withRoles(ctx, api, user, groups, records, info)
}

// maxLookups is how many groups the role in is asked for one by one.
const maxLookups = 200

// withRoles adds a group with the role of the person for each group: by the
// claims, and for inherited ones that these do not name, by the API.
func (c *Connector) withRoles(ctx context.Context, api oauth.API, user int64, groups []string, records []group, info userInfo) ([]string, error) {
	out := append([]string{}, groups...)
	byPath := map[string]int64{}
	for _, r := range records {
		byPath[r.FullPath] = r.ID
	}
	lookups := 0
	for _, path := range groups {
		role := info.role(path)
		if id := byPath[path]; role == "" && id > 0 {
			if lookups++; lookups > maxLookups {
				return nil, fault.With(fault.New(fault.Denied, "the person inherits more than %d groups, and their roles are asked one by one", maxLookups), api.Provider,
					"switch getGroupsPermission off, or list groups")
			}
			var err error
			if role, err = inherited(ctx, api, id, user); err != nil {
				return nil, err
			}
		}
		if role != "" {
			out = append(out, path+":"+role)
		}
	}
	return out, nil
}

// role is the highest role that the claims give in a group or one above it.
func (i userInfo) role(path string) string {
	for _, r := range []struct {
		role  string
		paths []string
	}{{"owner", i.Owner}, {"maintainer", i.Maintainer}, {"developer", i.Developer}} {
		for _, p := range r.paths {
			if p != "" && (path == p || strings.HasPrefix(path, p+"/")) {
				return r.role
			}
		}
	}
	return ""
}

// inherited is the role in one group by the API; empty if GitLab does not say.
func inherited(ctx context.Context, api oauth.API, id, user int64) (string, error) {
	var member struct {
		AccessLevel int `json:"access_level"`
	}
	answer, err := api.Get(ctx, "/api/v4/groups/"+strconv.FormatInt(id, 10)+"/members/all/"+strconv.FormatInt(user, 10), &member)
	if answer.Status == http.StatusNotFound || fault.KindOf(err) == fault.Denied {
		return "", nil
	}
	// https://docs.gitlab.com/api/access_requests/#valid-access-levels
	return map[int]string{
		5: "minimal_access", 10: "guest", 15: "planner", 20: "reporter", 25: "security_manager",
		30: "developer", 40: "maintainer", 50: "owner", 60: "admin",
	}[member.AccessLevel], err
}
