package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
)

const (
	selectSettings = `
		SELECT map, key, value, sealed IS NOT NULL AS secret, updated_at, updated_by
		FROM   setting
		WHERE  tenant_id = $1
		ORDER  BY map, key`
	selectSettingValues = `SELECT key, value FROM setting WHERE tenant_id = $1 AND map = $2 AND key = ANY ($3) AND sealed IS NULL`
	selectSettingsOf    = `
		SELECT map, key, value
		FROM   setting
		WHERE  tenant_id = $1 AND map = ANY ($2) AND (key = ANY ($3) OR starts_with(key, $4)) AND sealed IS NULL`
	upsertSetting = `
		INSERT INTO setting (tenant_id, map, key, value, sealed, updated_at, updated_by)
		VALUES (@tenant, @map, @key, @value, @sealed, @now, @by)
		ON CONFLICT (tenant_id, map, key) DO UPDATE
		SET    value = excluded.value, sealed = excluded.sealed, updated_at = excluded.updated_at, updated_by = excluded.updated_by`
	deleteSetting         = `DELETE FROM setting WHERE tenant_id = $1 AND map = $2 AND key = $3`
	selectSettingSecret   = `SELECT sealed FROM setting WHERE tenant_id = $1 AND map = $2 AND key = $3 AND sealed IS NOT NULL`
	selectSettingsVersion = `SELECT version FROM setting_version WHERE tenant_id = $1`
	ensureSettingsVersion = `INSERT INTO setting_version (tenant_id, version) VALUES ($1, 0) ON CONFLICT DO NOTHING`
	lockSettingsVersion   = `SELECT version FROM setting_version WHERE tenant_id = $1 FOR UPDATE`
	moveSettingsVersion   = `UPDATE setting_version SET version = version + 1 WHERE tenant_id = $1`
)

// Settings returns all settings of the tenant in order of map and key, without
// the values of secrets, and their version: 0 before the first change.
func (t *Tenant) Settings(ctx context.Context) ([]hub.Setting, int64, error) {
	var version int64
	if err := t.tx.QueryRow(ctx, selectSettingsVersion, t.id).Scan(&version); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, fmt.Errorf("read the version of the settings: %w", err)
	}
	all, err := list(ctx, t.tx, "settings", pgx.RowToStructByName[hub.Setting], selectSettings, t.id)
	return all, version, err
}

// SettingValues returns those of some keys of a map that are set and no secrets.
func (t *Tenant) SettingValues(ctx context.Context, name string, keys []string) (map[string]string, error) {
	out := map[string]string{}
	_, err := list(ctx, t.tx, "settings", func(row pgx.CollectableRow) (none struct{}, err error) {
		var key, value string
		err = row.Scan(&key, &value)
		out[key] = value
		return none, err
	}, selectSettingValues, t.id, name, keys)
	return out, err
}

// SettingValues is Tenant.SettingValues in a transaction of its own, in one round
// trip.
func (db *DB) SettingValues(ctx context.Context, tenant hub.TenantID, name string, keys []string) (map[string]string, error) {
	out := map[string]string{}
	err := db.once(ctx, tenant, "read settings", func(b *pgx.Batch) { queueSettingValues(b, tenant, name, keys, out) })
	return out, err
}

func queueSettingValues(b *pgx.Batch, tenant hub.TenantID, name string, keys []string, out map[string]string) {
	b.Queue(selectSettingValues, tenant, name, keys).Query(func(rows pgx.Rows) error {
		clear(out)
		var key, value string
		if _, err := pgx.ForEachRow(rows, []any{&key, &value}, func() error {
			out[key] = value
			return nil
		}); err != nil {
			return fmt.Errorf("read settings: %w", err)
		}
		return nil
	})
}

// SettingsOf returns the settings of some maps that have one of the keys, or one
// that begins with prefix, and are no secrets: Map, Key and Value of each.
func (t *Tenant) SettingsOf(ctx context.Context, maps, keys []string, prefix string) ([]hub.Setting, error) {
	return list(ctx, t.tx, "settings", func(row pgx.CollectableRow) (s hub.Setting, err error) {
		err = row.Scan(&s.Map, &s.Key, &s.Value)
		return s, err
	}, selectSettingsOf, t.id, maps, keys, prefix)
}

// LockSettings locks the settings until the transaction ends. It comes before
// any lock on a desired log.
func (t *Tenant) LockSettings(ctx context.Context) error {
	if _, err := exec(ctx, t.tx, "begin settings", ensureSettingsVersion, t.id); err != nil {
		return err
	}
	var version int64
	if err := t.tx.QueryRow(ctx, lockSettingsVersion, t.id).Scan(&version); err != nil {
		return fmt.Errorf("lock settings: %w", err)
	}
	return nil
}

// ChangeSettings stores settings, removes others, and increments the version.
// The caller has locked them. A secret's value is encrypted for its own key, so
// that it cannot be used in any other.
func (t *Tenant) ChangeSettings(ctx context.Context, put, drop []hub.Setting) error {
	b := &pgx.Batch{}
	for _, s := range put {
		var sealed []byte
		value := s.Value
		if s.Secret {
			var err error
			if sealed, err = t.sealSetting(ctx, s); err != nil {
				return fmt.Errorf("seal setting %s of %s: %w", s.Key, s.Map, err)
			}
			value = ""
		}
		b.Queue(upsertSetting, pgx.StrictNamedArgs{
			"tenant": t.id, "map": s.Map, "key": s.Key, "value": value, "sealed": sealed, "now": micro(s.UpdatedAt), "by": s.UpdatedBy,
		})
	}
	for _, s := range drop {
		b.Queue(deleteSetting, t.id, s.Map, s.Key)
	}
	b.Queue(moveSettingsVersion, t.id)
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("store settings: %w", err)
	}
	return nil
}

// SettingSecret opens the value of a secret, only for the hub's own use. It
// is empty and not found if there is none of that name.
func (t *Tenant) SettingSecret(ctx context.Context, name, key string) (value string, found bool, err error) {
	var sealed []byte
	err = t.tx.QueryRow(ctx, selectSettingSecret, t.id, name, key).Scan(&sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read setting %s of %s: %w", key, name, err)
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return "", false, err
	}
	plain, err := encryption.Open(keys.Credential, settingFor(t.id, name, key), sealed)
	if err != nil {
		return "", false, fmt.Errorf("open setting %s of %s: %w", key, name, err)
	}
	return string(plain), true, nil
}

func (t *Tenant) sealSetting(ctx context.Context, s hub.Setting) ([]byte, error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return nil, err
	}
	return encryption.Seal(keys.Credential, settingFor(t.id, s.Map, s.Key), []byte(s.Value))
}

// settingFor is the associated data of a sealed setting.
func settingFor(tenant hub.TenantID, name, key string) []byte {
	return []byte(string(tenant) + "setting\x00" + name + "\x00" + key)
}
