-- Applications outside of argocd need an entry in application.namespaces and in
-- their project's sourceNamespaces from now on. Where they were permitted without,
-- the entries are written.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
    t uuid;
BEGIN
    FOR t IN SELECT id FROM directory.tenant LOOP
        PERFORM set_config('app.tenant_id', t::text, true);
        INSERT INTO setting (tenant_id, map, key, value, updated_at, updated_by)
        SELECT t, 'argocd-cmd-params-cm', 'application.namespaces', string_agg(DISTINCT a.namespace, ','), now(), 'upgrade'
        FROM   application a
        WHERE  a.tenant_id = t AND a.namespace <> 'argocd'
        HAVING count(*) > 0
        ON CONFLICT (tenant_id, map, key) DO NOTHING;
        UPDATE project p
        SET    spec = (p.spec::jsonb || jsonb_build_object('sourceNamespaces', n.names))::text::json, version = version + 1, updated_at = now()
        FROM   (SELECT a.project, jsonb_agg(DISTINCT a.namespace) AS names
                FROM   application a
                WHERE  a.tenant_id = t AND a.namespace <> 'argocd'
                GROUP  BY a.project) n
        WHERE  p.tenant_id = t AND p.name = n.project
          AND  jsonb_typeof(p.spec::jsonb) = 'object'
          AND  coalesce(p.spec::jsonb -> 'sourceNamespaces', 'null') IN ('null', '[]');
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END $$;
-- +goose StatementEnd
