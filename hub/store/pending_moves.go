package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

// Applications that share a repository with one and go to its cluster, and of
// whose next target only that is known: it is being made.
const selectUndecided = `
	SELECT a.name
	FROM   work.waiting($2) AS w (id)
	JOIN   application a ON a.tenant_id = $1 AND a.id = w.id
	JOIN   application_status s ON s.tenant_id = $1 AND s.application_id = w.id
	WHERE  a.cluster_id = $3 AND a.id <> $4 AND a.id <> ALL ($5::uuid[]) AND a.deleting_at IS NULL AND s.revision <> $6
	  AND  EXISTS (
	         SELECT FROM app_source own
	         JOIN   repository o ON o.tenant_id = $1 AND o.id = own.repository_id
	         JOIN   repository same ON same.tenant_id = $1 AND same.address = o.address
	         JOIN   app_source other ON other.tenant_id = $1 AND other.repository_id = same.id
	         WHERE  own.tenant_id = $1 AND own.application_id = $4 AND other.application_id = a.id)
	ORDER  BY a.name
	LIMIT  1`

// Undecided returns an application that may be about to list what another one
// does not list any more at a revision: one of the same cluster and repository
// that must still be refreshed. Those that are decided in this batch are left
// out. Empty: none.
func (t *Tenant) Undecided(ctx context.Context, app hub.Application, revision string, besides []hub.ApplicationID) (string, error) {
	if !hub.ValidID(string(app.ID)) || !hub.ValidID(string(app.Cluster)) {
		return "", nil
	}
	var name string
	err := t.tx.QueryRow(ctx, selectUndecided, t.id, hub.WorkRefresh, app.Cluster, app.ID, ids(besides), revision).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for applications that wait to be refreshed: %w", err)
	}
	return name, nil
}
