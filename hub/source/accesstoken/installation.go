package accesstoken

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Installation returns a token with which an app lists what an organisation or
// user has: it may read contents, and pull requests if they are asked for. It is
// for the API of the app and for no other address.
func (i *Issuer) Installation(ctx context.Context, tenant hub.TenantID, owner string, app hub.GitHubApp, pulls bool) (string, error) {
	base := strings.TrimSuffix(app.BaseURL, "/")
	if base == "" {
		base = i.cfg.GitHubAPI
	}
	if u, err := url.Parse(base); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fault.With(fault.New(fault.Invalid, "the API of a GitHub App is no https address"), "", "correct githubAppEnterpriseBaseUrl, or the generator's api")
	}
	text, err := json.Marshal(hub.Exchanged{GitHubApp: app})
	if err != nil {
		return "", fmt.Errorf("hash the identity: %w", err)
	}
	permissions := map[string]string{"contents": "read"}
	if pulls {
		permissions["pull_requests"] = "read"
	}
	scope := fmt.Sprintf("owner %s %t", strings.ToLower(owner), pulls)
	return i.token(ctx, grant{
		key: cacheKey{tenant: tenant, identity: sha256.Sum256(text), scope: scope},
		request: func(ctx context.Context, c *caller) (token, error) {
			a, err := c.asApp(base, app)
			if err != nil {
				return token{}, err
			}
			id := app.InstallationID
			if id == 0 {
				if id, err = a.installationOf(ctx, owner); err != nil {
					return token{}, err
				}
			}
			return a.tokenFor(ctx, id, permissions)
		},
	})
}

// installationOf finds the app at an organisation, or at a user.
func (a appCaller) installationOf(ctx context.Context, owner string) (int64, error) {
	var found struct{ ID int64 }
	err := a.call(ctx, http.MethodGet, "/orgs/"+url.PathEscape(owner)+"/installation", nil, &found)
	if errors.Is(err, errNotFound) {
		err = a.call(ctx, http.MethodGet, "/users/"+url.PathEscape(owner)+"/installation", nil, &found)
	}
	if errors.Is(err, errNotFound) || err == nil && found.ID == 0 {
		return 0, fault.With(fault.New(fault.Invalid, "the GitHub App %d is not installed at %q", a.app.ID, owner), "", "install the app there, or correct githubAppID")
	}
	return found.ID, err
}
