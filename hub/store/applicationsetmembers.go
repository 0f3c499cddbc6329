package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	selectSetMembers = `SELECT application_id, set_id FROM application_set_member WHERE tenant_id = $1 AND set_id = $2 ORDER BY application_id`
	setMembersOf     = `SELECT application_id, set_id FROM application_set_member WHERE tenant_id = $1 AND application_id = ANY ($2::uuid[])`
	putSetMember     = `
		INSERT INTO application_set_member (tenant_id, application_id, set_id)
		VALUES ($1, $2, $3)
		ON CONFLICT (tenant_id, application_id) DO UPDATE SET set_id = excluded.set_id`
	dropSetMember      = `DELETE FROM application_set_member WHERE tenant_id = $1 AND application_id = $2`
	selectSetResources = `
		SELECT a.namespace, a.name, a.project, a.labels, s.sync, s.health, a.deleting_at IS NOT NULL
		FROM   application_set_member m
		JOIN   application a ON a.tenant_id = m.tenant_id AND a.id = m.application_id
		JOIN   application_status s ON s.tenant_id = a.tenant_id AND s.application_id = a.id
		WHERE  m.tenant_id = $1 AND m.set_id = $2
		ORDER  BY a.name, a.namespace
		LIMIT  $3`

	selectSetRepositories = `SELECT repository_id FROM application_set_repository WHERE tenant_id = $1 AND set_id = $2`
	deleteSetRepositories = `DELETE FROM application_set_repository WHERE tenant_id = $1 AND set_id = $2 AND NOT repository_id = ANY ($3::uuid[]) RETURNING repository_id`
	// As of applications: a fetch that ends meanwhile either finds the set, or its
	// result is visible when the set is generated.
	insertSetRepositories = `
		WITH used AS MATERIALIZED (
			SELECT id, url FROM repository WHERE tenant_id = @tenant AND url = ANY (@urls::text[] || @own_urls::text[]) ORDER BY id FOR SHARE
		), named AS (
			SELECT DISTINCT coalesce(own.id, r.id) AS id
			FROM   unnest(@urls::text[], @own_urls::text[]) AS u (url, own)
			LEFT   JOIN used r ON r.url = u.url
			LEFT   JOIN used own ON own.url = u.own
			WHERE  coalesce(own.id, r.id) IS NOT NULL
		), noted AS (
			INSERT INTO application_set_repository (tenant_id, set_id, repository_id)
			SELECT @tenant, @set::uuid, n.id FROM named n
			ON CONFLICT DO NOTHING
		)
		SELECT n.id FROM named n`
	putSetPlaces       = `SELECT directory.put_set_places($1::uuid, $2::bytea[])`
	setsOfRepository   = `SELECT set_id FROM application_set_repository WHERE tenant_id = $1 AND repository_id = $2`
	setsOfApplications = `SELECT DISTINCT set_id FROM application_set_member WHERE tenant_id = $1 AND application_id = ANY ($2::uuid[])`
	setsOfProject      = `SELECT id FROM application_set WHERE tenant_id = $1 AND project IN ($2, '` + hub.AnyProject + `')`
	setsOfTenant       = `SELECT id FROM application_set WHERE tenant_id = $1`
	// Sets with a rollout are reconciled when the state of an application changes.
	wakeRollouts = `
		SELECT work.enlist(array_agg($3::text), array_agg(w.set_id), array_agg($4::timestamptz), array_agg(false))
		FROM   (SELECT DISTINCT m.set_id
		        FROM   application_set s
		        JOIN   application_set_member m ON m.tenant_id = s.tenant_id AND m.set_id = s.id
		        WHERE  s.tenant_id = $1 AND 'rollout' = ANY (s.watches) AND m.application_id = ANY ($2::uuid[])) w
		HAVING count(*) > 0`
)

func scanSetMember(row pgx.CollectableRow) (m hub.SetMember, err error) {
	err = row.Scan(&m.Application, &m.Set)
	return m, err
}

// SetMembers returns the applications that a set has generated, those too that
// are being deleted.
func (t *Tenant) SetMembers(ctx context.Context, set hub.ApplicationSetID) ([]hub.SetMember, error) {
	if !hub.ValidID(string(set)) {
		return nil, noSet()
	}
	return list(ctx, t.tx, "members of application set", scanSetMember, selectSetMembers, t.id, set)
}

// MembersOf returns which set has generated each of these applications. Those
// of no set are left out.
func (t *Tenant) MembersOf(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID]hub.SetMember, error) {
	found, err := list(ctx, t.tx, "members of application sets", scanSetMember, setMembersOf, t.id, ids(apps))
	out := make(map[hub.ApplicationID]hub.SetMember, len(found))
	for _, m := range found {
		out[m.Application] = m
	}
	return out, err
}

// PutSetMember notes that a set has generated an application.
func (t *Tenant) PutSetMember(ctx context.Context, m hub.SetMember) error {
	if !hub.ValidID(string(m.Application)) || !hub.ValidID(string(m.Set)) {
		return noApp()
	}
	_, err := exec(ctx, t.tx, "put member of application set", putSetMember, t.id, m.Application, m.Set)
	if code(err) == foreignKeyViolation {
		return fault.New(fault.Conflict, "the application, or the application set, was deleted meanwhile")
	}
	if err == nil {
		t.appChanged(m.Application)
	}
	return err
}

// DropSetMember ends that an application belongs to a set.
func (t *Tenant) DropSetMember(ctx context.Context, app hub.ApplicationID) error {
	if !hub.ValidID(string(app)) {
		return noApp()
	}
	n, err := exec(ctx, t.tx, "drop member of application set", dropSetMember, t.id, app)
	if n > 0 {
		t.appChanged(app)
	}
	return err
}

// SetResources returns the applications of a set as its status lists them, as
// many as limit says, in order of name.
func (t *Tenant) SetResources(ctx context.Context, set hub.ApplicationSetID, limit int) ([]hub.SetResource, error) {
	if !hub.ValidID(string(set)) {
		return nil, noSet()
	}
	return list(ctx, t.tx, "applications of application set", func(row pgx.CollectableRow) (r hub.SetResource, err error) {
		err = row.Scan(&r.Namespace, &r.Name, &r.Project, &r.Labels, &r.Sync, &r.Health, &r.Deleting)
		return r, err
	}, selectSetResources, t.id, set, limit)
}

// PutSetRepositories notes which repositories the generators of a set read. A
// push to one of them wakes the set.
func (t *Tenant) PutSetRepositories(ctx context.Context, s hub.ApplicationSet, urls []string) error {
	if !hub.ValidID(string(s.ID)) {
		return noSet()
	}
	var once []namedRepository
	var named []string
	for _, u := range urls {
		normal, err := repourl.Normalize(u)
		if err != nil || slices.Contains(named, normal) {
			continue
		}
		named, once = append(named, normal), append(once, namedRepository{normal, hub.GitRepository})
	}
	project := s.Project
	if project == hub.AnyProject {
		project = ""
	}
	var used, gone []string
	b := &pgx.Batch{}
	if len(named) > 0 {
		slices.Sort(named)
		slices.SortFunc(once, func(a, b namedRepository) int { return strings.Compare(a.url, b.url) })
		t.queueRepositories(b, project, once)
		queueList(b, "repositories of application set", pgx.RowTo[string], &used, insertSetRepositories, pgx.StrictNamedArgs{
			"tenant": t.id, "set": s.ID, "urls": named, "own_urls": repoKeys(named, project),
		})
		if err := send(ctx, t.tx, "note repositories of application set", b); err != nil {
			return err
		}
	}
	gone, err := list(ctx, t.tx, "repositories left by application set", pgx.RowTo[string], deleteSetRepositories, t.id, s.ID, nonNil(used))
	if err != nil {
		return err
	}
	return t.forgetRepositories(ctx, gone)
}

// PutSetPlaces notes the places whose events change what the generators of a set
// list. An event of one wakes the set.
func (t *Tenant) PutSetPlaces(ctx context.Context, id hub.ApplicationSetID, places []string) error {
	if !hub.ValidID(string(id)) {
		return noSet()
	}
	_, err := exec(ctx, t.tx, "put places of application set", putSetPlaces, id, hashesOf(places))
	return err
}

// RefreshSet has a set reconciled, and its repositories fetched first.
func (t *Tenant) RefreshSet(ctx context.Context, id hub.ApplicationSetID) error {
	if !hub.ValidID(string(id)) {
		return noSet()
	}
	used, err := list(ctx, t.tx, "repositories of application set", pgx.RowTo[string], selectSetRepositories, t.id, id)
	if err != nil {
		return err
	}
	if _, err := t.ApplicationSetByID(ctx, id); err != nil {
		return err
	}
	for _, r := range used {
		t.enqueue(hub.WorkFetch, r, time.Now(), true)
	}
	t.enqueue(hub.WorkApplicationSet, string(id), time.Now(), true)
	return nil
}

// WakeSetsOf has the sets of these applications reconciled: something of the
// applications was changed by others.
func (t *Tenant) WakeSetsOf(ctx context.Context, apps []hub.ApplicationID) error {
	return t.wakeSets(ctx, setsOfApplications, t.id, ids(apps))
}

// queueRollouts has the sets reconciled whose rollouts wait for applications
// that the transaction has changed.
func (t *Tenant) queueRollouts(b *pgx.Batch) {
	var apps []string
	for c, gone := range t.touched {
		if c.kind == changeApplication && !gone {
			apps = append(apps, c.id)
		}
	}
	if len(apps) > 0 {
		b.Queue(wakeRollouts, t.id, apps, hub.WorkApplicationSet, time.Now())
	}
}

// WakeSets has all sets of the tenant reconciled.
func (t *Tenant) WakeSets(ctx context.Context) error { return t.wakeSets(ctx, setsOfTenant, t.id) }

// wakeSets has the sets reconciled that a statement selects.
func (t *Tenant) wakeSets(ctx context.Context, statement string, args ...any) error {
	sets, err := list(ctx, t.tx, "application sets to wake", pgx.RowTo[string], statement, args...)
	now := time.Now()
	for _, id := range sets {
		t.enqueue(hub.WorkApplicationSet, id, now, false)
	}
	return err
}
