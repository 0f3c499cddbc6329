package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	insertPolicyVersion = `
		INSERT INTO policy_version (tenant_id, number, stored_at, stored_by, reverts, changed, content)
		SELECT @tenant, coalesce(max(number), 0) + 1, @at, @by, @reverts, @changed, @content
		FROM   policy_version
		WHERE  tenant_id = @tenant
		RETURNING number`
	deletePolicyVersions = `DELETE FROM policy_version WHERE tenant_id = $1 AND number <= $2`
	selectPolicyVersions = `
		SELECT number, stored_at, stored_by, reverts, changed
		FROM   policy_version
		WHERE  tenant_id = $1 AND ($2 = 0 OR number < $2)
		ORDER  BY number DESC
		LIMIT  $3`
	selectPolicyVersion = `
		SELECT number, stored_at, stored_by, reverts, changed, content
		FROM   policy_version
		WHERE  tenant_id = $1 AND number = $2`
)

// AddPolicyVersion stores what the policy is after a change, under the next number,
// and deletes the oldest ones beyond hub.MaxPolicyVersions. The settings are locked.
func (t *Tenant) AddPolicyVersion(ctx context.Context, v hub.PolicyVersion) error {
	number, err := one(ctx, t.tx, "policy version", pgx.RowTo[int64], insertPolicyVersion, pgx.StrictNamedArgs{
		"tenant": t.id, "at": micro(v.At), "by": v.By, "reverts": v.Reverts, "changed": v.Changed, "content": v.Values,
	})
	if err != nil {
		return err
	}
	_, err = exec(ctx, t.tx, "delete old policy versions", deletePolicyVersions, t.id, number-hub.MaxPolicyVersions)
	return err
}

// PolicyVersions returns versions without their values, the newest first: those
// before a number, or all if it is 0.
func (t *Tenant) PolicyVersions(ctx context.Context, before int64, limit int) ([]hub.PolicyVersion, error) {
	return list(ctx, t.tx, "policy versions", func(row pgx.CollectableRow) (v hub.PolicyVersion, err error) {
		err = row.Scan(&v.Number, &v.At, &v.By, &v.Reverts, &v.Changed)
		return v, err
	}, selectPolicyVersions, t.id, before, limit)
}

// PolicyVersionAt returns one version. The error is fault.Missing if there is none.
func (t *Tenant) PolicyVersionAt(ctx context.Context, number int64) (hub.PolicyVersion, error) {
	v, err := one(ctx, t.tx, "policy version", func(row pgx.CollectableRow) (v hub.PolicyVersion, err error) {
		err = row.Scan(&v.Number, &v.At, &v.By, &v.Reverts, &v.Changed, &v.Values)
		return v, err
	}, selectPolicyVersion, t.id, number)
	return v, missing(err, "there is no such version of the policy")
}
