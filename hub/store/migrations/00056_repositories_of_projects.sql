-- A repository may be registered once for each project and once without one.
-- Its URL tells rows apart, as replicas of an earlier version need it: that of
-- a project's ends in # and the project, which no normalised URL has, and which
-- Git is not sent. address is the URL alone.

-- +goose Up
ALTER TABLE repository ADD COLUMN address text GENERATED ALWAYS AS (split_part(url, '#', 1)) STORED;
CREATE INDEX repository_address ON repository (tenant_id, address);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION directory.place_of(url text) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT sha256(convert_to(regexp_replace(split_part(url, '#', 1), '^[a-z+]+://(\[[^]]*\]|[^/:]*)(:[0-9]+)?', '\1'), 'UTF8'));
$$;

CREATE FUNCTION repository_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.url := split_part(NEW.url, '#', 1) || CASE WHEN NEW.project = '' THEN '' ELSE '#' || NEW.project END;
    RETURN NEW;
END $$;

-- What is a project's so far becomes its own; applications of others that name
-- it get the repository without a project, which is looked at anew.
DO $$
DECLARE
    t uuid;
BEGIN
    FOR t IN SELECT id FROM directory.tenant LOOP
        PERFORM set_config('app.tenant_id', t::text, true);
        UPDATE repository SET url = url || '#' || project WHERE tenant_id = t AND project <> '' AND strpos(url, '#') = 0;
        INSERT INTO repository (tenant_id, id, url, type, registered, created_at)
        SELECT DISTINCT ON (r.address) t, gen_random_uuid(), r.address, 'git', false, now()
        FROM   app_source s
        JOIN   application a ON a.tenant_id = t AND a.id = s.application_id
        JOIN   repository r ON r.tenant_id = t AND r.id = s.repository_id
        WHERE  s.tenant_id = t AND r.project <> '' AND r.project <> a.project
        ON CONFLICT (tenant_id, url) DO NOTHING;
        PERFORM work.put(t, ARRAY['fetch'], ARRAY[n.id], ARRAY[now()], ARRAY[false])
        FROM    repository n
        JOIN    repository r ON r.tenant_id = t AND r.address = n.url AND r.project <> ''
        WHERE   n.tenant_id = t AND n.project = '' AND n.fetched_at IS NULL;
        UPDATE app_source s SET repository_id = n.id
        FROM   application a, repository r, repository n
        WHERE  s.tenant_id = t AND a.tenant_id = t AND a.id = s.application_id
          AND  r.tenant_id = t AND r.id = s.repository_id AND r.project <> '' AND r.project <> a.project
          AND  n.tenant_id = t AND n.url = r.address;
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION repository_key FROM PUBLIC;
CREATE TRIGGER key BEFORE INSERT OR UPDATE OF url, project ON repository
    FOR EACH ROW EXECUTE FUNCTION repository_key();
