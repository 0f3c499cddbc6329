package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

// What is known of a cluster that has expired is Unknown, and found as such.
const (
	listedStates = `
	SELECT kind, namespace, name, api_group, application_id, cluster_id, version, message, requires_prune, born_at,
	       CASE WHEN cluster_id = ANY(@expired::uuid[]) OR sync = '' THEN 'Unknown' ELSE sync END AS sync,
	       CASE WHEN cluster_id = ANY(@expired::uuid[]) AND health <> '' THEN 'Unknown' ELSE health END AS health
	FROM   resource
	WHERE  tenant_id = @tenant AND managed AND application_id = ANY(@applications::uuid[])
	       AND (@clusters::uuid[] IS NULL OR cluster_id = ANY(@clusters::uuid[]))
	       AND (@kinds::text[] IS NULL OR kind = ANY(@kinds::text[]))
	       AND (@namespaces::text[] IS NULL OR namespace = ANY(@namespaces::text[]))
	       AND (@part::text = '' OR strpos(lower(name), @part::text) > 0)`
	listedFilter = `
	WHERE  (@sync::text[] IS NULL OR sync = ANY(@sync::text[])) AND (@health::text[] IS NULL OR health = ANY(@health::text[]))`
	selectListedObjects = `SELECT o.* FROM (` + listedStates + `
	       AND (kind, namespace, name, api_group, application_id, cluster_id) > (@after_kind, @after_namespace, @after_name, @after_group, @after_application::uuid, @after_cluster::uuid)
	) o` + listedFilter + `
	ORDER  BY kind, namespace, name, api_group, application_id, cluster_id
	LIMIT  @limit`
	countListedObjects = `
	SELECT CASE GROUPING(kind, namespace, cluster_id, application_id, sync, health)
	         WHEN 31 THEN 'kind' WHEN 47 THEN 'namespace' WHEN 55 THEN 'cluster' WHEN 59 THEN 'application' WHEN 61 THEN 'sync' ELSE 'health' END,
	       COALESCE(kind, namespace, cluster_id::text, application_id::text, sync, health), count(*)
	FROM   (` + listedStates + `) o` + listedFilter + `
	GROUP  BY GROUPING SETS ((kind), (namespace), (cluster_id), (application_id), (sync), (health))`
)

// noID is before every id.
const noID = "00000000-0000-0000-0000-000000000000"

func (t *Tenant) listedArgs(f hub.ObjectFilter) pgx.NamedArgs {
	place := func(id string) string {
		if hub.ValidID(id) {
			return id
		}
		return noID
	}
	var clusters []string // nil: any
	if f.Clusters != nil {
		clusters = ids(f.Clusters)
	}
	return pgx.NamedArgs{
		"tenant": t.id, "applications": ids(f.Applications), "clusters": clusters, "expired": ids(f.Expired),
		"kinds": anyOf(f.Kinds), "namespaces": anyOf(f.Namespaces), "sync": anyOf(f.Sync), "health": anyOf(f.Health), "part": strings.ToLower(f.Text),
		"after_kind": f.After.Kind, "after_namespace": f.After.Namespace, "after_name": f.After.Name, "after_group": f.After.Group,
		"after_application": place(string(f.After.Application)), "after_cluster": place(string(f.After.Cluster)), "limit": f.Limit,
	}
}

// anyOf are states as parameters; nil: any.
func anyOf[T ~string](in []T) []string {
	if len(in) == 0 {
		return nil
	}
	return texts(in)
}

// ListedObjects returns managed objects of several applications, in the order of
// their places.
func (t *Tenant) ListedObjects(ctx context.Context, f hub.ObjectFilter) ([]hub.ListedObject, error) {
	return list(ctx, t.tx, "listed objects", func(row pgx.CollectableRow) (o hub.ListedObject, err error) {
		err = row.Scan(&o.Kind, &o.Namespace, &o.Name, &o.Group, &o.Application, &o.Cluster, &o.Version, &o.Message, &o.RequiresPrune, &o.CreatedAt, &o.Sync, &o.Health)
		return o, err
	}, selectListedObjects, t.listedArgs(f))
}

// CountObjects counts the objects of a filter by each of their values; its place
// and limit do not count.
func (t *Tenant) CountObjects(ctx context.Context, f hub.ObjectFilter) ([]hub.ObjectCount, error) {
	return list(ctx, t.tx, "counts of objects", func(row pgx.CollectableRow) (c hub.ObjectCount, err error) {
		err = row.Scan(&c.Field, &c.Value, &c.Count)
		return c, err
	}, countListedObjects, t.listedArgs(f))
}
