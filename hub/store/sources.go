package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	deleteSources = `DELETE FROM app_source WHERE tenant_id = $1 AND application_id = $2`
	// The lock conflicts with that of Fetched: either what a fetch brings is
	// there when the application is looked at, or the fetch finds the
	// application. Without it one that is accepted while the fetch ends would
	// wait for the next.
	insertSources = `
		WITH used AS MATERIALIZED (
			SELECT id, url FROM repository WHERE tenant_id = $1 AND url = ANY ($4::text[]) ORDER BY id FOR SHARE
		)
		INSERT INTO app_source (tenant_id, application_id, idx, repository_id)
		SELECT $1, $2, u.idx, r.id
		FROM   unnest($3::integer[], $4::text[]) AS u (idx, url)
		LEFT   JOIN used r ON r.url = u.url`
	selectOrphans = `
		DELETE FROM repository r
		WHERE  r.tenant_id = $1 AND NOT r.registered AND r.id = ANY ($2::uuid[])
		  AND  NOT EXISTS (SELECT FROM app_source s WHERE s.tenant_id = r.tenant_id AND s.repository_id = r.id)
		RETURNING r.id`
	selectSourceIDs = `SELECT DISTINCT repository_id FROM app_source WHERE tenant_id = $1 AND application_id = ANY ($2::uuid[])`
)

// queueSources makes the repositories of an application known that has none
// yet. A source without a URL has no repository.
func (t *Tenant) queueSources(b *pgx.Batch, app hub.ApplicationID, urls []string) {
	var indexes []int32
	var named []string
	for i, url := range urls {
		if url != "" {
			indexes, named = append(indexes, int32(i)), append(named, url)
		}
	}
	if len(named) == 0 {
		return
	}
	t.queueRepositories(b, slices.Compact(slices.Sorted(slices.Values(named))))
	b.Queue(insertSources, t.id, app, indexes, named)
}

// forgetRepositories forgets those that nobody registered and nobody uses any
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
