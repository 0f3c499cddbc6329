package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// One statement reads applications for every purpose: by name, by id, or
	// a page of those that a filter lets through. Labels are conditions as
	// {key, values, not}; all must hold.
	selectApplications = `SELECT` + applicationColumns + applicationTables
	applicationColumns = `
		       a.id, a.tenant_id, a.namespace, a.name, a.labels, a.annotations, a.finalizers, a.version, a.created_at, a.updated_at,
		       a.project, a.spec::text, coalesce(a.cluster_id::text, ''), a.deleting_at, a.cascade,
		       s.generation, s.planned_generation, s.planned_project, s.pin, s.revision, s.revisions, s.source_type,
		       coalesce(s.target_id::text, ''), coalesce(s.accepted_id::text, ''), ` + gitSync + `, s.health, s.health_cause, s.health_since,
		       s.resources, s.compared_at, s.refreshed_at, s.hold, s.deletion_hooks,
		       CASE WHEN ` + isFailing + ` THEN
		       (SELECT json_agg(json_build_object('type', c.type, 'message', c.message, 'lastTransitionTime', c.since) ORDER BY c.type, c.since, c.message)
		        FROM   (SELECT c.type, c.message, c.since FROM condition c WHERE c.tenant_id = a.tenant_id AND c.application_id = a.id
		                UNION
		                SELECT 'ComparisonError', r.error, r.error_since
		                FROM   app_source u
		                JOIN   repository r ON r.tenant_id = u.tenant_id AND r.id = u.repository_id
		                WHERE  u.tenant_id = a.tenant_id AND u.application_id = a.id AND r.error <> ''
		                  AND  r.fetched_at IS NOT NULL AND r.error_since <= now() - interval '180 seconds' -- hub.ErrorGrace
		               ) c) END,
		       o.id, coalesce(o.cluster_id::text, ''), o.kind, coalesce(o.snapshot_id::text, ''), o.revision, o.fence, o.options, o.initiator, o.reason,
		       o.phase, o.message, CASE WHEN $2 THEN o.results END, o.attempt, o.retry_at, o.created_at, o.started_at, o.finished_at, o.healthy_at, o.deadline, o.unblocked,
		       coalesce(up.namespace, ''), coalesce(up.name, ''), coalesce(os.namespace, ''), coalesce(os.name, '')`
	applicationTables = `
		FROM   application a
		JOIN   application_status s ON s.tenant_id = a.tenant_id AND s.application_id = a.id
		LEFT   JOIN operation o ON o.tenant_id = s.tenant_id AND o.id = s.operation_id
		LEFT   JOIN rendered r ON r.tenant_id = a.tenant_id AND r.object_id = a.id
		LEFT   JOIN application up ON up.tenant_id = r.tenant_id AND up.id = r.parent_id
		LEFT   JOIN application_set_member om ON om.tenant_id = a.tenant_id AND om.application_id = a.id
		LEFT   JOIN application_set os ON os.tenant_id = om.tenant_id AND os.id = om.set_id
		WHERE  a.tenant_id = $1`
	isFailing = `EXISTS (SELECT FROM repository f WHERE f.tenant_id = $1 AND f.error <> '')
		              OR EXISTS (SELECT FROM condition c WHERE c.tenant_id = a.tenant_id AND c.application_id = a.id)`

	// The agent compares with what an application is paused at. What is shown is
	// its state against the newest rendered revision of Git. Rows that were
	// written before that was noted are behind if they skip anything.
	gitSync = `CASE WHEN s.sync = 'Synced' AND coalesce((s.pin ->> 'behind')::boolean, s.pin ->> 'bad' <> s.pin ->> 'snapshot')
		            THEN 'OutOfSync' ELSE s.sync END`
	// What a user is shown instead of s.sync and s.health: the same as
	// hub.ApplicationStatus.Show, for filters and counts.
	shownSync   = `CASE WHEN ` + isBroken + ` OR ` + isExpired + ` THEN 'Unknown' ELSE ` + gitSync + ` END`
	shownHealth = `CASE WHEN ` + isExpired + ` THEN 'Unknown' ELSE s.health END`
	isBroken    = `(EXISTS (SELECT FROM condition b WHERE b.tenant_id = a.tenant_id AND b.application_id = a.id AND b.type IN ('ComparisonError', 'InvalidSpecError'))
		              OR EXISTS (SELECT FROM app_source u
		                         JOIN   repository b ON b.tenant_id = u.tenant_id AND b.id = u.repository_id
		                         WHERE  u.tenant_id = a.tenant_id AND u.application_id = a.id AND ` + isRepositoryAway + `))`
	isRepositoryAway = `b.error <> '' AND b.fetched_at IS NOT NULL AND b.error_since <= now() - interval '180 seconds'` // hub.ErrorGrace
	// hub.StaleAfter
	isExpired = `(a.cluster_id IS NOT NULL AND NOT EXISTS (
		              SELECT FROM directory.my_presence p
		              WHERE  p.cluster_id = a.cluster_id
		                AND  CASE WHEN p.connected THEN p.lag_ms < 60000 ELSE p.seen_at - p.lag_ms * interval '1 millisecond' >= now() - interval '60 seconds' END))`

	applicationByName = selectApplications + ` AND a.name = $3 AND a.namespace = $4`
	applicationsByID  = selectApplications + ` AND a.id = ANY ($3::uuid[])`
	applicationPage   = selectApplications + applicationFilter + `
		  AND  (a.name, a.namespace) > ($14, $15)
		ORDER  BY a.name, a.namespace
		LIMIT  $16`
	applicationFilter = `
		  AND  ($3 OR a.project = ANY ($4::text[]))
		  AND  (cardinality($5::text[]) = 0 OR a.project = ANY ($5))
		  AND  (cardinality($6::text[]) = 0 OR a.namespace = ANY ($6))
		  AND  (cardinality($7::uuid[]) = 0 OR a.cluster_id = ANY ($7))
		  AND  (cardinality($8::text[]) = 0 OR ` + shownSync + ` = ANY ($8))
		  AND  (cardinality($9::text[]) = 0 OR ` + shownHealth + ` = ANY ($9))
		  AND  ($10 = '' OR position(lower($10) IN lower(a.name)) > 0)
		  AND  NOT EXISTS (
		         SELECT FROM jsonb_to_recordset($11::jsonb) AS l (key text, vals jsonb, neg boolean)
		         WHERE  l.neg = CASE WHEN jsonb_array_length(l.vals) = 0 THEN a.labels ? l.key
		                             ELSE coalesce(l.vals ? (a.labels ->> l.key), false) END)
		  AND  (cardinality($12::text[]) = 0 OR EXISTS (
		         SELECT FROM app_source v
		         JOIN   repository w ON w.tenant_id = v.tenant_id AND w.id = v.repository_id
		         WHERE  v.tenant_id = a.tenant_id AND v.application_id = a.id AND w.address = ANY ($12)))
		  AND  ($13 = '' OR a.name = $13)`
	// Destinations are compared as package catalog does. A destination that
	// means Argo CD's own cluster does not move after it was resolved to a
	// cluster.
	applicationsBound = `
		SELECT a.id FROM application a
		CROSS  JOIN LATERAL (
			SELECT coalesce(a.spec -> 'destination' ->> 'name', '') AS name, rtrim(coalesce(a.spec -> 'destination' ->> 'server', ''), '/') AS server) d
		WHERE  a.tenant_id = $1 AND a.deleting_at IS NULL
		  AND  (d.name = ANY ($2::text[]) OR d.server = ANY ($3::text[])
		        OR a.cluster_id IS NULL AND (d.name = '` + hub.InClusterName + `' OR d.server = '` + hub.InCluster + `'))
		ORDER  BY a.id`
	selectPlaces = `
		SELECT id, namespace, name, project
		FROM   application
		WHERE  tenant_id = $1
		ORDER  BY name, namespace`
	countApplications = `
		SELECT ` + shownSync + `, ` + shownHealth + `, count(*)
		FROM   application a
		JOIN   application_status s ON s.tenant_id = a.tenant_id AND s.application_id = a.id
		WHERE  a.tenant_id = $1 AND $2` + applicationFilter + `
		GROUP  BY 1, 2`

	// The project cannot be deleted before the application exists.
	insertApplication = `
		WITH held AS MATERIALIZED (
			SELECT p.id FROM project p WHERE p.tenant_id = @tenant AND p.name = @project FOR KEY SHARE
		), made AS (
			INSERT INTO application (tenant_id, id, namespace, name, labels, annotations, finalizers, project, spec, cluster_id, created_at, updated_at)
			SELECT @tenant, @id::uuid, @namespace::text, @name::text, @labels::jsonb, @annotations::jsonb, @finalizers::text[], @project::text, @spec::json, nullif(@cluster::text, '')::uuid, @created::timestamptz, @created
			FROM   (SELECT count(*) FROM held) h
			RETURNING tenant_id, id
		)
		INSERT INTO application_status (tenant_id, application_id) SELECT m.tenant_id, m.id FROM made m`
	updateApplication = `
		UPDATE application
		SET    labels = @labels, annotations = @annotations, finalizers = @finalizers, project = @project, spec = @spec, cluster_id = nullif(@cluster, '')::uuid,
		       version = version + 1, updated_at = @now
		WHERE  tenant_id = @tenant AND id = @id`
	raiseGeneration = `UPDATE application_status SET generation = generation + 1 WHERE tenant_id = $1 AND application_id = $2`
	lockStatus      = `
		SELECT application_id FROM application_status
		WHERE  tenant_id = $1 AND application_id = ANY ($2::uuid[])
		ORDER  BY application_id
		FOR UPDATE`
	// What is set about the applications, projects and destinations that may be.
	selectJudging = `
		SELECT key, value
		FROM   setting
		WHERE  tenant_id = $1 AND sealed IS NULL
		  AND  (map = '` + hub.SettingsMap + `' AND key IN ('` + hub.InClusterKey + `', '` + hub.GlobalProjectsKey + `') OR map = '` + hub.ParamsMap + `' AND key = '` + hub.ApplicationNamespacesKey + `')`
	lockNamed = `
		SELECT s.application_id
		FROM   application a
		JOIN   application_status s ON s.tenant_id = a.tenant_id AND s.application_id = a.id
		WHERE  a.tenant_id = $1 AND a.name = $2 AND a.namespace = $3
		FOR    UPDATE OF s`
	markDeleting = `
		UPDATE application
		SET    deleting_at = coalesce(deleting_at, $3), cascade = $4, version = version + 1, updated_at = $3
		WHERE  tenant_id = $1 AND id = $2`
	takeRefresh = `
		UPDATE application a
		SET    annotations = a.annotations - @annotations::text[], version = a.version + 1, updated_at = @now
		FROM   unnest(@apps::uuid[], @versions::bigint[]) AS u (app, version)
		WHERE  a.tenant_id = @tenant AND a.id = u.app AND a.version = u.version AND a.annotations ?| @annotations
		RETURNING a.id`
	deleteApplications = `DELETE FROM application WHERE tenant_id = $1 AND id = ANY ($2::uuid[])`
)

// noApp is the one answer for an application that is not there, or not the
// caller's.
func noApp() error { return fault.New(fault.Missing, "there is no such application") }

func appObject(a hub.Application) string { return "application " + a.Namespace + "/" + a.Name }

// scanApplications reads the applications of one query.
func scanApplications() pgx.RowToFunc[hub.Application] {
	w := &messageDecoder{}
	return func(row pgx.CollectableRow) (hub.Application, error) { return w.application(row) }
}

// application reads a row of the columns of applications, and more after them.
func (w *messageDecoder) application(row pgx.CollectableRow, more ...any) (a hub.Application, err error) {
	var cluster, target, accepted string
	var pin, conditions []byte
	var op nullOperation
	var parent, set hub.ApplicationKey
	s := &a.Status
	dest := []any{
		&a.ID, &a.Tenant, &a.Namespace, &a.Name, &a.Labels, &a.Annotations, &a.Finalizers, &a.Version, &a.CreatedAt, &a.UpdatedAt,
		&a.Project, (*rawJSON)(&a.Spec), &cluster, &a.DeletingAt, &a.Cascade,
		&a.Generation, &s.PlannedGeneration, &s.PlannedProject, &pin, &s.Revision, &s.Revisions, &s.SourceType,
		&target, &accepted, &s.Sync, &s.Health, &s.HealthCause, &s.HealthSince,
		&s.Resources, &s.ComparedAt, &s.RefreshedAt, &s.Hold, &s.DeletionHooks, &conditions,
	}
	dest = append(append(append(dest, op.dest()...), &parent.Namespace, &parent.Name, &set.Namespace, &set.Name), more...)
	if err := row.Scan(dest...); err != nil {
		return a, err
	}
	if parent.Name != "" {
		a.Parent = &parent
	}
	if set.Name != "" {
		a.Set = &set
	}
	a.Cluster, s.Target, s.Accepted = hub.ClusterID(cluster), hub.SnapshotID(target), hub.SnapshotID(accepted)
	if pin != nil {
		a.Pin = new(hub.Pin)
		if err := json.Unmarshal(pin, a.Pin); err != nil {
			return a, fmt.Errorf("read pin: %w", err)
		}
	}
	if conditions != nil {
		if err := json.Unmarshal(conditions, &s.Conditions); err != nil {
			return a, fmt.Errorf("read conditions: %w", err)
		}
	}
	if s.Operation, err = op.operation(w); s.Operation != nil {
		s.Operation.Application = a.ID
	}
	return a, err
}

// Application returns one application by its name.
func (t *Tenant) Application(ctx context.Context, namespace, name string) (hub.Application, error) {
	a, err := one(ctx, t.tx, "application", scanApplications(), applicationByName, t.id, true, name, namespace)
	return a, missing(err, "there is no application %q in namespace %q", name, namespace)
}

// ApplicationByID returns one application.
func (t *Tenant) ApplicationByID(ctx context.Context, id hub.ApplicationID) (hub.Application, error) {
	if !hub.ValidID(string(id)) {
		return hub.Application{}, noApp()
	}
	a, err := one(ctx, t.tx, "application", scanApplications(), applicationsByID, t.id, true, ids([]hub.ApplicationID{id}))
	return a, missing(err, "there is no such application")
}

// ApplicationsByID returns those of the applications that there are.
func (t *Tenant) ApplicationsByID(ctx context.Context, want []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error) {
	b := &pgx.Batch{}
	found := t.queueApplications(b, want)
	if err := send(ctx, t.tx, "read applications", b); err != nil {
		return nil, err
	}
	return found(), nil
}

// Applications returns a page of the applications that a filter lets through,
// in order of name and namespace, without the results of their operations.
func (t *Tenant) Applications(ctx context.Context, f hub.ApplicationFilter) ([]hub.Application, error) {
	args, err := t.filterArgs(f)
	if err != nil {
		return nil, err
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	args = append(args, f.After.Name, f.After.Namespace, limit)
	return list(ctx, t.tx, "applications", scanApplications(), applicationPage, args...)
}

// ApplicationsBound returns the applications whose destinations may resolve to
// another cluster when clusters of these names and servers are created, deleted
// or changed: those that name one, and those for Argo CD's own cluster that are
// on none.
func (t *Tenant) ApplicationsBound(ctx context.Context, names, servers []string) ([]hub.ApplicationID, error) {
	trimmed := make([]string, 0, len(servers))
	for _, s := range servers {
		if s = strings.TrimRight(s, "/"); s != "" {
			trimmed = append(trimmed, s)
		}
	}
	return list(ctx, t.tx, "applications of destinations", pgx.RowTo[hub.ApplicationID], applicationsBound, t.id, nonNil(names), trimmed)
}

// A StatusCount is how many applications are in one pair of states.
type StatusCount struct {
	Sync   hub.SyncStatus
	Health hub.HealthStatus
	Count  int
}

// CountApplications counts the applications of a filter, by sync and health.
// After and Limit are ignored.
func (t *Tenant) CountApplications(ctx context.Context, f hub.ApplicationFilter) ([]StatusCount, error) {
	args, err := t.filterArgs(f)
	if err != nil {
		return nil, err
	}
	args[1] = true
	return list(ctx, t.tx, "application counts", pgx.RowToStructByPos[StatusCount], countApplications, args...)
}

// filterArgs are the parameters $1 to $13 of the page and the count.
func (t *Tenant) filterArgs(f hub.ApplicationFilter) ([]any, error) {
	type term struct {
		Key  string   `json:"key"`
		Vals []string `json:"vals"`
		Neg  bool     `json:"neg"`
	}
	terms := make([]term, len(f.Labels))
	for i, l := range f.Labels {
		terms[i] = term{l.Key, nonNil(l.Values), l.Not}
	}
	text, err := jsonText(terms)
	if err != nil {
		return nil, err
	}
	clusters := texts(f.Clusters)
	for _, c := range clusters {
		if !hub.ValidID(c) {
			return nil, fault.New(fault.Invalid, "%q is no id of a cluster", c)
		}
	}
	return []any{
		t.id, false, f.All, nonNil(f.Allowed), nonNil(f.Projects), nonNil(f.Namespaces), clusters,
		texts(f.Sync), texts(f.Health), f.Query, text, nonNil(f.Repositories), f.Name,
	}, nil
}

// LockApplications returns and locks those of the applications that exist until
// the transaction ends. What follows in the transaction is planned once,
// because it uses keys of what was locked.
func (t *Tenant) LockApplications(ctx context.Context, want []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error) {
	var locked []string
	b := &pgx.Batch{}
	b.Queue(planOnce)
	queueList(b, "application locks", pgx.RowTo[string], &locked, lockStatus, t.id, ids(want))
	found := t.queueApplications(b, want)
	if err := send(ctx, t.tx, "lock applications", b); err != nil {
		return nil, err
	}
	return found(), nil
}

// queueApplications reads applications in a batch. The function returns them
// after the batch.
func (t *Tenant) queueApplications(b *pgx.Batch, want []hub.ApplicationID) func() map[hub.ApplicationID]hub.Application {
	found := make([]hub.Application, 0, len(want))
	queueList(b, "applications", scanApplications(), &found, applicationsByID, t.id, false, ids(want))
	return func() map[hub.ApplicationID]hub.Application {
		out := make(map[hub.ApplicationID]hub.Application, len(found))
		for _, a := range found {
			out[a.ID] = a
		}
		return out
	}
}

// ForPut returns, in one round trip, what a write of an application is checked
// with: the application of that name, locked until the transaction ends, its
// project, and the cluster of that name; an empty name means all clusters.
func (t *Tenant) ForPut(ctx context.Context, key hub.ApplicationKey, project, cluster string) (hub.WriteContext, error) {
	var locked []hub.ApplicationID
	var apps []hub.Application
	var projects []hub.Project
	judged := map[string]string{} // settings by key
	var found hub.WriteContext
	b := &pgx.Batch{}
	queueList(b, "application lock", pgx.RowTo[hub.ApplicationID], &locked, lockNamed, t.id, key.Name, key.Namespace)
	queueList(b, "application", scanApplications(), &apps, applicationByName, t.id, false, key.Name, key.Namespace)
	queueList(b, "project", scanProject, &projects, selectProject, t.id, project)
	queueSettings(b, judged, selectJudging, t.id)
	if cluster == "" {
		queueList(b, "clusters", scanCluster, &found.Clusters, selectClusters, t.id)
	} else {
		queueList(b, "cluster", scanCluster, &found.Clusters, selectClusterNamed, t.id, cluster)
	}
	if err := send(ctx, t.tx, "read what an application is judged by", b); err != nil {
		return hub.WriteContext{}, err
	}
	// One created between the two statements is not locked: creating it again
	// fails because its name is in use.
	if len(locked) == 1 && len(apps) == 1 && apps[0].ID == locked[0] {
		found.Application = &apps[0]
	}
	if err := t.inherit(ctx, projects, judged[hub.GlobalProjectsKey]); err != nil {
		return hub.WriteContext{}, err
	}
	found.AppNamespaces = judged[hub.ApplicationNamespacesKey]
	if len(projects) == 1 {
		found.Project = &projects[0]
		found.Project.AppNamespaces = found.AppNamespaces
	}
	for i := range found.Clusters {
		found.Clusters[i].InClusterOff = hub.InClusterOff(judged[hub.InClusterKey])
	}
	return found, nil
}

// lockApps locks in order of id.
func (t *Tenant) lockApps(ctx context.Context, want []hub.ApplicationID) error {
	_, err := list(ctx, t.tx, "application locks", pgx.RowTo[string], lockStatus, t.id, ids(want))
	return err
}

// CreateApplication makes an application, makes its repositories known, and
// has it refreshed. An empty ID, namespace or time is filled in.
func (t *Tenant) CreateApplication(ctx context.Context, a hub.Application) (hub.Application, error) {
	if a.ID == "" {
		a.ID = hub.NewID[hub.ApplicationID]()
	}
	if a.Namespace == "" {
		a.Namespace = "argocd"
	}
	if a.CreatedAt.IsZero() {
		a.CreatedAt = time.Now()
	}
	spec, sources, err := sourcesOf(a)
	if err != nil {
		return hub.Application{}, err
	}
	// All of it in one round trip: applications come in by the hundred.
	b := &pgx.Batch{}
	b.Queue(insertApplication, pgx.StrictNamedArgs{
		"tenant": t.id, "id": a.ID, "namespace": a.Namespace, "name": a.Name, "labels": labels(a.Labels),
		"annotations": labels(a.Annotations), "finalizers": nonNil(a.Finalizers), "project": a.Project, "spec": spec,
		"cluster": string(a.Cluster), "created": micro(a.CreatedAt),
	})
	t.queueSources(b, a.ID, a.Project, sources)
	var stored []hub.Application
	queueList(b, "application", scanApplications(), &stored, applicationsByID, t.id, true, ids([]hub.ApplicationID{a.ID}))
	if err := send(ctx, t.tx, "insert application", b); err != nil {
		return hub.Application{}, appFault(err, a)
	}
	t.appChanged(a.ID)
	t.grows(hub.QuotaApplications)
	t.enqueue(hub.WorkRefresh, string(a.ID), time.Now(), false)
	if len(stored) != 1 {
		return hub.Application{}, noApp()
	}
	return stored[0], nil
}

func appFault(err error, a hub.Application) error {
	switch {
	case violates(err, "application_name"):
		return taken(appObject(a))
	case code(err) == foreignKeyViolation:
		return fault.With(fault.New(fault.Invalid, "its destination names a cluster that is not there any more"), appObject(a), "read the clusters again")
	case code(err) == checkViolation:
		return fault.New(fault.Invalid, "an application needs a name")
	}
	return err
}

// sourcesOf checks a spec and returns its repositories by source.
func sourcesOf(a hub.Application) (spec string, sources []namedRepository, err error) {
	if spec, err = givenSpec(a.Spec); err != nil {
		return "", nil, fault.With(err, appObject(a), "")
	}
	decoded, err := hub.DecodeSpec(json.RawMessage(spec))
	if err != nil {
		return "", nil, fault.With(err, appObject(a), "")
	}
	for i, s := range decoded.EffectiveSources() {
		url, err := s.Repository()
		if err != nil {
			return "", nil, fault.With(err, fmt.Sprintf("%s, source %d", appObject(a), i+1), "")
		}
		sources = append(sources, namedRepository{url, s.Kind()})
	}
	return spec, sources, nil
}

func (t *Tenant) appChanged(id hub.ApplicationID) { t.changed(changeApplication, string(id)) }

// UpdateApplication changes what users wrote of an application. A change of
// spec, project, cluster or of the annotations that steer it raises the
// generation; the application is refreshed in any case. The error is fault.Conflict if its version is not
// the expected one; 0 expects any.
func (t *Tenant) UpdateApplication(ctx context.Context, a hub.Application, expect int64) (hub.Application, error) {
	spec, sources, err := sourcesOf(a)
	if err != nil {
		return hub.Application{}, err
	}
	var held []hub.Application
	b := &pgx.Batch{}
	b.Queue(shareProject, t.id, a.Project)
	b.Queue(lockStatus, t.id, ids([]hub.ApplicationID{a.ID}))
	queueList(b, "application", scanApplications(), &held, applicationsByID, t.id, true, ids([]hub.ApplicationID{a.ID}))
	if err := send(ctx, t.tx, "lock application", b); err != nil {
		return hub.Application{}, err
	}
	if len(held) != 1 {
		return hub.Application{}, noApp()
	}
	old := held[0]
	if expect != 0 && expect != old.Version {
		return hub.Application{}, stale(appObject(old))
	}
	b = &pgx.Batch{}
	b.Queue(updateApplication, pgx.StrictNamedArgs{
		"tenant": t.id, "id": a.ID, "labels": labels(a.Labels), "annotations": labels(a.Annotations),
		"finalizers": nonNil(a.Finalizers), "project": a.Project, "spec": spec, "cluster": string(a.Cluster),
		"now": micro(time.Now()),
	})
	var before []string
	if a.Project != old.Project || a.Cluster != old.Cluster || !sameJSON(a.Spec, old.Spec) || !hub.SameSwitches(a.Meta, old.Meta) {
		b.Queue(raiseGeneration, t.id, a.ID)
		queueList(b, "sources", pgx.RowTo[string], &before, selectSourceIDs, t.id, ids([]hub.ApplicationID{a.ID}))
		b.Queue(deleteSources, t.id, a.ID)
		t.queueSources(b, a.ID, a.Project, sources)
	}
	var stored []hub.Application
	queueList(b, "application", scanApplications(), &stored, applicationsByID, t.id, true, ids([]hub.ApplicationID{a.ID}))
	if err := send(ctx, t.tx, "update application", b); err != nil {
		return hub.Application{}, appFault(err, a)
	}
	t.appChanged(a.ID)
	t.enqueue(hub.WorkRefresh, string(a.ID), time.Now(), false)
	if len(stored) != 1 {
		return hub.Application{}, noApp()
	}
	return stored[0], t.forgetRepositories(ctx, before)
}

// sameJSON compares two texts without regard to white space.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return false
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// AcknowledgeRefresh removes the annotation that requested a refresh from
// applications that have not changed since they were refreshed.
func (t *Tenant) AcknowledgeRefresh(ctx context.Context, done []hub.RefreshAck) error {
	var apps []string
	var versions []int64
	for _, d := range done {
		if hub.ValidID(string(d.Application)) {
			apps, versions = append(apps, string(d.Application)), append(versions, d.Version)
		}
	}
	if len(apps) == 0 {
		return nil
	}
	found, err := list(ctx, t.tx, "take refresh annotations", pgx.RowTo[string], takeRefresh, pgx.StrictNamedArgs{
		"tenant": t.id, "apps": apps, "versions": versions, "annotations": hub.RefreshAnnotations(), "now": micro(time.Now()),
	})
	for _, id := range found {
		t.appChanged(hub.ApplicationID(id))
	}
	return err
}

// MarkDeleting notes that an application is to go, with its objects if
// cascade is set, and raises its generation. The first time stays.
func (t *Tenant) MarkDeleting(ctx context.Context, app hub.ApplicationID, cascade bool) error {
	if !hub.ValidID(string(app)) {
		return noApp()
	}
	if err := t.lockApps(ctx, []hub.ApplicationID{app}); err != nil {
		return err
	}
	n, err := exec(ctx, t.tx, "mark deletion", markDeleting, t.id, app, micro(time.Now()), cascade)
	if err != nil {
		return err
	}
	if n == 0 {
		return noApp()
	}
	t.appChanged(app)
	_, err = exec(ctx, t.tx, "raise generation", raiseGeneration, t.id, app)
	return err
}

// RemoveApplication deletes an application with its snapshots, operations,
// history, tombstones and resources. Nothing in any cluster is touched.
func (t *Tenant) RemoveApplication(ctx context.Context, app hub.ApplicationID) error {
	if !hub.ValidID(string(app)) {
		return noApp()
	}
	return t.RemoveApplications(ctx, []hub.ApplicationID{app})
}

// RemoveApplications is RemoveApplication of several, all of which are there.
func (t *Tenant) RemoveApplications(ctx context.Context, apps []hub.ApplicationID) error {
	if err := t.lockApps(ctx, apps); err != nil {
		return err
	}
	used, err := list(ctx, t.tx, "sources", pgx.RowTo[string], selectSourceIDs, t.id, ids(apps))
	if err != nil {
		return err
	}
	if err := t.WakeSetsOf(ctx, apps); err != nil {
		return err
	}
	n, err := exec(ctx, t.tx, "delete applications", deleteApplications, t.id, ids(apps))
	if err != nil {
		return err
	}
	if int(n) != len(apps) {
		return noApp()
	}
	for _, app := range apps {
		t.removed(changeApplication, string(app))
	}
	return t.forgetRepositories(ctx, used)
}

// ApplicationPlaces returns all applications with id, project and name alone.
func (t *Tenant) ApplicationPlaces(ctx context.Context) ([]hub.ApplicationPlace, error) {
	return list(ctx, t.tx, "applications", pgx.RowToStructByName[hub.ApplicationPlace], selectPlaces, t.id)
}
