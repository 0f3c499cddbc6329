-- +goose Up
-- An agent that attaches says nothing yet of how its cluster is. Until it does,
-- what is known stays as old as it was: seen_at less lag_ms.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION directory.attach_agent(cluster uuid, session text, replica_id text, at timestamptz, process text, directory_id text, leads boolean,
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
        seen_at = greatest(p.seen_at, excluded.seen_at), backlog = 0,
        lag_ms = p.lag_ms + (extract(epoch FROM greatest(p.seen_at, excluded.seen_at) - p.seen_at) * 1000)::bigint,
        epoch = excluded.epoch, instance = excluded.instance, leader = excluded.leader, stale = excluded.stale;
    INSERT INTO directory.agent_attachment AS a (tenant_id, cluster_id, lane, session_id, replica, fence, attached_at, seen_at, life, until)
    VALUES (tenant, cluster, 'control', session, replica_id, nextval('directory.attachment_fence'), now(), now(), lasts, now() + lasts)
    ON CONFLICT (tenant_id, cluster_id, lane) DO UPDATE
    SET session_id = excluded.session_id, replica = excluded.replica, fence = excluded.fence,
        attached_at = excluded.attached_at, seen_at = excluded.seen_at, life = excluded.life, until = excluded.until;
    RETURN '';
END $$;
-- +goose StatementEnd
