package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
)

const (
	insertSignInTest = `
		INSERT INTO sign_in_test (tenant_id, id, account_id, provider, name, callback, sealed, started_at, expires_at)
		VALUES (@tenant, @id, @account, @provider, @name, @callback, @sealed, @started, @expires)`
	selectSignInTest = `
		SELECT id, account_id, provider, name, callback, report, started_at, expires_at
		FROM   sign_in_test
		WHERE  tenant_id = $1 AND id::text = $2 AND account_id::text = $3 AND expires_at > $4`
	takeSignInDraft = `
		WITH old AS MATERIALIZED (
			SELECT id, sealed
			FROM   sign_in_test
			WHERE  tenant_id = $1 AND id::text = $2 AND expires_at > $3 AND sealed IS NOT NULL FOR UPDATE
		)
		UPDATE sign_in_test t
		SET    sealed = NULL
		FROM   old
		WHERE  t.tenant_id = $1 AND t.id = old.id
		RETURNING t.id, t.account_id, t.provider, t.name, t.callback, t.report, t.started_at, t.expires_at, old.sealed`
	finishSignInTest   = `UPDATE sign_in_test SET report = $3 WHERE tenant_id = $1 AND id::text = $2 AND report IS NULL`
	collectSignInTests = `DELETE FROM sign_in_test WHERE tenant_id = $1 AND id IN (SELECT s.id FROM sign_in_test s WHERE s.tenant_id = $1 AND s.expires_at < $2 LIMIT $3)`
)

// PutSignInTest stores a test sign-in that begins, what it tests encrypted.
func (t *Tenant) PutSignInTest(ctx context.Context, s hub.SignInTest) error {
	keys, err := t.keys(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(s.Draft)
	if err != nil {
		return fmt.Errorf("write what a sign-in tests: %w", err)
	}
	sealed, err := encryption.Seal(keys.Credential, draftFor(t.id, s.ID), text)
	if err != nil {
		return fmt.Errorf("seal what a sign-in tests: %w", err)
	}
	_, err = exec(ctx, t.tx, "insert test sign-in", insertSignInTest, pgx.StrictNamedArgs{
		"tenant": t.id, "id": s.ID, "account": s.User, "provider": s.Provider, "name": s.Name, "callback": s.Callback, "sealed": sealed,
		"started": micro(s.StartedAt), "expires": micro(s.ExpiresAt),
	})
	if code(err) == foreignKeyViolation {
		return noUser()
	}
	return err
}

// SignInTest returns a test sign-in of a user that has not expired, without what
// it tests.
func (t *Tenant) SignInTest(ctx context.Context, id hub.SignInTestID, user hub.UserID, now time.Time) (hub.SignInTest, error) {
	s, err := one(ctx, t.tx, "test sign-in", func(row pgx.CollectableRow) (v hub.SignInTest, err error) {
		err = row.Scan(&v.ID, &v.User, &v.Provider, &v.Name, &v.Callback, &v.Report, &v.StartedAt, &v.ExpiresAt)
		return v, err
	}, selectSignInTest, t.id, id, user, micro(now))
	return s, missing(err, "there is no such test sign-in, or it is more than an hour old")
}

// TakeSignInDraft returns a test sign-in with what it tests, which it removes: of
// all who try, one gets it.
func (t *Tenant) TakeSignInDraft(ctx context.Context, id hub.SignInTestID, now time.Time) (hub.SignInTest, error) {
	var sealed []byte
	s, err := one(ctx, t.tx, "test sign-in", func(row pgx.CollectableRow) (v hub.SignInTest, err error) {
		err = row.Scan(&v.ID, &v.User, &v.Provider, &v.Name, &v.Callback, &v.Report, &v.StartedAt, &v.ExpiresAt, &sealed)
		return v, err
	}, takeSignInDraft, t.id, id, micro(now))
	if err != nil {
		return s, missing(err, "there is no such test sign-in, or it is over")
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return s, err
	}
	text, err := encryption.Open(keys.Credential, draftFor(t.id, s.ID), sealed)
	if err != nil {
		return s, fmt.Errorf("open what a sign-in tests: %w", err)
	}
	if err := json.Unmarshal(text, &s.Draft); err != nil {
		return s, fmt.Errorf("read what a sign-in tests: %w", err)
	}
	return s, nil
}

// FinishSignInTest stores the outcome of a test sign-in, once.
func (t *Tenant) FinishSignInTest(ctx context.Context, id hub.SignInTestID, report hub.SignInReport) error {
	_, err := exec(ctx, t.tx, "finish test sign-in", finishSignInTest, t.id, id, report)
	return err
}

// draftFor is the associated data of what a sign-in tests.
func draftFor(tenant hub.TenantID, id hub.SignInTestID) []byte {
	return []byte(string(tenant) + "sign-in test\x00" + string(id))
}
