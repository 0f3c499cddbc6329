package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	selectDeferred = `
		SELECT id, kind, name, url, project, username, keys, created_at
		FROM   deferred_credential
		WHERE  tenant_id = $1
		ORDER  BY kind, name, url, project`
	selectDeferredID = `
		SELECT id FROM deferred_credential
		WHERE  tenant_id = $1 AND kind = $2 AND name = $3 AND url = $4 AND project = $5`
	upsertDeferred = `
		INSERT INTO deferred_credential (tenant_id, id, kind, name, url, project, username, keys, sealed, created_at)
		VALUES (@tenant, @id, @kind, @name, @url, @project, @username, @keys, @sealed, @now)
		ON CONFLICT (tenant_id, id) DO UPDATE SET username = excluded.username, keys = excluded.keys, sealed = excluded.sealed`
	selectGeneratorSecret = `
		SELECT id, sealed FROM deferred_credential
		WHERE  tenant_id = $1 AND kind = $2 AND name = $3
		ORDER  BY url, project
		LIMIT  1`
	deleteDeferred = `DELETE FROM deferred_credential WHERE tenant_id = $1 AND id = $2`
)

// DeferredCredentials returns what is stored for writing and for generators,
// without values.
func (t *Tenant) DeferredCredentials(ctx context.Context) ([]hub.DeferredCredential, error) {
	return list(ctx, t.tx, "deferred credentials", func(row pgx.CollectableRow) (d hub.DeferredCredential, err error) {
		err = row.Scan(&d.ID, &d.Kind, &d.Name, &d.URL, &d.Project, &d.Username, &d.Keys, &d.CreatedAt)
		return d, err
	}, selectDeferred, t.id)
}

// GeneratorSecret returns the values of a Secret that generators may use (CRED-04).
func (t *Tenant) GeneratorSecret(ctx context.Context, name string) (map[string]string, error) {
	type row struct {
		id     hub.RepositoryID
		sealed []byte
	}
	found, err := one(ctx, t.tx, "secret of generators", func(r pgx.CollectableRow) (out row, err error) {
		err = r.Scan(&out.id, &out.sealed)
		return out, err
	}, selectGeneratorSecret, t.id, hub.SCMCredential, clean(name))
	if err != nil {
		return nil, missing(err, "there is no Secret %q of the type %s", name, hub.SCMCredential)
	}
	plain, err := t.openCredential(ctx, found.id, found.sealed)
	if err != nil {
		return nil, fmt.Errorf("open the secret %q of generators: %w", name, err)
	}
	values := map[string]string{}
	if err := json.Unmarshal(plain, &values); err != nil {
		return nil, fault.New(fault.Internal, "the secret %q of generators is not readable", name)
	}
	return values, nil
}

// PutDeferredCredential stores a credential in place of the one with the same
// kind, name, URL and project.
func (t *Tenant) PutDeferredCredential(ctx context.Context, d hub.DeferredCredential) (created bool, err error) {
	if !d.Kind.Known() || d.Name == "" && d.URL == "" || len(d.Values) == 0 {
		return false, fault.New(fault.Invalid, "a credential needs a kind, a name or a URL, and values")
	}
	err = t.tx.QueryRow(ctx, selectDeferredID, t.id, d.Kind, d.Name, d.URL, d.Project).Scan(&d.ID)
	if err := missing(err, "none"); fault.KindOf(err) == fault.Missing {
		d.ID, created = hub.NewID[hub.RepositoryID](), true
	} else if err != nil {
		return false, fmt.Errorf("find deferred credential: %w", err)
	}
	plain, err := json.Marshal(d.Values)
	if err != nil {
		return false, fmt.Errorf("encode credential: %w", err)
	}
	sealed, err := t.sealCredential(ctx, d.ID, plain)
	if err != nil {
		return false, fmt.Errorf("seal credential: %w", err)
	}
	_, err = exec(ctx, t.tx, "store deferred credential", upsertDeferred, pgx.StrictNamedArgs{
		"tenant": t.id, "id": d.ID, "kind": d.Kind, "name": d.Name, "url": d.URL, "project": d.Project, "username": d.Username,
		"keys": slices.Sorted(maps.Keys(d.Values)), "sealed": sealed, "now": micro(time.Now()),
	})
	return created, err
}

// DeleteDeferredCredential deletes one.
func (t *Tenant) DeleteDeferredCredential(ctx context.Context, id hub.RepositoryID) error {
	const none = "there is no such credential"
	if !hub.ValidID(string(id)) {
		return fault.New(fault.Missing, none)
	}
	n, err := exec(ctx, t.tx, "delete deferred credential", deleteDeferred, t.id, id)
	if err == nil && n == 0 {
		err = fault.New(fault.Missing, none)
	}
	return err
}
