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
	FROM   work.waiting(@kind) AS w (id)
	JOIN   application a ON a.tenant_id = @tenant AND a.id = w.id
	JOIN   application_status s ON s.tenant_id = @tenant AND s.application_id = w.id
	WHERE  a.cluster_id = @cluster AND a.id <> @app AND a.id <> ALL (@besides::uuid[]) AND a.deleting_at IS NULL AND s.revision <> @revision
	  AND  EXISTS (
	         SELECT FROM app_source own
	         JOIN   repository o ON o.tenant_id = @tenant AND o.id = own.repository_id
	         JOIN   repository same ON same.tenant_id = @tenant AND same.address = o.address
	         JOIN   app_source other ON other.tenant_id = @tenant AND other.repository_id = same.id
	         WHERE  own.tenant_id = @tenant AND own.application_id = @app AND other.application_id = a.id)
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
	err := t.tx.QueryRow(ctx, selectUndecided, pgx.StrictNamedArgs{
		"tenant": t.id, "kind": hub.WorkRefresh, "cluster": app.Cluster, "app": app.ID, "besides": ids(besides),
		"revision": revision,
	}).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for applications that wait to be refreshed: %w", err)
	}
	return name, nil
}
