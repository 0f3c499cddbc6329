package identity

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Directory knows which tenant and account a secret belongs to.
type Directory struct {
	TenantReader
	SessionStore
	TokenReader
	KeyReader
	FailureCounter
	AddressBook
}

// TenantReader finds tenants.
type TenantReader interface {
	Tenant(ctx context.Context, id hub.TenantID) (hub.Tenant, error)
	TenantByName(ctx context.Context, name string) (hub.Tenant, error)
}

// SessionStore keeps the sessions of people, by the hash of their secret.
type SessionStore interface {
	PutSession(ctx context.Context, s hub.Session) error
	Session(ctx context.Context, hash [32]byte) (hub.Session, error)
	TouchSession(ctx context.Context, hash [32]byte, at time.Time) error
	DeleteSession(ctx context.Context, hash [32]byte) error
}

// TokenReader finds API tokens, by the hash of their secret.
type TokenReader interface {
	Token(ctx context.Context, hash [32]byte) (hub.APIToken, error)
	TouchToken(ctx context.Context, hash [32]byte, at time.Time) error
}

// FailureCounter counts attempts to sign in that failed.
type FailureCounter interface {
	// LoginFailure counts a failure under a key and returns how many there
	// were within the window; LoginFailures returns the count alone.
	LoginFailure(ctx context.Context, key [32]byte, now time.Time, window time.Duration) (int, error)
	LoginFailures(ctx context.Context, key [32]byte, since time.Time) (int, error)
	ForgetLoginFailures(ctx context.Context, key [32]byte) error
}

// AddressBook knows where accounts have signed in from.
type AddressBook interface {
	// PutKnownAddress remembers until then that an account has signed in from
	// an address; KnownAddress asks. The key is a hash of both.
	PutKnownAddress(ctx context.Context, key [32]byte, tenant hub.TenantID, user hub.UserID, until time.Time) error
	KnownAddress(ctx context.Context, key [32]byte, now time.Time) (bool, error)
}

// Accounts are the accounts of the tenants, what their tenants have set about
// sign-ins, and where those are noted.
type Accounts interface {
	AccountReader
	OldPasswords
	RoleTokens
	SignInRules
	SignInLog
}

// AccountReader finds accounts.
type AccountReader interface {
	// AccountByName returns an account and the hash of its password; the error
	// is fault.Missing if there is none.
	AccountByName(ctx context.Context, tenant hub.TenantID, name string) (hub.User, string, error)
	Account(ctx context.Context, tenant hub.TenantID, id hub.UserID) (hub.User, error)
	// SessionClaims are what an identity provider said of whom a session belongs
	// to; the error is fault.Missing if there are none.
	SessionClaims(ctx context.Context, tenant hub.TenantID, hash [32]byte) (hub.SessionClaims, error)
	PutSessionClaims(ctx context.Context, tenant hub.TenantID, c hub.SessionClaims) error
}

// SignInRules are what a tenant has set.
type SignInRules interface {
	// SessionDuration is how long a session of the tenant lasts that begins now.
	SessionDuration(ctx context.Context, tenant hub.TenantID) (time.Duration, error)
	// LocalSignIn reports whether an account may sign in with a password.
	LocalSignIn(ctx context.Context, tenant hub.TenantID, u hub.User) (bool, error)
}

// SignInLog is where sign-ins are noted.
type SignInLog interface {
	// SignedIn and SignInRefused write the audit record of a sign-in.
	SignedIn(ctx context.Context, c hub.Caller) error
	SignInRefused(ctx context.Context, c hub.Caller, reason string) error
}

// Config bounds sign-ins and sessions. Zero fields mean their defaults.
type Config struct {
	Trust time.Duration // how long a proof that was checked is not checked again; default 1 s
	Now   func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Trust == 0 {
		c.Trust = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

const (
	touchEvery = time.Minute
	maxTrusted = 10_000
)

// A Service answers who is calling. Many goroutines may use it.
type Service struct {
	dir       Directory
	accounts  Accounts
	passwords *Passwords
	cfg       Config
	log       *slog.Logger

	mu      sync.Mutex
	trusted map[[32]byte]trust
	forgets int64 // how often something was dropped from trusted
}

// trust is an answer that was given a moment ago.
type trust struct {
	caller hub.Caller
	until  time.Time
}

// New makes the service.
func New(dir Directory, accounts Accounts, passwords *Passwords, cfg Config, log *slog.Logger) *Service {
	return &Service{dir: dir, accounts: accounts, passwords: passwords, cfg: cfg.withDefaults(), log: log, trusted: map[[32]byte]trust{}}
}

// errProof is the one answer to every proof that does not hold.
func errProof() error {
	return fault.With(fault.New(fault.Unknown, "you are not signed in, or the session or token no longer works"), "", "sign in again")
}

// errPassword is the one answer to every sign-in that fails.
func errPassword() error {
	return fault.With(fault.New(fault.Unknown, "the user name or the password is wrong"), "", "check both, and the name of the tenant")
}

// A Credential is what a person signs in with.
type Credential struct {
	Tenant   string // name
	Username string
	Password string
}

// Login checks a password and begins a session. from is the caller's address
// and request. The session's secret is returned and not stored.
func (s *Service) Login(ctx context.Context, from hub.Caller, c Credential) (secret string, caller hub.Caller, expires time.Time, err error) {
	now := s.cfg.Now()
	keys := ownKeys(c.Tenant, c.Username, from.Address)
	if err := s.throttled(ctx, keys, now); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	tenant, user, hash, err := s.find(ctx, c)
	if err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	// From here on everything costs the same, whatever is right or wrong.
	known, closed, err := s.accountState(ctx, c, tenant, user, from.Address, now)
	if err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	match, err := s.matches(ctx, tenant.ID, hash, c.Password)
	if err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	if !match || user.Disabled || !user.Can(hub.CanSignIn) || tenant.Suspended || closed && !known {
		if !known {
			keys = append(keys, strangersKey(c.Tenant, c.Username))
		}
		s.refused(ctx, keys, now, tenant, from, c, closed && !known)
		if closed {
			return "", hub.Caller{}, time.Time{}, errClosed()
		}
		return "", hub.Caller{}, time.Time{}, errPassword()
	}
	if err := s.dir.ForgetLoginFailures(ctx, keys[0].key); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	if err := s.mayUsePassword(ctx, from, tenant, user); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	s.upgrade(ctx, tenant, user, hash, c.Password)
	return s.Begin(ctx, from, tenant, user)
}

// mayUsePassword refuses accounts whose tenant has closed sign-ins by password.
// Only who knows the password hears of it.
func (s *Service) mayUsePassword(ctx context.Context, from hub.Caller, tenant hub.Tenant, user hub.User) error {
	allowed, err := s.accounts.LocalSignIn(ctx, tenant.ID, user)
	if err != nil || allowed {
		return err
	}
	by := callerOf(tenant, user, "password", "")
	by.Address, by.Request = from.Address, from.Request
	if err := s.accounts.SignInRefused(ctx, by, "the tenant has switched off sign-ins of local accounts"); err != nil {
		return err
	}
	return fault.With(fault.New(fault.Denied, "your organisation has switched off sign-ins with a password"), "", "sign in by single sign-on, or ask a platform admin for a setup link")
}

// find returns the tenant, the account and the hash of its password; what is
// not there is empty, and no error.
func (s *Service) find(ctx context.Context, c Credential) (tenant hub.Tenant, user hub.User, hash string, err error) {
	tenant, err = s.dir.TenantByName(ctx, c.Tenant)
	if err == nil {
		user, hash, err = s.accounts.AccountByName(ctx, tenant.ID, c.Username)
	}
	if fault.KindOf(err) == fault.Missing {
		err = nil
	}
	return tenant, user, hash, err
}

// Begin starts a session for an account whose proof was checked already.
func (s *Service) Begin(ctx context.Context, from hub.Caller, tenant hub.Tenant, user hub.User) (secret string, caller hub.Caller, expires time.Time, err error) {
	return s.BeginBy(ctx, from, tenant, user, nil)
}

// BeginBy is Begin with what an identity provider said of the person; nil for
// a local account. The claims get the session's hash and end with it.
func (s *Service) BeginBy(ctx context.Context, from hub.Caller, tenant hub.Tenant, user hub.User, claims *hub.SessionClaims) (secret string, caller hub.Caller, expires time.Time, err error) {
	now := s.cfg.Now()
	lasts, err := s.accounts.SessionDuration(ctx, tenant.ID)
	if err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	return s.begin(ctx, from, tenant, user, claims, span{now, now.Add(lasts)})
}

// span is from when until when a session lasts.
type span struct{ from, until time.Time }

func (s *Service) begin(ctx context.Context, from hub.Caller, tenant hub.Tenant, user hub.User, claims *hub.SessionClaims, lasts span) (secret string, caller hub.Caller, expires time.Time, err error) {
	now := s.cfg.Now()
	secret = NewSecret(SessionSecret)
	session := hub.Session{
		Hash: Hash(secret), Tenant: tenant.ID, User: user.ID,
		CreatedAt: lasts.from, SeenAt: now, ExpiresAt: lasts.until,
		Address: from.Address, Client: from.Client, Provider: user.Provider,
	}
	caller = callerOf(tenant, user, "session", Shown(secret))
	caller.Address, caller.Request, caller.SignedInAt = from.Address, from.Request, lasts.from
	if claims != nil {
		claims.Hash, claims.User, claims.ExpiresAt, claims.Challenge = session.Hash, user.ID, session.ExpiresAt, ""
		caller.Groups = claims.Groups
		if err := s.accounts.PutSessionClaims(ctx, tenant.ID, *claims); err != nil {
			return "", hub.Caller{}, time.Time{}, err
		}
	}
	if err := s.accounts.SignedIn(ctx, caller); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	if err := s.dir.PutSession(ctx, session); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	if err := s.dir.PutKnownAddress(ctx, knownKey(tenant, user, from.Address), tenant.ID, user.ID, now.Add(keepKnown)); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	return secret, caller, session.ExpiresAt, nil
}

// Authenticate finds the caller behind the secret of a session or token. The
// error is fault.Unknown for anything that does not hold.
func (s *Service) Authenticate(ctx context.Context, secret string) (hub.Caller, error) {
	kind := KindOf(secret)
	if kind != SessionSecret && kind != TokenSecret && kind != RoleSecret && kind != GivenSecret {
		return hub.Caller{}, errProof()
	}
	now := s.cfg.Now()
	hash := Hash(secret)
	if c, ok := s.known(hash, now); ok {
		return c, nil
	}
	before := s.generation()
	caller, err := s.authenticate(ctx, kind, hash, secret, now)
	if err != nil {
		if fault.KindOf(err) == fault.Missing {
			err = errProof()
		}
		return hub.Caller{}, err
	}
	s.trust(hash, caller, now, before)
	return caller, nil
}

// generation changes when credentials are dropped: what was read before that
// may be what was dropped.
func (s *Service) generation() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgets
}

// authenticate checks a secret against directory and account.
func (s *Service) authenticate(ctx context.Context, kind Kind, hash [32]byte, secret string, now time.Time) (hub.Caller, error) {
	if kind == RoleSecret {
		return s.role(ctx, hash, now)
	}
	if kind == GivenSecret {
		return s.given(ctx, hash, now)
	}
	tenantID, userID, id, via := hub.TenantID(""), hub.UserID(""), Shown(secret), "session"
	var signedIn time.Time
	if kind == SessionSecret {
		session, err := s.session(ctx, hash, now)
		if err != nil {
			return hub.Caller{}, err
		}
		tenantID, userID, signedIn = session.Tenant, session.User, session.CreatedAt
	} else {
		token, err := s.token(ctx, hash, now)
		if err != nil {
			return hub.Caller{}, err
		}
		tenantID, userID, id, via = token.Tenant, token.User, string(token.ID), "token"
	}
	tenant, err := s.dir.Tenant(ctx, tenantID)
	if err != nil {
		return hub.Caller{}, err
	}
	user, err := s.accounts.Account(ctx, tenantID, userID)
	if err != nil {
		return hub.Caller{}, err
	}
	if user.Disabled || tenant.Suspended || kind == TokenSecret && !user.Can(hub.CanUseTokens) {
		return hub.Caller{}, errProof()
	}
	caller := callerOf(tenant, user, via, id)
	caller.SignedInAt = signedIn
	if user.Provider != "" && kind == SessionSecret {
		claims, err := s.accounts.SessionClaims(ctx, tenantID, hash)
		if err != nil {
			return hub.Caller{}, err
		}
		caller.Groups = append(slices.Clone(user.Groups), claims.Groups...)
	}
	return caller, nil
}

func (s *Service) session(ctx context.Context, hash [32]byte, now time.Time) (hub.Session, error) {
	session, err := s.dir.Session(ctx, hash)
	if err != nil {
		return session, err
	}
	idle := session.Idle()
	if !now.Before(session.ExpiresAt) || now.Sub(session.SeenAt) >= idle {
		return session, errProof()
	}
	if now.Sub(session.SeenAt) >= min(touchEvery, idle/2) {
		if err := s.dir.TouchSession(ctx, hash, now); err != nil {
			return session, err
		}
	}
	return session, nil
}

func (s *Service) token(ctx context.Context, hash [32]byte, now time.Time) (hub.APIToken, error) {
	token, err := s.dir.Token(ctx, hash)
	if err != nil {
		return token, err
	}
	if token.ExpiresAt != nil && !now.Before(*token.ExpiresAt) {
		return token, errProof()
	}
	if token.UsedAt == nil || now.Sub(*token.UsedAt) >= touchEvery {
		if err := s.dir.TouchToken(ctx, hash, now); err != nil {
			return token, err
		}
	}
	return token, nil
}

// Logout ends a session. It is no error if there is none.
func (s *Service) Logout(ctx context.Context, secret string) error {
	if KindOf(secret) != SessionSecret {
		return nil
	}
	hash := Hash(secret)
	s.mu.Lock()
	s.forgets++
	delete(s.trusted, hash)
	s.mu.Unlock()
	err := s.dir.DeleteSession(ctx, hash)
	if fault.KindOf(err) == fault.Missing {
		return nil
	}
	return err
}

// Forget drops all cached credentials of an account, because its roles,
// password or tokens changed. Other replicas do so within Trust.
func (s *Service) Forget(tenant hub.TenantID, username string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets++
	for hash, t := range s.trusted {
		if t.caller.Tenant == tenant && t.caller.Username == username {
			delete(s.trusted, hash)
		}
	}
}

// ForgetTenant drops all cached credentials of a tenant, because accounts,
// sessions or tokens have ended or changed. A replica that does not hear of it
// does so within Trust.
func (s *Service) ForgetTenant(tenant hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets++
	maps.DeleteFunc(s.trusted, func(_ [32]byte, t trust) bool { return t.caller.Tenant == tenant })
}

// CheckPassword reports whether the password is the caller's, and counts a wrong
// one like a failed sign-in.
func (s *Service) CheckPassword(ctx context.Context, c hub.Caller, password string) error {
	now := s.cfg.Now()
	keys := append(ownKeys(c.TenantName, c.Username, c.Address), changeKey(c.TenantName, c.Username))
	if err := s.throttled(ctx, keys, now); err != nil {
		return err
	}
	_, hash, err := s.accounts.AccountByName(ctx, c.Tenant, c.Username)
	if err != nil {
		return err
	}
	match, err := s.matches(ctx, c.Tenant, hash, password)
	if err != nil {
		return err
	}
	if match {
		return nil
	}
	for _, k := range keys {
		if _, err := s.dir.LoginFailure(ctx, k.key, now, failureWindow); err != nil {
			return err
		}
	}
	return fault.New(fault.Invalid, "the current password is wrong")
}

func callerOf(t hub.Tenant, u hub.User, via, credential string) hub.Caller {
	return hub.Caller{Tenant: t.ID, TenantName: t.Name, User: u.ID, Username: u.Name, Roles: u.Roles, Groups: u.Groups, Provider: u.Provider, Via: via, Credential: credential}
}

func (s *Service) known(hash [32]byte, now time.Time) (hub.Caller, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.trusted[hash]
	if !ok || !now.Before(t.until) {
		delete(s.trusted, hash)
		return hub.Caller{}, false
	}
	return t.caller, true
}

func (s *Service) trust(hash [32]byte, c hub.Caller, now time.Time, generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgets != generation {
		return
	}
	if len(s.trusted) >= maxTrusted {
		clear(s.trusted)
	}
	s.trusted[hash] = trust{c, now.Add(s.cfg.Trust)}
}
