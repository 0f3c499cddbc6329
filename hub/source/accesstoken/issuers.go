package accesstoken

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// sign makes a JWT, which proves that its sender has the private key.
func (i *Issuer) sign(what, pem, keyID string, claims any) (string, error) {
	key, err := hub.ReadRSAKey(what, pem)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType("JWT")
	if keyID != "" {
		options = options.WithHeader("kid", keyID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, options)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return text, nil
}

// gitHub requests an installation token, which may read contents and nothing
// more. It is for the host of the app's API and for no other.
func (i *Issuer) gitHub(g *grant, repo *url.URL, app hub.GitHubApp) error {
	base := cmp.Or(strings.TrimSuffix(app.BaseURL, "/"), i.cfg.GitHubAPI)
	api, err := url.Parse(base)
	if err != nil {
		return fault.New(fault.Invalid, "githubAppEnterpriseBaseUrl cannot be parsed")
	}
	if repo.Scheme == "http" {
		return fault.With(fault.New(fault.Invalid, "a GitHub App opens no repository without TLS"), "", "use the repository's https:// URL")
	}
	if host := strings.ToLower(repo.Hostname()); host != api.Hostname() && "api."+host != api.Hostname() {
		return fault.With(fault.New(fault.Invalid, "the repository is not at the host of the GitHub App, %s", strings.TrimPrefix(api.Hostname(), "api.")), "",
			"set githubAppEnterpriseBaseUrl to the API of the repository's server, such as https://github.example.com/api/v3")
	}
	owner, name, _ := strings.Cut(strings.Trim(strings.TrimSuffix(repo.Path, ".git"), "/"), "/")
	if owner == "" || name == "" || strings.Contains(name, "/") {
		return fault.With(fault.New(fault.Invalid, "the path of the URL is none of a repository of GitHub"), "", "write it like https://github.com/owner/repository")
	}
	g.key.scope = strings.ToLower(owner)
	g.show = func(c *hub.Credential, text string) { c.Username, c.Password = "x-access-token", text }
	g.request = func(ctx context.Context, c *caller) (token, error) {
		return c.installationToken(ctx, base, owner, name, app)
	}
	return nil
}

const gitHubIssuer = "the API of GitHub at"

// An appCaller makes requests as an app.
type appCaller struct {
	*caller

	app   hub.GitHubApp
	base  string
	proof string // JWT
}

func (c *caller) asApp(base string, app hub.GitHubApp) (appCaller, error) {
	now := c.issuer.cfg.Now()
	proof, err := c.issuer.sign("githubAppPrivateKey", app.PrivateKey, "", jwt.Claims{
		Issuer: strconv.FormatInt(app.ID, 10), IssuedAt: jwt.NewNumericDate(now.Add(-time.Minute)), Expiry: jwt.NewNumericDate(now.Add(jwtLifetime)),
	})
	return appCaller{caller: c, app: app, base: base, proof: proof}, err
}

func (a appCaller) call(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequest(method, a.base+path, bytes.NewReader(body)) //nolint:noctx // do adds it
	if err != nil {
		return fmt.Errorf("request to GitHub: %w", err)
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("Authorization", "Bearer "+a.proof)
	return a.do(ctx, gitHubIssuer, req, into)
}

// tokenFor requests a token of an installation.
func (a appCaller) tokenFor(ctx context.Context, id int64, permissions map[string]string) (token, error) {
	body, err := json.Marshal(map[string]any{"permissions": permissions})
	if err != nil {
		return token{}, fmt.Errorf("request of a token: %w", err)
	}
	var answer struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	err = a.call(ctx, http.MethodPost, "/app/installations/"+strconv.FormatInt(id, 10)+"/access_tokens", body, &answer)
	if errors.Is(err, errNotFound) {
		return token{}, fault.With(fault.New(fault.Invalid, "the GitHub App %d has no installation %d", a.app.ID, id), "", "correct githubAppInstallationID, or leave it out: it is found by the repository")
	}
	return tokenOf(answer.Token, answer.ExpiresAt, gitHubIssuer, a.base, err)
}

func (c *caller) installationToken(ctx context.Context, base, owner, name string, app hub.GitHubApp) (token, error) {
	a, err := c.asApp(base, app)
	if err != nil {
		return token{}, err
	}
	id := app.InstallationID
	if id == 0 {
		var installation struct{ ID int64 }
		err := a.call(ctx, http.MethodGet, "/repos/"+url.PathEscape(owner)+"/"+url.PathEscape(name)+"/installation", nil, &installation)
		if errors.Is(err, errNotFound) || err == nil && installation.ID == 0 {
			return token{}, fault.With(fault.New(fault.Invalid, "the GitHub App %d is not installed for the repository", app.ID), "", "install the app for the repository, or correct githubAppID")
		}
		if err != nil {
			return token{}, err
		}
		id = installation.ID
	}
	return a.tokenFor(ctx, id, map[string]string{"contents": "read"})
}

// tokenOf checks what an issuer has answered.
func tokenOf(text string, ends time.Time, what, address string, err error) (token, error) {
	if err == nil && (text == "" || ends.IsZero() || strings.ContainsAny(text, "\r\n\x00")) {
		if u, parse := url.Parse(address); parse == nil {
			err = garbled(what, u)
		}
	}
	return token{text, ends}, err
}

// An oauthAnswer is that of a token endpoint (RFC 6749, section 5.1).
type oauthAnswer struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"`
}

// grantToken requests a token with a form.
func (c *caller) grantToken(ctx context.Context, what, address string, form url.Values) (token, error) {
	now := c.issuer.cfg.Now()
	var answer oauthAnswer
	err := c.post(ctx, what, address, form, &answer)
	if errors.Is(err, errNotFound) {
		u, _ := url.Parse(address)
		err = fault.With(fault.New(fault.Invalid, "%s %s issues no tokens at this address", what, u.Host), "", "check the address")
	}
	return tokenOf(answer.AccessToken, now.Add(time.Duration(max(answer.ExpiresIn, 60))*time.Second), what, address, err)
}

// registryUser is the user name for which registries of Google take a token.
const registryUser = "oauth2accesstoken"

// google exchanges a JWT of the service account (RFC 7523).
func (i *Issuer) google(g *grant, repo hub.Repository, text string) error {
	const scope = "https://www.googleapis.com/auth/cloud-platform"
	key, err := hub.ReadGoogleKey(text)
	if err != nil {
		return err
	}
	user := key.Email
	if repo.Type.Charts() || repo.Type == hub.OCIRepository || repo.Registry() {
		user = registryUser
	}
	g.show = func(c *hub.Credential, text string) { c.Username, c.Password = user, text }
	g.request = func(ctx context.Context, c *caller) (token, error) {
		now := i.cfg.Now()
		proof, err := i.sign("private_key of gcpServiceAccountKey", key.PrivateKey, key.KeyID, struct {
			jwt.Claims
			Scope string `json:"scope"`
		}{jwt.Claims{
			Issuer: key.Email, Audience: jwt.Audience{key.TokenURI}, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(longest)),
		}, scope})
		if err != nil {
			return token{}, err
		}
		return c.grantToken(ctx, "the token endpoint of Google at", key.TokenURI, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {proof}})
	}
	return nil
}

// devOps is the scope of Azure DevOps, by the id that it has in every tenant.
const devOps = "499b84ac-1321-427f-aa17-267ca6975798/.default"

// azureRegistries is the scope of registries of Azure.
const azureRegistries = "https://containerregistry.azure.net/.default"

// registryLogin is the user name for which a registry of Azure takes a refresh
// token.
const registryLogin = "00000000-0000-0000-0000-000000000000"

// azure requests a token with the secret of a service principal, or with the
// hub's own identity.
func (i *Issuer) azure(g *grant, r hub.Repository, repo *url.URL, id hub.AzureIdentity) error {
	g.show = func(c *hub.Credential, text string) { c.BearerToken = text }
	scope := devOps
	if r.Registry() {
		scope = azureRegistries
	}
	if id.Workload {
		if err := i.azureWorkload(g, r, repo, scope); err != nil {
			return err
		}
	} else {
		address := tokenAddress(cmp.Or(id.Endpoint, i.cfg.AzureEndpoint), id.TenantID)
		g.request = func(ctx context.Context, c *caller) (token, error) {
			return c.grantToken(ctx, azureIssuer, address, url.Values{
				"grant_type": {"client_credentials"}, "scope": {scope}, "client_id": {id.ClientID}, "client_secret": {id.ClientSecret},
			})
		}
	}
	if r.Registry() {
		g.exchangeAt(repo)
	}
	return nil
}

// exchangeAt has the registry itself exchange the token for one of its own,
// with which it issues those of single requests. It is for this registry alone.
func (g *grant) exchangeAt(registry *url.URL) {
	g.key.scope = strings.ToLower(registry.Host)
	g.show = func(c *hub.Credential, text string) { c.Username, c.Password = registryLogin, text }
	first := g.request
	g.request = func(ctx context.Context, c *caller) (token, error) {
		t, err := first(ctx, c)
		if err != nil {
			return token{}, err
		}
		const what = "the registry of Azure at"
		address := "https://" + registry.Host + "/oauth2/exchange"
		var answer struct {
			RefreshToken string `json:"refresh_token"`
		}
		err = c.post(ctx, what, address, url.Values{"grant_type": {"access_token"}, "service": {registry.Host}, "access_token": {t.text}}, &answer)
		if errors.Is(err, errNotFound) {
			err = fault.With(fault.New(fault.Invalid, "%s %s exchanges no tokens", what, registry.Host), "", "use a user name and a password for a registry that is none of Azure")
		}
		return tokenOf(answer.RefreshToken, t.ends, what, address, err)
	}
}

const azureIssuer = "the token endpoint of Azure at"

func tokenAddress(endpoint, tenant string) string {
	return strings.TrimSuffix(endpoint, "/") + "/" + url.PathEscape(tenant) + "/oauth2/v2.0/token"
}

// azureWorkload uses the operator's identity, where the operator permits it.
func (i *Issuer) azureWorkload(g *grant, r hub.Repository, repo *url.URL, scope string) error {
	w := i.cfg.Workload
	g.own, g.way = true, hub.Credential{}
	switch {
	case r.Insecure:
		return fault.With(fault.New(fault.Denied, "the hub's own identity in Azure is not for a server that is not verified"), "", "remove insecure from the repository")
	case repo.Scheme == "http" || !permitted(repo.Hostname(), w.Hosts):
		return fault.With(fault.New(fault.Denied, "the hub's own identity in Azure is not for the host %s", repo.Hostname()), "",
			"use a service principal, or ask the operator of the hub to add the host to sources.azureWorkloadIdentity")
	case w.TokenFile == "" || w.ClientID == "" || w.TenantID == "":
		return fault.With(fault.New(fault.Invalid, "the hub has no identity in Azure"), "",
			"the operator has to run it with Azure workload identity: AZURE_FEDERATED_TOKEN_FILE, AZURE_CLIENT_ID and AZURE_TENANT_ID")
	}
	address := tokenAddress(cmp.Or(w.Endpoint, i.cfg.AzureEndpoint), w.TenantID)
	g.request = func(ctx context.Context, c *caller) (token, error) {
		if w.Permits == nil || !w.Permits(ctx, g.key.tenant) {
			return token{}, fault.With(fault.New(fault.Denied, "the hub's own identity in Azure is not for this organisation"), "",
				"use a service principal, or ask the operator of the hub to add the organisation to sources.azureWorkloadIdentity")
		}
		proof, err := os.ReadFile(w.TokenFile) // Kubernetes replaces it before it ends
		if err != nil {
			return token{}, fault.With(fault.Wrap(fault.Offline, err, "the hub's own token of Kubernetes cannot be read"), "", "the operator has to check AZURE_FEDERATED_TOKEN_FILE")
		}
		return c.grantToken(ctx, azureIssuer, address, url.Values{
			"grant_type": {"client_credentials"}, "scope": {scope}, "client_id": {w.ClientID},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {strings.TrimSpace(string(proof))},
		})
	}
	return nil
}
