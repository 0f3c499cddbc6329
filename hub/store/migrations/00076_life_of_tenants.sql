-- Suspension with a reason, deletion with a grace period, and the purge that
-- follows it. A tenant that is being deleted is suspended too, so that each
-- statement that leaves out suspended tenants leaves it out.

-- +goose Up
ALTER TABLE directory.tenant
    ADD COLUMN suspended_reason text NOT NULL DEFAULT '',
    ADD COLUMN suspended_at     timestamptz,
    ADD COLUMN was_suspended    boolean NOT NULL DEFAULT false, -- before its deletion
    ADD COLUMN deleted_at       timestamptz,
    ADD COLUMN purge_at         timestamptz;

-- +goose StatementBegin
-- Both functions are in the schema work, where no role gets rights on all
-- functions at once. The tables with rows of tenants, those that refer to others first.
CREATE FUNCTION work.tenant_tables() RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE own AS (
        SELECT c.oid
        FROM   pg_class c
        JOIN   pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
        WHERE  c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    ), refers AS (
        SELECT DISTINCT f.conrelid AS child, f.confrelid AS parent
        FROM   pg_constraint f
        WHERE  f.contype = 'f' AND f.conrelid <> f.confrelid
    ), depth AS (
        SELECT o.oid, 0 AS level FROM own o
        UNION
        SELECT r.parent, d.level + 1 FROM depth d JOIN refers r ON r.child = d.oid WHERE d.level < 32
    )
    SELECT d.oid::regclass FROM depth d JOIN own o ON o.oid = d.oid GROUP BY d.oid ORDER BY max(d.level), d.oid;
$$;

-- Removes up to most rows of a tenant whose grace period is over, and returns
-- how many. Its keys go first: what they have sealed is unreadable from then on,
-- and no transaction of the tenant can begin.
CREATE FUNCTION work.purge_tenant(tenant uuid, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t       regclass;
    n       bigint;
    removed bigint := 0;
BEGIN
    PERFORM FROM directory.tenant x WHERE x.id = tenant AND NOT x.ready AND x.purge_at <= now() FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this tenant is not to be purged' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM set_config('app.tenant_id', tenant::text, true);
    DELETE FROM public.organisation WHERE tenant_id = tenant;
    GET DIAGNOSTICS removed = ROW_COUNT;
    FOR t IN SELECT work.tenant_tables() LOOP
        EXIT WHEN removed >= most;
        EXECUTE format('DELETE FROM %s WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM %s WHERE tenant_id = $1 LIMIT $2))', t, t)
        USING tenant, most - removed;
        GET DIAGNOSTICS n = ROW_COUNT;
        removed := removed + n;
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
    IF removed = 0 THEN
        DELETE FROM directory.tenant x WHERE x.id = tenant;
    END IF;
    RETURN removed;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION work.tenant_tables, work.purge_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION work.purge_tenant TO capstan_system;
