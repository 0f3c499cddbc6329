-- +goose Up
-- work.held for a queue that the database misjudges: it fills and empties
-- faster than the database learns of it. Leases are looked for all at once and
-- not one by one, for one look by the wrong index is cheap and one for each
-- lease is not. A token is that of one item, so these are the leases that were
-- meant. Replicas of an earlier version go on with work.held.
-- +goose StatementBegin
CREATE FUNCTION work.good_leases(item_kind text, keys uuid[], tokens bigint[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.key
    FROM   work.item i
    WHERE  i.kind = item_kind AND i.tenant_id = directory.bound_tenant() AND i.key = ANY (keys) AND i.token = ANY (tokens)
    FOR    KEY SHARE OF i;
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION work.good_leases FROM PUBLIC;
GRANT EXECUTE ON FUNCTION work.good_leases TO capstan_app;
