package catalog

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
)

// visibilityMark stands between a place in the feed and what its reader could see.
const visibilityMark = "~"

// cursor is the place of the transaction in the feed, with what the caller sees.
func (r *reader) cursor(ctx context.Context) (string, error) {
	at, err := r.FeedCursor(ctx)
	return JoinCursor(at, r.Rights.Visibility()), err
}

// JoinCursor puts together what SplitCursor takes apart.
func JoinCursor(at, visibility string) string { return at + visibilityMark + visibility }

// SplitCursor returns the place in the feed, and what its reader could see when
// the cursor was made; empty: it is not known.
func SplitCursor(cursor string) (at, visibility string) {
	at, visibility, _ = strings.Cut(cursor, visibilityMark)
	return at, visibility
}

// PolicyVersion is the version of what the rights of a tenant are made of.
func (c *Catalog) PolicyVersion(ctx context.Context, tenant hub.TenantID) (version int64, err error) {
	err = c.parts.Service.Store.ReadTenant(ctx, tenant, func(_ context.Context, tx transact.Tx) error {
		version = tx.PolicyVersion()
		return nil
	})
	return version, err
}

// VisibilityChanges returns the caller's rights, and the objects that became visible
// or invisible compared with other rights of the caller.
func (c *Catalog) VisibilityChanges(ctx context.Context, by hub.Caller, before *access.Index) (now *access.Index, changes []hub.Change, err error) {
	err = c.read(ctx, by, func(ctx context.Context, r *reader) error {
		now, changes = r.Rights, nil
		if before.Visibility() == now.Visibility() {
			return nil
		}
		note := func(resource, kind, id string, names ...string) {
			was, is := before.CheckAny(resource, access.Get, names...), now.CheckAny(resource, access.Get, names...)
			if was != is {
				changes = append(changes, hub.Change{Kind: kind, ID: id, Gone: was})
			}
		}
		return r.eachVisible(ctx, note)
	})
	return now, changes, err
}

// eachVisible names all objects that the event stream may show.
func (r *reader) eachVisible(ctx context.Context, note func(resource, kind, id string, names ...string)) error {
	places, err := r.ApplicationPlaces(ctx)
	if err != nil {
		return err
	}
	for _, p := range places {
		note(access.Applications, "application", string(p.ID), object(p.Project, hub.ApplicationKey{Namespace: p.Namespace, Name: p.Name}))
	}
	projects, err := r.Tx.Projects(ctx)
	if err != nil {
		return err
	}
	for _, p := range projects {
		note(access.Projects, "project", string(p.ID), p.Name)
	}
	clusters, err := r.ClusterNames(ctx)
	if err != nil {
		return err
	}
	for _, cl := range clusters {
		note(access.Clusters, "cluster", string(cl.ID), validation.ClusterNames(cl)...)
	}
	sets, err := r.Tx.ApplicationSets(ctx)
	if err != nil {
		return err
	}
	for _, s := range sets {
		note(access.ApplicationSets, "applicationset", string(s.ID), setObject(s))
	}
	repositories, err := r.Repositories(ctx)
	for _, repo := range repositories {
		note(access.Repositories, "repository", string(repo.ID), repoObject(repo.Project, repo.URL))
	}
	return err
}
