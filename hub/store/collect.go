package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// How long things are kept that nothing needs any more.
const (
	keepSnapshots   = 10 // newest of each application, for renders of known inputs
	keepChanges     = time.Hour
	keepAnswers     = 24 * time.Hour
	keepRows        = 24 * time.Hour
	keepLog         = 7 * 24 * time.Hour
	keepOperations  = 100 // newest of each application
	collectAtOnce   = 1000
	keepCredentials = 24 * time.Hour // of the directory, after they expired
)

const (
	// History is kept, and with it every snapshot that one can go back to.
	collectSnapshots = `
		DELETE FROM snapshot s
		WHERE  s.tenant_id = $1 AND s.created_at < $2
		  AND  s.id IN (
		         SELECT r.id FROM (
		           SELECT x.id, row_number() OVER (PARTITION BY x.application_id ORDER BY x.created_at DESC, x.id DESC) AS age
		           FROM snapshot x WHERE x.tenant_id = $1) r
		         WHERE r.age > $3 LIMIT $4)
		  AND  NOT EXISTS (SELECT FROM application_status a WHERE a.tenant_id = $1 AND s.id IN (a.target_id, a.accepted_id))
		  AND  NOT EXISTS (SELECT FROM application_status a WHERE a.tenant_id = $1 AND a.application_id = s.application_id
		                   AND s.id::text IN (a.pin ->> 'snapshot', a.pin ->> 'bad'))
		  AND  NOT EXISTS (SELECT FROM history h WHERE h.tenant_id = $1 AND h.application_id = s.application_id AND h.snapshot_id = s.id)
		  AND  NOT EXISTS (SELECT FROM operation o WHERE o.tenant_id = $1 AND o.application_id = s.application_id AND o.snapshot_id = s.id
		                   AND o.phase IN ('Pending', 'Running', 'Terminating'))`
	// The date is looked at again under the row's lock, so that an object
	// that is being used at this moment stays.
	collectObjects = usedObjects + `
		DELETE FROM object o
		WHERE  o.tenant_id = $1 AND o.kept_until < $2
		  AND  o.digest IN (
		         SELECT x.digest FROM object x WHERE x.tenant_id = $1 AND x.kept_until < $2 ORDER BY x.kept_until LIMIT $3 FOR UPDATE SKIP LOCKED)
		  AND  NOT EXISTS (SELECT FROM used u WHERE u.digest = o.digest)`
	// Objects that snapshots still use are not looked at again for a while.
	keepUsedObjects = usedObjects + `
		UPDATE object o SET kept_until = $3
		WHERE  o.tenant_id = $1 AND o.kept_until < $2 AND EXISTS (SELECT FROM used u WHERE u.digest = o.digest)`
	usedObjects = `
		WITH used AS (
			SELECT unnest(s.digests) AS digest FROM snapshot s WHERE s.tenant_id = $1
			UNION
			SELECT l.list_digest FROM snapshot l WHERE l.tenant_id = $1
			UNION
			SELECT substring(h.lists FROM 32 * i + 1 FOR 32)
			FROM   desired_head h CROSS JOIN LATERAL generate_series(0, length(h.lists) / 32 - 1) AS i
			WHERE  h.tenant_id = $1 AND h.lists <> '')`
	// The hash of a row proves the past; its body matters only while it is
	// the newest.
	collectRows = `
		UPDATE log_row r SET body = ''
		WHERE  r.tenant_id = $1 AND r.kind IN (1, 5) AND r.created_at < $2 AND r.body <> ''
		  AND  NOT EXISTS (
		         SELECT FROM desired_head h
		         WHERE  h.tenant_id = $1 AND h.cluster_id = r.cluster_id AND h.application_id = r.application_id AND h.seq = r.seq)`
	collectOperations = `
		DELETE FROM operation o
		WHERE  o.tenant_id = $1 AND o.phase IN ('Succeeded', 'Failed', 'Error') AND o.retry_at IS NULL
		  AND  o.id IN (
		         SELECT r.id FROM (
		           SELECT x.id, row_number() OVER (PARTITION BY x.application_id ORDER BY x.created_at DESC, x.id DESC) AS age
		           FROM operation x WHERE x.tenant_id = $1) r
		         WHERE r.age > $2 LIMIT $3)`
	collectAnswers = `DELETE FROM idempotency WHERE tenant_id = $1 AND created_at < $2`
	collectChanges = `
		WITH gone AS (DELETE FROM change WHERE tenant_id = $1 AND at < $2 AND xid < pg_snapshot_xmin(pg_current_snapshot()) RETURNING xid)
		UPDATE organisation SET feed_floor = greatest(feed_floor, (SELECT max(xid) FROM gone))
		WHERE  tenant_id = $1 AND EXISTS (SELECT FROM gone)`

	collectSessions     = `DELETE FROM directory.session WHERE expires_at < $1`
	collectTokens       = `DELETE FROM directory.token WHERE expires_at < $1`
	collectLinks        = `DELETE FROM directory.setup_link WHERE expires_at < $1`
	collectFailures     = `DELETE FROM directory.login_failure WHERE last_at < $1`
	collectJoinTokens   = `DELETE FROM directory.join_token WHERE expires_at < $1`
	collectCertificates = `DELETE FROM directory.certificate WHERE not_after < $1`
	collectRevocations  = `DELETE FROM directory.revocation WHERE until < $1`

	refreshStatistics = `SELECT work.refresh_statistics()`
)

// Collect removes what nothing needs any more, a bounded part at a time. The
// daemon calls it for each tenant now and then.
func (t *Tenant) Collect(ctx context.Context, now time.Time) error {
	b := &pgx.Batch{}
	b.Queue(collectSnapshots, t.id, now.Add(-time.Hour), keepSnapshots, collectAtOnce)
	b.Queue(keepUsedObjects, t.id, now, now.Add(keepObjects))
	b.Queue(collectObjects, t.id, now, collectAtOnce)
	b.Queue(collectRows, t.id, now.Add(-keepRows))
	b.Queue(trimRows, t.id, now.Add(-keepLog), collectAtOnce)
	b.Queue(collectOperations, t.id, keepOperations, collectAtOnce)
	b.Queue(collectAnswers, t.id, now.Add(-keepAnswers))
	b.Queue(collectChanges, t.id, now.Add(-keepChanges))
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("collect what is not needed: %w", err)
	}
	return nil
}

// Collect removes expired rows of the directory.
func (s *System) Collect(ctx context.Context, now time.Time) error {
	return s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		for _, statement := range []string{collectSessions, collectTokens, collectLinks, collectFailures, collectJoinTokens, collectCertificates, collectRevocations} {
			b.Queue(statement, now.Add(-keepCredentials))
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("collect expired rows: %w", err)
		}
		return nil
	})
}

// RefreshStatistics lets the database look anew at tables that have grown much
// since it did, and gives their number. Until then it would read them whole
// where an index is meant.
func (s *System) RefreshStatistics(ctx context.Context) (tables int, err error) {
	if err := s.db.system.QueryRow(ctx, refreshStatistics).Scan(&tables); err != nil {
		return 0, classify(fmt.Errorf("refresh statistics: %w", err))
	}
	return tables, nil
}
