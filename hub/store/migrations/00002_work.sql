-- What waits to be done, by ids only. Workers lease here as capstan_system
-- and then open a transaction bound to the item's tenant. A tenant's
-- transaction enqueues for its own tenant through work.enqueue.

-- +goose Up
CREATE SCHEMA work;

CREATE SEQUENCE work.lease;

-- due is when the item asked to be done. While an item is leased, due is
-- infinity until someone enqueues it again; that is how Done tells whether it
-- may go. ready is when it may be claimed: due, or the end of its lease.
CREATE TABLE work.item (
    kind        text NOT NULL,
    tenant_id   uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    key         uuid NOT NULL,
    due         timestamptz NOT NULL,
    ready       timestamptz NOT NULL,
    token       bigint,
    owner       text NOT NULL DEFAULT '',
    forced      boolean NOT NULL DEFAULT false,
    forced_next boolean NOT NULL DEFAULT false,
    attempts    integer NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, tenant_id, key)
);
CREATE INDEX item_turn ON work.item (kind, tenant_id, ready);
CREATE INDEX item_ready ON work.item (kind, ready);

-- +goose StatementBegin
-- Keys are taken in order, so that two transactions that enqueue the same
-- items cannot wait for each other.
CREATE FUNCTION work.put(tenant uuid, kinds text[], keys uuid[], dues timestamptz[], forces boolean[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO work.item AS i (kind, tenant_id, key, due, ready, forced)
    SELECT u.kind, tenant, u.key, min(u.due), min(u.due), bool_or(u.forced)
    FROM   unnest(kinds, keys, dues, forces) AS u (kind, key, due, forced)
    GROUP  BY u.kind, u.key
    ORDER  BY u.kind, u.key
    ON CONFLICT (kind, tenant_id, key) DO UPDATE
    SET due         = least(i.due, excluded.due),
        ready       = CASE WHEN i.token IS NULL THEN least(i.ready, excluded.ready) ELSE i.ready END,
        forced      = i.forced OR (i.token IS NULL AND excluded.forced),
        forced_next = i.forced_next OR (i.token IS NOT NULL AND excluded.forced);
$$;

CREATE FUNCTION work.enqueue(kinds text[], keys uuid[], dues timestamptz[], forces boolean[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT work.put(directory.bound_tenant(), kinds, keys, dues, forces);
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA work FROM PUBLIC;
GRANT USAGE ON SCHEMA work TO capstan_app, capstan_system;
GRANT EXECUTE ON FUNCTION work.enqueue TO capstan_app;
GRANT EXECUTE ON FUNCTION work.put TO capstan_system;
GRANT SELECT, INSERT, UPDATE, DELETE ON work.item TO capstan_system;
GRANT USAGE ON SEQUENCE work.lease TO capstan_system;
