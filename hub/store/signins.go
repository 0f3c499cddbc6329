package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
)

const (
	selectUserBySubject = `
		SELECT id, tenant_id, name, roles, disabled, created_at, capabilities, origin, provider
		FROM   account
		WHERE  tenant_id = $1 AND provider = $2 AND realm = $3 AND subject = $4 AND provider <> ''`
	// Only who issued both knows that they are one person: the provider's own id.
	adoptPerson = `
		UPDATE account a
		SET    provider = @provider, realm = @realm, subject = @subject
		FROM   scim_user s
		WHERE  a.tenant_id = @tenant AND s.tenant_id = @tenant AND s.id = a.id AND s.external_id = @subject AND a.origin = 'scim' AND a.provider = ''
		AND    1 = (SELECT count(*) FROM scim_user o WHERE o.tenant_id = @tenant AND o.external_id = @subject)
		RETURNING a.id`
	selectLocalNames = `SELECT name FROM account WHERE tenant_id = $1 AND provider = '' AND name = ANY ($2) ORDER BY name`

	insertSignIn = `
		INSERT INTO sign_in (tenant_id, hash, browser, provider, callback, return_to, client, challenge, test_id, expires_at)
		VALUES (@tenant, @hash, @browser, @provider, @callback, @return_to, @client, @challenge, nullif(@test, '')::uuid, @expires)`
	takeSignIn = `
		DELETE FROM sign_in
		WHERE  tenant_id = $1 AND hash = $2 AND browser = $3 AND expires_at > $4
		RETURNING provider, callback, return_to, client, challenge, coalesce(test_id::text, ''), expires_at`

	insertSessionClaims = `
		INSERT INTO session_claims (tenant_id, hash, account_id, provider, groups, sealed, challenge, expires_at)
		VALUES (@tenant, @hash, @account, @provider, @groups, @sealed, @challenge, @expires)`
	selectSessionClaims = `
		SELECT account_id, provider, groups, sealed, challenge, expires_at
		FROM   session_claims
		WHERE  tenant_id = $1 AND hash = $2 AND expires_at > $3 AND challenge = ''`
	takeSessionClaims = `
		DELETE FROM session_claims
		WHERE  tenant_id = $1 AND hash = $2 AND expires_at > $3 AND challenge = $4
		RETURNING account_id, provider, groups, sealed, challenge, expires_at`

	collectSignIns       = `DELETE FROM sign_in WHERE tenant_id = $1 AND hash IN (SELECT s.hash FROM sign_in s WHERE s.tenant_id = $1 AND s.expires_at < $2 LIMIT $3)`
	collectSessionClaims = `DELETE FROM session_claims WHERE tenant_id = $1 AND hash IN (SELECT s.hash FROM session_claims s WHERE s.tenant_id = $1 AND s.expires_at < $2 LIMIT $3)`
)

// UserBySubject returns the account of a person of an identity provider.
func (t *Tenant) UserBySubject(ctx context.Context, p hub.Person) (hub.User, error) {
	u, err := one(ctx, t.tx, "user", scanUser, selectUserBySubject, t.id, p.Provider, p.Realm, p.Subject)
	return u, missing(err, "there is no such user")
}

// AdoptPerson gives the account that SCIM has made for a person, known by the
// provider's own id, to that person. The error is fault.Missing if there is none.
func (t *Tenant) AdoptPerson(ctx context.Context, p hub.Person) (hub.User, error) {
	var id hub.UserID
	err := t.tx.QueryRow(ctx, adoptPerson, pgx.StrictNamedArgs{"tenant": t.id, "provider": p.Provider, "realm": p.Realm, "subject": p.Subject}).Scan(&id)
	if err := missing(err, "SCIM has made no account for this person"); err != nil {
		return hub.User{}, err
	}
	return t.User(ctx, id)
}

// LocalNames returns those of the names that local accounts have.
func (t *Tenant) LocalNames(ctx context.Context, names []string) ([]string, error) {
	return list(ctx, t.tx, "names of accounts", pgx.RowTo[string], selectLocalNames, t.id, nonNil(names))
}

// PutSignIn stores a sign-in that begins.
func (t *Tenant) PutSignIn(ctx context.Context, s hub.SignIn) error {
	_, err := exec(ctx, t.tx, "insert sign-in", insertSignIn, pgx.StrictNamedArgs{
		"tenant": t.id, "hash": s.Hash[:], "browser": s.Browser[:], "provider": s.Provider, "callback": s.Callback, "return_to": s.ReturnTo,
		"client": s.Client, "challenge": s.Challenge, "test": s.Test, "expires": micro(s.ExpiresAt),
	})
	return err
}

// TakeSignIn returns a sign-in of this browser that has not expired, and
// removes it: of all who try, one gets it. Another browser removes nothing.
func (t *Tenant) TakeSignIn(ctx context.Context, hash, browser [32]byte, now time.Time) (hub.SignIn, error) {
	s, err := one(ctx, t.tx, "sign-in", func(row pgx.CollectableRow) (v hub.SignIn, err error) {
		v.Hash, v.Browser = hash, browser
		err = row.Scan(&v.Provider, &v.Callback, &v.ReturnTo, &v.Client, &v.Challenge, &v.Test, &v.ExpiresAt)
		return v, err
	}, takeSignIn, t.id, hash[:], browser[:], micro(now))
	return s, missing(err, "there is no such sign-in")
}

// PutSessionClaims stores what a provider said, its proof encrypted.
func (t *Tenant) PutSessionClaims(ctx context.Context, c hub.SessionClaims) error {
	var sealed []byte
	if c.Proof != "" {
		keys, err := t.keys(ctx)
		if err != nil {
			return err
		}
		if sealed, err = encryption.Seal(keys.Credential, proofFor(t.id, c.Hash), []byte(c.Proof)); err != nil {
			return fmt.Errorf("seal the proof of a sign-in: %w", err)
		}
	}
	_, err := exec(ctx, t.tx, "insert claims", insertSessionClaims, pgx.StrictNamedArgs{
		"tenant": t.id, "hash": c.Hash[:], "account": c.User, "provider": c.Provider, "groups": nonNil(c.Groups), "sealed": sealed,
		"challenge": c.Challenge, "expires": micro(c.ExpiresAt),
	})
	if code(err) == foreignKeyViolation {
		return noUser()
	}
	return err
}

// SessionClaims returns what the provider said of whom a session belongs to,
// without the proof.
func (t *Tenant) SessionClaims(ctx context.Context, hash [32]byte, now time.Time) (hub.SessionClaims, error) {
	c, err := one(ctx, t.tx, "claims", func(row pgx.CollectableRow) (hub.SessionClaims, error) {
		c, _, err := scanClaims(row, hash)
		return c, err
	}, selectSessionClaims, t.id, hash[:], micro(now))
	return c, missing(err, "there are no such claims")
}

// TakeSessionClaims is SessionClaims with the proof, of a session or of a code
// with this challenge. It removes them: of all who try, one gets them.
func (t *Tenant) TakeSessionClaims(ctx context.Context, hash [32]byte, challenge string, now time.Time) (hub.SessionClaims, error) {
	var sealed []byte
	c, err := one(ctx, t.tx, "claims", func(row pgx.CollectableRow) (c hub.SessionClaims, err error) {
		c, sealed, err = scanClaims(row, hash)
		return c, err
	}, takeSessionClaims, t.id, hash[:], micro(now), challenge)
	if err != nil || sealed == nil {
		return c, missing(err, "there are no such claims")
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return c, err
	}
	proof, err := encryption.Open(keys.Credential, proofFor(t.id, hash), sealed)
	if err != nil {
		return c, fmt.Errorf("open the proof of a sign-in: %w", err)
	}
	c.Proof = string(proof)
	return c, nil
}

func scanClaims(row pgx.CollectableRow, hash [32]byte) (c hub.SessionClaims, sealed []byte, err error) {
	c.Hash = hash
	err = row.Scan(&c.User, &c.Provider, &c.Groups, &sealed, &c.Challenge, &c.ExpiresAt)
	return c, sealed, err
}

// proofFor is the associated data of a sealed proof.
func proofFor(tenant hub.TenantID, hash [32]byte) []byte {
	return append([]byte(string(tenant)+"proof\x00"), hash[:]...)
}
