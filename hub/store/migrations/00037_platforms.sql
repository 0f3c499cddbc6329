-- Most clusters of a fleet serve the same APIs. What tells them apart is kept
-- beside each list, so that a look at many clusters reads the list once. Replicas
-- of an earlier version write the list alone: the column follows by itself.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION directory.sum_of(list text[]) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$ SELECT sha256(array_send(list)) $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.sum_of FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.sum_of TO capstan_app, capstan_system;

ALTER TABLE cluster ADD COLUMN api_sum bytea GENERATED ALWAYS AS (directory.sum_of(api_versions)) STORED;
