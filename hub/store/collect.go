package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/hub"
)

// How long unused rows are stored.
const (
	keepSnapshots    = 10 // newest of each application, for renders of known inputs
	keepInputs       = time.Hour
	keepChanges      = time.Hour
	keepDeviceLogins = time.Hour // after they expired, so that a device hears that
	keepBulks        = 7 * 24 * time.Hour
	keepDeliveries   = 30 * 24 * time.Hour
	mostDeliveries   = 10_000 // of a tenant, the newest
	keepAnswers      = 24 * time.Hour
	keepRows         = time.Hour // bodies of rows that newer ones replace; no agent reads them any more
	keepLog          = 7 * 24 * time.Hour
	keepOperations   = 100 // newest of each application
	collectAtOnce    = 1000
	collectMany      = 5000           // of small rows
	forgetAtOnce     = 1000           // snapshots, of which each is rewritten
	collectBulks     = 20             // each with its items
	keepCredentials  = 24 * time.Hour // of the directory, after they expired
)

const (
	// History is never deleted, and neither is a snapshot that a rollback may
	// use. The limit counts what may be deleted, so that however many have to
	// stay hide nothing.
	collectSnapshots = `
		DELETE FROM snapshot
		WHERE  tenant_id = $1 AND id IN (
		         SELECT s.id FROM (
		           SELECT x.id, x.created_at, row_number() OVER (PARTITION BY x.application_id ORDER BY x.created_at DESC, x.id DESC) AS age
		           FROM snapshot x WHERE x.tenant_id = $1) s
		         WHERE s.age > $3 AND s.created_at < $2
		         EXCEPT (
		           SELECT h.snapshot_id FROM history h WHERE h.tenant_id = $1
		           UNION ALL
		           SELECT unnest(ARRAY[a.target_id, a.accepted_id, nullif(a.pin ->> 'snapshot', '')::uuid, nullif(a.pin ->> 'bad', '')::uuid,
		                               nullif(a.pin ->> 'newest', '')::uuid])
		           FROM   application_status a WHERE a.tenant_id = $1
		           UNION ALL
		           SELECT o.snapshot_id FROM operation o
		           WHERE  o.tenant_id = $1 AND (o.phase IN ('Pending', 'Running', 'Terminating') OR o.retry_at IS NOT NULL))
		         LIMIT $4)`
	// A part of the objects that are due for a check: those in use are not
	// checked again for a while, the others are deleted. The date is checked
	// again under the row's lock, so that an object that comes into use at this
	// moment stays.
	collectObjects = `
		WITH due AS MATERIALIZED (
			SELECT o.digest FROM object o
			WHERE  o.tenant_id = $1 AND o.kept_until < $2 ORDER BY o.kept_until LIMIT $4 FOR UPDATE SKIP LOCKED
		), used AS MATERIALIZED (
			SELECT d.digest FROM due d
			WHERE  d.digest IN (
			         SELECT unnest(s.digests) FROM snapshot s WHERE s.tenant_id = $1
			         UNION ALL
			         SELECT unnest(l.lists) FROM snapshot l WHERE l.tenant_id = $1
			         UNION ALL
			         SELECT substring(h.lists FROM 32 * i + 1 FOR 32)
			         FROM   desired_head h CROSS JOIN LATERAL generate_series(0, length(h.lists) / 32 - 1) AS i
			         WHERE  h.tenant_id = $1 AND h.lists <> '')
		), kept AS (
			UPDATE object o SET kept_until = $3
			WHERE  o.tenant_id = $1 AND o.kept_until < $2 AND o.digest IN (SELECT u.digest FROM used u)
		), gone AS (
			DELETE FROM object o
			WHERE  o.tenant_id = $1 AND o.kept_until < $2 AND o.digest IN (SELECT d.digest FROM due d EXCEPT SELECT u.digest FROM used u)
		)
		SELECT FROM due`
	// The hash of a row proves the past; its body matters only while it is
	// the newest.
	collectRows = `
		UPDATE log_row SET body = ''
		WHERE  tenant_id = $1 AND (cluster_id, seq) IN (
		         SELECT r.cluster_id, r.seq FROM log_row r
		         WHERE  r.tenant_id = $1 AND r.kind = ANY ($3::smallint[]) AND r.created_at < $2 AND r.body <> ''
		           AND  NOT EXISTS (
		                  SELECT FROM desired_head h
		                  WHERE  h.tenant_id = $1 AND h.cluster_id = r.cluster_id AND h.application_id = r.application_id AND h.seq = r.seq)
		         LIMIT $4)`
	collectOperations = `
		DELETE FROM operation o
		WHERE  o.tenant_id = $1 AND o.phase IN ('Succeeded', 'Failed', 'Error') AND o.retry_at IS NULL
		  AND  o.id IN (
		         SELECT r.id FROM (
		           SELECT x.id, row_number() OVER (PARTITION BY x.application_id ORDER BY x.created_at DESC, x.id DESC) AS age
		           FROM operation x WHERE x.tenant_id = $1) r
		         WHERE r.age > $2 LIMIT $3)`
	collectAnswers = `
		DELETE FROM idempotency
		WHERE  tenant_id = $1 AND created_at < $2 AND (caller, key) IN (
		         SELECT i.caller, i.key FROM idempotency i WHERE i.tenant_id = $1 AND i.created_at < $2 ORDER BY i.created_at LIMIT $3)`
	// The oldest are deleted first, so that feed_floor rises no further than
	// what is deleted.
	collectChanges = `
		WITH gone AS (
			DELETE FROM change
			WHERE  tenant_id = $1 AND (xid, kind, ref) IN (
			         SELECT c.xid, c.kind, c.ref FROM change c
			         WHERE  c.tenant_id = $1 AND c.at < $2 AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
			         ORDER  BY c.xid, c.kind, c.ref LIMIT $3)
			RETURNING xid
		), raised AS (
			UPDATE organisation SET feed_floor = greatest(feed_floor, (SELECT max(xid) FROM gone))
			WHERE  tenant_id = $1 AND EXISTS (SELECT FROM gone)
		)
		SELECT FROM gone`

	refreshStatistics = `SELECT work.refresh_statistic()`
)

// expiring are the tables of the directory whose rows expire, and the column
// with the time.
func expiring() map[string]string {
	return map[string]string{
		"session": "expires_at", "token": "expires_at", "setup_link": "expires_at", "login_failure": "last_at",
		"known_address": "expires_at", "api_key": "expires_at",
		"join_token": "expires_at", "certificate": "not_after", "revocation": "until",
	}
}

// collectExpired removes a part of the rows of such a table.
func collectExpired(table, column string) string {
	return fmt.Sprintf(`DELETE FROM directory.%[1]s WHERE ctid = ANY (ARRAY (SELECT x.ctid FROM directory.%[1]s x WHERE x.%[2]s < $1 LIMIT $2))`, table, column)
}

// Collect removes what nothing needs any longer, a bounded part at a time, and
// reports whether there is more to remove at once. The daemon calls it for each
// tenant now and then.
func (t *Tenant) Collect(ctx context.Context, now time.Time) (more bool, err error) {
	b := &pgx.Batch{}
	full := fullParts{&more}
	full.queue(b, collectAtOnce, collectSnapshots, t.id, now.Add(-time.Hour), keepSnapshots)
	full.queue(b, collectMany, collectObjects, t.id, now, now.Add(keepObjects))
	full.queue(b, collectAtOnce, collectRows, t.id, now.Add(-keepRows), kindNumbers(hub.WhileNewest))
	full.queue(b, collectMany, trimRows, t.id, now.Add(-keepLog))
	b.Queue(collectOperations, t.id, keepOperations, collectAtOnce)
	full.queue(b, collectMany, collectAnswers, t.id, now.Add(-keepAnswers))
	full.queue(b, collectMany, collectChanges, t.id, now.Add(-keepChanges))
	full.queue(b, collectMany, collectRoleTokens, t.id, now)
	full.queue(b, collectMany, collectExchanged, t.id, now)
	full.queue(b, collectMany, collectSignIns, t.id, now)
	full.queue(b, collectMany, collectSignInTests, t.id, now)
	full.queue(b, collectMany, collectSessionClaims, t.id, now)
	full.queue(b, collectMany, collectDeviceLogins, t.id, now.Add(-keepDeviceLogins))
	full.queue(b, collectBulks, collectBulk, t.id, now.Add(-keepBulks))
	full.queue(b, collectMany, collectDeliveries, t.id, now.Add(-keepDeliveries), mostDeliveries)
	full.queue(b, collectMany, collectThreads, t.id, now.Add(-keepDeliveries))
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return false, fmt.Errorf("collect what is not needed: %w", err)
	}
	// At the end: nothing waits for a lock while it has those of snapshots.
	forgotten, err := t.forgetInputs(ctx, now.Add(-keepInputs))
	return more || forgotten >= forgetAtOnce, err
}

// fullParts notes whether a statement has found as many rows as it may delete.
type fullParts struct{ more *bool }

// queue adds a statement whose last argument is how many rows it may delete.
func (f fullParts) queue(b *pgx.Batch, most int64, statement string, args ...any) {
	b.Queue(statement, append(args, most)...).Exec(func(done pgconn.CommandTag) error {
		*f.more = *f.more || done.RowsAffected() >= most
		return nil
	})
}

// Collect removes a part of the expired rows of the directory, and reports
// whether there is more to remove at once.
func (s *System) Collect(ctx context.Context, now time.Time) (more bool, err error) {
	err = s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		more = false
		b, full := &pgx.Batch{}, fullParts{&more}
		for table, column := range expiring() {
			full.queue(b, collectMany, collectExpired(table, column), now.Add(-keepCredentials))
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("collect expired rows: %w", err)
		}
		return nil
	})
	return more, err
}

// RefreshStatistics refreshes the statistics of one of the tables that have
// grown much, and reports whether there was one. Before that the database would
// scan it instead of using an index.
func (s *System) RefreshStatistics(ctx context.Context) (refreshed bool, err error) {
	var tables int
	if err := s.db.system.QueryRow(ctx, refreshStatistics).Scan(&tables); err != nil {
		return false, classify(fmt.Errorf("refresh statistics: %w", err))
	}
	return tables > 0, nil
}
