package sso

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A Start is how somebody asks to sign in.
type Start struct {
	Tenant    string // name
	Provider  string // id; empty: the first one
	ReturnTo  string // address of the console to go to then
	Host      string // under which the browser has reached the console
	Browser   string // the secret that it holds
	Client    string // address of a command line on the browser's machine; empty: none
	Challenge string // of its PKCE
	Hint      string // user name, if known
}

// Begin returns the address of the provider to send the browser to, and whether
// the browser will come back with a form.
func (s *Service) Begin(ctx context.Context, r Start) (address string, posts bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	t, err := s.TenantByName(ctx, r.Tenant)
	if err != nil || t.Suspended {
		if err != nil && fault.KindOf(err) != fault.Missing {
			return "", false, err
		}
		_, err = find(nil, "")
		return "", false, err
	}
	set, err := s.SignInSettings(ctx, t.ID)
	if err != nil {
		return "", false, err
	}
	all, err := s.providers(t.ID, set)
	if err != nil {
		return "", false, err
	}
	if connector := set.Values[settings.ConnectorKey]; r.Provider == "" && connector != "" && set.Values[settings.OIDCKey] == "" {
		r.Provider = dexPrefix + connector // as in Argo CD, without a chooser
	}
	p, err := find(all, r.Provider)
	if err != nil {
		return "", false, err
	}
	if p.redirect == nil {
		return "", false, fault.With(fault.New(fault.Invalid, "this provider checks a name and a password"), "provider "+p.Name, "type them on the sign-in page")
	}
	request, kept, err := s.begun(t.ID, set, p, r)
	if err != nil {
		return "", false, err
	}
	if address, err = p.redirect.Begin(ctx, request); err != nil {
		return "", false, err
	}
	return address, p.posts, s.PutSignIn(ctx, t.ID, kept)
}

// begun is a new sign-in, and what is stored of it.
func (s *Service) begun(tenant hub.TenantID, set hub.SignInSettings, p provider, r Start) (connector.Request, hub.SignIn, error) {
	var none hub.SignIn
	consoles := settings.ConsoleURLs(set.Values)
	base, err := s.base(consoles, r.Host)
	if err != nil {
		return connector.Request{}, none, err
	}
	back, err := ReturnPath(r.ReturnTo, append(consoles, strings.TrimSuffix(s.Console, s.root())), s.root())
	if err != nil {
		return connector.Request{}, none, err
	}
	if r.Client != "" {
		if err := checkClient(r.Client, r.Challenge); err != nil {
			return connector.Request{}, none, err
		}
	}
	state, err := identity.NewStamp(tenant)
	if err != nil {
		return connector.Request{}, none, err
	}
	request := requestOf(state, r.Browser, base+p.path)
	request.Hint = r.Hint
	return request, hub.SignIn{
		Hash: sha256.Sum256([]byte(state)), Browser: sha256.Sum256([]byte(r.Browser)), Provider: p.ID, Callback: request.Callback, ReturnTo: back,
		Client: r.Client, Challenge: r.Challenge, ExpiresAt: s.Now().Add(lasts),
	}, nil
}

func requestOf(state, browser, callback string) connector.Request {
	return connector.Request{State: state, Nonce: derive(browser, "nonce", state), Verifier: derive(browser, "verifier", state), Callback: callback}
}

// checkClient accepts addresses of the browser's own machine alone: whoever
// listens there gets the session.
func checkClient(address, challenge string) error {
	u, err := url.Parse(address)
	local := false
	if err == nil {
		ip, bad := netip.ParseAddr(u.Hostname())
		local = bad == nil && ip.IsLoopback() || strings.EqualFold(u.Hostname(), "localhost")
	}
	if err != nil || u.Scheme != "http" || !local || u.User != nil || u.Fragment != "" || len(address) > 500 {
		return fault.With(fault.New(fault.Invalid, "the address of the command line is not on this machine"), "", "use http://localhost:PORT/auth/callback")
	}
	if len(challenge) != 43 {
		return fault.New(fault.Invalid, "the sign-in of a command line needs a challenge of PKCE")
	}
	return nil
}

// An Answer is what a browser came back with.
type Answer struct {
	Path    string // of the callback
	Host    string
	Browser string // the secret that it holds; empty: none
	Values  url.Values
}

// A Session is one that has begun, or what a command line gets it for.
type Session struct {
	Secret   string
	Caller   hub.Caller
	Expires  time.Time
	ReturnTo string // path of the console
	Client   string // address of the command line, with the code; empty: none
	Test     bool   // it was a test: there is no session
}

// Finish ends a sign-in at a provider. With an error, Client is the address
// that tells a command line the reason, if one waits.
func (s *Service) Finish(ctx context.Context, from hub.Caller, a Answer) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	state := a.Values.Get("state")
	if state == "" {
		state = a.Values.Get("RelayState")
	}
	tenant, ok := identity.TenantOf(state)
	if !ok || a.Browser == "" {
		return Session{}, errState()
	}
	t, err := s.Tenant(ctx, tenant)
	if err != nil || t.Suspended {
		return Session{}, errState()
	}
	begun, err := s.TakeSignIn(ctx, tenant, sha256.Sum256([]byte(state)), sha256.Sum256([]byte(a.Browser)))
	if err != nil {
		if fault.KindOf(err) == fault.Missing {
			err = errState()
		}
		return Session{}, err
	}
	if begun.Test != "" {
		return s.finishTest(ctx, from, t, begun, state, a)
	}
	out, err := s.finish(ctx, from, t, begun, state, a)
	if err != nil {
		s.refused(ctx, from, t, begun.Provider, err)
		if begun.Client != "" {
			out.Client = withQuery(begun.Client, "error", Reason(err))
		}
	}
	return out, err
}

// withQuery adds a parameter to an address that was checked.
func withQuery(address, name, value string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// refused notes a sign-in that failed. Its own error changes no answer.
func (s *Service) refused(ctx context.Context, from hub.Caller, t hub.Tenant, provider string, err error) {
	e, ok := fault.As(err)
	reason := "something went wrong in the hub"
	if ok && e.Kind != fault.Internal {
		reason = e.Cause
	}
	by := hub.Caller{Tenant: t.ID, TenantName: t.Name, Username: provider, Via: "provider", Address: from.Address, Request: from.Request}
	if err := s.SignInBy(context.WithoutCancel(ctx), by, provider, reason); err != nil {
		s.Log.ErrorContext(ctx, "note a failed sign-in", logkey.Error, err)
	}
}

func (s *Service) finish(ctx context.Context, from hub.Caller, t hub.Tenant, begun hub.SignIn, state string, a Answer) (Session, error) {
	set, err := s.SignInSettings(ctx, t.ID)
	if err != nil {
		return Session{}, err
	}
	all, err := s.providers(t.ID, set)
	if err != nil {
		return Session{}, err
	}
	p, id, err := s.answered(ctx, set, all, begun, state, a)
	if err != nil {
		return Session{}, err
	}
	proven, err := s.proven(ctx, from, t, set, p, id)
	if err != nil {
		return Session{}, err
	}
	if begun.Client != "" {
		return s.code(ctx, proven, begun)
	}
	out := Session{ReturnTo: begun.ReturnTo}
	out.Secret, out.Caller, out.Expires, err = s.Sessions.BeginBy(ctx, from, proven.Tenant, proven.User, &proven.Claims)
	return out, err
}

// answered has the provider of a sign-in check what the browser came back with.
// With an error, the identity is what was known by then.
func (s *Service) answered(ctx context.Context, set hub.SignInSettings, all []provider, begun hub.SignIn, state string, a Answer) (provider, connector.Identity, error) {
	var none connector.Identity
	base, err := s.base(settings.ConsoleURLs(set.Values), a.Host)
	if err != nil {
		return provider{}, none, err
	}
	if base+a.Path != begun.Callback { // it began under another address of the console (AUTH-12)
		return provider{}, none, errState()
	}
	p, err := find(all, begun.Provider)
	if err != nil {
		return p, none, err
	}
	if p.redirect == nil {
		return p, none, errState()
	}
	if a.Values.Get("error") == "access_denied" {
		return p, none, &fault.Error{Kind: fault.Denied, Err: declined, Cause: "the sign-in was declined at the provider", Fix: "sign in again and agree, or ask who runs the provider for access"}
	}
	id, err := p.redirect.Finish(ctx, requestOf(state, a.Browser, begun.Callback), a.Values)
	return p, id, err
}

// proven finds the account of whom a provider has identified.
func (s *Service) proven(ctx context.Context, from hub.Caller, t hub.Tenant, set hub.SignInSettings, p provider, id connector.Identity) (identity.Proven, error) {
	out := identity.Proven{Tenant: t}
	if id.Subject == "" {
		return out, fault.New(fault.Unknown, "the provider does not say who this is")
	}
	groups, err := s.Subjects(ctx, t.ID, subjects(id, settings.Scopes(set.Scopes)))
	if err != nil {
		return out, err
	}
	out.User, err = s.PersonAccount(ctx, t.ID, from, hub.Person{Provider: p.ID, Realm: p.realm, Subject: id.Subject, Label: label(id)})
	if err != nil {
		return out, err
	}
	if out.User.Disabled {
		return out, fault.With(fault.New(fault.Denied, "the account is disabled"), "account "+out.User.Name, "ask an admin of the tenant")
	}
	out.Claims = hub.SessionClaims{Provider: p.ID, Groups: groups, Proof: id.Proof}
	return out, nil
}

// subjects are the values that a policy may name: the subject itself, and
// those of the claims that the tenant's scopes list. An address that the
// provider has not verified is anybody's.
func subjects(id connector.Identity, scopes []string) []string {
	out := []string{id.Subject}
	for _, scope := range scopes {
		switch scope {
		case "groups":
			out = append(out, id.Groups...)
		case "email":
			if id.EmailVerified {
				out = append(out, id.Email)
			}
		case "name":
			out = append(out, id.Name)
		case "preferred_username":
			out = append(out, id.Username)
		default:
			out = append(out, id.Claims[scope]...)
		}
	}
	return out
}

// label is what people recognise somebody by.
func label(id connector.Identity) string {
	switch {
	case id.EmailVerified:
		return id.Email
	case id.Username != "":
		return id.Username
	}
	return id.Subject
}

// code gives a command line what it exchanges for a session.
func (s *Service) code(ctx context.Context, p identity.Proven, begun hub.SignIn) (Session, error) {
	code, err := identity.NewStamp(p.Tenant.ID)
	if err != nil {
		return Session{}, err
	}
	p.Claims.Hash, p.Claims.User, p.Claims.Challenge, p.Claims.ExpiresAt = sha256.Sum256([]byte(code)), p.User.ID, begun.Challenge, s.Now().Add(codeLasts)
	return Session{Client: withQuery(begun.Client, "code", code)}, s.PutSessionClaims(ctx, p.Tenant.ID, p.Claims)
}

// Exchange begins the session of a command line, once for each code.
func (s *Service) Exchange(ctx context.Context, from hub.Caller, code, verifier string) (Session, error) {
	tenant, ok := identity.TenantOf(code)
	if !ok || verifier == "" {
		return Session{}, errState()
	}
	t, err := s.Tenant(ctx, tenant)
	if err != nil || t.Suspended {
		return Session{}, errState()
	}
	claims, err := s.TakeSessionClaims(ctx, tenant, sha256.Sum256([]byte(code)), Challenge(verifier))
	if err != nil {
		if fault.KindOf(err) == fault.Missing {
			err = errState()
		}
		return Session{}, err
	}
	u, err := s.Account(ctx, tenant, claims.User)
	if err != nil || u.Disabled {
		return Session{}, errState()
	}
	var out Session
	out.Secret, out.Caller, out.Expires, err = s.Sessions.BeginBy(ctx, from, t, u, &claims)
	return out, err
}

// Login begins the session of a person whose name and password a provider
// checks. The error is fault.Unknown if they are wrong.
func (s *Service) Login(ctx context.Context, from hub.Caller, providerID string, c identity.Credential) (out Session, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	out.Secret, out.Caller, out.Expires, err = s.Sessions.LoginBy(ctx, from, providerID, c, func(ctx context.Context) (identity.Proven, error) {
		return s.checkPassword(ctx, from, providerID, c)
	})
	return out, err
}

func (s *Service) checkPassword(ctx context.Context, from hub.Caller, providerID string, c identity.Credential) (identity.Proven, error) {
	t, err := s.TenantByName(ctx, c.Tenant)
	if fault.KindOf(err) == fault.Missing || err == nil && t.Suspended {
		return identity.Proven{}, fault.New(fault.Unknown, "the user name or the password is wrong")
	}
	if err != nil {
		return identity.Proven{}, err
	}
	proven := identity.Proven{Tenant: t}
	set, err := s.SignInSettings(ctx, t.ID)
	if err != nil {
		return proven, err
	}
	all, err := s.providers(t.ID, set)
	if err != nil {
		return proven, err
	}
	p, err := find(all, providerID)
	if err != nil {
		return proven, err
	}
	if p.password == nil {
		return proven, fault.With(fault.New(fault.Invalid, "this provider checks no password"), "provider "+p.Name, "choose it on the sign-in page")
	}
	id, err := p.password.Check(ctx, c.Username, c.Password)
	if err != nil {
		return proven, err
	}
	return s.proven(ctx, from, t, set, p, id)
}

// SignOut returns where to send the browser of who signs out, so that the
// session with the provider ends as well; empty: nowhere. It does not end the
// session with the hub.
func (s *Service) SignOut(ctx context.Context, who hub.Caller, secret, host string) (string, error) {
	claims, err := s.TakeSessionClaims(ctx, who.Tenant, identity.Hash(secret), "")
	if fault.KindOf(err) == fault.Missing || err == nil && claims.Proof == "" {
		return "", nil // a local account, or a device: its browser goes on
	}
	if err != nil {
		return "", err
	}
	set, err := s.SignInSettings(ctx, who.Tenant)
	if err != nil {
		return "", err
	}
	all, err := s.providers(who.Tenant, set)
	if err != nil {
		return "", err
	}
	p, err := find(all, claims.Provider)
	ender, ok := p.redirect.(connector.SessionEnder)
	if err != nil || !ok { // the provider is gone, or knows no sign-out
		return "", nil
	}
	base, err := s.base(settings.ConsoleURLs(set.Values), host)
	if err != nil {
		base = s.Console
	}
	return ender.SignOut(claims.Proof, base+"/login"), nil
}
