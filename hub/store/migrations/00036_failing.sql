-- Which repositories of a tenant fail is asked whenever applications are read.
-- And the tenant that a transaction is bound to is found once in a statement:
-- asked for each row, it cost as much as all the rest. Replicas of an earlier
-- version go on with work.enqueue, work.good_leases and work.refresh_statistics.

-- +goose Up
CREATE INDEX repository_failing ON repository (tenant_id) WHERE error <> '';

-- The columns that these name may come with a migration that is run later.
SET LOCAL check_function_bodies = off;

-- +goose StatementBegin
CREATE FUNCTION work.enlist(kinds text[], keys uuid[], dues timestamptz[], forces boolean[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO work.item AS i (kind, tenant_id, key, due, ready, forced, route)
    SELECT u.kind, (SELECT directory.bound_tenant()), u.key, min(u.due), min(u.due), bool_or(u.forced), s.repository_id
    FROM   unnest(kinds, keys, dues, forces) AS u (kind, key, due, forced)
    LEFT   JOIN public.app_source s
           ON u.kind = 'refresh' AND s.tenant_id = (SELECT directory.bound_tenant()) AND s.application_id = u.key AND s.idx = 0
    GROUP  BY u.kind, u.key, s.repository_id
    ORDER  BY u.kind, u.key
    ON CONFLICT (kind, tenant_id, key) DO UPDATE
    SET due         = least(i.due, excluded.due),
        ready       = CASE WHEN i.token IS NULL THEN least(i.ready, excluded.ready) ELSE i.ready END,
        forced      = i.forced OR (i.token IS NULL AND excluded.forced),
        forced_next = i.forced_next OR (i.token IS NOT NULL AND excluded.forced),
        route       = coalesce(excluded.route, i.route);
$$;

CREATE FUNCTION work.still_leased(item_kind text, keys uuid[], tokens bigint[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.key
    FROM   work.item i
    WHERE  i.kind = item_kind AND i.tenant_id = (SELECT directory.bound_tenant()) AND i.key = ANY (keys) AND i.token = ANY (tokens)
    FOR    KEY SHARE OF i;
$$;

-- Looks anew at the smallest of the tables whose size is far from what the
-- planner believes, and says whether there was one: the next one can wait for a
-- better moment. Large tables are left to the server: they change slowly
-- against what they hold.
CREATE FUNCTION work.refresh_statistic() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    grown regclass;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('capstan statistics')) THEN
        RETURN 0; -- another replica is at it
    END IF;
    SELECT s.relid::regclass INTO grown
    FROM   pg_stat_user_tables s
    JOIN   pg_class c ON c.oid = s.relid
    WHERE  c.relowner = current_user::regrole AND s.n_live_tup BETWEEN 100 AND 200000
      AND  abs(s.n_live_tup - greatest(c.reltuples, 0)) > greatest(c.reltuples, 0) / 2
    ORDER  BY s.n_live_tup
    LIMIT  1;
    IF grown IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('ANALYZE %s', grown);
    RETURN 1;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION work.enlist FROM PUBLIC;
REVOKE ALL ON FUNCTION work.still_leased FROM PUBLIC;
REVOKE ALL ON FUNCTION work.refresh_statistic FROM PUBLIC;
GRANT EXECUTE ON FUNCTION work.enlist TO capstan_app;
GRANT EXECUTE ON FUNCTION work.still_leased TO capstan_app;
GRANT EXECUTE ON FUNCTION work.refresh_statistic TO capstan_system;
