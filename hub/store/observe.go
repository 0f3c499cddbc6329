package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/buckets"
)

const (
	lockObserved = `
		SELECT cluster_id::text, epoch, seq, snapshot, mark FROM observed
		WHERE  tenant_id = $1 AND cluster_id = ANY ($2::uuid[]) ORDER BY cluster_id FOR UPDATE`
	moveObserved = `
		UPDATE observed o SET epoch = u.epoch, seq = u.seq, snapshot = u.snapshot, mark = u.mark
		FROM   unnest($2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u (cluster, epoch, seq, snapshot, mark)
		WHERE  o.tenant_id = $1 AND o.cluster_id = u.cluster`
	lazyCommit = `SELECT set_config('synchronous_commit', 'off', true)`
	// An agent speaks for the applications whose destination is its cluster,
	// and for those that its log still holds.
	selectHere = `
		SELECT a.id FROM application a
		WHERE  a.tenant_id = $1 AND a.id = ANY ($3::uuid[])
		  AND (a.cluster_id = $2 OR EXISTS (
		         SELECT FROM desired_head h WHERE h.tenant_id = $1 AND h.application_id = a.id AND h.cluster_id = $2))`

	// Sync is believed only for the target that it was compared with; health
	// is that of live objects, whatever the target.
	observeApps = `
		WITH said AS (
			SELECT s.application_id, u.generation, u.health, u.cause,
			       CASE WHEN nullif(u.target, '')::uuid = s.target_id THEN u.sync ELSE s.sync END AS sync,
			       CASE WHEN nullif(u.target, '')::uuid = s.target_id THEN u.at ELSE s.compared_at END AS compared_at,
			       CASE WHEN s.health = u.health AND s.health_since IS NOT NULL THEN s.health_since ELSE u.at END AS health_since
			FROM   unnest($2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::timestamptz[])
			       AS u (app, target, generation, sync, health, cause, at)
			JOIN   application_status s ON s.tenant_id = $1 AND s.application_id = u.app AND s.observed_generation <= u.generation
		)
		UPDATE application_status s
		SET    sync = n.sync, compared_at = n.compared_at, health = n.health, health_cause = n.cause, health_since = n.health_since,
		       observed_generation = n.generation
		FROM   said n
		WHERE  s.tenant_id = $1 AND s.application_id = n.application_id
		  AND  (s.sync, s.compared_at, s.health, s.health_cause, s.health_since, s.observed_generation)
		       IS DISTINCT FROM (n.sync, n.compared_at, n.health, n.cause, n.health_since, n.generation)
		RETURNING s.application_id`

	// A phase never goes back: what is over stays over, and what a person
	// terminates does not run again.
	observeOperations = `
		WITH said AS (
			SELECT o.id, o.phase AS before, u.*
			FROM   unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[], $9::timestamptz[])
			       AS u (operation, phase, message, results, started_at, finished_at, healthy_at)
			JOIN   operation o ON o.tenant_id = $1 AND o.cluster_id = $2 AND o.id = u.operation
		), moved AS (
			SELECT s.*, s.before IN ('Succeeded', 'Failed', 'Error') AS was_over,
			       s.phase IN ('Succeeded', 'Failed', 'Error') AS is_over,
			       CASE WHEN s.before = 'Terminating' AND s.phase IN ('Pending', 'Running') THEN s.before
			            WHEN s.before = 'Running' AND s.phase = 'Pending' THEN s.before ELSE s.phase END AS now
			FROM   said s
		)
		UPDATE operation o
		SET    phase       = CASE WHEN m.was_over THEN o.phase ELSE m.now END,
		       message     = CASE WHEN m.was_over THEN o.message ELSE m.message END,
		       results     = CASE WHEN m.was_over THEN o.results ELSE coalesce(m.results::json, o.results) END,
		       started_at  = coalesce(o.started_at, m.started_at),
		       finished_at = CASE WHEN m.was_over OR NOT m.is_over THEN o.finished_at ELSE coalesce(m.finished_at, $10) END,
		       healthy_at  = coalesce(o.healthy_at, m.healthy_at)
		FROM   moved m
		WHERE  o.tenant_id = $1 AND o.id = m.id
		  AND  (NOT m.was_over OR (o.healthy_at IS NULL AND m.healthy_at IS NOT NULL))
		RETURNING o.id, o.application_id, m.is_over AND NOT m.was_over`

	// A delete operation whose own result was lost with the agent's state.
	endDeletions = `
		UPDATE operation o
		SET    phase = 'Succeeded', message = 'nothing of the application is left in the cluster', finished_at = $5
		FROM   unnest($3::uuid[], $4::bigint[]) AS u (app, generation)
		WHERE  o.tenant_id = $1 AND o.cluster_id = $2 AND o.application_id = u.app AND o.kind = 'delete' AND o.fence <= u.generation
		  AND  o.phase IN ('Pending', 'Running', 'Terminating')
		RETURNING o.id, o.application_id, true`

	deleteGone = `
		DELETE FROM resource r
		USING  unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) AS u (app, uid, api_group, kind, namespace, name)
		WHERE  r.tenant_id = $1 AND r.cluster_id = $2 AND r.application_id = u.app
		  AND  r.kind = u.kind AND r.namespace = u.namespace AND r.name = u.name AND r.api_group = u.api_group
		  AND  (u.uid = '' OR r.uid = u.uid OR r.uid = '')
		RETURNING r.application_id`
	deleteGoneUIDs = `
		DELETE FROM resource r
		USING  unnest($3::uuid[], $4::text[]) AS u (app, uid)
		WHERE  r.tenant_id = $1 AND r.cluster_id = $2 AND r.application_id = u.app AND r.uid = u.uid
		RETURNING r.application_id`
	touchResources = `
		UPDATE resource r SET mark = $3
		FROM   unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bigint[]) AS u (app, api_group, kind, namespace, name, hash, leaf)
		WHERE  r.tenant_id = $1 AND r.cluster_id = $2 AND r.application_id = u.app
		  AND  r.kind = u.kind AND r.namespace = u.namespace AND r.name = u.name AND r.api_group = u.api_group
		  AND  r.hash = u.hash AND r.leaf = u.leaf AND r.mark <> $3`
	upsertResources = `
		INSERT INTO resource AS r (tenant_id, cluster_id, mark, updated_at, application_id, api_group, kind, namespace, name, hash,
		                           version, uid, parent, managed, sync, health, message, requires_prune, hook, wave, diff, info, born_at, bucket, leaf, links, confirm)
		SELECT $1, $2, $3, $10, u.app, u.api_group, u.kind, u.namespace, u.name, u.hash,
		       u.version, u.uid, u.parent, u.managed, u.sync, u.health, u.message, u.requires_prune, u.hook, u.wave, u.diff, u.info::json, u.born_at, u.bucket, u.leaf, u.links::json, u.confirm
		FROM   unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $11::text[], $12::text[], $13::text[], $14::boolean[],
		              $15::text[], $16::text[], $17::text[], $18::boolean[], $19::boolean[], $20::integer[], $21::text[], $22::text[], $23::timestamptz[], $24::integer[], $25::bigint[], $26::text[], $27::boolean[])
		       AS u (app, api_group, kind, namespace, name, hash, version, uid, parent, managed, sync, health, message, requires_prune, hook, wave, diff, info, born_at, bucket, leaf, links, confirm)
		ON CONFLICT (tenant_id, application_id, cluster_id, kind, namespace, name, api_group) DO UPDATE
		SET    mark = excluded.mark, updated_at = excluded.updated_at, hash = excluded.hash, version = excluded.version, uid = excluded.uid,
		       parent = excluded.parent, managed = excluded.managed, sync = excluded.sync, health = excluded.health, message = excluded.message,
		       requires_prune = excluded.requires_prune, hook = excluded.hook, wave = excluded.wave, diff = excluded.diff, info = excluded.info,
		       born_at = excluded.born_at, bucket = excluded.bucket, leaf = excluded.leaf, links = excluded.links, confirm = excluded.confirm
		WHERE  r.hash <> excluded.hash OR r.leaf <> excluded.leaf
		RETURNING r.application_id`
	sweepResources = `DELETE FROM resource WHERE tenant_id = $1 AND cluster_id = $2 AND mark <> $3 RETURNING application_id`
	sweepBuckets   = `DELETE FROM resource WHERE tenant_id = $1 AND cluster_id = $2 AND mark <> $3 AND bucket = ANY ($4::integer[]) RETURNING application_id`
)

// queueObservation writes a report. The operations that became over are in
// over once the batch is done.
func (t *Tenant) queueObservation(b *pgx.Batch, cluster hub.ClusterID, o hub.Observation, at progress, over *[]hub.OperationID) error {
	apps, gone := o.Applications[:0:0], o.Applications[:0:0]
	for _, a := range o.Applications {
		if a.Gone {
			gone = append(gone, a)
			continue
		}
		apps = append(apps, a)
	}
	t.queueApps(b, apps)
	t.queueStamps(b, cluster, o.Applications, at.mark)
	if err := t.queueOperations(b, cluster, o.Operations, over); err != nil {
		return err
	}
	t.queueDeletions(b, cluster, gone, over)
	t.queueGone(b, cluster, o.Gone)
	if err := t.queueResources(b, cluster, o.Resources, at.mark); err != nil {
		return err
	}
	switch {
	case at.sweep && o.Bounded:
		b.Queue(sweepBuckets, t.id, cluster, at.mark, integers(o.Buckets)).Query(t.touchApps(changeResources))
		b.Queue(sweepStamps, t.id, cluster, at.mark, integers(o.Buckets))
	case at.sweep:
		b.Queue(sweepResources, t.id, cluster, at.mark).Query(t.touchApps(changeResources))
	}
	if len(o.Closed) > 0 {
		stones := make([]hub.Tombstone, len(o.Closed))
		for i, s := range o.Closed {
			s.Cluster = cluster
			stones[i] = s
		}
		c := stoneColumns(stones)
		b.Queue(closeTombstones, t.id, c.app, c.cluster, c.group, c.kind, c.namespace, c.name)
	}
	return nil
}

// touchApps puts the applications that a statement returns into the feed.
func (t *Tenant) touchApps(kind string) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			t.changed(kind, id)
			return nil
		})
		return err
	}
}

func (t *Tenant) queueApps(b *pgx.Batch, apps []hub.ApplicationObservation) {
	if len(apps) == 0 {
		return
	}
	var app, target, sync, health, cause []string
	var generation []int64
	var compared []time.Time
	for _, a := range apps {
		if !hub.ValidID(string(a.Target)) {
			a.Target = ""
		}
		app, target, generation = append(app, string(a.Application)), append(target, string(a.Target)), append(generation, a.Generation)
		sync, health, cause = append(sync, string(a.Sync)), append(health, string(a.Health)), append(cause, clean(a.HealthCause))
		compared = append(compared, micro(a.ComparedAt))
	}
	b.Queue(lockStatus, t.id, app)
	b.Queue(observeApps, t.id, app, target, generation, sync, health, cause, compared).Query(t.touchApps(changeApplication))
}

func (t *Tenant) queueOperations(b *pgx.Batch, cluster hub.ClusterID, ops []hub.OperationObservation, over *[]hub.OperationID) error {
	if len(ops) == 0 {
		return nil
	}
	var id, phase, message []string
	var results []*string
	var started, finished, healthy []*time.Time
	for _, op := range ops {
		var text *string
		if op.Results != nil {
			s, err := jsonText(op.Results)
			if err != nil {
				return err
			}
			text = &s
		}
		id, phase, message, results = append(id, string(op.Operation)), append(phase, string(op.Phase)), append(message, clean(op.Message)), append(results, text)
		started, finished, healthy = append(started, op.StartedAt), append(finished, op.FinishedAt), append(healthy, op.HealthyAt)
	}
	now := micro(time.Now())
	b.Queue(observeOperations, t.id, cluster, id, phase, message, results, started, finished, healthy, now).Query(t.ended(now, over))
	return nil
}

// queueDeletions ends the deletions of applications of which an agent says
// that nothing is left: that they ended is known even if the result is lost.
func (t *Tenant) queueDeletions(b *pgx.Batch, cluster hub.ClusterID, gone []hub.ApplicationObservation, over *[]hub.OperationID) {
	if len(gone) == 0 {
		return
	}
	var app []string
	var generation []int64
	for _, a := range gone {
		app, generation = append(app, string(a.Application)), append(generation, a.Generation)
	}
	now := micro(time.Now())
	b.Queue(endDeletions, t.id, cluster, app, generation, now).Query(t.ended(now, over))
}

// ended enqueues what follows from operations that became over.
func (t *Tenant) ended(now time.Time, over *[]hub.OperationID) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id, app string
		var ended bool
		_, err := pgx.ForEachRow(rows, []any{&id, &app, &ended}, func() error {
			t.changed(changeOperation, id)
			t.changed(changeApplication, app)
			if ended {
				*over = append(*over, hub.OperationID(id))
				t.enqueue(hub.WorkOutcome, id, now, false)
			}
			return nil
		})
		return err
	}
}

func (t *Tenant) queueGone(b *pgx.Batch, cluster hub.ClusterID, gone []hub.ResourceGone) {
	var app, uid, group, kind, namespace, name, byUID, uids []string
	for _, g := range gone {
		if g.Kind == "" {
			if g.UID != "" {
				byUID, uids = append(byUID, string(g.Application)), append(uids, g.UID)
			}
			continue
		}
		app, uid, group = append(app, string(g.Application)), append(uid, g.UID), append(group, g.Group)
		kind, namespace, name = append(kind, g.Kind), append(namespace, g.Namespace), append(name, g.Name)
	}
	if len(app) > 0 {
		b.Queue(deleteGone, t.id, cluster, app, uid, group, kind, namespace, name).Query(t.touchApps(changeResources))
	}
	if len(uids) > 0 {
		b.Queue(deleteGoneUIDs, t.id, cluster, byUID, uids).Query(t.touchApps(changeResources))
	}
}

func (t *Tenant) queueResources(b *pgx.Batch, cluster hub.ClusterID, resources []hub.Resource, mark int64) error {
	if len(resources) == 0 {
		return nil
	}
	n := len(resources)
	app, group, kind, namespace, name := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	version, uid, parent, sync, health := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	message, diff, info := make([]string, n), make([]string, n), make([]*string, n)
	managed, prune, hook := make([]bool, n), make([]bool, n), make([]bool, n)
	wave, born, hash := make([]int32, n), make([]*time.Time, n), make([][]byte, n)
	bucket, leaf := make([]int32, n), make([]int64, n)
	links, confirm := make([]*string, n), make([]bool, n)
	for i := range resources {
		r := &resources[i]
		text, sum, err := fingerprint(*r)
		if err != nil {
			return err
		}
		if links[i], err = listText(r.Links); err != nil {
			return err
		}
		confirm[i] = r.Confirm
		app[i], group[i], kind[i], namespace[i], name[i] = string(r.Application), r.Group, r.Kind, r.Namespace, r.Name
		version[i], uid[i], parent[i], sync[i], health[i] = r.Version, r.UID, r.Parent, string(r.Sync), string(r.Health)
		message[i], diff[i], info[i] = clean(r.Message), clean(r.DiffSummary), text
		managed[i], prune[i], hook[i] = r.Managed, r.RequiresPrune, r.Hook
		wave[i], born[i], hash[i] = r.Wave, r.CreatedAt, sum
		bucket[i], leaf[i] = stamped(buckets.Resource(string(r.Application), r.Group, r.Kind, r.Namespace, r.Name), r.Stamp)
	}
	b.Queue(touchResources, t.id, cluster, mark, app, group, kind, namespace, name, hash, leaf)
	b.Queue(upsertResources, t.id, cluster, mark, app, group, kind, namespace, name, hash, micro(time.Now()),
		version, uid, parent, managed, sync, health, message, prune, hook, wave, diff, info, born, bucket, leaf, links, confirm).Query(t.touchApps(changeResources))
	return nil
}

// agentConditions replaces what the agent says about applications.
func (t *Tenant) agentConditions(ctx context.Context, apps []hub.ApplicationObservation) error {
	if len(apps) == 0 {
		return nil
	}
	var all []hub.ApplicationID
	var now []said
	for _, a := range apps {
		all = append(all, a.Application)
		if a.Error != "" {
			now = append(now, said{a.Application, hub.ComparisonError, a.Error})
		}
		for _, w := range a.Warnings {
			now = append(now, said{a.Application, hub.AgentWarning, w})
		}
		for _, n := range a.Notes {
			now = append(now, said{a.Application, n.Type, n.Message})
		}
		for _, w := range a.Excluded {
			now = append(now, said{a.Application, hub.ExcludedWarning, w})
		}
	}
	types := []string{hub.ComparisonError, hub.AgentWarning, hub.SharedWarning, hub.OrphanedWarning, hub.ExcludedWarning}
	return t.replaceConditions(ctx, byAgent, types, all, now)
}
