package store

import (
	"context"
	"crypto/sha256"
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
		VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (tenant_id, host, type) DO UPDATE SET key = excluded.key, created_at = excluded.created_at
		WHERE  k.key <> excluded.key`
	deleteHostKeys = `DELETE FROM host_key WHERE tenant_id = $1 AND host = $2 AND ($3 = '' OR type = $3)`
	selectOverSSH  = `SELECT id FROM repository WHERE tenant_id = $1 AND starts_with(url, 'ssh://')`

	// The expression is that of the index repository_place.
	// Work is put in order of its keys, as everywhere.
	fetchAtPlace = `
		SELECT p.tenant_id, p.repository_id, work.put(p.tenant_id, ARRAY[$2], ARRAY[p.repository_id], ARRAY[now()], ARRAY[false])
		FROM   directory.repository_place p
		JOIN   directory.tenant t ON t.id = p.tenant_id AND t.ready
		WHERE  p.place = ANY ($1::bytea[])
		ORDER  BY p.tenant_id, p.repository_id`
)

// HostKeys gives the keys of SSH servers that the tenant has stored, in order
// of host and type.
func (t *Tenant) HostKeys(ctx context.Context) ([]hub.HostKey, error) {
	return list(ctx, t.tx, "host keys", func(row pgx.CollectableRow) (k hub.HostKey, err error) {
		err = row.Scan(&k.Host, &k.Type, &k.Key, &k.CreatedAt)
		return k, err
	}, selectHostKeys, t.id)
}

// PutHostKeys stores keys of SSH servers, each in the place of the one that
// its host had of that type, and has the repositories fetched that may be
// waiting for one.
func (t *Tenant) PutHostKeys(ctx context.Context, keys []hub.HostKey) error {
	now := micro(time.Now())
	for _, k := range keys {
		if _, err := exec(ctx, t.tx, "store host key", upsertHostKey, t.id, k.Host, k.Type, k.Key, now); err != nil {
			return err
		}
	}
	return t.fetchOverSSH(ctx)
}

// DeleteHostKeys forgets the keys of an SSH server, or the one of a type.
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

// FetchAt has the repositories of all tenants fetched that are at the places
// that hub.RepoPlace gives, whatever their scheme and port, and gives their
// number. note is told of each before anybody can take the work; it may be
// told again if the transaction is repeated.
func (s *System) FetchAt(ctx context.Context, places []string, note func(hub.TenantID, hub.RepositoryID)) (int, error) {
	hashes := make([][]byte, len(places))
	for i, place := range places {
		sum := sha256.Sum256([]byte(place))
		hashes[i] = sum[:]
	}
	type found struct {
		tenant hub.TenantID
		id     hub.RepositoryID
	}
	n := 0
	err := s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		all, err := list(ctx, tx, "repositories by place", func(row pgx.CollectableRow) (f found, err error) {
			var nothing *string
			err = row.Scan(&f.tenant, &f.id, &nothing)
			return f, err
		}, fetchAtPlace, hashes, hub.WorkFetch)
		n = len(all)
		for _, f := range all {
			note(f.tenant, f.id)
		}
		return err
	})
	return n, err
}
