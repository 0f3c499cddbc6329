package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	applicationsNamed = selectApplications + ` AND (a.namespace, a.name) IN (SELECT u.namespace, u.name FROM unnest($3::text[], $4::text[]) AS u (namespace, name))`

	selectRenderedBy = `
		SELECT object_id, CASE WHEN project_id IS NOT NULL THEN 'AppProject' WHEN application_set_id IS NOT NULL THEN 'ApplicationSet' ELSE 'Application' END, parent_id, applied::text
		FROM   rendered
		WHERE  tenant_id = $1 AND object_id = ANY ($2::uuid[])`
	putRenderedBy = `
		INSERT INTO rendered (tenant_id, object_id, application_id, project_id, application_set_id, parent_id, applied)
		VALUES (@tenant, @object::uuid, CASE WHEN @kind = 'Application' THEN @object::uuid END, CASE WHEN @kind = 'AppProject' THEN @object::uuid END,
		        CASE WHEN @kind = 'ApplicationSet' THEN @object::uuid END, @parent, @applied)
		ON CONFLICT (tenant_id, object_id) DO UPDATE SET parent_id = excluded.parent_id, applied = excluded.applied`
)

// ApplicationsNamed returns those of the applications that there are.
func (t *Tenant) ApplicationsNamed(ctx context.Context, keys []hub.ApplicationKey) ([]hub.Application, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	namespaces, names := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		namespaces[i], names[i] = clean(k.Namespace), clean(k.Name)
	}
	return list(ctx, t.tx, "applications", scanApplications(), applicationsNamed, t.id, false, namespaces, names)
}

// RenderedBy returns which application has rendered each of these objects of
// the hub. Objects without one are left out.
func (t *Tenant) RenderedBy(ctx context.Context, objects []string) (map[string]hub.RenderedBy, error) {
	found, err := list(ctx, t.tx, "renditions", func(row pgx.CollectableRow) (r hub.RenderedBy, err error) {
		err = row.Scan(&r.Object, &r.Kind, &r.Parent, (*rawJSON)(&r.Applied))
		return r, err
	}, selectRenderedBy, t.id, ids(objects))
	out := make(map[string]hub.RenderedBy, len(found))
	for _, r := range found {
		out[r.Object] = r
	}
	return out, err
}

// PutRenderedBy notes which application has rendered an object of the hub.
func (t *Tenant) PutRenderedBy(ctx context.Context, r hub.RenderedBy) error {
	if !hub.ValidID(r.Object) || !hub.ValidID(string(r.Parent)) {
		return noApp()
	}
	_, err := exec(ctx, t.tx, "put parent", putRenderedBy, pgx.StrictNamedArgs{
		"tenant": t.id, "object": r.Object, "kind": r.Kind, "parent": r.Parent, "applied": string(r.Applied),
	})
	if code(err) == foreignKeyViolation {
		return fault.New(fault.Conflict, "the object, or the application that renders it, was deleted meanwhile")
	}
	return err
}
