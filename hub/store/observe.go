package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/buckethash"
)

const (
	lockObserved = `
		SELECT cluster_id::text, epoch, seq, snapshot, mark FROM observed
		WHERE  tenant_id = $1 AND cluster_id = ANY ($2::uuid[]) ORDER BY cluster_id FOR UPDATE`
	moveObserved = `
		UPDATE observed o SET epoch = u.epoch, seq = u.seq, snapshot = u.snapshot, mark = u.mark
		FROM   unnest(@clusters::uuid[], @epochs::text[], @seqs::bigint[], @snapshots::bigint[], @marks::bigint[]) AS u (cluster, epoch, seq, snapshot, mark)
		WHERE  o.tenant_id = @tenant AND o.cluster_id = u.cluster`
	lazyCommit = `SELECT set_config('synchronous_commit', 'off', true)`
	// By default the server plans the statements below again for every few
	// reports, which costs more than to run them. It assumes ten rows for
	// unknown arrays, and plans for one row cost less than for ten. Their
	// lookups use a key. The plans are made again when the statistics of a
	// table change.
	planOnce = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true)`
	// An agent may report the applications whose destination is its cluster,
	// and those that its log still contains.
	selectHere = `
		SELECT u.cluster, a.id
		FROM   unnest($2::uuid[], $3::uuid[]) AS u (cluster, app)
		JOIN   application a ON a.tenant_id = $1 AND a.id = u.app
		WHERE  a.cluster_id = u.cluster OR EXISTS (
		         SELECT FROM desired_head h WHERE h.tenant_id = $1 AND h.application_id = u.app AND h.cluster_id = u.cluster)`

	// Sync is valid only for the target that it was compared with; health is
	// that of live objects, whatever the target.
	observeApps = `
		WITH said AS (
			SELECT s.application_id, u.generation, u.health, u.cause,
			       CASE WHEN nullif(u.target, '')::uuid = s.target_id THEN u.sync ELSE s.sync END AS sync,
			       CASE WHEN nullif(u.target, '')::uuid = s.target_id THEN u.at ELSE s.compared_at END AS compared_at,
			       CASE WHEN s.health = u.health AND s.health_since IS NOT NULL THEN s.health_since ELSE u.at END AS health_since
			FROM   unnest(@apps::uuid[], @targets::text[], @generations::bigint[], @syncs::text[], @healths::text[], @causes::text[], @times::timestamptz[])
			       AS u (app, target, generation, sync, health, cause, at)
			JOIN   application_status s ON s.tenant_id = @tenant AND s.application_id = u.app AND s.observed_generation <= u.generation
		)
		UPDATE application_status s
		SET    sync = n.sync, compared_at = n.compared_at, health = n.health, health_cause = n.cause, health_since = n.health_since,
		       observed_generation = n.generation
		FROM   said n
		WHERE  s.tenant_id = @tenant AND s.application_id = n.application_id
		  AND  (s.sync, s.compared_at, s.health, s.health_cause, s.health_since, s.observed_generation)
		       IS DISTINCT FROM (n.sync, n.compared_at, n.health, n.cause, n.health_since, n.generation)
		RETURNING s.application_id`

	// A phase never goes back: what is over stays over, and what a person
	// terminates does not run again.
	observeOperations = `
		WITH said AS (
			SELECT o.id, o.phase AS before, u.*
			FROM   unnest(@clusters::uuid[], @operations::uuid[], @phases::text[], @messages::text[], @results::text[], @started::timestamptz[], @finished::timestamptz[], @healthy::timestamptz[])
			       AS u (cluster, operation, phase, message, results, started_at, finished_at, healthy_at)
			JOIN   operation o ON o.tenant_id = @tenant AND o.id = u.operation AND o.cluster_id = u.cluster
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
		       finished_at = CASE WHEN m.was_over OR NOT m.is_over THEN o.finished_at ELSE coalesce(m.finished_at, @now) END,
		       healthy_at  = coalesce(o.healthy_at, m.healthy_at)
		FROM   moved m
		WHERE  o.tenant_id = @tenant AND o.id = m.id
		  AND  (NOT m.was_over OR (o.healthy_at IS NULL AND m.healthy_at IS NOT NULL))
		RETURNING o.cluster_id, o.id, o.application_id, m.is_over AND NOT m.was_over`

	unblockOperations = `
		UPDATE operation o SET unblocked = true
		FROM   unnest($2::uuid[], $3::uuid[], $4::uuid[]) AS u (cluster, app, operation)
		WHERE  o.tenant_id = $1 AND o.id = u.operation AND o.application_id = u.app AND o.cluster_id = u.cluster AND NOT o.unblocked
		RETURNING o.application_id`

	// A delete operation whose own result was lost with the agent's state.
	endDeletions = `
		UPDATE operation o
		SET    phase = 'Succeeded', message = 'nothing of the application is left in the cluster', finished_at = @now
		FROM   unnest(@clusters::uuid[], @apps::uuid[], @generations::bigint[]) AS u (cluster, app, generation)
		WHERE  o.tenant_id = @tenant AND o.cluster_id = u.cluster AND o.application_id = u.app AND o.kind = 'delete' AND o.fence <= u.generation
		  AND  o.phase IN ('Pending', 'Running', 'Terminating')
		RETURNING o.cluster_id, o.id, o.application_id, true`

	deleteGone = `
		DELETE FROM resource r
		USING  unnest(@clusters::uuid[], @apps::uuid[], @uids::text[], @groups::text[], @kinds::text[], @namespaces::text[], @names::text[])
		       AS u (cluster, app, uid, api_group, kind, namespace, name)
		WHERE  r.tenant_id = @tenant AND r.cluster_id = u.cluster AND r.application_id = u.app
		  AND  r.kind = u.kind AND r.namespace = u.namespace AND r.name = u.name AND r.api_group = u.api_group
		  AND  (u.uid = '' OR r.uid = u.uid OR r.uid = '')
		RETURNING r.application_id`
	deleteGoneUIDs = `
		DELETE FROM resource r
		USING  unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (cluster, app, uid)
		WHERE  r.tenant_id = $1 AND r.cluster_id = u.cluster AND r.application_id = u.app AND r.uid = u.uid
		RETURNING r.application_id`
	touchResources = `
		UPDATE resource r SET mark = u.mark
		FROM   unnest(@clusters::uuid[], @marks::bigint[], @apps::uuid[], @groups::text[], @kinds::text[], @namespaces::text[], @names::text[], @hashes::bytea[], @leaves::bigint[])
		       AS u (cluster, mark, app, api_group, kind, namespace, name, hash, leaf)
		WHERE  r.tenant_id = @tenant AND r.cluster_id = u.cluster AND r.application_id = u.app
		  AND  r.kind = u.kind AND r.namespace = u.namespace AND r.name = u.name AND r.api_group = u.api_group
		  AND  r.hash = u.hash AND r.leaf = u.leaf AND r.mark <> u.mark`
	upsertResources = `
		INSERT INTO resource AS r (tenant_id, cluster_id, mark, updated_at, application_id, api_group, kind, namespace, name, hash,
		                           version, uid, parent, managed, sync, health, message, requires_prune, hook, wave, diff, info, born_at, bucket, leaf, links, confirm)
		SELECT @tenant, u.cluster, u.mark, @now, u.app, u.api_group, u.kind, u.namespace, u.name, u.hash,
		       u.version, u.uid, u.parent, u.managed, u.sync, u.health, u.message, u.requires_prune, u.hook, u.wave, u.diff, u.info::json, u.born_at, u.bucket, u.leaf, u.links::json, u.confirm
		FROM   unnest(@clusters::uuid[], @marks::bigint[], @apps::uuid[], @groups::text[], @kinds::text[], @namespaces::text[], @names::text[], @hashes::bytea[], @versions::text[], @uids::text[], @parents::text[], @managed::boolean[],
		              @syncs::text[], @healths::text[], @messages::text[], @requires_prune::boolean[], @hooks::boolean[], @waves::integer[], @diffs::text[], @infos::text[], @born::timestamptz[], @buckets::integer[], @leaves::bigint[], @links::text[], @confirms::boolean[])
		       AS u (cluster, mark, app, api_group, kind, namespace, name, hash, version, uid, parent, managed, sync, health, message, requires_prune, hook, wave, diff, info, born_at, bucket, leaf, links, confirm)
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

// A report is what is stored of one report, and its answer.
type report struct {
	cluster hub.ClusterID
	hub.Observation
	at  progress
	out *hub.Observed
}

// mostRows is how many rows of resources one statement writes, as a rule: a
// report is never divided.
const mostRows = 5000

// queueObservations writes reports of different clusters and applications: one
// statement of each kind for all of them. Ended operations are in their results
// once the batch is done.
func (t *Tenant) queueObservations(b *pgx.Batch, reports []report) error {
	t.queueApps(b, reports)
	t.queueStamps(b, reports)
	if err := t.queueOperations(b, reports); err != nil {
		return err
	}
	t.queueUnblocked(b, reports)
	t.queueDeletions(b, reports)
	t.queueGone(b, reports)
	var c resourceColumns
	for _, r := range reports {
		if err := c.add(r); err != nil {
			return fmt.Errorf("observation of cluster %q: %w", r.cluster, err)
		}
		if len(c.app) >= mostRows {
			t.queueResources(b, c)
			c = resourceColumns{}
		}
	}
	t.queueResources(b, c)
	var tombstones []hub.Tombstone
	for _, r := range reports {
		t.queueSweep(b, r)
		for _, s := range r.Closed {
			s.Cluster = r.cluster
			tombstones = append(tombstones, s)
		}
	}
	if len(tombstones) > 0 {
		c := tombstoneColumnsOf(tombstones)
		b.Queue(closeTombstones, pgx.StrictNamedArgs{
			"tenant": t.id, "apps": c.app, "clusters": c.cluster, "groups": c.group, "kinds": c.kind, "namespaces": c.namespace,
			"names": c.name,
		})
	}
	return nil
}

// queueSweep removes what a snapshot that is complete now did not name.
func (t *Tenant) queueSweep(b *pgx.Batch, r report) {
	switch {
	case r.at.sweep && r.Bounded:
		b.Queue(sweepBuckets, t.id, r.cluster, r.at.version, integers(r.Buckets)).Query(t.touchApps(changeResources))
		b.Queue(sweepStamps, t.id, r.cluster, r.at.version, integers(r.Buckets))
	case r.at.sweep:
		b.Queue(sweepResources, t.id, r.cluster, r.at.version).Query(t.touchApps(changeResources))
	}
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

func (t *Tenant) queueApps(b *pgx.Batch, reports []report) {
	var app, target, sync, health, cause []string
	var generation []int64
	var compared []time.Time
	for _, r := range reports {
		for _, a := range r.Applications {
			if a.Gone {
				continue
			}
			if !hub.ValidID(string(a.Target)) {
				a.Target = ""
			}
			app, target, generation = append(app, string(a.Application)), append(target, string(a.Target)), append(generation, a.Generation)
			sync, health, cause = append(sync, string(a.Sync)), append(health, string(a.Health)), append(cause, clean(a.HealthCause))
			compared = append(compared, micro(a.ComparedAt))
		}
	}
	if len(app) == 0 {
		return
	}
	b.Queue(lockStatus, t.id, app)
	b.Queue(observeApps, pgx.StrictNamedArgs{
		"tenant": t.id, "apps": app, "targets": target, "generations": generation, "syncs": sync, "healths": health,
		"causes": cause, "times": compared,
	}).Query(t.touchApps(changeApplication))
}

func (t *Tenant) queueOperations(b *pgx.Batch, reports []report) error {
	var cluster, id, phase, message []string
	var results []*string
	var started, finished, healthy []*time.Time
	for _, r := range reports {
		for _, op := range r.Operations {
			var text *string
			if op.Results != nil {
				s, err := jsonText(op.Results)
				if err != nil {
					return fmt.Errorf("observation of cluster %q: %w", r.cluster, err)
				}
				text = &s
			}
			cluster, id, phase = append(cluster, string(r.cluster)), append(id, string(op.Operation)), append(phase, string(op.Phase))
			message, results = append(message, clean(op.Message)), append(results, text)
			started, finished, healthy = append(started, op.StartedAt), append(finished, op.FinishedAt), append(healthy, op.HealthyAt)
		}
	}
	if len(id) == 0 {
		return nil
	}
	now := micro(time.Now())
	b.Queue(observeOperations, pgx.StrictNamedArgs{
		"tenant": t.id, "clusters": cluster, "operations": id, "phases": phase, "messages": message, "results": results,
		"started": started, "finished": finished, "healthy": healthy, "now": now,
	}).Query(t.ended(now, reports))
	return nil
}

// queueUnblocked notes which operations failed for a reason that is gone, and
// has their applications decided about again: once for each operation.
func (t *Tenant) queueUnblocked(b *pgx.Batch, reports []report) {
	var cluster, app, operation []string
	for _, r := range reports {
		for _, a := range r.Applications {
			if !a.Gone && hub.ValidID(string(a.Unblocked)) {
				cluster, app, operation = append(cluster, string(r.cluster)), append(app, string(a.Application)), append(operation, string(a.Unblocked))
			}
		}
	}
	if len(app) == 0 {
		return
	}
	now := micro(time.Now())
	b.Queue(unblockOperations, t.id, cluster, app, operation).Query(func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			t.changed(changeApplication, id)
			t.enqueue(hub.WorkRefresh, id, now, false)
			return nil
		})
		return err
	})
}

// queueDeletions ends the deletions of applications of which an agent reports
// that nothing is left: that they ended is known even if the result is lost.
func (t *Tenant) queueDeletions(b *pgx.Batch, reports []report) {
	var cluster, app []string
	var generation []int64
	for _, r := range reports {
		for _, a := range r.Applications {
			if a.Gone {
				cluster, app, generation = append(cluster, string(r.cluster)), append(app, string(a.Application)), append(generation, a.Generation)
			}
		}
	}
	if len(app) == 0 {
		return
	}
	now := micro(time.Now())
	b.Queue(endDeletions, pgx.StrictNamedArgs{
		"tenant": t.id, "clusters": cluster, "apps": app, "generations": generation, "now": now,
	}).Query(t.ended(now, reports))
}

// ended enqueues what follows from operations that became over, and notes them
// in the answers to the reports of their clusters.
func (t *Tenant) ended(now time.Time, reports []report) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		answers := make(map[hub.ClusterID]*hub.Observed, len(reports))
		for _, r := range reports {
			answers[r.cluster] = r.out
		}
		var cluster hub.ClusterID
		var id, app string
		var ended bool
		_, err := pgx.ForEachRow(rows, []any{&cluster, &id, &app, &ended}, func() error {
			t.changed(changeOperation, id)
			t.changed(changeApplication, app)
			if ended {
				out := answers[cluster]
				out.Over = append(out.Over, hub.OperationID(id))
				t.enqueue(hub.WorkOutcome, id, now, false)
			}
			return nil
		})
		return err
	}
}

func (t *Tenant) queueGone(b *pgx.Batch, reports []report) {
	var cluster, app, uid, group, kind, namespace, name []string
	var clusterOf, appOf, uids []string
	for _, r := range reports {
		for _, g := range r.Gone {
			if g.Kind == "" {
				if g.UID != "" {
					clusterOf, appOf, uids = append(clusterOf, string(r.cluster)), append(appOf, string(g.Application)), append(uids, g.UID)
				}
				continue
			}
			cluster, app, uid, group = append(cluster, string(r.cluster)), append(app, string(g.Application)), append(uid, g.UID), append(group, g.Group)
			kind, namespace, name = append(kind, g.Kind), append(namespace, g.Namespace), append(name, g.Name)
		}
	}
	if len(app) > 0 {
		b.Queue(deleteGone, pgx.StrictNamedArgs{
			"tenant": t.id, "clusters": cluster, "apps": app, "uids": uid, "groups": group, "kinds": kind, "namespaces": namespace,
			"names": name,
		}).Query(t.touchApps(changeResources))
	}
	if len(uids) > 0 {
		b.Queue(deleteGoneUIDs, t.id, clusterOf, appOf, uids).Query(t.touchApps(changeResources))
	}
}

// resourceColumns are rows of resources, a slice for each column.
type resourceColumns struct {
	resourceKeys
	resourceStates
	bucket     []int32
	mark, leaf []int64
	hash       [][]byte
}

// resourceKeys name resources.
type resourceKeys struct {
	cluster, app, group, kind, namespace, name []string
}

// resourceStates are the states of resources in reports.
type resourceStates struct {
	version, uid, parent          []string
	sync, health, message, diff   []string
	info, links                   []*string
	managed, prune, hook, confirm []bool
	wave                          []int32
	born                          []*time.Time
}

// add adds the resources of a report.
func (c *resourceColumns) add(of report) error {
	for i := range of.Resources {
		r := &of.Resources[i]
		info, sum, err := fingerprint(*r)
		if err != nil {
			return err
		}
		links, err := listText(r.Links)
		if err != nil {
			return err
		}
		bucket, leaf := stamped(buckethash.Resource(string(r.Application), r.Group, r.Kind, r.Namespace, r.Name), r.Stamp)
		c.cluster, c.mark, c.app = append(c.cluster, string(of.cluster)), append(c.mark, of.at.version), append(c.app, string(r.Application))
		c.group, c.kind, c.namespace, c.name = append(c.group, r.Group), append(c.kind, r.Kind), append(c.namespace, r.Namespace), append(c.name, r.Name)
		c.version, c.uid, c.parent = append(c.version, r.Version), append(c.uid, r.UID), append(c.parent, r.Parent)
		c.sync, c.health = append(c.sync, string(r.Sync)), append(c.health, string(r.Health))
		c.message, c.diff = append(c.message, clean(r.Message)), append(c.diff, clean(r.DiffSummary))
		c.info, c.links, c.hash = append(c.info, info), append(c.links, links), append(c.hash, sum)
		c.managed, c.prune, c.hook, c.confirm = append(c.managed, r.Managed), append(c.prune, r.RequiresPrune), append(c.hook, r.Hook), append(c.confirm, r.Confirm)
		c.wave, c.born = append(c.wave, r.Wave), append(c.born, r.CreatedAt)
		c.bucket, c.leaf = append(c.bucket, bucket), append(c.leaf, leaf)
	}
	return nil
}

func (t *Tenant) queueResources(b *pgx.Batch, c resourceColumns) {
	if len(c.app) == 0 {
		return
	}
	b.Queue(touchResources, pgx.StrictNamedArgs{
		"tenant": t.id, "clusters": c.cluster, "marks": c.mark, "apps": c.app, "groups": c.group, "kinds": c.kind,
		"namespaces": c.namespace, "names": c.name, "hashes": c.hash, "leaves": c.leaf,
	})
	b.Queue(upsertResources, pgx.StrictNamedArgs{
		"tenant": t.id, "clusters": c.cluster, "marks": c.mark, "apps": c.app, "groups": c.group, "kinds": c.kind,
		"namespaces": c.namespace, "names": c.name, "hashes": c.hash, "now": micro(time.Now()), "versions": c.version,
		"uids": c.uid, "parents": c.parent, "managed": c.managed, "syncs": c.sync, "healths": c.health, "messages": c.message,
		"requires_prune": c.prune, "hooks": c.hook, "waves": c.wave, "diffs": c.diff, "infos": c.info, "born": c.born,
		"buckets": c.bucket, "leaves": c.leaf, "links": c.links, "confirms": c.confirm,
	}).Query(t.touchApps(changeResources))
}

// agentConditions replaces the agent's conditions of applications.
func (t *Tenant) agentConditions(ctx context.Context, apps []hub.ApplicationObservation) error {
	if len(apps) == 0 {
		return nil
	}
	var all []hub.ApplicationID
	var now []conditionRow
	for _, a := range apps {
		all = append(all, a.Application)
		if a.Error != "" {
			now = append(now, conditionRow{a.Application, hub.ComparisonError, a.Error})
		}
		for _, w := range a.Warnings {
			now = append(now, conditionRow{a.Application, hub.AgentWarning, w})
		}
		for _, n := range a.Notes {
			now = append(now, conditionRow{a.Application, n.Type, n.Message})
		}
		for _, w := range a.Excluded {
			now = append(now, conditionRow{a.Application, hub.ExcludedWarning, w})
		}
	}
	types := []string{hub.ComparisonError, hub.AgentWarning, hub.SharedWarning, hub.OrphanedWarning, hub.ExcludedWarning}
	return t.replaceConditions(ctx, byAgent, types, all, now)
}
