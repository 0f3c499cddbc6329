package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	beginIdempotent = `
		INSERT INTO idempotency (tenant_id, caller, key, request_hash) VALUES ($1, $2, $3, $4)
		ON CONFLICT (tenant_id, caller, key) DO NOTHING`
	selectIdempotent = `SELECT request_hash, status, body FROM idempotency WHERE tenant_id = $1 AND caller = $2 AND key = $3`
	// The key of a crashed request expires soon: two concurrent attempts do no
	// harm, because only one of them can be effective.
	retakeIdempotent = `
		UPDATE idempotency SET created_at = now()
		WHERE  tenant_id = $1 AND caller = $2 AND key = $3 AND status IS NULL AND created_at < now() - interval '10 seconds'`
	dropIdempotent = `DELETE FROM idempotency WHERE tenant_id = $1 AND caller = $2 AND key = $3 AND status IS NULL`
	// 102: it is effective, and its response is not stored (yet). The body
	// then names the attempt that did it.
	settleIdempotent = `
		UPDATE idempotency SET status = 102, body = $4
		WHERE  tenant_id = $1 AND caller = $2 AND key = $3 AND (status IS NULL OR (status = 102 AND body = $4))`
	finishIdempotent = `
		UPDATE idempotency SET status = @status, body = @body
		WHERE  tenant_id = @tenant AND caller = @caller AND key = @key AND (status IS NULL OR (status = 102 AND body = @attempt))`
)

// effective is the status of an effective request without a stored response.
const effective = 102

// SettleIdempotent records, in the transaction of its effect, that a request
// with a key is effective. The error is fault.Conflict if another attempt of
// the same request was faster.
func (t *Tenant) SettleIdempotent(ctx context.Context, once hub.IdempotencyKey, caller string) error {
	n, err := exec(ctx, t.tx, "settle idempotency key", settleIdempotent, t.id, caller, once.Key, []byte(once.Attempt))
	if err == nil && n == 0 {
		return carriedOut()
	}
	return err
}

func carriedOut() error {
	return fault.With(fault.New(fault.Conflict, "a request with this idempotency key was carried out, and its answer was lost"), "",
		"look at what it was to change before you ask again under a new key")
}

// BeginIdempotent acquires a caller's key. If a request with it was completed
// before, found is true and its response is returned; status 0 then means that
// it is running now. The error is fault.Conflict if the key belongs to another
// request.
func (t *Tenant) BeginIdempotent(ctx context.Context, key, caller string, hash [32]byte) (status int, body []byte, found bool, err error) {
	n, err := exec(ctx, t.tx, "take idempotency key", beginIdempotent, t.id, caller, key, hash[:])
	if err != nil || n == 1 {
		return 0, nil, false, err
	}
	var before []byte
	var code *int
	if err := t.tx.QueryRow(ctx, selectIdempotent, t.id, caller, key).Scan(&before, &code, &body); err != nil {
		return 0, nil, false, fmt.Errorf("read idempotency key: %w", err)
	}
	if !bytes.Equal(before, hash[:]) {
		return 0, nil, false, fault.With(fault.New(fault.Conflict, "the idempotency key was used for another request"), "", "use a new key for each request")
	}
	if code == nil {
		n, err := exec(ctx, t.tx, "take over idempotency key", retakeIdempotent, t.id, caller, key)
		return 0, nil, n == 0, err
	}
	if *code == effective {
		return 0, nil, false, carriedOut()
	}
	if body, err = t.openAnswer(ctx, caller, key, body); err != nil {
		return 0, nil, false, err
	}
	return *code, body, true, nil
}

// FinishIdempotent stores the response of the request with the key; with status
// 0 it releases the key, because there is no response, unless the request is
// effective. The response is encrypted, because it may show a secret once.
func (t *Tenant) FinishIdempotent(ctx context.Context, once hub.IdempotencyKey, caller string, status int, body []byte) error {
	if status == 0 {
		_, err := exec(ctx, t.tx, "give idempotency key back", dropIdempotent, t.id, caller, once.Key)
		return err
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return err
	}
	sealed, err := encryption.Seal(keys.Credential, t.answerFor(caller, once.Key), body)
	if err != nil {
		return err
	}
	_, err = exec(ctx, t.tx, "store answer", finishIdempotent, pgx.StrictNamedArgs{
		"tenant": t.id, "caller": caller, "key": once.Key, "attempt": []byte(once.Attempt), "status": status, "body": sealed,
	})
	return err
}

func (t *Tenant) openAnswer(ctx context.Context, caller, key string, sealed []byte) ([]byte, error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return nil, err
	}
	body, err := encryption.Open(keys.Credential, t.answerFor(caller, key), sealed)
	if err != nil {
		return nil, fmt.Errorf("open stored answer: %w", err)
	}
	return body, nil
}

func (t *Tenant) answerFor(caller, key string) []byte {
	return []byte("answer\x00" + string(t.id) + "\x00" + caller + "\x00" + key)
}
