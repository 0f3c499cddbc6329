package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	insertExchanged = `
		INSERT INTO exchanged_token (tenant_id, id, proof, trust, subject, account_id, project_id, role, expires_at, proof_until)
		VALUES (@tenant, @id, @proof, @trust, @subject, @account, @project, @role, @expires, @until)`
	selectExchanged = `
		SELECT e.id, e.trust, e.subject, coalesce(e.account_id::text, ''), coalesce(e.project_id::text, ''), coalesce(p.name, ''), e.role, e.expires_at, e.proof_until
		FROM   exchanged_token e
		LEFT   JOIN project p ON p.tenant_id = $1 AND p.id = e.project_id
		WHERE  e.tenant_id = $1 AND e.id = $2`
	collectExchanged = `
		DELETE FROM exchanged_token
		WHERE  tenant_id = $1 AND id IN (SELECT e.id FROM exchanged_token e WHERE e.tenant_id = $1 AND e.proof_until < $2 LIMIT $3)`
)

// PutExchangedToken stores a token that was given for one of another issuer. The
// error is fault.Conflict if that one was exchanged before.
func (t *Tenant) PutExchangedToken(ctx context.Context, k hub.ExchangedToken) error {
	id := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	_, err := exec(ctx, t.tx, "insert exchanged token", insertExchanged, pgx.StrictNamedArgs{
		"tenant": t.id, "id": k.ID, "proof": k.Proof[:], "trust": k.Trust, "subject": k.Subject, "account": id(string(k.Account)),
		"project": id(string(k.ProjectID)), "role": k.Role, "expires": micro(k.ExpiresAt), "until": micro(k.ProofUntil),
	})
	switch {
	case violates(err, "exchanged_token_proof"):
		return fault.New(fault.Conflict, "the token was exchanged before")
	case code(err) == foreignKeyViolation, code(err) == checkViolation:
		return fault.New(fault.Missing, "there is no such account or project")
	case err != nil:
		return err
	}
	return t.putAPIKey(ctx, k.Hash, hub.KeyExchange, k.ID, k.ExpiresAt)
}

// ExchangedToken returns a token that was given for one of another issuer,
// without its hashes.
func (t *Tenant) ExchangedToken(ctx context.Context, id hub.TokenID, now time.Time) (hub.ExchangedToken, error) {
	if !hub.ValidID(string(id)) {
		return hub.ExchangedToken{}, fault.New(fault.Missing, "there is no such token")
	}
	k, err := one(ctx, t.tx, "exchanged token", func(row pgx.CollectableRow) (k hub.ExchangedToken, err error) {
		err = row.Scan(&k.ID, &k.Trust, &k.Subject, &k.Account, &k.ProjectID, &k.Project, &k.Role, &k.ExpiresAt, &k.ProofUntil)
		return k, err
	}, selectExchanged, t.id, id)
	if err == nil && !now.Before(k.ExpiresAt) {
		err = fault.New(fault.Missing, "the token has expired")
	}
	return k, missing(err, "there is no such token")
}
