-- Work has a home: what belongs to one repository goes to one replica, where
-- its mirror is. And the number of a lease guards what is written under it:
-- a replica that lost a lease without noticing is refused by the database.

-- +goose Up
-- route is the repository that an item is about; none: the key decides.
ALTER TABLE work.item ADD COLUMN route uuid;
CREATE INDEX item_owner ON work.item (owner) WHERE token IS NOT NULL;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION work.enqueue(kinds text[], keys uuid[], dues timestamptz[], forces boolean[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO work.item AS i (kind, tenant_id, key, due, ready, forced, route)
    SELECT u.kind, directory.bound_tenant(), u.key, min(u.due), min(u.due), bool_or(u.forced), s.repository_id
    FROM   unnest(kinds, keys, dues, forces) AS u (kind, key, due, forced)
    LEFT   JOIN public.app_source s
           ON u.kind = 'refresh' AND s.tenant_id = directory.bound_tenant() AND s.application_id = u.key AND s.idx = 0
    GROUP  BY u.kind, u.key, s.repository_id
    ORDER  BY u.kind, u.key
    ON CONFLICT (kind, tenant_id, key) DO UPDATE
    SET due         = least(i.due, excluded.due),
        ready       = CASE WHEN i.token IS NULL THEN least(i.ready, excluded.ready) ELSE i.ready END,
        forced      = i.forced OR (i.token IS NULL AND excluded.forced),
        forced_next = i.forced_next OR (i.token IS NOT NULL AND excluded.forced),
        route       = coalesce(excluded.route, i.route);
$$;

-- Which of these leases are still good. They stay so until the transaction
-- ends: nobody can claim an item meanwhile.
CREATE FUNCTION work.held(item_kind text, keys uuid[], tokens bigint[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.key
    FROM   unnest(keys, tokens) AS u (key, token)
    JOIN   work.item i ON i.kind = item_kind AND i.tenant_id = directory.bound_tenant() AND i.key = u.key AND i.token = u.token
    FOR    KEY SHARE OF i;
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION work.held FROM PUBLIC;
GRANT EXECUTE ON FUNCTION work.held TO capstan_app;
