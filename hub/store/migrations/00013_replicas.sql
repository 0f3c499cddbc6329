-- Which replicas of the hub run, and which of them holds an agent. Every
-- promise made here ends by itself: a row counts until a moment, and whoever
-- made it moves that moment on.

-- +goose Up
-- One row for each process. An id is never used again, so what a process
-- that is gone left behind cannot be taken for its successor's.
CREATE TABLE directory.replica (
    id         text PRIMARY KEY,
    name       text NOT NULL,
    address    text NOT NULL,
    draining   boolean NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now(),
    until      timestamptz NOT NULL
);

CREATE SEQUENCE directory.attachment_fence;

-- Where an agent is attached, one row for each of its lanes. The fence grows
-- with each change, so that replicas read only what is new to them. No
-- session: it has detached. Which process of an agent holds the session, and
-- why, is in presence.
CREATE TABLE directory.agent_attachment (
    tenant_id   uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    cluster_id  uuid NOT NULL,
    lane        text NOT NULL CHECK (lane IN ('control', 'bulk')),
    session_id  text,
    replica     text NOT NULL,
    fence       bigint NOT NULL,
    attached_at timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    life        interval NOT NULL, -- how long it counts unless it is seen again
    until       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id, lane)
) WITH (fillfactor = 70);
CREATE INDEX agent_attachment_fence ON directory.agent_attachment (fence);

-- An attachment that its replica has not renewed counts as gone: the replica
-- died with it.
CREATE OR REPLACE VIEW directory.my_presence WITH (security_barrier) AS
SELECT p.cluster_id, p.replica, p.seen_at,
       p.session_id IS NOT NULL AND p.seen_at > now() - interval '90 seconds' AND coalesce(a.until > now(), true) AS connected,
       p.backlog, p.lag_ms, p.refused, p.refused_at
FROM   directory.presence p
LEFT   JOIN directory.agent_attachment a
       ON a.tenant_id = p.tenant_id AND a.cluster_id = p.cluster_id AND a.lane = 'control' AND a.session_id = p.session_id
WHERE  p.tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid;

DROP FUNCTION directory.attach_agent(uuid, text, text, timestamptz, text, text, boolean, text);

-- +goose StatementBegin
-- Of two processes that use one identity the one that holds the Lease of the
-- cluster stays, else the newer one; one that was replaced does not come back
-- while the other is here, at whichever replica that is. It gives the reason
-- for a refusal, or nothing.
CREATE FUNCTION directory.attach_agent(cluster uuid, session text, replica_id text, at timestamptz, process text, directory_id text, leads boolean,
    from_address text, lasts interval) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant uuid := directory.bound_tenant();
    held   directory.presence%ROWTYPE;
    live   boolean;
    past   text[] := '{}';
BEGIN
    SELECT * INTO held FROM directory.presence p WHERE p.tenant_id = tenant AND p.cluster_id = cluster FOR UPDATE;
    live := FOUND AND held.session_id IS NOT NULL AND EXISTS (
        SELECT FROM directory.agent_attachment a
        WHERE  a.tenant_id = tenant AND a.cluster_id = cluster AND a.lane = 'control' AND a.session_id = held.session_id AND a.until > now());
    IF live AND held.epoch <> '' AND held.epoch <> process THEN
        past := held.stale;
        IF held.instance <> directory_id AND held.leader AND NOT leads THEN
            UPDATE directory.presence p SET refused = from_address, refused_at = at WHERE p.tenant_id = tenant AND p.cluster_id = cluster;
            RETURN 'leader';
        END IF;
        IF process = ANY (past) AND (held.leader OR NOT leads) THEN
            UPDATE directory.presence p SET refused = from_address, refused_at = at WHERE p.tenant_id = tenant AND p.cluster_id = cluster;
            RETURN 'replaced';
        END IF;
        past := (array_remove(past, process) || held.epoch)[greatest(1, cardinality(array_remove(past, process)) - 6):];
    ELSIF live THEN
        past := held.stale;
    END IF;
    INSERT INTO directory.presence AS p (tenant_id, cluster_id, session_id, replica, connected_at, seen_at, epoch, instance, leader, stale)
    VALUES (tenant, cluster, session, replica_id, at, at, process, directory_id, leads, past)
    ON CONFLICT (tenant_id, cluster_id) DO UPDATE
    SET session_id = excluded.session_id, replica = excluded.replica, connected_at = excluded.connected_at,
        seen_at = greatest(p.seen_at, excluded.seen_at), backlog = 0, lag_ms = 0,
        epoch = excluded.epoch, instance = excluded.instance, leader = excluded.leader, stale = excluded.stale;
    INSERT INTO directory.agent_attachment AS a (tenant_id, cluster_id, lane, session_id, replica, fence, attached_at, seen_at, life, until)
    VALUES (tenant, cluster, 'control', session, replica_id, nextval('directory.attachment_fence'), now(), now(), lasts, now() + lasts)
    ON CONFLICT (tenant_id, cluster_id, lane) DO UPDATE
    SET session_id = excluded.session_id, replica = excluded.replica, fence = excluded.fence,
        attached_at = excluded.attached_at, seen_at = excluded.seen_at, life = excluded.life, until = excluded.until;
    RETURN '';
END $$;

-- Detaches a session, unless a newer one has taken its place. The row stays,
-- with a new fence, so that other replicas learn of it.
CREATE FUNCTION directory.detach_agent(cluster uuid, session text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE directory.agent_attachment
    SET    session_id = NULL, until = now(), fence = nextval('directory.attachment_fence')
    WHERE  tenant_id = directory.bound_tenant() AND cluster_id = cluster AND session_id = session;
    SELECT directory.detach(cluster, session);
$$;

CREATE OR REPLACE FUNCTION directory.drop_presence(cluster uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.agent_attachment WHERE tenant_id = directory.bound_tenant() AND cluster_id = cluster;
    DELETE FROM directory.presence WHERE tenant_id = directory.bound_tenant() AND cluster_id = cluster;
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.attach_agent, directory.detach_agent FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.attach_agent, directory.detach_agent TO capstan_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.replica, directory.agent_attachment TO capstan_system;
