-- When a base of an application was pushed to. A listing of its branches that
-- began before is not used any more (decision 0179).

-- +goose Up
ALTER TABLE directory.base_place ADD COLUMN pushed_at timestamptz;

-- +goose StatementBegin
-- Places that an application has already are kept with their pushes.
CREATE OR REPLACE FUNCTION directory.put_bases(applications uuid[], places bytea[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.base_place b
    WHERE  b.tenant_id = directory.bound_tenant() AND b.application_id = ANY (applications)
      AND  NOT EXISTS (SELECT FROM unnest(applications, places) AS u (application, place) WHERE u.application = b.application_id AND u.place = b.place);
    INSERT INTO directory.base_place (place, tenant_id, application_id)
    SELECT DISTINCT u.place, directory.bound_tenant(), u.application FROM unnest(applications, places) AS u (application, place)
    ON CONFLICT DO NOTHING;
$$;

CREATE FUNCTION directory.pushed_bases(applications uuid[]) RETURNS TABLE (application_id uuid, pushed_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT b.application_id, max(b.pushed_at) FROM directory.base_place b
    WHERE  b.tenant_id = directory.bound_tenant() AND b.application_id = ANY (applications) AND b.pushed_at IS NOT NULL
    GROUP  BY b.application_id;
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.pushed_bases FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.pushed_bases TO capstan_app;

-- +goose Down
DROP FUNCTION directory.pushed_bases;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION directory.put_bases(applications uuid[], places bytea[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.base_place WHERE tenant_id = directory.bound_tenant() AND application_id = ANY (applications);
    INSERT INTO directory.base_place (place, tenant_id, application_id)
    SELECT DISTINCT u.place, directory.bound_tenant(), u.application FROM unnest(applications, places) AS u (application, place)
    ON CONFLICT DO NOTHING;
$$;
-- +goose StatementEnd
ALTER TABLE directory.base_place DROP COLUMN pushed_at;
