-- Statistics of tables that have just been filled. The server looks at tables
-- by itself once a minute at best, and until then it plans for what they were:
-- a thousand applications that were created at once would be read whole for
-- each of them.

-- +goose Up
-- +goose StatementBegin
-- Looks anew at tables whose size is far from what the planner believes, and
-- says at how many. Large tables are left to the server: they change slowly
-- against what they hold.
CREATE FUNCTION work.refresh_statistics() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    grown  regclass;
    looked integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('capstan statistics')) THEN
        RETURN 0; -- another replica is at it
    END IF;
    FOR grown IN
        SELECT s.relid::regclass
        FROM   pg_stat_user_tables s
        JOIN   pg_class c ON c.oid = s.relid
        WHERE  c.relowner = current_user::regrole AND s.n_live_tup BETWEEN 100 AND 200000
          AND  abs(s.n_live_tup - greatest(c.reltuples, 0)) > greatest(c.reltuples, 0) / 2
        ORDER  BY s.n_live_tup
    LOOP
        EXECUTE format('ANALYZE %s', grown);
        looked := looked + 1;
    END LOOP;
    RETURN looked;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION work.refresh_statistics FROM PUBLIC;
GRANT EXECUTE ON FUNCTION work.refresh_statistics TO capstan_system;
