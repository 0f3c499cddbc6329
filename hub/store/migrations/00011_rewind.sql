-- What the hub knows of its own past: clusters whose agents hold more or
-- other rows than it does, incarnations of desired logs that an admin gave
-- up, identities that two clusters use, and which process of an agent holds
-- its session.

-- +goose Up
-- A cluster whose agent takes no change. A proven row stands for the whole
-- hub: while there is one, nobody enrols and nothing is pruned anywhere.
CREATE TABLE directory.rewind (
    tenant_id         uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    cluster_id        uuid NOT NULL,
    since             timestamptz NOT NULL,
    seen_at           timestamptz NOT NULL,
    reason            text NOT NULL,
    proven            boolean NOT NULL,
    agent_incarnation text NOT NULL DEFAULT '',
    agent_seq         bigint NOT NULL DEFAULT 0,
    former            text NOT NULL DEFAULT '', -- incarnation of the hub before it was told that it was restored
    hub_seq           bigint NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id)
);
CREATE INDEX rewind_proven ON directory.rewind (proven) WHERE proven;

-- Two clusters that use one identity: neither is let in until an admin says
-- which of them keeps it.
CREATE TABLE directory.quarantine (
    tenant_id   uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    cluster_id  uuid NOT NULL,
    since       timestamptz NOT NULL,
    known       text NOT NULL,
    other       text NOT NULL,
    address     text NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id)
);

ALTER TABLE directory.presence
    ADD COLUMN epoch    text NOT NULL DEFAULT '',
    ADD COLUMN instance text NOT NULL DEFAULT '',
    ADD COLUMN leader   boolean NOT NULL DEFAULT false,
    ADD COLUMN stale    text[] NOT NULL DEFAULT '{}', -- epochs of processes that a newer one has replaced
    ADD COLUMN refused  text NOT NULL DEFAULT '',     -- address of the last process that was not let in beside this one
    ADD COLUMN refused_at timestamptz,
    ADD COLUMN lag_ms   bigint NOT NULL DEFAULT 0;

CREATE OR REPLACE VIEW directory.my_presence WITH (security_barrier) AS
SELECT cluster_id, replica, seen_at,
       session_id IS NOT NULL AND seen_at > now() - interval '90 seconds' AS connected,
       backlog, lag_ms, refused, refused_at
FROM   directory.presence
WHERE  tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid;

CREATE VIEW directory.my_rewind WITH (security_barrier) AS
SELECT cluster_id, since, seen_at, reason, proven, agent_incarnation, agent_seq, former, hub_seq
FROM   directory.rewind
WHERE  tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid;

CREATE VIEW directory.my_quarantine WITH (security_barrier) AS
SELECT cluster_id, since, known, other, address
FROM   directory.quarantine
WHERE  tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid;

-- +goose StatementBegin
-- Whether the hub as a whole waits for an admin. It says nothing of whose
-- cluster it is.
CREATE FUNCTION directory.held() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM directory.rewind WHERE proven);
$$;

-- The first proof ends the open join tokens of everyone: they may be known to
-- people who were sent away since the backup.
CREATE FUNCTION directory.put_rewind(cluster uuid, why text, proof boolean, incarnation text, seq bigint, before text, head bigint, at timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant uuid := directory.bound_tenant();
BEGIN
    IF proof AND NOT directory.held() THEN
        DELETE FROM directory.join_token;
    END IF;
    INSERT INTO directory.rewind AS r (tenant_id, cluster_id, since, seen_at, reason, proven, agent_incarnation, agent_seq, former, hub_seq)
    VALUES (tenant, cluster, at, at, why, proof, incarnation, seq, before, head)
    ON CONFLICT (tenant_id, cluster_id) DO UPDATE
    SET seen_at = excluded.seen_at, reason = excluded.reason, proven = r.proven OR excluded.proven,
        agent_incarnation = coalesce(nullif(excluded.agent_incarnation, ''), r.agent_incarnation),
        agent_seq = greatest(excluded.agent_seq, r.agent_seq), former = coalesce(nullif(r.former, ''), excluded.former), hub_seq = excluded.hub_seq;
END $$;

CREATE FUNCTION directory.drop_rewind(cluster uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.rewind WHERE tenant_id = directory.bound_tenant() AND cluster_id = cluster;
$$;

-- A quarantine is told to the replicas by the counter that revocations have.
CREATE FUNCTION directory.put_quarantine(cluster uuid, known_uid text, other_uid text, from_address text, at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fresh boolean;
BEGIN
    INSERT INTO directory.quarantine AS q (tenant_id, cluster_id, since, known, other, address)
    VALUES (directory.bound_tenant(), cluster, at, known_uid, other_uid, from_address)
    ON CONFLICT (tenant_id, cluster_id) DO NOTHING;
    fresh := FOUND;
    IF fresh THEN
        UPDATE directory.revocation_version SET version = version + 1;
    END IF;
    RETURN fresh;
END $$;

CREATE FUNCTION directory.drop_quarantine(cluster uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM directory.quarantine WHERE tenant_id = directory.bound_tenant() AND cluster_id = cluster;
    IF FOUND THEN
        UPDATE directory.revocation_version SET version = version + 1;
    END IF;
END $$;

-- Of two processes that use one identity the one that holds the Lease of the
-- cluster stays, else the newer one; one that was replaced does not come back
-- while the other is here. It gives the reason for a refusal, or nothing.
CREATE FUNCTION directory.attach_agent(cluster uuid, session text, replica_id text, at timestamptz, process text, directory_id text, leads boolean, from_address text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant uuid := directory.bound_tenant();
    held   directory.presence%ROWTYPE;
    live   boolean;
    past   text[] := '{}';
BEGIN
    SELECT * INTO held FROM directory.presence p WHERE p.tenant_id = tenant AND p.cluster_id = cluster FOR UPDATE;
    live := FOUND AND held.session_id IS NOT NULL AND held.seen_at > at - interval '40 seconds';
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
    RETURN '';
END $$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA directory FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA directory TO capstan_app;
GRANT SELECT ON directory.my_presence, directory.my_rewind, directory.my_quarantine TO capstan_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.rewind, directory.quarantine TO capstan_system;
GRANT EXECUTE ON FUNCTION directory.held() TO capstan_system;
REVOKE ALL ON directory.my_presence, directory.my_rewind, directory.my_quarantine FROM capstan_system;

-- Incarnations of a cluster's log that an admin gave up for the present one:
-- an agent that still follows one of them may go over.
CREATE TABLE log_past (
    tenant_id   uuid NOT NULL,
    cluster_id  uuid NOT NULL,
    incarnation text NOT NULL,
    given_up_at timestamptz NOT NULL,
    given_up_by text NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id, incarnation),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES log_head ON DELETE CASCADE
);

-- Chain hashes of places whose rows are gone.
CREATE TABLE log_checkpoint (
    tenant_id  uuid NOT NULL,
    cluster_id uuid NOT NULL,
    seq        bigint NOT NULL,
    chain      bytea NOT NULL CHECK (octet_length(chain) = 32),
    PRIMARY KEY (tenant_id, cluster_id, seq),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES log_head ON DELETE CASCADE
);

-- Clusters that may not use the identity of this one.
ALTER TABLE cluster ADD COLUMN rejected text[] NOT NULL DEFAULT '{}';

-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['log_past', 'log_checkpoint']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant ON %I'
            ' USING (tenant_id = nullif(current_setting(''app.tenant_id'', true), '''')::uuid)'
            ' WITH CHECK (tenant_id = nullif(current_setting(''app.tenant_id'', true), '''')::uuid)', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO capstan_app', t);
    END LOOP;
END $$;
-- +goose StatementEnd
