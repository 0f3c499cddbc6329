package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capstan-cd/capstan/hub"
)

const (
	countQueues = `
		SELECT kind, count(*) FILTER (WHERE token IS NULL AND due <= now()) AS due, count(*) FILTER (WHERE token IS NULL AND due > now()) AS later,
		       count(*) FILTER (WHERE token IS NOT NULL) AS leased,
		       coalesce(extract(epoch FROM now() - min(due) FILTER (WHERE token IS NULL AND due <= now())), 0)::float8 AS oldest
		FROM   work.item
		GROUP  BY kind`
	selectApplicationStats = `
		SELECT a.namespace, a.name, a.project, a.labels, coalesce(a.spec->'destination'->>'namespace', '') AS destination_namespace,
		       coalesce(a.spec->'source'->>'repoURL', a.spec->'sources'->0->>'repoURL', '') AS repo_url,
		       a.spec->'syncPolicy'->'automated' IS NOT NULL AND coalesce(a.spec->'syncPolicy'->'automated'->>'enabled', 'true') <> 'false' AS automated,
		       coalesce(nullif(c.server, ''), c.name, '') AS server, ` + shownSync + ` AS sync, ` + shownHealth + ` AS health,
		       coalesce(o.kind, '') AS operation, a.id, coalesce(a.cluster_id::text, '') AS cluster,
		       ARRAY(SELECT DISTINCT d.type FROM condition d WHERE d.tenant_id = a.tenant_id AND d.application_id = a.id ORDER BY d.type) AS conditions
		FROM   application a
		JOIN   application_status s ON s.tenant_id = a.tenant_id AND s.application_id = a.id
		LEFT   JOIN cluster c ON c.tenant_id = a.tenant_id AND c.id = a.cluster_id
		LEFT   JOIN operation o ON o.tenant_id = a.tenant_id AND o.application_id = a.id
		       AND o.phase IN ('Pending', 'Running', 'Terminating')
		WHERE  a.tenant_id = $1
		ORDER  BY a.id
		LIMIT  $2`
	clusterFigures = `
		SELECT c.id, c.name, coalesce(nullif(c.server, ''), c.name) AS server, c.kube_version, cardinality(c.api_versions) AS api_versions,
		       coalesce(p.connected, false) AS connected, coalesce(p.replica, '') AS replica,
		       greatest(coalesce(h.seq, 0) - coalesce(a.acked_seq, 0), 0) AS lag_rows,
		       coalesce((SELECT extract(epoch FROM now() - r.created_at) FROM log_row r
		                 WHERE r.tenant_id = c.tenant_id AND r.cluster_id = c.id AND r.seq = coalesce(a.acked_seq, 0) + 1), 0)::float8 AS lag_seconds
		FROM   cluster c
		LEFT   JOIN directory.my_presence p ON p.cluster_id = c.id
		LEFT   JOIN log_head h ON h.tenant_id = c.tenant_id AND h.cluster_id = c.id
		LEFT   JOIN log_ack a ON a.tenant_id = c.tenant_id AND a.cluster_id = c.id
		WHERE  c.tenant_id = $1
		ORDER  BY c.id
		LIMIT  $2`
)

// Queues returns how much work of each kind waits.
func (s *System) Queues(ctx context.Context) ([]hub.QueueFigures, error) {
	out, err := list(ctx, s.db.system, "queues", pgx.RowToStructByName[hub.QueueFigures], countQueues)
	return out, classify(err)
}

// ApplicationFigures returns up to limit applications for metrics.
func (t *Tenant) ApplicationFigures(ctx context.Context, limit int) ([]hub.ApplicationFigures, error) {
	return list(ctx, t.tx, "figures of applications", pgx.RowToStructByName[hub.ApplicationFigures], selectApplicationStats, t.id, limit)
}

// ClusterFigures returns up to limit clusters for metrics.
func (t *Tenant) ClusterFigures(ctx context.Context, limit int) ([]hub.ClusterFigures, error) {
	return list(ctx, t.tx, "figures of clusters", pgx.RowToStructByName[hub.ClusterFigures], clusterFigures, t.id, limit)
}

// PoolStats are figures of one pool of connections.
type PoolStats struct {
	Name          string
	Open, InUse   int32
	Max           int32
	Acquired      int64         // since the start
	Waited        int64         // of those, with no connection free
	Wait          time.Duration // of all together
	AcquireFailed int64         // given up by the caller
}

// Pools returns the figures of the connection pools.
func (db *DB) Pools() []PoolStats {
	one := func(name string, p *pgxpool.Pool) PoolStats {
		s := p.Stat()
		return PoolStats{
			Name: name, Open: s.TotalConns(), InUse: s.AcquiredConns(), Max: s.MaxConns(), Acquired: s.AcquireCount(),
			Waited: s.EmptyAcquireCount(), Wait: s.EmptyAcquireWaitTime(), AcquireFailed: s.CanceledAcquireCount(),
		}
	}
	app, turns := one("app", db.app), db.slots.Stats()
	app.Waited += turns.Waited
	app.Wait += turns.Wait
	app.AcquireFailed += turns.Canceled
	return []PoolStats{app, one("system", db.system)}
}
