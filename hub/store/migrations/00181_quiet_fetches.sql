-- Fetches that found nothing new are recorded together, and leave the queue in
-- the same statement (decision 0181).

-- +goose Up
-- +goose StatementBegin
-- Ends the leases of items of the bound tenant that are still valid, and makes
-- the items due again, or earlier if they were enqueued for earlier meanwhile.
-- Returns those, and whether each is due already. The caller holds no lock that
-- others take after that of an item.
CREATE FUNCTION work.look_again(item_kind text, keys uuid[], tokens bigint[], dues timestamptz[]) RETURNS TABLE (item_key uuid, again boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH leased AS MATERIALIZED (
        SELECT i.key, i.token
        FROM   work.item i
        WHERE  i.kind = item_kind AND i.tenant_id = (SELECT directory.bound_tenant()) AND i.key = ANY (keys) AND i.token = ANY (tokens)
        ORDER  BY i.key
        FOR    UPDATE OF i
    )
    UPDATE work.item i
    SET    due = least(i.due, u.due), ready = least(i.due, u.due), token = NULL, owner = '', forced = i.forced_next, forced_next = false, attempts = 0
    FROM   unnest(keys, tokens, dues) AS u (key, token, due)
    JOIN   leased l ON l.key = u.key AND l.token = u.token
    WHERE  i.kind = item_kind AND i.tenant_id = (SELECT directory.bound_tenant()) AND i.key = ANY (keys) AND i.key = u.key AND i.token = u.token
    RETURNING i.key, i.due <= clock_timestamp();
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION work.look_again FROM PUBLIC;
GRANT EXECUTE ON FUNCTION work.look_again TO capstan_app;

-- +goose Down
DROP FUNCTION work.look_again;
