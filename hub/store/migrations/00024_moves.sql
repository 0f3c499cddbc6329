-- An object that moves from one application to another in Git is not deleted
-- on the way: who would prune it first asks which applications are still to be
-- looked at.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION work.waiting(item_kind text) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.key
    FROM   work.item i
    WHERE  i.kind = item_kind AND i.tenant_id = directory.bound_tenant() AND (i.token IS NOT NULL OR i.due <= now());
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION work.waiting FROM PUBLIC;
GRANT EXECUTE ON FUNCTION work.waiting TO capstan_app;
