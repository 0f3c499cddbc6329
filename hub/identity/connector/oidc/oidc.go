// Package oidc signs people in by OpenID Connect: the authorisation code flow
// with PKCE, state and nonce. It stores nothing and holds no right. hub/identity/sso
// calls it. A token counts only if the issuer, the audience, the signature by a
// published key, the times and the nonce are right; what is odd is refused, and
// groups that a provider leaves out are never taken for none.
package oidc

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Config is what a provider is made of. Issuer and ClientID are required.
type Config struct {
	Issuer, ClientID, ClientSecret string
	Scopes                         []string // openid is added
	RequestClaims                  map[string]*Claim
	// Audiences are those that a token may have; empty: ClientID.
	Audiences []string
	// NoAudienceFine accepts tokens without any audience.
	NoAudienceFine bool
	// UserInfo reads the groups from the userinfo endpoint, which is that of the
	// provider's document unless UserInfoURL names another.
	UserInfo    bool
	UserInfoURL string
	// Graph is the base URL of Microsoft Graph, which is asked for the groups of
	// those who have too many for a token; empty: they are refused.
	Graph       string
	LoginDomain string
	SignOutURL  string // with {{token}} and {{logoutRedirectURL}}
	// The names of claims; empty: groups, preferred_username, email, sub.
	GroupsClaim, UsernameClaim, EmailClaim, SubjectClaim string
	// NoGroups ignores the groups. AllowedGroups are those of which a person
	// must have one; empty: none.
	NoGroups      bool
	AllowedGroups []string
	// Extra are further parameters of the address to sign in at.
	Extra map[string]string
	// TrustEmail takes an address without email_verified for verified.
	TrustEmail bool
	Now        func() time.Time // default time.Now
}

const (
	// Skew is how much the provider's clock may differ.
	Skew = time.Minute

	freshness  = 10 * time.Minute // after which the provider's document and keys are read again
	staleness  = 24 * time.Hour   // how long they are used while the provider does not answer
	maxBody    = 1 << 20          // of each answer of a provider
	maxGroups  = 10_000
	maxClaim   = 1024 // bytes of one text
	maxIDToken = 256 << 10
)

// A Provider is a connector for one provider. Many goroutines may use it.
type Provider struct {
	cfg    Config
	client *http.Client

	mu      sync.Mutex
	current *document
}

// A document is what a provider publishes about itself.
type document struct {
	provider *gooidc.Provider
	read     time.Time
	Named    bool `json:"authorization_response_iss_parameter_supported"`
}

// New makes a connector. client is used for every request.
func New(cfg Config, client *http.Client) *Provider {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = []string{cfg.ClientID}
	}
	set(&cfg.GroupsClaim, "groups")
	set(&cfg.UsernameClaim, "preferred_username")
	set(&cfg.EmailClaim, "email")
	set(&cfg.SubjectClaim, "sub")
	bounded := *client
	bounded.Transport = boundedBodies{client.Transport}
	return &Provider{cfg: cfg, client: &bounded}
}

func set(field *string, fallback string) {
	if *field == "" {
		*field = fallback
	}
}

// boundedBodies ends answers that are too long.
type boundedBodies struct{ next http.RoundTripper }

func (b boundedBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxBody)
	}
	return resp, err
}

// document returns what the provider publishes, not older than freshness; if
// the provider does not answer, not older than staleness.
func (p *Provider) document(ctx context.Context) (*document, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if p.current != nil && now.Sub(p.current.read) < freshness {
		return p.current, nil
	}
	// The keys are read later with the client of this context, which must not
	// end with the request.
	fresh, err := gooidc.NewProvider(gooidc.ClientContext(ctx, p.client), p.cfg.Issuer)
	if err == nil {
		d := &document{provider: fresh, read: now}
		if err = fresh.Claims(d); err == nil {
			p.current = d
			return d, nil
		}
	}
	if p.current != nil && now.Sub(p.current.read) < staleness {
		return p.current, nil
	}
	return nil, p.away(err)
}

// away is the error of a provider that cannot be asked.
func (p *Provider) away(err error) error {
	var network *url.Error
	if errors.As(err, &network) {
		return connector.Unreachable("provider "+hostOf(p.cfg.Issuer), err)
	}
	var other *gooidc.IssuerMismatchError
	if errors.As(err, &other) {
		return fault.With(fault.Wrap(fault.Offline, err, "the provider calls itself by another issuer than the configuration"), "provider "+hostOf(p.cfg.Issuer),
			"an admin writes the issuer exactly as the provider's document does, which may differ by a slash at its end: "+issuerWord(other.Discovered))
	}
	return fault.With(fault.Wrap(fault.Offline, err, "the provider does not answer as OpenID Connect says"), "provider "+hostOf(p.cfg.Issuer),
		"try again later; an admin checks issuer and rootCA of the provider, and that the hub may reach it")
}

// issuerWord is an issuer as people may read it.
func issuerWord(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || len(issuer) > 200 || u.Scheme != "https" && u.Scheme != "http" {
		return "an address that cannot be shown"
	}
	return u.String()
}

func (p *Provider) oauth(d *document, callback string) *oauth2.Config {
	scopes := p.cfg.Scopes
	if !slices.Contains(scopes, gooidc.ScopeOpenID) {
		scopes = append([]string{gooidc.ScopeOpenID}, scopes...)
	}
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: d.provider.Endpoint(), RedirectURL: callback, Scopes: scopes,
	}
}

// Begin returns the address to send the browser to.
func (p *Provider) Begin(ctx context.Context, r connector.Request) (string, error) {
	d, err := p.document(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{gooidc.Nonce(r.Nonce), oauth2.S256ChallengeOption(r.Verifier)}
	add := func(name, value string) {
		if value != "" {
			options = append(options, oauth2.SetAuthURLParam(name, value))
		}
	}
	for name, value := range p.cfg.Extra {
		add(name, value)
	}
	add("domain_hint", p.cfg.LoginDomain)
	add("login_hint", r.Hint)
	if len(p.cfg.RequestClaims) > 0 {
		text, err := json.Marshal(map[string]any{"id_token": p.cfg.RequestClaims})
		if err != nil {
			return "", fmt.Errorf("write the requested claims: %w", err)
		}
		add("claims", string(text))
	}
	address := p.oauth(d, r.Callback).AuthCodeURL(r.State, options...)
	if err := checkEndpoint(address); err != nil {
		return "", p.away(err)
	}
	return address, nil
}

// Finish checks what the browser came back with.
func (p *Provider) Finish(ctx context.Context, r connector.Request, answer url.Values) (connector.Identity, error) {
	var none connector.Identity
	if !equal(answer.Get("state"), r.State) {
		return none, unproven(nil, "the answer belongs to another sign-in")
	}
	d, err := p.document(ctx)
	if err != nil {
		return none, err
	}
	// An answer of another provider must not be redeemed here (RFC 9207).
	if iss := answer.Get("iss"); iss != "" && iss != p.cfg.Issuer || iss == "" && d.Named {
		return none, unproven(nil, "the answer comes from another provider")
	}
	if code := answer.Get("error"); code != "" {
		return none, unproven(nil, "the provider refused the sign-in: %s", word(code))
	}
	if answer.Get("code") == "" {
		return none, unproven(nil, "the answer has no code")
	}
	ctx = gooidc.ClientContext(ctx, p.client)
	token, err := p.oauth(d, r.Callback).Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(r.Verifier))
	if err != nil {
		return none, p.refused(err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" || len(raw) > maxIDToken {
		return none, unproven(nil, "the provider sent no usable ID token")
	}
	claims, err := p.verify(ctx, d, raw, token.AccessToken, r.Nonce)
	if err != nil {
		return none, err
	}
	id, err := p.identity(ctx, d, claims, token)
	id.Proof = raw
	return id, err
}

// refused says why a code was not redeemed.
func (p *Provider) refused(err error) error {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) || answer.Response == nil || answer.Response.StatusCode >= http.StatusInternalServerError {
		return p.away(err)
	}
	if answer.ErrorCode == "invalid_client" || answer.ErrorCode == "unauthorized_client" {
		return fault.With(fault.Wrap(fault.Invalid, err, "the provider does not accept the client: %s", word(answer.ErrorCode)), "provider "+hostOf(p.cfg.Issuer),
			"an admin checks clientID and clientSecret")
	}
	return unproven(err, "the provider does not accept the code: %s", word(answer.ErrorCode))
}

// verify checks an ID token and returns its claims.
func (p *Provider) verify(ctx context.Context, d *document, raw, access, nonce string) (map[string]any, error) {
	// The library allows 5 minutes of skew for one time and none for another, so
	// times and audience are checked here. It knows asymmetric algorithms alone.
	verifier := d.provider.Verifier(&gooidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true})
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		var network *url.Error
		if errors.As(err, &network) {
			return nil, p.away(err)
		}
		return nil, unproven(err, "the ID token is not valid")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return nil, unproven(err, "the ID token cannot be read")
	}
	if err := p.checkTimes(token, claims); err != nil {
		return nil, err
	}
	if nonce == "" || !equal(token.Nonce, nonce) {
		return nil, unproven(nil, "the ID token belongs to another sign-in")
	}
	if err := p.checkAudience(token.Audience, claims); err != nil {
		return nil, err
	}
	if token.AccessTokenHash != "" {
		if err := token.VerifyAccessToken(access); err != nil {
			return nil, unproven(err, "the access token is not the one of the ID token")
		}
	}
	return claims, nil
}

func (p *Provider) checkTimes(token *gooidc.IDToken, claims map[string]any) error {
	now := p.cfg.Now()
	if token.Expiry.IsZero() || now.After(token.Expiry.Add(Skew)) {
		return unproven(nil, "the ID token has expired: the clocks of hub and provider may differ by 60 seconds")
	}
	starts := []time.Time{token.IssuedAt}
	if v, there := claims["nbf"]; there {
		seconds, ok := v.(float64)
		if !ok {
			return unproven(nil, "the ID token has a time that is none")
		}
		starts = append(starts, time.Unix(int64(seconds), 0))
	}
	for _, at := range starts {
		if now.Add(Skew).Before(at) {
			return unproven(nil, "the ID token is not valid yet: the clocks of hub and provider may differ by 60 seconds")
		}
	}
	return nil
}

func (p *Provider) checkAudience(audience []string, claims map[string]any) error {
	audience = slices.DeleteFunc(slices.Clone(audience), func(a string) bool { return a == "" })
	if len(audience) == 0 {
		if p.cfg.NoAudienceFine {
			return nil
		}
		return unproven(nil, "the ID token names no audience")
	}
	fits := func(a string) bool { return slices.Contains(p.cfg.Audiences, a) }
	if !slices.ContainsFunc(audience, fits) {
		return unproven(nil, "the ID token is for another client")
	}
	party, there := claims["azp"]
	text, ok := party.(string)
	if there && (!ok || text != p.cfg.ClientID && !fits(text)) || !there && len(audience) > 1 && !slices.Contains(audience, p.cfg.ClientID) {
		return unproven(nil, "the ID token was issued to another client")
	}
	return nil
}

// SignOut returns where to send the browser, so that the session with the
// provider ends; empty if the provider's settings name no such address.
func (p *Provider) SignOut(proof, back string) string {
	if p.cfg.SignOutURL == "" {
		return ""
	}
	return fill(p.cfg.SignOutURL, map[string]string{tokenTemplate: url.QueryEscape(proof), backTemplate: url.QueryEscape(back)})
}

var template = regexp.MustCompile(`\{\{ *(token|logoutRedirectURL) *\}\}`)

func fill(address string, values map[string]string) string {
	return template.ReplaceAllStringFunc(address, func(found string) string {
		return values["{{"+template.FindStringSubmatch(found)[1]+"}}"]
	})
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// unproven is the error of an answer that proves nothing.
func unproven(err error, format string, args ...any) error {
	return fault.With(fault.Wrap(fault.Unknown, err, format, args...), "", "sign in again")
}

// word is a code of the provider as people may read it: others are hidden.
func word(code string) string {
	if len(code) > 64 || !regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`).MatchString(code) {
		return "a code that cannot be shown"
	}
	return code
}

// read reads a JSON answer of the provider.
func (p *Provider) read(r *http.Request, into any) error {
	resp, err := p.client.Do(r)
	if err != nil {
		return p.away(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return p.away(err)
	case resp.StatusCode != http.StatusOK:
		return p.away(fmt.Errorf("%s answers %s", r.URL.Host, resp.Status))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return p.away(fmt.Errorf("read the answer of %s: %w", r.URL.Host, err))
	}
	return nil
}
