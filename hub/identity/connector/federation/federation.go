// Package federation verifies tokens of other issuers, such as CI systems, that
// are exchanged for tokens of the hub. It stores nothing and grants nothing. The
// API calls it. A token counts only with the issuer, the audience, the times and
// a signature by a key that the issuer publishes over HTTPS.
package federation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	freshness    = 10 * time.Minute // after which an issuer's document is read again
	maxProviders = 100
	maxToken     = 64 << 10
	maxAge       = 24 * time.Hour // of a token
)

// A Verifier verifies tokens. Many goroutines may use it.
type Verifier struct {
	client *http.Client
	now    func() time.Time

	mu        sync.Mutex
	providers map[string]provider
}

type provider struct {
	*gooidc.Provider
	until time.Time
}

// New makes a verifier. The client decides which addresses issuers may have.
func New(client *http.Client, now func() time.Time) *Verifier {
	return &Verifier{client: client, now: now, providers: map[string]provider{}}
}

// Issuer returns who a token says that it is from, which proves nothing.
func Issuer(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > maxToken {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// Verify returns the claims of a token, its subject and when it expires. The
// error is fault.Unknown if the token proves nothing, and fault.Offline if the
// issuer does not answer.
func (v *Verifier) Verify(ctx context.Context, issuer, audience, token string) (claims map[string]any, subject string, expires time.Time, err error) {
	p, err := v.provider(ctx, issuer)
	if err != nil {
		return nil, "", time.Time{}, fault.Wrap(fault.Offline, err, "the issuer does not answer")
	}
	verifier := p.Verifier(&gooidc.Config{
		ClientID: audience, Now: v.now,
		SupportedSigningAlgs: []string{gooidc.RS256, gooidc.RS384, gooidc.RS512, gooidc.ES256, gooidc.ES384, gooidc.ES512, gooidc.PS256, gooidc.PS384, gooidc.PS512, gooidc.EdDSA},
	})
	checked, err := verifier.Verify(gooidc.ClientContext(ctx, v.client), token)
	if err != nil {
		return nil, "", time.Time{}, fault.Wrap(fault.Unknown, err, "the token is not accepted for exchange")
	}
	if checked.Subject == "" || checked.IssuedAt.IsZero() || v.now().Sub(checked.IssuedAt) > maxAge {
		return nil, "", time.Time{}, fault.New(fault.Unknown, "the token is not accepted for exchange")
	}
	if err := checked.Claims(&claims); err != nil {
		return nil, "", time.Time{}, fault.Wrap(fault.Unknown, err, "the token is not accepted for exchange")
	}
	return claims, checked.Subject, checked.Expiry, nil
}

func (v *Verifier) provider(ctx context.Context, issuer string) (*gooidc.Provider, error) {
	v.mu.Lock()
	p, ok := v.providers[issuer]
	v.mu.Unlock()
	if ok && v.now().Before(p.until) {
		return p.Provider, nil
	}
	// The keys are read later, when this request is over.
	fresh, err := gooidc.NewProvider(gooidc.ClientContext(context.WithoutCancel(ctx), v.client), issuer)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.providers) >= maxProviders {
		clear(v.providers)
	}
	v.providers[issuer] = provider{fresh, v.now().Add(freshness)}
	return fresh, nil
}
