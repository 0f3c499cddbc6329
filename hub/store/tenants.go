package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	insertTenant = `
		INSERT INTO directory.tenant (id, name, display_name, suspended, created_at)
		VALUES (@id, @name, @display_name, @suspended, @created)`
	// A tenant whose creation was not finished has no reachable data. Its name
	// is free again after a minute.
	dropUnfinished = `
		DELETE FROM directory.tenant
		WHERE  name = $1 AND NOT ready AND purge_at IS NULL AND created_at < now() - interval '1 minute'`
	readyTenant   = `UPDATE directory.tenant SET ready = true WHERE id = $1`
	selectTenants = `
		SELECT id, name, display_name, suspended, suspended_reason, suspended_at, deleted_at, purge_at, created_at
		FROM   directory.tenant
		WHERE  ready
		ORDER  BY name`
	selectTenant = `
		SELECT id, name, display_name, suspended, suspended_reason, suspended_at, deleted_at, purge_at, created_at
		FROM   directory.tenant
		WHERE  ready AND id = $1`
	selectTenantByName = `
		SELECT id, name, display_name, suspended, suspended_reason, suspended_at, deleted_at, purge_at, created_at
		FROM   directory.tenant
		WHERE  ready AND name = $1`
	updateSuspended = `
		UPDATE directory.tenant
		SET    suspended = $2, suspended_reason = '', suspended_at = CASE WHEN $2 THEN now() END
		WHERE  ready AND purge_at IS NULL AND id = $1`

	insertOrganisation = `INSERT INTO organisation (tenant_id, digest_key, data_key) VALUES ($1, $2, $3)`
	insertAuditHead    = `INSERT INTO audit_head (tenant_id, seq, hash) VALUES ($1, 0, '')`
)

// defaultProject is what every tenant starts with; it allows everything.
const defaultProject = `{"sourceRepos":["*"],"destinations":[{"server":"*","namespace":"*"}],"clusterResourceWhitelist":[{"group":"*","kind":"*"}]}`

// CreateTenant creates a tenant with its keys and the project "default". It is
// visible once all of that is stored. The error is fault.Conflict if the name
// is in use, and fault.Invalid if it is not valid.
func (s *System) CreateTenant(ctx context.Context, tenant hub.Tenant) error {
	if !hub.ValidID(string(tenant.ID)) {
		return fault.New(fault.Invalid, "a tenant needs an id that is a UUID")
	}
	if tenant.CreatedAt.IsZero() {
		tenant.CreatedAt = time.Now()
	}
	if err := s.beginTenant(ctx, tenant); err != nil {
		return err
	}
	if err := s.db.found(ctx, tenant); err != nil {
		return fmt.Errorf("create tenant %q: %w", tenant.Name, err)
	}
	_, err := exec(ctx, s.db.system, "show tenant", readyTenant, tenant.ID)
	return classify(err)
}

func (s *System) beginTenant(ctx context.Context, tenant hub.Tenant) error {
	object := "tenant " + tenant.Name
	return s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := exec(ctx, tx, "drop unfinished tenant", dropUnfinished, tenant.Name); err != nil {
			return err
		}
		_, err := exec(ctx, tx, "insert tenant", insertTenant, pgx.StrictNamedArgs{
			"id": tenant.ID, "name": tenant.Name, "display_name": tenant.DisplayName, "suspended": tenant.Suspended,
			"created": micro(tenant.CreatedAt),
		})
		switch code(err) {
		case uniqueViolation:
			return taken(object)
		case checkViolation:
			return fault.With(fault.New(fault.Invalid, "a name is 1 to 63 lower-case letters, digits and hyphens, and begins and ends with a letter or digit"), object, "")
		}
		return err
	})
}

// found writes the first rows of a tenant. It cannot use InTenant, which reads
// one of them.
func (db *DB) found(ctx context.Context, tenant hub.Tenant) error {
	digest, err := db.newWrappedKey()
	if err != nil {
		return err
	}
	data, err := db.newWrappedKey()
	if err != nil {
		return err
	}
	return retry(ctx, func() error {
		tx, err := db.app.Begin(ctx)
		if err != nil {
			return fmt.Errorf("begin transaction: %w", err)
		}
		defer rollback(ctx, tx)
		if _, err := exec(ctx, tx, "bind tenant", bindTenant, string(tenant.ID)); err != nil {
			return err
		}
		if _, err := exec(ctx, tx, "insert organisation", insertOrganisation, tenant.ID, digest, data); err != nil {
			return err
		}
		if _, err := exec(ctx, tx, "begin audit", insertAuditHead, tenant.ID); err != nil {
			return err
		}
		t := &Tenant{tx: tx, db: db, id: tenant.ID}
		if _, err := t.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "default"}, Spec: []byte(defaultProject)}); err != nil {
			return err
		}
		if err := t.flush(ctx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

// Tenants returns all tenants in order of name.
func (s *System) Tenants(ctx context.Context) ([]hub.Tenant, error) {
	out, err := list(ctx, s.db.system, "tenants", pgx.RowToStructByName[hub.Tenant], selectTenants)
	return out, classify(err)
}

// Tenant returns one tenant.
func (s *System) Tenant(ctx context.Context, id hub.TenantID) (hub.Tenant, error) {
	if !hub.ValidID(string(id)) {
		return hub.Tenant{}, noTenant()
	}
	t, err := one(ctx, s.db.system, "tenant", pgx.RowToStructByName[hub.Tenant], selectTenant, id)
	return t, classify(missing(err, "there is no such tenant"))
}

// TenantByName returns one tenant by its name.
func (s *System) TenantByName(ctx context.Context, name string) (hub.Tenant, error) {
	t, err := one(ctx, s.db.system, "tenant", pgx.RowToStructByName[hub.Tenant], selectTenantByName, name)
	return t, classify(missing(err, "there is no tenant %q", name))
}

// SetSuspended suspends a tenant, or resumes it. A suspended tenant's sessions
// and tokens are not found, its work is not claimed, and its agents are not
// admitted.
func (s *System) SetSuspended(ctx context.Context, id hub.TenantID, suspended bool) error {
	if !hub.ValidID(string(id)) {
		return noTenant()
	}
	n, err := exec(ctx, s.db.system, "suspend tenant", updateSuspended, id, suspended)
	if err == nil && n == 0 {
		return noTenant()
	}
	return classify(err)
}
