package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	insertSCIMToken = `
		INSERT INTO scim_token (tenant_id, id, name, prefix, created_by, created_at, expires_at)
		VALUES (@tenant, @id, @name, @prefix, @created_by, @created, @expires)`
	selectSCIMTokens = `
		SELECT k.id, k.name, k.prefix, k.created_by, k.created_at, k.expires_at, u.used_at
		FROM   scim_token k
		LEFT   JOIN directory.api_key_uses() u ON u.id = k.id
		WHERE  k.tenant_id = $1
		ORDER  BY k.created_at, k.id`
	deleteSCIMToken = `DELETE FROM scim_token WHERE tenant_id = $1 AND id = $2`

	whereSCIMUser = `
		WHERE  s.tenant_id = @tenant AND (@id = '' OR s.id::text = @id) AND (@name = '' OR lower(s.user_name) = lower(@name))
		AND    (@external = '' OR s.external_id = @external) AND (@active::boolean IS NULL OR s.active = @active)
		AND    (@email = '' OR EXISTS (
		         SELECT FROM jsonb_array_elements(CASE jsonb_typeof(s.attributes -> 'emails') WHEN 'array' THEN s.attributes -> 'emails' ELSE '[]' END) e
		         WHERE lower(e ->> 'value') = lower(@email)))`
	countSCIMUsers  = `SELECT count(*) FROM scim_user s` + whereSCIMUser
	selectSCIMUsers = `
		SELECT s.id, s.user_name, s.external_id, s.active, s.attributes::text, s.version, s.created_at, s.updated_at
		FROM   scim_user s` + whereSCIMUser + `
		ORDER  BY s.created_at, s.id OFFSET @offset LIMIT @limit`
	insertSCIMUser = `
		INSERT INTO scim_user (tenant_id, id, user_name, external_id, active, attributes, created_at, updated_at)
		VALUES (@tenant, @id, @name, @external, @active, @attributes, @now, @now)`
	updateSCIMUser = `
		UPDATE scim_user
		SET    user_name = @name, external_id = @external, active = @active, attributes = @attributes, version = version + 1, updated_at = @now
		WHERE  tenant_id = @tenant AND id = @id AND version = @version
		RETURNING version`
	// A group that is called like an account gives no rights: they would be
	// those of the account.
	selectGroupsOf = `
		SELECT g.display_name
		FROM   scim_member m
		JOIN   scim_group g ON g.tenant_id = $1 AND g.id = m.group_id
		WHERE  m.tenant_id = $1 AND m.user_id = $2
		AND    NOT EXISTS (SELECT FROM account a WHERE a.tenant_id = $1 AND a.name = g.display_name)
		ORDER  BY g.display_name`
	selectMemberships = `
		SELECT m.user_id::text, g.id::text, g.display_name
		FROM   scim_member m
		JOIN   scim_group g ON g.tenant_id = $1 AND g.id = m.group_id
		WHERE  m.tenant_id = $1 AND m.user_id = ANY ($2)
		ORDER  BY g.display_name`

	whereSCIMGroup = `
		WHERE  g.tenant_id = @tenant AND (@id = '' OR g.id::text = @id) AND (@name = '' OR lower(g.display_name) = lower(@name))
		AND    (@external = '' OR g.external_id = @external)
		AND    (@member = '' OR EXISTS (
		         SELECT FROM scim_member m WHERE m.tenant_id = @tenant AND m.group_id = g.id AND m.user_id::text = @member))`
	countSCIMGroups  = `SELECT count(*) FROM scim_group g` + whereSCIMGroup
	selectSCIMGroups = `
		SELECT g.id, g.display_name, g.external_id, g.version, g.created_at, g.updated_at
		FROM   scim_group g` + whereSCIMGroup + `
		ORDER  BY g.created_at, g.id OFFSET @offset LIMIT @limit`
	insertSCIMGroup = `
		INSERT INTO scim_group (tenant_id, id, display_name, external_id, created_at, updated_at)
		VALUES (@tenant, @id, @name, @external, @now, @now)`
	updateSCIMGroup = `
		UPDATE scim_group
		SET    display_name = @name, external_id = @external, version = version + 1, updated_at = @now
		WHERE  tenant_id = @tenant AND id = @id AND version = @version
		RETURNING version`
	deleteSCIMGroup = `DELETE FROM scim_group WHERE tenant_id = $1 AND id = $2`
	dropMembers     = `DELETE FROM scim_member WHERE tenant_id = $1 AND group_id = $2 AND NOT user_id = ANY ($3)`
	addMembers      = `
		INSERT INTO scim_member (tenant_id, group_id, user_id)
		SELECT $1, $2, u FROM unnest($3::uuid[]) u
		ON CONFLICT DO NOTHING`
	selectMembers = `
		SELECT m.group_id::text, s.id::text, s.user_name
		FROM   scim_member m
		JOIN   scim_user s ON s.tenant_id = $1 AND s.id = m.user_id
		WHERE  m.tenant_id = $1 AND m.group_id = ANY ($2)
		ORDER  BY s.created_at, s.id`
)

// codeStale tells another version from another thing of the same name.
const codeStale = "CAP-1412"

// PutSCIMToken stores a token of an identity provider. Its secret is known by
// hash only.
func (t *Tenant) PutSCIMToken(ctx context.Context, k hub.SCIMToken) error {
	_, err := exec(ctx, t.tx, "insert SCIM token", insertSCIMToken, pgx.StrictNamedArgs{
		"tenant": t.id, "id": k.ID, "name": k.Name, "prefix": k.Prefix, "created_by": k.CreatedBy, "created": micro(k.CreatedAt), "expires": micro(k.ExpiresAt),
	})
	if violates(err, "scim_token_name") {
		return taken("token " + k.Name)
	}
	if err != nil {
		return err
	}
	return t.putAPIKey(ctx, k.Hash, hub.KeySCIM, k.ID, k.ExpiresAt)
}

// SCIMTokens returns the tokens of identity providers, without their hashes.
func (t *Tenant) SCIMTokens(ctx context.Context) ([]hub.SCIMToken, error) {
	return list(ctx, t.tx, "SCIM tokens", func(row pgx.CollectableRow) (k hub.SCIMToken, err error) {
		err = row.Scan(&k.ID, &k.Name, &k.Prefix, &k.CreatedBy, &k.CreatedAt, &k.ExpiresAt, &k.UsedAt)
		return k, err
	}, selectSCIMTokens, t.id)
}

// DeleteSCIMToken ends a token of an identity provider.
func (t *Tenant) DeleteSCIMToken(ctx context.Context, id hub.TokenID) error {
	if !hub.ValidID(string(id)) {
		return fault.New(fault.Missing, "there is no such token")
	}
	n, err := exec(ctx, t.tx, "delete SCIM token", deleteSCIMToken, t.id, id)
	if err == nil && n == 0 {
		err = fault.New(fault.Missing, "there is no such token")
	}
	return err
}

// SCIMUsers returns a page of users with their groups, and how many there are on
// all pages.
func (t *Tenant) SCIMUsers(ctx context.Context, q hub.SCIMQuery) ([]hub.SCIMUser, int, error) {
	args := pgx.StrictNamedArgs{"tenant": t.id, "id": q.ID, "name": q.Name, "external": q.ExternalID, "active": q.Active, "email": q.Email}
	var total int
	if err := t.tx.QueryRow(ctx, countSCIMUsers, args).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count SCIM users: %w", err)
	}
	args["offset"], args["limit"] = max(0, q.Start-1), q.Count
	users, err := list(ctx, t.tx, "SCIM users", func(row pgx.CollectableRow) (u hub.SCIMUser, err error) {
		err = row.Scan(&u.ID, &u.UserName, &u.ExternalID, &u.Active, (*rawJSON)(&u.Attributes), &u.Version, &u.CreatedAt, &u.UpdatedAt)
		return u, err
	}, selectSCIMUsers, args)
	if err != nil {
		return nil, 0, err
	}
	ids := make([]string, len(users))
	for i, u := range users {
		ids[i] = string(u.ID)
	}
	refs, err := t.scimRefs(ctx, selectMemberships, ids)
	for i, u := range users {
		users[i].Groups = refs[string(u.ID)]
	}
	return users, total, err
}

// scimRefs returns what belongs to each of some ids.
func (t *Tenant) scimRefs(ctx context.Context, query string, ids []string) (map[string][]hub.SCIMRef, error) {
	out := map[string][]hub.SCIMRef{}
	if len(ids) == 0 {
		return out, nil
	}
	_, err := list(ctx, t.tx, "SCIM members", func(row pgx.CollectableRow) (none struct{}, err error) {
		var of string
		var r hub.SCIMRef
		err = row.Scan(&of, &r.ID, &r.Display)
		out[of] = append(out[of], r)
		return none, err
	}, query, t.id, ids)
	return out, err
}

// PutSCIMUser makes a user of an account, or changes the one of that version.
// Version 0 makes one. The error is fault.Conflict for another version.
func (t *Tenant) PutSCIMUser(ctx context.Context, u hub.SCIMUser) (hub.SCIMUser, error) {
	if !hub.ValidID(string(u.ID)) {
		return u, noUser()
	}
	if len(u.Attributes) == 0 {
		u.Attributes = json.RawMessage("{}")
	}
	u.UpdatedAt = micro(u.UpdatedAt)
	args := pgx.StrictNamedArgs{
		"tenant": t.id, "id": u.ID, "name": u.UserName, "external": u.ExternalID, "active": u.Active, "attributes": string(u.Attributes), "now": u.UpdatedAt,
	}
	var err error
	if u.Version == 0 {
		u.Version, u.CreatedAt = 1, u.UpdatedAt
		_, err = exec(ctx, t.tx, "insert SCIM user", insertSCIMUser, args)
	} else {
		args["version"] = u.Version
		err = missing(t.tx.QueryRow(ctx, updateSCIMUser, args).Scan(&u.Version), "not found")
	}
	return u, scimFault(err, "scim_user_name", "user "+u.UserName)
}

func scimFault(err error, constraint, object string) error {
	switch {
	case violates(err, constraint):
		return taken(object)
	case code(err) == foreignKeyViolation:
		return fault.New(fault.Missing, "there is no such user")
	case fault.KindOf(err) == fault.Missing:
		return &fault.Error{Kind: fault.Conflict, Code: codeStale, Object: object, Cause: "it was changed by someone else in the meantime", Fix: "read it again and repeat the change"}
	}
	return err
}

// GroupsOf returns the names of the groups that a user is in.
func (t *Tenant) GroupsOf(ctx context.Context, id hub.UserID) ([]string, error) {
	return list(ctx, t.tx, "groups of a user", pgx.RowTo[string], selectGroupsOf, t.id, id)
}

// SCIMGroups returns a page of groups, with their members unless they are not
// wanted, and how many there are on all pages.
func (t *Tenant) SCIMGroups(ctx context.Context, q hub.SCIMQuery) ([]hub.SCIMGroup, int, error) {
	args := pgx.StrictNamedArgs{"tenant": t.id, "id": q.ID, "name": q.Name, "external": q.ExternalID, "member": q.Member}
	var total int
	if err := t.tx.QueryRow(ctx, countSCIMGroups, args).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count SCIM groups: %w", err)
	}
	args["offset"], args["limit"] = max(0, q.Start-1), q.Count
	groups, err := list(ctx, t.tx, "SCIM groups", func(row pgx.CollectableRow) (g hub.SCIMGroup, err error) {
		err = row.Scan(&g.ID, &g.DisplayName, &g.ExternalID, &g.Version, &g.CreatedAt, &g.UpdatedAt)
		return g, err
	}, selectSCIMGroups, args)
	if err != nil || q.NoMembers {
		return groups, total, err
	}
	ids := make([]string, len(groups))
	for i, g := range groups {
		ids[i] = g.ID
	}
	refs, err := t.scimRefs(ctx, selectMembers, ids)
	for i, g := range groups {
		groups[i].Members = refs[g.ID]
	}
	return groups, total, err
}

// PutSCIMGroup makes a group, or changes the one of that version, and makes its
// members those that are given. Version 0 makes one. The error is
// fault.Conflict for another version, and fault.Missing for a member that is no
// user.
func (t *Tenant) PutSCIMGroup(ctx context.Context, g hub.SCIMGroup) (hub.SCIMGroup, error) {
	if !hub.ValidID(g.ID) {
		return g, fault.New(fault.Missing, "there is no such group")
	}
	members := make([]string, len(g.Members))
	for i, m := range g.Members {
		if !hub.ValidID(m.ID) {
			return g, fault.New(fault.Missing, "there is no such user")
		}
		members[i] = m.ID
	}
	g.UpdatedAt = micro(g.UpdatedAt)
	args := pgx.StrictNamedArgs{"tenant": t.id, "id": g.ID, "name": g.DisplayName, "external": g.ExternalID, "now": g.UpdatedAt}
	var err error
	if g.Version == 0 {
		g.Version, g.CreatedAt = 1, g.UpdatedAt
		_, err = exec(ctx, t.tx, "insert SCIM group", insertSCIMGroup, args)
	} else {
		args["version"] = g.Version
		err = missing(t.tx.QueryRow(ctx, updateSCIMGroup, args).Scan(&g.Version), "not found")
	}
	if err != nil {
		return g, scimFault(err, "scim_group_name", "group "+g.DisplayName)
	}
	if _, err := exec(ctx, t.tx, "drop members", dropMembers, t.id, g.ID, members); err != nil {
		return g, err
	}
	_, err = exec(ctx, t.tx, "add members", addMembers, t.id, g.ID, members)
	return g, scimFault(err, "scim_group_name", "group "+g.DisplayName)
}

// DeleteSCIMGroup removes a group.
func (t *Tenant) DeleteSCIMGroup(ctx context.Context, id string) error {
	if !hub.ValidID(id) {
		return fault.New(fault.Missing, "there is no such group")
	}
	n, err := exec(ctx, t.tx, "delete SCIM group", deleteSCIMGroup, t.id, id)
	if err == nil && n == 0 {
		err = fault.New(fault.Missing, "there is no such group")
	}
	return err
}
