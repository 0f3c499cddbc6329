package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	selectQuotas = `SELECT kind, most FROM tenant_quota WHERE tenant_id = $1`
	putQuota     = `
		INSERT INTO tenant_quota (tenant_id, kind, most) VALUES ($1, $2, $3)
		ON CONFLICT (tenant_id, kind) DO UPDATE SET most = excluded.most`
	deleteQuota = `DELETE FROM tenant_quota WHERE tenant_id = $1 AND kind = $2`
	selectUse   = `
		SELECT o.storage_bytes, o.storage_at, (SELECT count(*) FROM repository x WHERE x.tenant_id = $1 AND x.registered),
		       (SELECT count(*) FROM application_set x WHERE x.tenant_id = $1)
		FROM   organisation o WHERE o.tenant_id = $1`
	selectStorage  = `SELECT storage_bytes FROM organisation WHERE tenant_id = $1`
	measureStorage = `
		UPDATE organisation o
		SET    storage_bytes =
		           (SELECT coalesce(sum(octet_length(x.sealed)), 0) FROM object x WHERE x.tenant_id = $1)
		         + (SELECT coalesce(sum(octet_length(x.objects) + octet_length(x.inputs)), 0) FROM snapshot x WHERE x.tenant_id = $1)
		         + (SELECT coalesce(sum(octet_length(x.body)), 0) FROM log_row x WHERE x.tenant_id = $1),
		       storage_at = now()
		WHERE  o.tenant_id = $1`
)

// countsOf are the statements that count what a quota limits, up to a number.
func countsOf(name hub.Quota) string {
	switch name {
	case hub.QuotaApplications:
		return `SELECT count(*) FROM (SELECT FROM application WHERE tenant_id = $1 LIMIT $2) x`
	case hub.QuotaClusters:
		return `SELECT count(*) FROM (SELECT FROM cluster WHERE tenant_id = $1 LIMIT $2) x`
	case hub.QuotaRepositories:
		return `SELECT count(*) FROM (SELECT FROM repository WHERE tenant_id = $1 AND registered LIMIT $2) x`
	case hub.QuotaUsers:
		return `SELECT count(*) FROM (SELECT FROM account WHERE tenant_id = $1 LIMIT $2) x`
	case hub.QuotaTokens:
		return `SELECT count(*) FROM (SELECT FROM api_token WHERE tenant_id = $1 LIMIT $2) x`
	case hub.QuotaSets:
		return `SELECT count(*) FROM (SELECT FROM application_set WHERE tenant_id = $1 LIMIT $2) x`
	}
	return ""
}

// grows notes that the transaction adds something that a quota limits. It is
// counted at its end, when no other transaction of the tenant can add more.
func (t *Tenant) grows(name hub.Quota) {
	if t.grown == nil {
		t.grown = map[hub.Quota]bool{}
	}
	t.grown[name] = true
}

// checkQuotas counts what has grown. The lock on the end of the audit log is
// held, so that all transactions of the tenant that add something do this one
// after the other, each seeing what those before it have committed.
func (t *Tenant) checkQuotas(ctx context.Context, own []byte) error {
	quotas, err := t.limits(own)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	var over error
	for _, name := range hub.AllQuotas() {
		most := quotas[name]
		if !t.grown[name] || most == 0 {
			continue
		}
		b.Queue(countsOf(name), t.id, most+1).QueryRow(func(row pgx.Row) error {
			var use int64
			if err := row.Scan(&use); err != nil {
				return fmt.Errorf("count for quota %s: %w", name, err)
			}
			if use > most && over == nil {
				over = hub.ErrQuota(name, most, use)
			}
			return nil
		})
	}
	if b.Len() == 0 {
		return nil
	}
	if err := send(ctx, t.tx, "count for quotas", b); err != nil {
		return err
	}
	return over
}

// limits are what counts for the tenant, which has some of its own, in JSON.
func (t *Tenant) limits(own []byte) (hub.Quotas, error) {
	quotas := hub.Quotas{}
	if len(own) > 0 {
		if err := json.Unmarshal(own, &quotas); err != nil {
			return nil, fmt.Errorf("read quotas: %w", err)
		}
	}
	return quotas.Over(t.db.quotas), nil
}

// Quotas returns the limits that the tenant has of its own.
func (t *Tenant) Quotas(ctx context.Context) (hub.Quotas, error) {
	out := hub.Quotas{}
	rows, err := t.tx.Query(ctx, selectQuotas, t.id)
	if err != nil {
		return nil, fmt.Errorf("query quotas: %w", err)
	}
	var name hub.Quota
	var most int64
	_, err = pgx.ForEachRow(rows, []any{&name, &most}, func() error {
		out[name] = most
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	return out, nil
}

// PerSet returns how many applications a set of the tenant may have; 0: any
// number.
func (t *Tenant) PerSet(ctx context.Context) (int, error) {
	own, err := t.Quotas(ctx)
	if err != nil {
		return 0, err
	}
	if most, found := own[hub.QuotaPerSet]; found {
		return int(most), nil
	}
	if most := t.db.quotas[hub.QuotaPerSet]; most > 0 {
		return int(most), nil
	}
	return hub.DefaultPerSet, nil
}

// PutQuotas sets limits of the tenant; 0 means none, whatever the hub's is.
// Those in drop become the hub's again.
func (t *Tenant) PutQuotas(ctx context.Context, put hub.Quotas, drop []hub.Quota) error {
	b := &pgx.Batch{}
	for _, name := range drop {
		b.Queue(deleteQuota, t.id, name)
	}
	for _, name := range hub.AllQuotas() {
		if most, ok := put[name]; ok {
			b.Queue(putQuota, t.id, name, most)
		}
	}
	return send(ctx, t.tx, "set quotas", b)
}

// Usage returns what the tenant uses.
func (t *Tenant) Usage(ctx context.Context) (hub.Usage, error) {
	var u hub.Usage
	var err error
	if u.TenantCounts, err = t.Counts(ctx); err != nil {
		return u, err
	}
	if err := t.tx.QueryRow(ctx, selectUse, t.id).Scan(&u.StorageBytes, &u.StorageAt, &u.Registered, &u.Sets); err != nil {
		return u, fmt.Errorf("read usage: %w", err)
	}
	return u, nil
}

// Storage returns how much the tenant's rendered manifests take, in bytes, as
// it was last measured.
func (t *Tenant) Storage(ctx context.Context) (bytes int64, err error) {
	if err := t.tx.QueryRow(ctx, selectStorage, t.id).Scan(&bytes); err != nil {
		return 0, fmt.Errorf("read storage: %w", err)
	}
	return bytes, nil
}

// MeasureStorage measures how much the tenant's rendered manifests take.
func (t *Tenant) MeasureStorage(ctx context.Context) error {
	_, err := exec(ctx, t.tx, "measure storage", measureStorage, t.id)
	return err
}

// DefaultQuotas are the hub's limits, for tenants without own ones.
func (db *DB) DefaultQuotas() hub.Quotas { return db.quotas }
