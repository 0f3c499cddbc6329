-- An event of a Git host wakes the application sets whose generators list the
-- repositories or pull requests there (AGEN-17). The directory holds hashes of
-- host and path only.

-- +goose Up
CREATE TABLE directory.set_place (
    place     bytea NOT NULL CHECK (octet_length(place) = 32),
    tenant_id uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    set_id    uuid NOT NULL,
    PRIMARY KEY (tenant_id, set_id, place)
);
CREATE INDEX set_place_found ON directory.set_place (place, tenant_id, set_id);

-- +goose StatementBegin
-- A set has the places that were given last. One of another tenant is no row of
-- the table that is read.
CREATE FUNCTION directory.put_set_places(application_set uuid, places bytea[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.set_place WHERE tenant_id = directory.bound_tenant() AND set_id = application_set AND NOT place = ANY (places);
    INSERT INTO directory.set_place (place, tenant_id, set_id)
    SELECT DISTINCT p, directory.bound_tenant(), application_set FROM unnest(places) AS p
    ON CONFLICT DO NOTHING;
$$;

CREATE FUNCTION directory.drop_set_places() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM directory.set_place WHERE tenant_id = OLD.tenant_id AND set_id = OLD.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.put_set_places, directory.drop_set_places FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.put_set_places, directory.drop_set_places TO capstan_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.set_place TO capstan_system;

CREATE TRIGGER places AFTER DELETE ON application_set
    FOR EACH ROW EXECUTE FUNCTION directory.drop_set_places();

-- +goose Down
DROP TRIGGER places ON application_set;
DROP FUNCTION directory.put_set_places, directory.drop_set_places;
DROP TABLE directory.set_place;
