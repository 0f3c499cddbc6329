package tenancy

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
)

// Audit lists the records before a number, newest first; zero means from the
// newest on.
func (c *Tenancy) Audit(ctx context.Context, by hub.Caller, before int64, limit int) ([]hub.AuditRecord, error) {
	var out []hub.AuditRecord
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		if err := r.May(access.Audit, access.Get); err != nil {
			return err
		}
		out, err = r.AuditBefore(ctx, before, limit)
		return err
	})
	return out, err
}

// VerifyAudit checks the chain of the tenant's audit log. It returns the number
// of the newest record, and of the first wrong one, or zero.
func (c *Tenancy) VerifyAudit(ctx context.Context, by hub.Caller) (records, firstBad int64, err error) {
	err = c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if err := r.May(access.Audit, access.Get); err != nil {
			return err
		}
		newest, err := r.AuditBefore(ctx, 0, 1)
		if err != nil {
			return err
		}
		if len(newest) > 0 {
			records = newest[0].Seq
		}
		firstBad, err = r.Tx.VerifyAudit(ctx)
		return err
	})
	return records, firstBad, err
}

// Begin asks whether a request with this key was answered before. Found with
// status 0 means that it is under way now.
func (c *Tenancy) Begin(ctx context.Context, by hub.Caller, key string, request [32]byte) (status int, body []byte, found bool, err error) {
	err = c.transact.Store.InTenant(ctx, by.Tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		status, body, found, err = tx.BeginIdempotent(ctx, key, string(by.User), request)
		return err
	})
	return status, body, found, err
}

// Finish stores the response to a request with a key; status 0 deletes the key,
// so that the request may be retried.
func (c *Tenancy) Finish(ctx context.Context, by hub.Caller, once hub.IdempotencyKey, status int, body []byte) error {
	return c.transact.Store.InTenant(ctx, by.Tenant, func(ctx context.Context, tx transact.Tx) error {
		return tx.FinishIdempotent(ctx, once, string(by.User), status, body)
	})
}
