-- A push to a repository refreshes the applications whose kustomizations name it
-- as a base (decision 0165). The directory holds hashes of host and path only.

-- +goose Up
CREATE TABLE directory.base_place (
    place          bytea NOT NULL CHECK (octet_length(place) = 32),
    tenant_id      uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    application_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, application_id, place)
);
CREATE INDEX base_place_found ON directory.base_place (place, tenant_id, application_id);

-- +goose StatementBegin
-- An application has the places that were given last. One of another tenant is
-- no row of the table that is read.
CREATE FUNCTION directory.put_bases(applications uuid[], places bytea[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.base_place WHERE tenant_id = directory.bound_tenant() AND application_id = ANY (applications);
    INSERT INTO directory.base_place (place, tenant_id, application_id)
    SELECT DISTINCT u.place, directory.bound_tenant(), u.application FROM unnest(applications, places) AS u (application, place)
    ON CONFLICT DO NOTHING;
$$;

CREATE FUNCTION directory.drop_bases() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM directory.base_place WHERE tenant_id = OLD.tenant_id AND application_id = OLD.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.put_bases, directory.drop_bases FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.put_bases, directory.drop_bases TO capstan_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.base_place TO capstan_system;

CREATE TRIGGER bases AFTER DELETE ON application
    FOR EACH ROW EXECUTE FUNCTION directory.drop_bases();

-- +goose Down
DROP TRIGGER bases ON application;
DROP FUNCTION directory.put_bases, directory.drop_bases;
DROP TABLE directory.base_place;
