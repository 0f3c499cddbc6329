package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
)

const (
	deleteSources = `DELETE FROM app_source WHERE tenant_id = $1 AND application_id = $2`
	// The lock conflicts with that of Fetched: either the result of a fetch is
	// visible when the application is refreshed, or the fetch finds the
	// application. Without it one that is accepted while the fetch ends would
	// wait for the next.
	insertSources = `
		WITH used AS MATERIALIZED (
			SELECT id, url FROM repository WHERE tenant_id = @tenant AND url = ANY (@urls::text[] || @own_urls::text[]) ORDER BY id FOR SHARE
		)
		INSERT INTO app_source (tenant_id, application_id, idx, repository_id)
		SELECT @tenant, @app, u.idx, coalesce(own.id, r.id)
		FROM   unnest(@indexes::integer[], @urls::text[], @own_urls::text[]) AS u (idx, url, own)
		LEFT   JOIN used r ON r.url = u.url
		LEFT   JOIN used own ON own.url = u.own`
	// Applications of a project leave the repository without one for the
	// project's own.
	takeSources = `
		WITH taken AS (
			UPDATE app_source s
			SET    repository_id = $2
			FROM   application a, repository r
			WHERE  s.tenant_id = $1 AND r.tenant_id = $1 AND r.url = $3 AND s.repository_id = r.id
			  AND  a.tenant_id = $1 AND a.id = s.application_id AND a.project = $4
			RETURNING s.application_id)
		SELECT DISTINCT application_id FROM taken`
	giveSources = `
		WITH given AS (
			UPDATE app_source s
			SET    repository_id = r.id
			FROM   repository r
			WHERE  s.tenant_id = $1 AND s.repository_id = $2 AND r.tenant_id = $1 AND r.url = $3
			RETURNING s.application_id)
		SELECT DISTINCT application_id FROM given`
	// Charts and revisions that applications name of a repository.
	selectTargets = `
		SELECT   x.chart, x.revision, bool_or(x.pass)
		FROM     (SELECT coalesce(o.source ->> 'chart', '') AS chart, coalesce(o.source ->> 'targetRevision', '') AS revision,
		                 coalesce(o.source -> 'helm' ->> 'passCredentials', '') = 'true' AS pass
		          FROM   app_source s
		          JOIN   application a ON a.tenant_id = s.tenant_id AND a.id = s.application_id,
		          LATERAL (SELECT CASE WHEN json_typeof(a.spec -> 'sources') = 'array' AND json_array_length(a.spec -> 'sources') > 0
		                               THEN a.spec -> 'sources' -> s.idx ELSE a.spec -> 'source' END AS source) o
		          WHERE  s.tenant_id = $1 AND s.repository_id = $2) x
		GROUP BY x.chart, x.revision
		ORDER BY x.chart, x.revision`
	selectUsed    = `SELECT EXISTS (SELECT FROM app_source WHERE tenant_id = $1 AND repository_id = $2)`
	selectOrphans = `
		DELETE FROM repository r
		WHERE  r.tenant_id = $1 AND NOT r.registered AND r.id = ANY ($2::uuid[])
		  AND  NOT EXISTS (SELECT FROM app_source s WHERE s.tenant_id = r.tenant_id AND s.repository_id = r.id)
		  AND  NOT EXISTS (SELECT FROM application_set_repository s WHERE s.tenant_id = r.tenant_id AND s.repository_id = r.id)
		RETURNING r.id`
	selectSourceIDs = `SELECT DISTINCT repository_id FROM app_source WHERE tenant_id = $1 AND application_id = ANY ($2::uuid[])`
)

// A namedRepository is one that a source names: its normalised URL, and its kind
// where nobody has registered it.
type namedRepository struct {
	url  string
	kind hub.RepositoryKind
}

// queueSources makes the repositories of an application known that has none
// yet. A source without a URL has no repository.
func (t *Tenant) queueSources(b *pgx.Batch, app hub.ApplicationID, project string, sources []namedRepository) {
	var indexes []int32
	var named []string
	var once []namedRepository
	for i, s := range sources {
		if s.url == "" {
			continue
		}
		indexes, named = append(indexes, int32(i)), append(named, s.url)
		if !slices.ContainsFunc(once, func(o namedRepository) bool { return o.url == s.url }) {
			once = append(once, s)
		}
	}
	if len(named) == 0 {
		return
	}
	slices.SortFunc(once, func(a, b namedRepository) int { return strings.Compare(a.url, b.url) })
	t.queueRepositories(b, project, once)
	b.Queue(insertSources, pgx.StrictNamedArgs{
		"tenant": t.id, "app": app, "indexes": indexes, "urls": named, "own_urls": repoKeys(named, project),
	})
}

// repoKeys distinguish the repositories of a project.
func repoKeys(urls []string, project string) []string {
	keys := make([]string, len(urls))
	for i, url := range urls {
		keys[i] = repourl.Key(url, project)
	}
	return keys
}

// takeSources has the applications of a project use its own repository.
func (t *Tenant) takeSources(ctx context.Context, r hub.Repository) error {
	apps, err := list(ctx, t.tx, "applications of the project", pgx.RowTo[string], takeSources, t.id, r.ID, r.URL, r.Project)
	if err != nil || len(apps) == 0 {
		return err
	}
	t.sourcesMoved(apps)
	left, err := t.RepositoryByURL(ctx, r.URL)
	if err != nil {
		return err
	}
	return t.forgetRepositories(ctx, []string{string(left.ID)})
}

// giveSources has the applications that use the repository of a project use
// the one without a project.
func (t *Tenant) giveSources(ctx context.Context, r hub.Repository) error {
	var used bool
	if err := t.tx.QueryRow(ctx, selectUsed, t.id, r.ID).Scan(&used); err != nil {
		return fmt.Errorf("check whether repository %q is used: %w", r.ID, err)
	}
	if !used {
		return nil
	}
	b := &pgx.Batch{}
	t.queueRepositories(b, "", []namedRepository{{r.URL, r.Type}})
	if err := send(ctx, t.tx, "note repository", b); err != nil {
		return err
	}
	apps, err := list(ctx, t.tx, "applications of the project", pgx.RowTo[string], giveSources, t.id, r.ID, r.URL)
	t.sourcesMoved(apps)
	return err
}

// sourcesMoved refreshes applications whose repository is another one now.
func (t *Tenant) sourcesMoved(apps []string) {
	for _, app := range apps {
		t.enqueue(hub.WorkRefresh, app, time.Now(), false)
		t.appChanged(hub.ApplicationID(app))
	}
}

// forgetRepositories deletes those that are neither registered nor used any
// more.
func (t *Tenant) forgetRepositories(ctx context.Context, candidates []string) error {
	if len(candidates) == 0 {
		return nil
	}
	gone, err := list(ctx, t.tx, "unused repositories", pgx.RowTo[string], selectOrphans, t.id, candidates)
	for _, id := range gone {
		t.removed(changeRepository, id)
	}
	return err
}

// Targets returns the charts and revisions that applications name of a
// repository.
func (t *Tenant) Targets(ctx context.Context, id hub.RepositoryID) ([]hub.Target, error) {
	if !hub.ValidID(string(id)) {
		return nil, noRepository()
	}
	return list(ctx, t.tx, "targets", func(row pgx.CollectableRow) (out hub.Target, err error) {
		err = row.Scan(&out.Chart, &out.Revision, &out.PassCredentials)
		return out, err
	}, selectTargets, t.id, id)
}
