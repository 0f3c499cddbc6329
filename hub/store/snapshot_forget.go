package store

import (
	"context"
	"crypto/hmac"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

// worthForgetting is how many bytes inputs have, packed, for their snapshot to
// be written anew without them.
const worthForgetting = 128

const (
	// Inputs answer renders of the newest snapshots and of the target. The
	// length is compared again under the row's lock, so that no replica repeats
	// another one's work.
	selectForgettable = `
		SELECT s.id, s.application_id, s.revision, s.revisions, s.params_hash, s.objects, s.digests, s.lists, s.source_type, s.impure, s.inputs, s.mac
		FROM   snapshot s
		WHERE  s.tenant_id = $1 AND octet_length(s.inputs) > $4 AND s.id IN (
		         SELECT o.id FROM (
		           SELECT x.id, x.created_at, octet_length(x.inputs) AS size,
		                  row_number() OVER (PARTITION BY x.application_id ORDER BY x.created_at DESC, x.id DESC) AS age
		           FROM snapshot x WHERE x.tenant_id = $1) o
		         WHERE o.age > $3 AND o.size > $4 AND o.created_at < $2
		           AND NOT EXISTS (SELECT FROM application_status a WHERE a.tenant_id = $1 AND a.target_id = o.id)
		         LIMIT $5)
		FOR    NO KEY UPDATE SKIP LOCKED`
	forgetInputs = `
		UPDATE snapshot s SET inputs = @inputs, mac = u.mac
		FROM   unnest(@ids::uuid[], @macs::bytea[]) AS u (id, mac)
		WHERE  s.tenant_id = @tenant AND s.id = u.id`
)

// forgetInputs forgets what old snapshots were rendered from, of a bounded
// number at a time, and returns of how many. They stay what they are for syncs,
// rollbacks and comparisons, and answer no render any more.
func (t *Tenant) forgetInputs(ctx context.Context, before time.Time) (int, error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return 0, err
	}
	forgotten, err := pack(hub.ForgottenInputs())
	if err != nil {
		return 0, err
	}
	var macs [][]byte
	found, err := list(ctx, t.tx, "old snapshots", func(row pgx.CollectableRow) (string, error) {
		s := hub.Snapshot{Tenant: t.id}
		var raw storedSnapshot
		if err := row.Scan(&s.ID, &s.Application, &s.Revision, &s.Revisions, &raw.params, &raw.objects, &raw.digests, &raw.lists, &s.SourceType, &s.Impure,
			&raw.inputs, &raw.mac); err != nil {
			return "", err
		}
		macs = append(macs, macWithout(keys.Snapshot, &s, raw, forgotten))
		return string(s.ID), nil
	}, selectForgettable, t.id, before, keepSnapshots, worthForgetting, forgetAtOnce)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if _, err := exec(ctx, t.tx, "forget inputs", forgetInputs, pgx.StrictNamedArgs{
		"tenant": t.id, "inputs": forgotten, "ids": found, "macs": macs,
	}); err != nil {
		return 0, fmt.Errorf("forget inputs of %d snapshots: %w", len(found), err)
	}
	return len(found), nil
}

// macWithout is the code of a snapshot whose inputs are replaced. One that the
// hub has not stored like that keeps its code, which fits it no better than
// before, and one of an earlier release has none.
func macWithout(key [32]byte, s *hub.Snapshot, raw storedSnapshot, inputs []byte) []byte {
	if raw.mac == nil || !hmac.Equal(raw.mac, snapshotMAC(key, s, &raw)) {
		return raw.mac
	}
	raw.inputs = inputs
	return snapshotMAC(key, s, &raw)
}
