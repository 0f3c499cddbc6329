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
-- session: it has detached. replaced names the processes of the same agent
-- that a newer one has replaced while it is attached.
CREATE TABLE directory.agent_attachment (
    tenant_id   uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    cluster_id  uuid NOT NULL,
    lane        text NOT NULL CHECK (lane IN ('control', 'bulk')),
    session_id  text,
    replica     text NOT NULL,
    epoch       text NOT NULL,
    replaced    text[] NOT NULL DEFAULT '{}',
    fence       bigint NOT NULL,
    attached_at timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    until       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id, lane)
) WITH (fillfactor = 70);
CREATE INDEX agent_attachment_fence ON directory.agent_attachment (fence);

-- An attachment that its replica has not renewed counts as gone: the replica
-- died with it.
CREATE OR REPLACE VIEW directory.my_presence WITH (security_barrier) AS
SELECT p.cluster_id, p.replica, p.seen_at,
       p.session_id IS NOT NULL AND p.seen_at > now() - interval '90 seconds' AND coalesce(a.until > now(), true) AS connected
FROM   directory.presence p
LEFT   JOIN directory.agent_attachment a
       ON a.tenant_id = p.tenant_id AND a.cluster_id = p.cluster_id AND a.lane = 'control' AND a.session_id = p.session_id
WHERE  p.tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid;

-- +goose StatementBegin
-- Attaches an agent and gives the fence, or nothing if a newer process of the
-- same agent is attached, wherever that is.
CREATE FUNCTION directory.attach_agent(cluster uuid, session text, replica_id text, process text, at timestamptz, life interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant uuid := directory.bound_tenant();
    gone   text[] := '{}';
    held   directory.agent_attachment;
    newer  bigint;
BEGIN
    SELECT * INTO held FROM directory.agent_attachment a
    WHERE  a.tenant_id = tenant AND a.cluster_id = cluster AND a.lane = 'control'
    FOR    UPDATE;
    IF FOUND AND held.session_id IS NOT NULL AND held.until > now() THEN
        IF process = ANY (held.replaced) THEN
            RETURN NULL;
        END IF;
        gone := held.replaced;
        IF held.epoch <> process THEN
            gone := gone || held.epoch;
            gone := gone[greatest(1, cardinality(gone) - 7):];
        END IF;
    END IF;
    newer := nextval('directory.attachment_fence');
    INSERT INTO directory.agent_attachment AS a
           (tenant_id, cluster_id, lane, session_id, replica, epoch, replaced, fence, attached_at, seen_at, until)
    VALUES (tenant, cluster, 'control', session, replica_id, process, gone, newer, now(), now(), now() + life)
    ON CONFLICT (tenant_id, cluster_id, lane) DO UPDATE
    SET session_id = excluded.session_id, replica = excluded.replica, epoch = excluded.epoch, replaced = excluded.replaced,
        fence = excluded.fence, attached_at = excluded.attached_at, seen_at = excluded.seen_at, until = excluded.until;
    PERFORM directory.attach(cluster, session, replica_id, at);
    RETURN newer;
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
