package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	updateTenant = `
		UPDATE directory.tenant SET display_name = @display_name
		WHERE  ready AND id = @id`
	suspendTenant = `
		UPDATE directory.tenant
		SET    suspended = true, suspended_reason = @reason, suspended_at = @at
		WHERE  ready AND purge_at IS NULL AND id = @id`
	deleteTenant = `
		UPDATE directory.tenant
		SET    was_suspended = suspended, suspended = true, suspended_at = coalesce(suspended_at, @at), deleted_at = @at, purge_at = @purge
		WHERE  ready AND purge_at IS NULL AND id = @id`
	restoreTenant = `
		UPDATE directory.tenant
		SET    suspended = was_suspended, suspended_at = CASE WHEN was_suspended THEN suspended_at END, was_suspended = false,
		       deleted_at = NULL, purge_at = NULL
		WHERE  ready AND purge_at > @at AND id = @id`
	selectTenantStates = `SELECT id, suspended OR NOT ready AS suspended FROM directory.tenant ORDER BY id`
	beginPurges        = `
		UPDATE directory.tenant SET ready = false
		WHERE  purge_at <= @at AND ready
		RETURNING id, name, display_name, suspended, suspended_reason, suspended_at, deleted_at, purge_at, created_at`
	selectPurges = `SELECT id FROM directory.tenant WHERE NOT ready AND purge_at <= $1 ORDER BY id`
	purgeTenant  = `SELECT work.purge_tenant($1, $2)`

	countTenant = `
		SELECT (SELECT count(*) FROM application x WHERE x.tenant_id = $1) AS applications,
		       (SELECT count(*) FROM project x WHERE x.tenant_id = $1) AS projects,
		       (SELECT count(*) FROM cluster x WHERE x.tenant_id = $1) AS clusters,
		       (SELECT count(*) FROM repository x WHERE x.tenant_id = $1) AS repositories,
		       (SELECT count(*) FROM account x WHERE x.tenant_id = $1) AS users,
		       (SELECT count(*) FROM api_token x WHERE x.tenant_id = $1) AS tokens,
		       (SELECT seq FROM audit_head x WHERE x.tenant_id = $1) AS audit_records`
)

// purgeAtOnce is how many rows one part of a purge removes.
const purgeAtOnce = 5000

// changedTenant turns an update of one tenant that found none into an error.
func changedTenant(n int64, err error) error {
	if err == nil && n == 0 {
		return noTenant()
	}
	return classify(err)
}

// UpdateTenant changes what a tenant is called for people.
func (s *System) UpdateTenant(ctx context.Context, id hub.TenantID, displayName string) error {
	return changedTenant(exec(ctx, s.db.system, "update tenant", updateTenant, pgx.StrictNamedArgs{"id": id, "display_name": displayName}))
}

// SuspendTenant suspends a tenant that is not being deleted.
func (s *System) SuspendTenant(ctx context.Context, id hub.TenantID, reason string, at time.Time) error {
	return changedTenant(exec(ctx, s.db.system, "suspend tenant", suspendTenant, pgx.StrictNamedArgs{"id": id, "reason": reason, "at": micro(at)}))
}

// DeleteTenant begins the grace period of a deletion, which ends at purge.
func (s *System) DeleteTenant(ctx context.Context, id hub.TenantID, at, purge time.Time) error {
	return changedTenant(exec(ctx, s.db.system, "delete tenant", deleteTenant, pgx.StrictNamedArgs{"id": id, "at": micro(at), "purge": micro(purge)}))
}

// RestoreTenant takes a deletion back whose grace period is not over. The
// tenant is suspended again if it was before.
func (s *System) RestoreTenant(ctx context.Context, id hub.TenantID, at time.Time) error {
	return changedTenant(exec(ctx, s.db.system, "restore tenant", restoreTenant, pgx.StrictNamedArgs{"id": id, "at": micro(at)}))
}

// TenantStates returns all tenants, those too that are being created or
// removed, which count as suspended.
func (s *System) TenantStates(ctx context.Context) ([]hub.TenantState, error) {
	out, err := list(ctx, s.db.system, "states of tenants", pgx.RowToStructByName[hub.TenantState], selectTenantStates)
	return out, classify(err)
}

// BeginPurges hides the tenants whose grace period is over. Nothing can bring
// them back. It returns those that were not hidden before.
func (s *System) BeginPurges(ctx context.Context, at time.Time) ([]hub.Tenant, error) {
	out, err := list(ctx, s.db.system, "begin purges", pgx.RowToStructByName[hub.Tenant], beginPurges, pgx.StrictNamedArgs{"at": micro(at)})
	return out, classify(err)
}

// Purges returns the hidden tenants of which something is left.
func (s *System) Purges(ctx context.Context, at time.Time) ([]hub.TenantID, error) {
	out, err := list(ctx, s.db.system, "purges", pgx.RowTo[hub.TenantID], selectPurges, micro(at))
	return out, classify(err)
}

// PurgeTenant removes a part of a hidden tenant's rows, its keys first, and
// reports whether there may be more. The last part is its name. The error is
// fault.Missing if there is nothing left.
func (s *System) PurgeTenant(ctx context.Context, id hub.TenantID) (more bool, err error) {
	s.db.forgetKeys(id)
	err = retry(ctx, func() error {
		var removed int64
		if err := s.db.system.QueryRow(ctx, purgeTenant, id, purgeAtOnce).Scan(&removed); err != nil {
			if code(err) == insufficientRights {
				return noTenant()
			}
			return err
		}
		more = removed > 0
		return nil
	})
	return more, err
}

// Forget drops what the process remembers of a tenant that was purged: its keys
// and its packed rows.
func (db *DB) Forget(id hub.TenantID) {
	db.forgetKeys(id)
	of := func(k snapshotKey) bool { return k.tenant == id }
	db.inputs.Drop(of)
	db.objects.Drop(of)
}

func (db *DB) forgetKeys(id hub.TenantID) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.known, id)
}

// Counts returns how many things the tenant has.
func (t *Tenant) Counts(ctx context.Context) (hub.TenantCounts, error) {
	return one(ctx, t.tx, "counts", pgx.RowToStructByName[hub.TenantCounts], countTenant, t.id)
}
