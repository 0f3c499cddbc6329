package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	insertSession = `
		INSERT INTO directory.session (hash, tenant_id, account_id, created_at, seen_at, expires_at, address, client, provider)
		VALUES (@hash, @tenant, @account, @created, @seen, @expires, @address, @client, @provider)`
	selectSession = `
		SELECT s.hash, s.tenant_id, s.account_id, s.created_at, s.seen_at, s.expires_at
		FROM   directory.session s
		JOIN   directory.tenant t ON t.id = s.tenant_id AND t.ready AND NOT t.suspended
		WHERE  s.hash = $1 AND s.expires_at > now()`
	touchSession   = `UPDATE directory.session SET seen_at = $2 WHERE hash = $1 AND seen_at < $2`
	deleteSession  = `DELETE FROM directory.session WHERE hash = $1`
	deleteSessions = `DELETE FROM directory.session WHERE tenant_id = $1 AND account_id = $2`

	selectToken = `
		SELECT k.id, k.tenant_id, k.account_id, k.hash, k.expires_at, k.used_at
		FROM   directory.token k
		JOIN   directory.tenant t ON t.id = k.tenant_id AND t.ready AND NOT t.suspended
		WHERE  k.hash = $1 AND (k.expires_at IS NULL OR k.expires_at > now())`
	touchToken = `UPDATE directory.token SET used_at = $2 WHERE hash = $1 AND (used_at IS NULL OR used_at < $2)`

	insertSetupLink = `INSERT INTO directory.setup_link (hash, tenant_id, roles, expires_at) VALUES ($1, $2, $3, $4)`
	selectSetupLink = `
		SELECT l.hash, l.tenant_id, l.roles, l.expires_at
		FROM   directory.setup_link l
		JOIN   directory.tenant t ON t.id = l.tenant_id AND t.ready AND NOT t.suspended
		WHERE  l.hash = $1 AND l.expires_at > $2`
	takeSetupLink = `
		DELETE FROM directory.setup_link l
		USING  directory.tenant t
		WHERE  t.id = l.tenant_id AND t.ready AND NOT t.suspended AND l.hash = $1 AND l.expires_at > $2
		RETURNING l.hash, l.tenant_id, l.roles, l.expires_at`

	addLoginFailure = `
		INSERT INTO directory.login_failure AS f (key, count, first_at, last_at) VALUES ($1, 1, $2, $2)
		ON CONFLICT (key) DO UPDATE
		SET count    = CASE WHEN f.first_at < $3 THEN 1 ELSE f.count + 1 END,
		    first_at = CASE WHEN f.first_at < $3 THEN excluded.first_at ELSE f.first_at END,
		    last_at  = excluded.last_at
		RETURNING count`
	selectLoginFailures = `SELECT count FROM directory.login_failure WHERE key = $1 AND first_at >= $2`
	deleteLoginFailures = `DELETE FROM directory.login_failure WHERE key = $1`

	selectKnownAddress = `SELECT EXISTS (SELECT FROM directory.known_address WHERE hash = $1 AND expires_at > $2)`
	putKnownAddress    = `
		INSERT INTO directory.known_address AS k (hash, tenant_id, account_id, expires_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (hash) DO UPDATE SET expires_at = greatest(k.expires_at, excluded.expires_at)`
)

// PutSession stores a session. Its secret is known by hash only.
func (s *System) PutSession(ctx context.Context, session hub.Session) error {
	_, err := exec(ctx, s.db.system, "insert session", insertSession, pgx.StrictNamedArgs{
		"hash": session.Hash[:], "tenant": session.Tenant, "account": session.User, "created": micro(session.CreatedAt),
		"seen": micro(session.SeenAt), "expires": micro(session.ExpiresAt),
		"address": session.Address, "client": session.Client, "provider": session.Provider,
	})
	return classify(err)
}

// Session finds a session that has not ended, of a tenant that is not
// suspended. The error is fault.Missing otherwise.
func (s *System) Session(ctx context.Context, hash [32]byte) (hub.Session, error) {
	session, err := one(ctx, s.db.system, "session", func(row pgx.CollectableRow) (v hub.Session, err error) {
		var h []byte
		err = row.Scan(&h, &v.Tenant, &v.User, &v.CreatedAt, &v.SeenAt, &v.ExpiresAt)
		copy(v.Hash[:], h)
		return v, err
	}, selectSession, hash[:])
	return session, classify(missing(err, "the session has ended"))
}

// TouchSession notes that a session was used.
func (s *System) TouchSession(ctx context.Context, hash [32]byte, at time.Time) error {
	_, err := exec(ctx, s.db.system, "touch session", touchSession, hash[:], micro(at))
	return classify(err)
}

// DeleteSession ends a session. Ending one that is not there is fine.
func (s *System) DeleteSession(ctx context.Context, hash [32]byte) error {
	_, err := exec(ctx, s.db.system, "delete session", deleteSession, hash[:])
	return classify(err)
}

// DeleteSessions ends all sessions of a user.
func (s *System) DeleteSessions(ctx context.Context, tenant hub.TenantID, user hub.UserID) error {
	_, err := exec(ctx, s.db.system, "delete sessions", deleteSessions, tenant, user)
	return classify(err)
}

// Token finds an API token that has not expired, of a tenant that is not
// suspended, without its name and prefix. The error is fault.Missing otherwise.
func (s *System) Token(ctx context.Context, hash [32]byte) (hub.APIToken, error) {
	token, err := one(ctx, s.db.system, "token", func(row pgx.CollectableRow) (v hub.APIToken, err error) {
		var h []byte
		err = row.Scan(&v.ID, &v.Tenant, &v.User, &h, &v.ExpiresAt, &v.UsedAt)
		copy(v.Hash[:], h)
		return v, err
	}, selectToken, hash[:])
	return token, classify(missing(err, "the token is not valid"))
}

// TouchToken notes that a token was used.
func (s *System) TouchToken(ctx context.Context, hash [32]byte, at time.Time) error {
	_, err := exec(ctx, s.db.system, "touch token", touchToken, hash[:], micro(at))
	return classify(err)
}

// PutSetupLink stores a link that lets its holder make an account once.
func (s *System) PutSetupLink(ctx context.Context, link hub.SetupLink) error {
	_, err := exec(ctx, s.db.system, "insert setup link", insertSetupLink, link.Hash[:], link.Tenant, nonNil(link.Roles), micro(link.ExpiresAt))
	if code(err) == foreignKeyViolation {
		return noTenant()
	}
	return classify(err)
}

// SetupLink finds a link that was not used and has not expired.
func (s *System) SetupLink(ctx context.Context, hash [32]byte) (hub.SetupLink, error) {
	link, err := one(ctx, s.db.system, "setup link", scanSetupLink, selectSetupLink, hash[:], time.Now())
	return link, classify(missing(err, "the link was used or has expired"))
}

// UseSetupLink uses up a link. Of concurrent callers, one succeeds.
func (s *System) UseSetupLink(ctx context.Context, hash [32]byte, now time.Time) (hub.SetupLink, error) {
	link, err := one(ctx, s.db.system, "setup link", scanSetupLink, takeSetupLink, hash[:], now)
	return link, classify(missing(err, "the link was used or has expired"))
}

func scanSetupLink(row pgx.CollectableRow) (v hub.SetupLink, err error) {
	var h []byte
	err = row.Scan(&h, &v.Tenant, &v.Roles, &v.ExpiresAt)
	copy(v.Hash[:], h)
	return v, err
}

// LoginFailure counts a failed sign-in under a key (a hash of name and address)
// and returns the count within the window.
func (s *System) LoginFailure(ctx context.Context, key [32]byte, now time.Time, window time.Duration) (int, error) {
	var n int
	err := s.db.system.QueryRow(ctx, addLoginFailure, key[:], micro(now), micro(now.Add(-window))).Scan(&n)
	return n, classify(err)
}

// LoginFailures returns the count of failures since then.
func (s *System) LoginFailures(ctx context.Context, key [32]byte, since time.Time) (int, error) {
	var n int
	err := s.db.system.QueryRow(ctx, selectLoginFailures, key[:], micro(since)).Scan(&n)
	if fault.KindOf(missing(err, "none")) == fault.Missing {
		return 0, nil
	}
	return n, classify(err)
}

// ForgetLoginFailures resets the count, after a success.
func (s *System) ForgetLoginFailures(ctx context.Context, key [32]byte) error {
	_, err := exec(ctx, s.db.system, "forget login failures", deleteLoginFailures, key[:])
	return classify(err)
}

// KnownAddress reports whether an account has signed in from an address and that
// has not expired. The key is a hash of both.
func (s *System) KnownAddress(ctx context.Context, key [32]byte, now time.Time) (bool, error) {
	var known bool
	err := s.db.system.QueryRow(ctx, selectKnownAddress, key[:], micro(now)).Scan(&known)
	return known, classify(err)
}

// PutKnownAddress remembers until then that an account has signed in from an
// address. The key is a hash of both. What is deleted with the account is gone.
func (s *System) PutKnownAddress(ctx context.Context, key [32]byte, tenant hub.TenantID, user hub.UserID, until time.Time) error {
	_, err := exec(ctx, s.db.system, "remember an address", putKnownAddress, key[:], tenant, user, micro(until))
	return classify(err)
}
