package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	selectAPIKey = `
		SELECT k.id, k.tenant_id, k.kind, k.expires_at, k.used_at
		FROM   directory.api_key k
		JOIN   directory.tenant t ON t.id = k.tenant_id AND t.ready AND NOT t.suspended
		WHERE  k.hash = $1 AND k.expires_at > now()`
	touchAPIKey = `UPDATE directory.api_key SET used_at = $2 WHERE hash = $1 AND (used_at IS NULL OR used_at < $2)`
	putAPIKey   = `SELECT directory.put_api_key($1, $2, $3, $4)`

	insertRoleToken = `
		INSERT INTO role_token (tenant_id, id, project_id, role, name, prefix, created_by, created_at, expires_at)
		VALUES (@tenant, @id, @project, @role, @name, @prefix, @created_by, @created, @expires)`
	selectRoleTokens = `
		SELECT r.id, r.project_id, p.name, r.role, r.name, r.prefix, r.created_by, r.created_at, r.expires_at, u.used_at
		FROM   role_token r
		JOIN   project p ON p.tenant_id = $1 AND p.id = r.project_id
		LEFT   JOIN directory.api_key_uses() u ON u.id = r.id
		WHERE  r.tenant_id = $1 AND p.name = $2
		ORDER  BY r.role, r.created_at, r.id`
	selectRoleToken = `
		SELECT r.id, r.project_id, p.name, r.role, r.name, r.prefix, r.created_by, r.created_at, r.expires_at, NULL::timestamptz
		FROM   role_token r
		JOIN   project p ON p.tenant_id = $1 AND p.id = r.project_id
		WHERE  r.tenant_id = $1 AND r.id = $2`
	deleteRoleToken = `DELETE FROM role_token WHERE tenant_id = $1 AND id = $2`
	// Tokens end with their role, also if a role of that name comes again.
	endRoleTokens = `
		DELETE FROM role_token r
		USING  project p
		WHERE  r.tenant_id = $1 AND p.tenant_id = $1 AND p.id = r.project_id AND p.id = $2
		AND    NOT EXISTS (
		         SELECT FROM json_array_elements(CASE json_typeof(p.spec -> 'roles') WHEN 'array' THEN p.spec -> 'roles' ELSE '[]' END) x
		         WHERE x ->> 'name' = r.role)`
	collectRoleTokens = `
		DELETE FROM role_token
		WHERE  tenant_id = $1 AND id IN (SELECT r.id FROM role_token r WHERE r.tenant_id = $1 AND r.expires_at < $2 LIMIT $3)`
)

// APIKey finds a key that has not expired, of a tenant that is not suspended.
// The error is fault.Missing otherwise.
func (s *System) APIKey(ctx context.Context, hash [32]byte) (hub.APIKey, error) {
	key, err := one(ctx, s.db.system, "key", func(row pgx.CollectableRow) (k hub.APIKey, err error) {
		err = row.Scan(&k.ID, &k.Tenant, &k.Kind, &k.ExpiresAt, &k.UsedAt)
		return k, err
	}, selectAPIKey, hash[:])
	return key, classify(missing(err, "the token is not valid"))
}

// TouchAPIKey notes that a key was used.
func (s *System) TouchAPIKey(ctx context.Context, hash [32]byte, at time.Time) error {
	_, err := exec(ctx, s.db.system, "touch key", touchAPIKey, hash[:], micro(at))
	return classify(err)
}

func (t *Tenant) putAPIKey(ctx context.Context, hash [32]byte, kind hub.KeyKind, id hub.TokenID, expires time.Time) error {
	_, err := exec(ctx, t.tx, "list key", putAPIKey, hash[:], kind, id, micro(expires))
	return err
}

// PutRoleToken stores a token of a role of a project. Its secret is known by
// hash only.
func (t *Tenant) PutRoleToken(ctx context.Context, k hub.RoleToken) error {
	_, err := exec(ctx, t.tx, "insert role token", insertRoleToken, pgx.StrictNamedArgs{
		"tenant": t.id, "id": k.ID, "project": k.ProjectID, "role": k.Role, "name": k.Name, "prefix": k.Prefix, "created_by": k.CreatedBy,
		"created": micro(k.CreatedAt), "expires": micro(k.ExpiresAt),
	})
	switch {
	case violates(err, "role_token_name"):
		return taken("token " + k.Name)
	case code(err) == foreignKeyViolation:
		return fault.New(fault.Missing, "there is no such project")
	case err != nil:
		return err
	}
	return t.putAPIKey(ctx, k.Hash, hub.KeyRole, k.ID, k.ExpiresAt)
}

func scanRoleToken(row pgx.CollectableRow) (k hub.RoleToken, err error) {
	err = row.Scan(&k.ID, &k.ProjectID, &k.Project, &k.Role, &k.Name, &k.Prefix, &k.CreatedBy, &k.CreatedAt, &k.ExpiresAt, &k.UsedAt)
	return k, err
}

// RoleTokens returns the tokens of the roles of a project, without their hashes.
func (t *Tenant) RoleTokens(ctx context.Context, project string) ([]hub.RoleToken, error) {
	return list(ctx, t.tx, "role tokens", scanRoleToken, selectRoleTokens, t.id, project)
}

// RoleToken returns one token of a role, without its hash and its last use.
func (t *Tenant) RoleToken(ctx context.Context, id hub.TokenID) (hub.RoleToken, error) {
	if !hub.ValidID(string(id)) {
		return hub.RoleToken{}, fault.New(fault.Missing, "there is no such token")
	}
	k, err := one(ctx, t.tx, "role token", scanRoleToken, selectRoleToken, t.id, id)
	return k, missing(err, "there is no such token")
}

// DeleteRoleToken ends a token of a role.
func (t *Tenant) DeleteRoleToken(ctx context.Context, id hub.TokenID) error {
	if !hub.ValidID(string(id)) {
		return fault.New(fault.Missing, "there is no such token")
	}
	n, err := exec(ctx, t.tx, "delete role token", deleteRoleToken, t.id, id)
	if err == nil && n == 0 {
		err = fault.New(fault.Missing, "there is no such token")
	}
	return err
}
