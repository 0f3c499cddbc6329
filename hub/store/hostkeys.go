package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	selectHostKeys = `
		SELECT host, type, key, created_at
		FROM   host_key
		WHERE  tenant_id = $1
		ORDER  BY host, type`
	upsertHostKey = `
		INSERT INTO host_key AS k (tenant_id, host, type, key, created_at)
		VALUES (@tenant, @host, @type, @key, @now)
		ON CONFLICT (tenant_id, host, type) DO UPDATE SET key = excluded.key, created_at = excluded.created_at
		WHERE  k.key <> excluded.key`
	deleteHostKeys = `DELETE FROM host_key WHERE tenant_id = $1 AND host = $2 AND ($3 = '' OR type = $3)`
	selectOverSSH  = `SELECT id FROM repository WHERE tenant_id = $1 AND starts_with(url, 'ssh://')`
)

// HostKeys returns the keys of SSH servers that the tenant has stored, in order
// of host and type.
func (t *Tenant) HostKeys(ctx context.Context) ([]hub.HostKey, error) {
	return list(ctx, t.tx, "host keys", scanHostKey, selectHostKeys, t.id)
}

// HostKeys is Tenant.HostKeys in a transaction of its own, in one round trip.
func (db *DB) HostKeys(ctx context.Context, tenant hub.TenantID) (keys []hub.HostKey, err error) {
	err = db.once(ctx, tenant, "read host keys", func(b *pgx.Batch) { queueList(b, "host keys", scanHostKey, &keys, selectHostKeys, tenant) })
	return keys, err
}

func scanHostKey(row pgx.CollectableRow) (k hub.HostKey, err error) {
	err = row.Scan(&k.Host, &k.Type, &k.Key, &k.CreatedAt)
	return k, err
}

// PutHostKeys stores keys of SSH servers. Each replaces the host's key of that
// type. Repositories that may wait for a key are fetched.
func (t *Tenant) PutHostKeys(ctx context.Context, keys []hub.HostKey) error {
	now := micro(time.Now())
	for _, k := range keys {
		if _, err := exec(ctx, t.tx, "store host key", upsertHostKey, pgx.StrictNamedArgs{
			"tenant": t.id, "host": k.Host, "type": k.Type, "key": k.Key, "now": now,
		}); err != nil {
			return err
		}
	}
	return t.fetchOverSSH(ctx)
}

// DeleteHostKeys deletes the keys of an SSH server, or the one of a type.
func (t *Tenant) DeleteHostKeys(ctx context.Context, host, keyType string) error {
	if _, err := exec(ctx, t.tx, "delete host keys", deleteHostKeys, t.id, host, keyType); err != nil {
		return err
	}
	return t.fetchOverSSH(ctx)
}

func (t *Tenant) fetchOverSSH(ctx context.Context) error {
	all, err := list(ctx, t.tx, "repositories over SSH", pgx.RowTo[string], selectOverSSH, t.id)
	if err != nil {
		return fmt.Errorf("fetch repositories over SSH: %w", err)
	}
	for _, id := range all {
		t.fetch(hub.RepositoryID(id))
	}
	return nil
}
