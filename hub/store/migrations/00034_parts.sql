-- The objects of a large snapshot are listed in several blobs, so that a
-- change costs the part that it is in. list_digest is not read any more; what
-- replicas of an earlier version write meanwhile is taken over.

-- +goose Up
ALTER TABLE snapshot ADD COLUMN lists bytea[] NOT NULL DEFAULT '{}';
-- +goose StatementBegin
DO $$
DECLARE
    t uuid;
BEGIN
    FOR t IN SELECT id FROM directory.tenant LOOP
        PERFORM set_config('app.tenant_id', t::text, true);
        UPDATE snapshot SET lists = ARRAY[list_digest] WHERE list_digest IS NOT NULL;
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION snapshot_lists() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.lists := ARRAY[NEW.list_digest];
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER snapshot_lists BEFORE INSERT ON snapshot FOR EACH ROW WHEN (NEW.list_digest IS NOT NULL) EXECUTE FUNCTION snapshot_lists();
