// Package sso signs people in by the identity providers of their tenant. It
// knows no protocol: those are connectors. It stores nothing itself, and gives
// no rights: what a provider says of a person becomes subjects that the
// tenant's policy may name. The API calls it. What always holds: a sign-in is
// finished once, within ten minutes, by the browser that began it, at the
// address where it began; and a provider's person is never a local account.
package sso

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/lru"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Tenants finds tenants.
type Tenants interface {
	Tenant(ctx context.Context, id hub.TenantID) (hub.Tenant, error)
	TenantByName(ctx context.Context, name string) (hub.Tenant, error)
}

// Requests keeps sign-ins that have begun.
type Requests interface {
	PutSignIn(ctx context.Context, tenant hub.TenantID, s hub.SignIn) error
	// TakeSignIn returns one that this browser has begun, once; the error is
	// fault.Missing for all others.
	TakeSignIn(ctx context.Context, tenant hub.TenantID, hash, browser [32]byte) (hub.SignIn, error)
}

// People are the accounts of those whom providers know.
type People interface {
	PersonAccount(ctx context.Context, tenant hub.TenantID, from hub.Caller, p hub.Person) (hub.User, error)
	Account(ctx context.Context, tenant hub.TenantID, id hub.UserID) (hub.User, error)
	// Subjects returns those of the values that policies may name.
	Subjects(ctx context.Context, tenant hub.TenantID, values []string) ([]string, error)
}

// Claims keeps what providers have said.
type Claims interface {
	PutSessionClaims(ctx context.Context, tenant hub.TenantID, c hub.SessionClaims) error
	TakeSessionClaims(ctx context.Context, tenant hub.TenantID, hash [32]byte, challenge string) (hub.SessionClaims, error)
}

// Tests keeps sign-ins that admins make to see what would become of them.
type Tests interface {
	// MayTestSignIn checks rights and the draft, before a provider is asked.
	MayTestSignIn(ctx context.Context, by hub.Caller, draft hub.SignInDraft) error
	BeginSignInTest(ctx context.Context, by hub.Caller, t hub.SignInTest, s hub.SignIn) error
	// SignInSecret is one that a draft refers to.
	SignInSecret(ctx context.Context, tenant hub.TenantID, name, key string) (value string, found bool, err error)
	// TakeSignInDraft returns a test with its draft, once.
	TakeSignInDraft(ctx context.Context, tenant hub.TenantID, id hub.SignInTestID) (hub.SignInTest, error)
	// ExpectedAccount is the account that a person would get. It makes none.
	ExpectedAccount(ctx context.Context, tenant hub.TenantID, p hub.Person) (u hub.User, known bool, err error)
	FinishSignInTest(ctx context.Context, from hub.Caller, tenant hub.TenantID, t hub.SignInTest, report hub.SignInReport) error
}

// Records are what a tenant has set, and where refusals are noted.
type Records interface {
	SignInSettings(ctx context.Context, tenant hub.TenantID) (hub.SignInSettings, error)
	SignInBy(ctx context.Context, by hub.Caller, provider, reason string) error
}

// Parts are what the service works with. All are required.
type Parts struct {
	Tenants
	Requests
	People
	Claims
	Records
	Tests
	Sessions *identity.Service
	// Client makes the client for requests to a provider. It must refuse
	// addresses that tenants may not reach. authorities are in PEM; empty: those
	// of the machine.
	Client func(authorities string, skipVerify bool) (*http.Client, error)
	// Dial opens connections to providers that do not speak HTTP, as carefully.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Console is the hub's own address: scheme, host, and the path that it has
	// under every other address, too.
	Console string
	Log     *slog.Logger
	Now     func() time.Time
}

// A Service signs people in. Many goroutines may use it.
type Service struct {
	Parts
	built *lru.Cache[[32]byte, []provider] // by what they were built from
}

// New makes the service.
func New(p Parts) *Service {
	return &Service{Parts: p, built: lru.New[[32]byte, []provider](maxTenants)}
}

const (
	maxTenants  = 1000             // whose providers are kept
	lasts       = 10 * time.Minute // a sign-in that has begun
	codeLasts   = time.Minute      // what a command line exchanges for a session
	stepTimeout = 20 * time.Second // for all requests of one step to a provider
)

// What the console has words of its own for, besides connector.Overage.
const (
	stale    connector.Cause = "state"   // another browser, too late, or twice
	declined connector.Cause = "consent" // by the person or the provider
)

// Reason is the word that the console gets for an error.
func Reason(err error) string {
	var cause connector.Cause
	if errors.As(err, &cause) {
		return string(cause)
	}
	switch fault.KindOf(err) {
	case fault.Unknown:
		return "proof"
	case fault.Denied:
		return "refused"
	case fault.Offline:
		return "offline"
	case fault.Invalid, fault.Missing:
		return "config"
	case fault.Exceeded:
		return "limit"
	case fault.Internal, fault.Conflict:
	}
	return "internal"
}

func errState() error {
	return &fault.Error{Kind: fault.Unknown, Err: stale, Cause: "this sign-in was begun in another browser, more than ten minutes ago, or is finished", Fix: "begin again on the sign-in page"}
}

// NewBrowser makes the secret that binds sign-ins to a browser.
func NewBrowser() string { return random() }

func random() string {
	raw := make([]byte, 32)
	rand.Read(raw) // never fails: crypto/rand ends the program instead
	return base64.RawURLEncoding.EncodeToString(raw)
}

// derive makes a secret of one sign-in from what only the browser holds, so
// that it is stored nowhere.
func derive(browser, use, state string) string {
	mac := hmac.New(sha256.New, []byte(browser))
	mac.Write([]byte(use + "\x00" + state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Challenge is the PKCE challenge (S256) of a verifier.
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// base finds the address of the console under which a browser has reached it.
func (s *Service) base(settings []string, host string) (string, error) {
	all := append([]string{s.Console}, settings...)
	for _, b := range all {
		if u, err := url.Parse(b); err == nil && strings.EqualFold(u.Host, host) {
			return u.Scheme + "://" + u.Host + s.root(), nil
		}
	}
	return "", fault.With(fault.New(fault.Invalid, "single sign-on is not set up for this address of the console"), "",
		"open the console at "+strings.Join(all, " or ")+", or add the address to additionalUrls of argocd-cm")
}

// root is the path of the console, without a slash at its end.
func (s *Service) root() string {
	u, err := url.Parse(s.Console)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// ReturnPath is the path of the console that a browser is sent to after its
// sign-in, without the root that all of them have. Origins are those of the console.
// The error is fault.Invalid for an address of another site.
func ReturnPath(address string, origins []string, root string) (string, error) {
	for _, b := range origins {
		if rest, found := below(address, b); found {
			address = rest
			break
		}
	}
	if rest, found := below(address, root); found {
		address = rest
	}
	if address == "" {
		return "/", nil
	}
	u, err := url.Parse(address)
	odd := strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' })
	if err != nil || odd || u.Scheme != "" || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(address, "/") || strings.HasPrefix(address, "//") || len(address) > 2000 {
		return "", fault.With(fault.New(fault.Invalid, "the address to return to is not one of the console"), "", "begin on the sign-in page")
	}
	return address, nil
}

// below cuts what an address begins with, at the end of a part of its path.
func below(address, begin string) (string, bool) {
	rest, found := strings.CutPrefix(address, begin)
	return rest, found && (rest == "" || rest[0] == '/')
}
