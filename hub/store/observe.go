package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/buckets"
)

const (
	lockObserved = `SELECT epoch, seq, snapshot, mark FROM observed WHERE tenant_id = $1 AND cluster_id = $2 FOR UPDATE`
	moveObserved = `UPDATE observed SET epoch = $3, seq = $4, snapshot = $5, mark = $6 WHERE tenant_id = $1 AND cluster_id = $2`
	lazyCommit   = `SELECT set_config('synchronous_commit', 'off', true)`
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
		                           version, uid, parent, managed, sync, health, message, requires_prune, hook, wave, diff, info, born_at, bucket, leaf)
		SELECT $1, $2, $3, $10, u.app, u.api_group, u.kind, u.namespace, u.name, u.hash,
		       u.version, u.uid, u.parent, u.managed, u.sync, u.health, u.message, u.requires_prune, u.hook, u.wave, u.diff, u.info::json, u.born_at, u.bucket, u.leaf
		FROM   unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $11::text[], $12::text[], $13::text[], $14::boolean[],
		              $15::text[], $16::text[], $17::text[], $18::boolean[], $19::boolean[], $20::integer[], $21::text[], $22::text[], $23::timestamptz[], $24::integer[], $25::bigint[])
		       AS u (app, api_group, kind, namespace, name, hash, version, uid, parent, managed, sync, health, message, requires_prune, hook, wave, diff, info, born_at, bucket, leaf)
		ON CONFLICT (tenant_id, application_id, cluster_id, kind, namespace, name, api_group) DO UPDATE
		SET    mark = excluded.mark, updated_at = excluded.updated_at, hash = excluded.hash, version = excluded.version, uid = excluded.uid,
		       parent = excluded.parent, managed = excluded.managed, sync = excluded.sync, health = excluded.health, message = excluded.message,
		       requires_prune = excluded.requires_prune, hook = excluded.hook, wave = excluded.wave, diff = excluded.diff, info = excluded.info,
		       born_at = excluded.born_at, bucket = excluded.bucket, leaf = excluded.leaf
		WHERE  r.hash <> excluded.hash OR r.leaf <> excluded.leaf
		RETURNING r.application_id`
	sweepResources = `DELETE FROM resource WHERE tenant_id = $1 AND cluster_id = $2 AND mark <> $3 RETURNING application_id`
	sweepBuckets   = `DELETE FROM resource WHERE tenant_id = $1 AND cluster_id = $2 AND mark <> $3 AND bucket = ANY ($4::integer[]) RETURNING application_id`

	selectResources = `
		SELECT cluster_id, application_id, uid, parent, api_group, version, kind, namespace, name, managed, sync, health, message,
		       requires_prune, hook, wave, diff, info, born_at, updated_at
		FROM   resource
		WHERE  tenant_id = $1 AND application_id = $2
		ORDER  BY kind, api_group, namespace, name, cluster_id`
)

// PutObservation stores one report of an agent: the newest values of what it
// sees, written only where they changed. Reports of an epoch are numbered; one
// that was stored before changes nothing, and after a gap the agent is asked
// to send everything again. Work "outcome" is enqueued for operations that
// became over.
func (t *Tenant) PutObservation(ctx context.Context, cluster hub.ClusterID, o hub.Observation) (hub.Observed, error) {
	if !hub.ValidID(string(cluster)) {
		return hub.Observed{}, noCluster()
	}
	var at progress
	if err := t.tx.QueryRow(ctx, lockObserved, t.id, cluster).Scan(&at.epoch, &at.seq, &at.snapshot, &at.mark); err != nil {
		return hub.Observed{}, missing(err, "there is no such cluster")
	}
	if at.epoch == o.Epoch && o.Seq <= at.seq {
		found, err := t.compare(ctx, cluster, o.Sums) // the answer may have been lost
		return hub.Observed{Repeated: true, Comparison: found}, err
	}
	out := hub.Observed{Resnapshot: at.advance(o)}
	at.passing = o.Passing()
	o, err := t.here(ctx, cluster, o)
	if err != nil {
		return hub.Observed{}, err
	}
	if out.Over, err = t.storeObservation(ctx, cluster, o, at); err != nil {
		return hub.Observed{}, fmt.Errorf("store observation of cluster %q: %w", cluster, err)
	}
	if err := t.agentConditions(ctx, o.Applications); err != nil {
		return hub.Observed{}, err
	}
	out.Comparison, err = t.compare(ctx, cluster, o.Sums)
	return out, err
}

// progress is how far the reports of a cluster go. snapshot is negative when
// a part of that snapshot is missing: it cannot tell what is gone.
type progress struct {
	epoch         string
	seq, snapshot int64
	mark          int64
	sweep         bool
	passing       bool // as the agent sent it, whatever was left out of it
}

// advance moves on by one report, and says whether earlier ones are missing.
func (p *progress) advance(o hub.Observation) (gap bool) {
	fresh := p.epoch != o.Epoch
	gap = o.Seq != p.seq+1
	if fresh {
		gap = o.Seq != 1 || o.Snapshot == 0
	}
	switch {
	case o.Snapshot != 0 && (fresh || (p.snapshot != o.Snapshot && p.snapshot != -o.Snapshot)):
		p.snapshot = o.Snapshot
		p.mark++
	case fresh:
		p.snapshot = 0
	}
	if gap && p.snapshot > 0 {
		p.snapshot = -p.snapshot
	}
	p.epoch, p.seq = o.Epoch, o.Seq
	p.sweep = o.Sweep != 0 && o.Sweep == p.snapshot
	return gap
}

// here leaves out what the agent has no say in: applications that are gone or
// elsewhere. Of several values for one thing the last one stays.
func (t *Tenant) here(ctx context.Context, cluster hub.ClusterID, o hub.Observation) (hub.Observation, error) {
	var named []hub.ApplicationID
	named = append(named, appsOf(o.Applications, func(a hub.ApplicationObservation) hub.ApplicationID { return a.Application })...)
	named = append(named, appsOf(o.Resources, func(r hub.Resource) hub.ApplicationID { return r.Application })...)
	named = append(named, appsOf(o.Gone, func(g hub.ResourceGone) hub.ApplicationID { return g.Application })...)
	named = append(named, appsOf(o.Closed, func(s hub.Tombstone) hub.ApplicationID { return s.Application })...)
	known, err := list(ctx, t.tx, "applications of agent", pgx.RowTo[hub.ApplicationID], selectHere, t.id, cluster, ids(named))
	if err != nil {
		return o, err
	}
	mine := make(map[hub.ApplicationID]bool, len(known))
	for _, id := range known {
		mine[id] = true
	}
	o.Applications = last(o.Applications, func(a hub.ApplicationObservation) (string, bool) {
		return string(a.Application), mine[a.Application]
	})
	o.Resources = last(o.Resources, func(r hub.Resource) (string, bool) {
		return string(r.Application) + "\x00" + r.Group + "\x00" + r.Kind + "\x00" + r.Namespace + "\x00" + r.Name, mine[r.Application]
	})
	o.Gone = last(o.Gone, func(g hub.ResourceGone) (string, bool) {
		return string(g.Application) + "\x00" + g.UID + "\x00" + g.Group + "\x00" + g.Kind + "\x00" + g.Namespace + "\x00" + g.Name, mine[g.Application]
	})
	o.Closed = last(o.Closed, func(s hub.Tombstone) (string, bool) {
		return string(s.Application) + "\x00" + s.Group + "\x00" + s.Kind + "\x00" + s.Namespace + "\x00" + s.Name, mine[s.Application]
	})
	o.Operations = last(o.Operations, func(op hub.OperationObservation) (string, bool) {
		return string(op.Operation), hub.ValidID(string(op.Operation))
	})
	return o, nil
}

// last keeps the last value for each key, in order, of those that count.
func last[T any](in []T, key func(T) (string, bool)) []T {
	at := make(map[string]int, len(in))
	out := make([]T, 0, len(in))
	for _, v := range in {
		k, ok := key(v)
		if !ok {
			continue
		}
		if i, seen := at[k]; seen {
			out[i] = v
			continue
		}
		at[k] = len(out)
		out = append(out, v)
	}
	return out
}

// storeObservation writes a report in one round trip and gives the operations
// that became over.
func (t *Tenant) storeObservation(ctx context.Context, cluster hub.ClusterID, o hub.Observation, at progress) ([]hub.OperationID, error) {
	b := &pgx.Batch{}
	if at.passing {
		// Live state can be reported again; what ended cannot.
		b.Queue(lazyCommit)
	}
	var over []hub.OperationID
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
	if err := t.queueOperations(b, cluster, o.Operations, &over); err != nil {
		return nil, err
	}
	t.queueDeletions(b, cluster, gone, &over)
	t.queueGone(b, cluster, o.Gone)
	if err := t.queueResources(b, cluster, o.Resources, at.mark); err != nil {
		return nil, err
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
	b.Queue(moveObserved, t.id, cluster, at.epoch, at.seq, at.snapshot, at.mark)
	return over, t.tx.SendBatch(ctx, b).Close()
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
	for i := range resources {
		r := &resources[i]
		text, sum, err := fingerprint(*r)
		if err != nil {
			return err
		}
		app[i], group[i], kind[i], namespace[i], name[i] = string(r.Application), r.Group, r.Kind, r.Namespace, r.Name
		version[i], uid[i], parent[i], sync[i], health[i] = r.Version, r.UID, r.Parent, string(r.Sync), string(r.Health)
		message[i], diff[i], info[i] = clean(r.Message), clean(r.DiffSummary), text
		managed[i], prune[i], hook[i] = r.Managed, r.RequiresPrune, r.Hook
		wave[i], born[i], hash[i] = r.Wave, r.CreatedAt, sum
		bucket[i], leaf[i] = stamped(buckets.Resource(string(r.Application), r.Group, r.Kind, r.Namespace, r.Name), r.Stamp)
	}
	b.Queue(touchResources, t.id, cluster, mark, app, group, kind, namespace, name, hash, leaf)
	b.Queue(upsertResources, t.id, cluster, mark, app, group, kind, namespace, name, hash, micro(time.Now()),
		version, uid, parent, managed, sync, health, message, prune, hook, wave, diff, info, born, bucket, leaf).Query(t.touchApps(changeResources))
	return nil
}

// fingerprint gives the columns of a resource as text and a hash of all that
// people see of it; equal hashes cost no write.
func fingerprint(r hub.Resource) (info *string, hash []byte, err error) {
	if len(r.Info) > 0 {
		text, err := jsonText(r.Info)
		if err != nil {
			return nil, nil, err
		}
		info = &text
	}
	r.UpdatedAt, r.Stamp = time.Time{}, nil
	all, err := json.Marshal(r)
	if err != nil {
		return nil, nil, fmt.Errorf("hash resource: %w", err)
	}
	sum := sha256.Sum256(all)
	return info, sum[:16], nil
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

// Resources gives the tree of an application as its agents last saw it.
func (t *Tenant) Resources(ctx context.Context, app hub.ApplicationID) ([]hub.Resource, error) {
	if !hub.ValidID(string(app)) {
		return nil, noApp()
	}
	return list(ctx, t.tx, "resources", func(row pgx.CollectableRow) (r hub.Resource, err error) {
		var info []byte
		err = row.Scan(&r.Cluster, &r.Application, &r.UID, &r.Parent, &r.Group, &r.Version, &r.Kind, &r.Namespace, &r.Name, &r.Managed,
			&r.Sync, &r.Health, &r.Message, &r.RequiresPrune, &r.Hook, &r.Wave, &r.DiffSummary, &info, &r.CreatedAt, &r.UpdatedAt)
		r.Orphan = !r.Managed && r.Parent == "" && !r.Hook // what is neither managed nor owned by anything
		if err == nil && info != nil {
			err = json.Unmarshal(info, &r.Info)
		}
		return r, err
	}, selectResources, t.id, app)
}
