-- Repositories of charts and artifacts are sources of applications. plain_http
-- has a registry contacted without TLS. A repository that only applications name
-- is of the kind that these say.

-- +goose Up
ALTER TABLE repository ADD COLUMN plain_http boolean NOT NULL DEFAULT false;

-- +goose StatementBegin
DO $$
DECLARE
    t uuid;
BEGIN
    FOR t IN SELECT id FROM directory.tenant LOOP
        PERFORM set_config('app.tenant_id', t::text, true);
        UPDATE repository r SET type = 'oci'
        WHERE  r.tenant_id = t AND NOT r.registered AND r.type = 'git' AND r.address LIKE 'oci://%';
        UPDATE repository r SET type = 'helm'
        FROM   app_source s, application a
        WHERE  r.tenant_id = t AND NOT r.registered AND r.type <> 'helm'
          AND  s.tenant_id = t AND s.repository_id = r.id AND a.tenant_id = t AND a.id = s.application_id
          AND  coalesce(CASE WHEN json_typeof(a.spec -> 'sources') = 'array' AND json_array_length(a.spec -> 'sources') > 0
                             THEN a.spec -> 'sources' -> s.idx ELSE a.spec -> 'source' END ->> 'chart', '') <> '';
        PERFORM work.put(t, ARRAY['fetch'], ARRAY[r.id], ARRAY[now()], ARRAY[false])
        FROM    repository r
        WHERE   r.tenant_id = t AND r.type <> 'git';
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END $$;
-- +goose StatementEnd
