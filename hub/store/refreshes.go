package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	selectAppSources = `
		SELECT s.application_id, s.idx, r.id, r.tenant_id, r.url, r.type, r.name, r.project, r.username, r.credential IS NOT NULL,
		       r.insecure, r.registered, r.fetched_at, r.error, r.error_at, r.error_since, r.version, r.created_at
		FROM   app_source s
		JOIN   repository r ON r.tenant_id = s.tenant_id AND r.id = s.repository_id
		WHERE  s.tenant_id = $1 AND s.application_id = ANY ($2::uuid[])
		ORDER  BY s.application_id, s.idx`
	selectManyRefs = `
		SELECT repository_id, name, commit
		FROM   ref
		WHERE  tenant_id = $1 AND repository_id = ANY ($2::uuid[])
		ORDER  BY repository_id, name`
	selectAllApps = `SELECT id FROM application WHERE tenant_id = $1`
)

// Refreshes loads all that decides about the next desired state of the
// applications that there are, with their newest recent snapshots: one
// statement for each table, not for each application.
func (t *Tenant) Refreshes(ctx context.Context, want []hub.ApplicationID, recent int) ([]hub.Refresh, error) {
	b := &pgx.Batch{}
	b.Queue(planOnce)
	found := t.queueApplications(b, want)
	if err := send(ctx, t.tx, "read applications", b); err != nil {
		return nil, err
	}
	apps := found()
	if len(apps) == 0 {
		return nil, nil
	}
	var names []string
	var clusters []hub.ClusterID
	for _, a := range apps {
		names = append(names, a.Project)
		if a.Cluster != "" {
			clusters = append(clusters, a.Cluster)
		}
	}
	projects, err := t.ProjectSpecs(ctx, names)
	if err != nil {
		return nil, err
	}
	platforms, err := t.clusterPlatforms(ctx, clusters)
	if err != nil {
		return nil, err
	}
	sources, err := t.sourceStates(ctx, want)
	if err != nil {
		return nil, err
	}
	snapshots, err := t.RecentSnapshots(ctx, want, recent)
	if err != nil {
		return nil, err
	}
	out := make([]hub.Refresh, 0, len(apps))
	for id, a := range apps {
		r := hub.Refresh{Application: a, Sources: sources[id], Recent: snapshots[id]}
		if p, ok := projects[a.Project]; ok {
			r.Project = &p
		}
		if c, ok := platforms[a.Cluster]; ok {
			r.Cluster = &c
		}
		out = append(out, r)
	}
	return out, nil
}

// sourceStates gives the repositories of each application by the index of its
// sources, with their refs.
func (t *Tenant) sourceStates(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.SourceState, error) {
	out := make(map[hub.ApplicationID][]hub.SourceState, len(apps))
	used := map[hub.RepositoryID][]hub.Ref{}
	_, err := list(ctx, t.tx, "sources", func(row pgx.CollectableRow) (none struct{}, err error) {
		var app hub.ApplicationID
		var idx int
		var r hub.Repository
		err = row.Scan(&app, &idx, &r.ID, &r.Tenant, &r.URL, &r.Type, &r.Name, &r.Project, &r.Username, &r.HasCredential,
			&r.Insecure, &r.Registered, &r.FetchedAt, &r.Error, &r.ErrorAt, &r.ErrorSince, &r.Version, &r.CreatedAt)
		for len(out[app]) < idx {
			out[app] = append(out[app], hub.SourceState{})
		}
		out[app] = append(out[app], hub.SourceState{Repository: r})
		used[r.ID] = nil
		return none, err
	}, selectAppSources, t.id, ids(apps))
	if err != nil {
		return nil, err
	}
	if err := t.readRefs(ctx, used); err != nil {
		return nil, err
	}
	for _, states := range out {
		for i := range states {
			states[i].Refs = used[states[i].Repository.ID]
		}
	}
	return out, nil
}

// readRefs fills in the refs of repositories. Applications of one repository
// share the list.
func (t *Tenant) readRefs(ctx context.Context, into map[hub.RepositoryID][]hub.Ref) error {
	var want []string
	for id := range into {
		want = append(want, string(id))
	}
	if len(want) == 0 {
		return nil
	}
	rows, err := t.tx.Query(ctx, selectManyRefs, t.id, want)
	if err != nil {
		return fmt.Errorf("query refs: %w", err)
	}
	var id hub.RepositoryID
	var ref hub.Ref
	_, err = pgx.ForEachRow(rows, []any{&id, &ref.Name, &ref.Commit}, func() error {
		into[id] = append(into[id], ref)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read refs: %w", err)
	}
	return nil
}

// RefreshApplications has all applications of the tenant looked at anew:
// something was changed that decides about any of them.
func (t *Tenant) RefreshApplications(ctx context.Context) error {
	apps, err := list(ctx, t.tx, "applications", pgx.RowTo[string], selectAllApps, t.id)
	now := time.Now()
	for _, app := range apps {
		t.enqueue(hub.WorkRefresh, app, now, false)
	}
	return err
}
