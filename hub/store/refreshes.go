package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	selectAppSources = `
		SELECT application_id, idx, repository_id
		FROM   app_source
		WHERE  tenant_id = $1 AND application_id = ANY ($2::uuid[])
		ORDER  BY application_id, idx`
	selectUsedRepositories = `
		SELECT id, tenant_id, address, type, name, project, username, credential IS NOT NULL,
		       insecure, plain_http, proxy, no_proxy, lfs, depth, registered, fetched_at, error, error_at, error_since, version, created_at
		FROM   repository
		WHERE  tenant_id = $1 AND id = ANY ($2::uuid[])`
	selectManyRefs = `
		SELECT repository_id, name, commit
		FROM   ref
		WHERE  tenant_id = $1 AND repository_id = ANY ($2::uuid[])
		ORDER  BY repository_id, name`
	selectPushedBases = `SELECT application_id, pushed_at FROM directory.pushed_bases($1::uuid[])`
	selectAllApps     = `SELECT id FROM application WHERE tenant_id = $1`
)

// Refreshes loads all that decides about the next desired state of the
// applications that there are, with their newest recent snapshots: one
// statement for each table, not for each application.
func (t *Tenant) Refreshes(ctx context.Context, want []hub.ApplicationID, recent int) ([]hub.Refresh, error) {
	out := make([]hub.Refresh, 0, len(want))
	w := &messageDecoder{}
	b := &pgx.Batch{}
	b.Queue(planOnce)
	queueList(b, "applications", func(row pgx.CollectableRow) (r hub.Refresh, err error) {
		r.Application, err = w.application(row)
		return r, err
	}, &out, applicationsByID, t.id, false, ids(want))
	if err := send(ctx, t.tx, "read applications", b); err != nil || len(out) == 0 {
		return nil, err
	}
	names := map[string]bool{}
	var clusters []hub.ClusterID
	for i := range out {
		a := &out[i].Application
		names[a.Project] = true
		if a.Cluster != "" {
			clusters = append(clusters, a.Cluster)
		}
	}
	projects, err := t.ProjectSpecs(ctx, slices.Collect(maps.Keys(names)))
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
	pushed, err := t.pushedBases(ctx, snapshots)
	if err != nil {
		return nil, err
	}
	shared := make(map[string]*hub.Project, len(projects))
	for name, p := range projects {
		p.Share()
		shared[name] = &p
	}
	for i := range out {
		r := &out[i]
		r.Sources, r.Recent = sources[r.Application.ID], snapshots[r.Application.ID]
		r.Project, r.BasesPushed = shared[r.Application.Project], pushed[r.Application.ID]
		if c, ok := platforms[r.Application.Cluster]; ok {
			r.Cluster = &c
		}
	}
	return out, nil
}

// pushedBases returns when bases that applications use were last pushed to. Most
// use none.
func (t *Tenant) pushedBases(ctx context.Context, recent map[hub.ApplicationID][]hub.Snapshot) (map[hub.ApplicationID]time.Time, error) {
	var users []string
	for app, all := range recent {
		if slices.ContainsFunc(all, func(s hub.Snapshot) bool { return hub.HasBases(s.Inputs) }) {
			users = append(users, string(app))
		}
	}
	if len(users) == 0 {
		return nil, nil
	}
	out := make(map[hub.ApplicationID]time.Time, len(users))
	rows, err := t.tx.Query(ctx, selectPushedBases, users)
	if err != nil {
		return nil, fmt.Errorf("read pushes to bases: %w", err)
	}
	var app hub.ApplicationID
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&app, &at}, func() error {
		out[app] = at
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read pushes to bases: %w", err)
	}
	return out, nil
}

// sourceStates returns the repositories of each application by the index of its
// sources, with their refs. Each repository is read once, and its refs are one
// list for all that use it.
func (t *Tenant) sourceStates(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.SourceState, error) {
	type source struct {
		app  hub.ApplicationID
		idx  int
		repo hub.RepositoryID
	}
	sources, err := list(ctx, t.tx, "sources", func(row pgx.CollectableRow) (s source, err error) {
		err = row.Scan(&s.app, &s.idx, &s.repo)
		return s, err
	}, selectAppSources, t.id, ids(apps))
	if err != nil {
		return nil, err
	}
	used := map[hub.RepositoryID]hub.SourceState{}
	for _, s := range sources {
		used[s.repo] = hub.SourceState{}
	}
	if err := t.readRepositories(ctx, used); err != nil {
		return nil, err
	}
	out := make(map[hub.ApplicationID][]hub.SourceState, len(apps))
	for _, s := range sources {
		for len(out[s.app]) < s.idx {
			out[s.app] = append(out[s.app], hub.SourceState{})
		}
		out[s.app] = append(out[s.app], used[s.repo])
	}
	return out, nil
}

// readRepositories fills in repositories and their refs.
func (t *Tenant) readRepositories(ctx context.Context, into map[hub.RepositoryID]hub.SourceState) error {
	if len(into) == 0 {
		return nil
	}
	type ref struct {
		of hub.RepositoryID
		hub.Ref
	}
	var repos []hub.Repository
	var refs []ref
	want := ids(slices.Collect(maps.Keys(into)))
	b := &pgx.Batch{}
	queueList(b, "repositories", scanRepository, &repos, selectUsedRepositories, t.id, want)
	queueList(b, "refs", func(row pgx.CollectableRow) (r ref, err error) {
		err = row.Scan(&r.of, &r.Name, &r.Commit)
		return r, err
	}, &refs, selectManyRefs, t.id, want)
	if err := send(ctx, t.tx, "read repositories", b); err != nil {
		return err
	}
	byRepo := make(map[hub.RepositoryID][]hub.Ref, len(into))
	for _, r := range refs {
		byRepo[r.of] = append(byRepo[r.of], r.Ref)
	}
	for _, r := range repos {
		into[r.ID] = hub.SourceState{Repository: r, Refs: byRepo[r.ID]}
	}
	return nil
}

// RefreshApplications refreshes all applications of the tenant: something that
// affects all of them has changed.
func (t *Tenant) RefreshApplications(ctx context.Context) error {
	apps, err := list(ctx, t.tx, "applications", pgx.RowTo[string], selectAllApps, t.id)
	now := time.Now()
	for _, app := range apps {
		t.enqueue(hub.WorkRefresh, app, now, false)
	}
	if err != nil {
		return err
	}
	return t.WakeSets(ctx)
}
