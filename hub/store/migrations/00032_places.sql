-- Which repositories a webhook means, whosever they are: one look instead of
-- one for each tenant. A place is the hash of what hub.RepoPlace gives, so that
-- the directory goes on holding ids and hashes only.

-- +goose Up
CREATE TABLE directory.repository_place (
    place         bytea NOT NULL CHECK (octet_length(place) = 32),
    tenant_id     uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    repository_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, repository_id)
);
CREATE INDEX repository_place_found ON directory.repository_place (place, tenant_id, repository_id);

-- +goose StatementBegin
CREATE FUNCTION directory.place_of(url text) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT sha256(convert_to(regexp_replace(url, '^[a-z+]+://(\[[^]]*\]|[^/:]*)(:[0-9]+)?', '\1'), 'UTF8'));
$$;

-- The tenant is that of the row, which the policy of its table has checked.
CREATE FUNCTION directory.note_place() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM directory.repository_place WHERE tenant_id = OLD.tenant_id AND repository_id = OLD.id;
        RETURN NULL;
    END IF;
    INSERT INTO directory.repository_place (place, tenant_id, repository_id)
    VALUES (directory.place_of(NEW.url), NEW.tenant_id, NEW.id)
    ON CONFLICT (tenant_id, repository_id) DO UPDATE SET place = excluded.place;
    RETURN NULL;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.place_of, directory.note_place FROM PUBLIC;
-- As all functions of this schema; neither takes a tenant from its caller.
GRANT EXECUTE ON FUNCTION directory.place_of, directory.note_place TO capstan_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.repository_place TO capstan_system;

CREATE TRIGGER place AFTER INSERT OR DELETE OR UPDATE OF url ON repository
    FOR EACH ROW EXECUTE FUNCTION directory.note_place();

-- What replicas of an earlier version ask instead needs no index: it is one
-- tenant's repositories.
DROP INDEX repository_place;

-- +goose StatementBegin
DO $$
DECLARE
    t uuid;
BEGIN
    FOR t IN SELECT id FROM directory.tenant LOOP
        PERFORM set_config('app.tenant_id', t::text, true);
        INSERT INTO directory.repository_place (place, tenant_id, repository_id)
        SELECT directory.place_of(url), tenant_id, id FROM repository WHERE tenant_id = t;
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END $$;
-- +goose StatementEnd
