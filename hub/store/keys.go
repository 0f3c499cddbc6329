package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

const selectKeys = `SELECT digest_key, data_key FROM organisation WHERE tenant_id = $1`

// Keys returns the keys of a tenant. They are unwrapped once and stay in memory.
func (db *DB) Keys(ctx context.Context, id hub.TenantID) (hub.TenantKeys, error) {
	if keys, ok := db.knownKeys(id); ok {
		return keys, nil
	}
	var keys hub.TenantKeys
	err := db.ReadTenant(ctx, id, func(ctx context.Context, t *Tenant) (err error) {
		keys, err = t.keys(ctx)
		return err
	})
	return keys, err
}

// CheckKeys reports whether the master key opens what this database has
// sealed. It is asked before anything is written: a hub that starts with
// another key would seal new rows with it, beside those that it cannot read. A
// database without tenants fits every key.
func (db *DB) CheckKeys(ctx context.Context) error {
	tenants, err := db.System().Tenants(ctx)
	if err != nil || len(tenants) == 0 {
		return err
	}
	_, err = db.Keys(ctx, tenants[0].ID)
	if e, ok := fault.As(err); ok && (e.Kind == fault.Missing || e.Kind == fault.Invalid) {
		return &fault.Error{
			Kind: fault.Invalid, Object: "master key", Err: err, Cause: "it does not open what is in this database, so the hub does not start; nothing was changed: " + e.Cause,
			Fix: "start the hub with the key file that it had before, or with the database that belongs to this one; without the key, stored secrets are lost",
		}
	}
	return err
}

// TenantKeys is DB.Keys inside a transaction.
func (t *Tenant) TenantKeys(ctx context.Context) (hub.TenantKeys, error) { return t.keys(ctx) }

// keys is DB.Keys inside a transaction.
func (t *Tenant) keys(ctx context.Context) (hub.TenantKeys, error) {
	if keys, ok := t.db.knownKeys(t.id); ok {
		return keys, nil
	}
	var digest, data []byte
	err := t.tx.QueryRow(ctx, selectKeys, t.id).Scan(&digest, &data)
	if errors.Is(err, pgx.ErrNoRows) {
		return hub.TenantKeys{}, noTenant()
	}
	if err != nil {
		return hub.TenantKeys{}, fmt.Errorf("read keys of tenant %q: %w", t.id, err)
	}
	digestKey, err := t.db.unwrap(digest)
	if err != nil {
		return hub.TenantKeys{}, fmt.Errorf("unwrap digest key of tenant %q: %w", t.id, err)
	}
	dataKey, err := t.db.unwrap(data)
	if err != nil {
		return hub.TenantKeys{}, fmt.Errorf("unwrap data key of tenant %q: %w", t.id, err)
	}
	keys := hub.TenantKeys{
		Digest:     digestKey,
		Object:     encryption.Derive(dataKey, encryption.ObjectKey),
		Credential: encryption.Derive(dataKey, encryption.CredentialKey),
		Feed:       encryption.Derive(dataKey, encryption.FeedKey),
		Snapshot:   encryption.Derive(dataKey, encryption.SnapshotKey),
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	t.db.known[t.id] = keys
	return keys, nil
}

func (db *DB) knownKeys(id hub.TenantID) (hub.TenantKeys, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	keys, ok := db.known[id]
	return keys, ok
}

func (db *DB) unwrap(wrapped []byte) (encryption.Key, error) {
	plain, err := db.keys.Unwrap(wrapped)
	if err != nil {
		return encryption.Key{}, err
	}
	return encryption.KeyFrom(plain)
}

// newWrappedKey generates a key and returns it wrapped.
func (db *DB) newWrappedKey() ([]byte, error) {
	key, err := encryption.NewKey()
	if err != nil {
		return nil, err
	}
	wrapped, err := db.keys.Wrap(key[:])
	if err != nil {
		return nil, fmt.Errorf("wrap a new key: %w", err)
	}
	return wrapped, nil
}

// sealCredential seals a credential for one row of this tenant, so that its
// ciphertext is worth nothing in any other row.
func (t *Tenant) sealCredential(ctx context.Context, row hub.RepositoryID, plain []byte) ([]byte, error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return nil, err
	}
	return encryption.Seal(keys.Credential, t.credentialFor(row), plain)
}

func (t *Tenant) openCredential(ctx context.Context, row hub.RepositoryID, sealed []byte) ([]byte, error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return nil, err
	}
	return encryption.Open(keys.Credential, t.credentialFor(row), sealed)
}

// credentialFor is the associated data of a row's credential.
func (t *Tenant) credentialFor(row hub.RepositoryID) []byte {
	return []byte(string(t.id) + string(row))
}
