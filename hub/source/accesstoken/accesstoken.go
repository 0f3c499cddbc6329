// Package accesstoken exchanges the identities of repositories for the tokens
// of short life that their servers accept: GitHub Apps (CRED-09), Google service
// accounts (CRED-10), and Azure's service principals and workload identity
// (CRED-11). Tokens are cached in memory, separately for each tenant, until
// shortly before they end.
//
// Identities are sent to the issuer alone, over HTTPS and through the guard of
// hub/source/guard. Errors contain no text of an issuer: it may repeat what it
// was sent.
//
// The daemon runs one Issuer per replica; sources call Exchange before they
// connect, and generators of sets call Installation.
package accesstoken

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Config sets where tokens come from. Zero values mean the defaults.
type Config struct {
	Ways    guard.Ways
	RootCAs *x509.CertPool // authorities of issuers; default: the system's
	Timeout time.Duration  // of one request; default 15 s
	Now     func() time.Time

	GitHubAPI     string // of github.com; default https://api.github.com
	AzureEndpoint string // default https://login.microsoftonline.com
	// Workload is the identity of the hub itself in Azure.
	Workload Workload
}

// Workload is the identity that Azure gives the hub's pod. It is the operator's:
// only tenants that the operator names may use it, and its tokens are sent to
// the operator's hosts alone.
type Workload struct {
	// Permits reports whether a tenant may use it; nil: nobody may.
	Permits   func(ctx context.Context, tenant hub.TenantID) bool
	Hosts     []string // that tokens may be sent to; default dev.azure.com and *.visualstudio.com
	TokenFile string   // AZURE_FEDERATED_TOKEN_FILE
	ClientID  string   // AZURE_CLIENT_ID
	TenantID  string   // AZURE_TENANT_ID
	Endpoint  string   // AZURE_AUTHORITY_HOST
}

// Authorities returns the certificates in PEM that a tenant has stored for a
// host; empty: none.
type Authorities func(ctx context.Context, tenant hub.TenantID, host string) (string, error)

// An Issuer exchanges identities for tokens. Many goroutines may use it.
type Issuer struct {
	cfg         Config
	authorities Authorities
	flight      singleflight.Group

	mu     sync.Mutex
	tokens map[cacheKey]token
}

// A cacheKey is an identity of a tenant, and what its token is for. The identity
// is a hash.
type cacheKey struct {
	tenant   hub.TenantID
	identity [32]byte
	scope    string
}

type token struct {
	text string
	ends time.Time
}

const (
	early       = 5 * time.Minute // before its end a token is not used any more
	longest     = time.Hour       // a token is used, whatever its issuer says
	maxAnswer   = 64 << 10
	maxTokens   = 10_000
	jwtLifetime = 9 * time.Minute
)

// New makes an issuer.
func New(cfg Config, authorities Authorities) *Issuer {
	if cfg.Timeout == 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.GitHubAPI == "" {
		cfg.GitHubAPI = "https://api.github.com"
	}
	if cfg.AzureEndpoint == "" {
		cfg.AzureEndpoint = "https://login.microsoftonline.com"
	}
	if len(cfg.Workload.Hosts) == 0 {
		cfg.Workload.Hosts = []string{"dev.azure.com", "*.visualstudio.com"}
	}
	return &Issuer{cfg: cfg, authorities: authorities, tokens: map[cacheKey]token{}}
}

// Exchange returns the credential that is sent to the server of a repository. A
// credential without an identity to exchange is returned as it is.
func (i *Issuer) Exchange(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) (hub.Credential, error) {
	if cred.Exchanged == (hub.Exchanged{}) {
		return cred, nil
	}
	g, err := i.grantOf(tenant, repo, cred)
	if err != nil {
		return hub.Credential{}, err
	}
	text, err := i.token(ctx, g)
	if err != nil {
		return hub.Credential{}, err
	}
	out := cred.Way()
	out.TLSClientCert, out.TLSClientKey = cred.TLSClientCert, cred.TLSClientKey
	g.show(&out, text)
	return out, nil
}

// Forget removes the token of an identity from the cache: a server has refused
// it.
func (i *Issuer) Forget(tenant hub.TenantID, repo hub.Repository, cred hub.Credential) {
	g, err := i.grantOf(tenant, repo, cred)
	if err != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.tokens, g.key)
}

// A grant is how one token is requested, and shown to the server.
type grant struct {
	key     cacheKey
	request func(ctx context.Context, c *caller) (token, error)
	show    func(c *hub.Credential, text string)
	way     hub.Credential // proxy
	own     bool           // it is the operator's identity: nothing that a tenant has set counts
}

func (i *Issuer) grantOf(tenant hub.TenantID, repo hub.Repository, cred hub.Credential) (grant, error) {
	u, err := url.Parse(repo.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "oci" {
		return grant{}, fault.With(fault.New(fault.Invalid, "tokens of a GitHub App, of Google or of Azure open repositories over HTTPS only"), "", "use the repository's https:// URL")
	}
	text, err := json.Marshal(cred.Exchanged)
	if err != nil {
		return grant{}, fmt.Errorf("hash the identity: %w", err)
	}
	if repo.Registry() && repo.PlainHTTP {
		return grant{}, fault.With(fault.New(fault.Invalid, "tokens of Google or of Azure open no registry without TLS"), "", "remove insecureOCIForceHttp from the repository")
	}
	g := grant{key: cacheKey{tenant: tenant, identity: sha256.Sum256(text)}, way: cred.Way()}
	switch {
	case cred.GitHubApp != (hub.GitHubApp{}):
		err = i.gitHub(&g, u, cred.GitHubApp)
	case cred.GoogleKey != "":
		err = i.google(&g, repo, cred.GoogleKey)
	default:
		err = i.azure(&g, repo, u, cred.Azure)
	}
	return g, err
}

// token returns a token of the cache, or requests one. Callers that need the
// same one wait for one request.
func (i *Issuer) token(ctx context.Context, g grant) (string, error) {
	if text, ok := i.cached(g.key); ok {
		return text, nil
	}
	name := fmt.Sprintf("%s %x %s", g.key.tenant, g.key.identity, g.key.scope)
	done := i.flight.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*i.cfg.Timeout)
		defer cancel()
		c := &caller{issuer: i, tenant: g.key.tenant, way: g.way, own: g.own}
		t, err := g.request(ctx, c)
		if err != nil {
			return "", err
		}
		i.put(g.key, t)
		return t.text, nil
	})
	select {
	case r := <-done:
		text, _ := r.Val.(string)
		return text, r.Err
	case <-ctx.Done():
		return "", fmt.Errorf("wait for a token: %w", context.Cause(ctx))
	}
}

func (i *Issuer) cached(key cacheKey) (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	t, ok := i.tokens[key]
	if !ok || !i.cfg.Now().Before(t.ends.Add(-early)) {
		delete(i.tokens, key)
		return "", false
	}
	return t.text, true
}

func (i *Issuer) put(key cacheKey, t token) {
	now := i.cfg.Now()
	if last := now.Add(longest + early); t.ends.After(last) {
		t.ends = last
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.tokens) >= maxTokens {
		clear(i.tokens)
	}
	i.tokens[key] = t
}

// permitted reports whether a host is one of a list; "*.domain" are all below it.
func permitted(host string, list []string) bool {
	for _, p := range list {
		below, wild := strings.CutPrefix(p, "*")
		if strings.EqualFold(host, p) || wild && strings.HasSuffix(strings.ToLower(host), strings.ToLower(below)) {
			return true
		}
	}
	return false
}

// noRedirect ends a request that is answered with a redirect.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
