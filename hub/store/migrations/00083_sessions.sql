-- People see where they are signed in, and end single sessions. A session has
-- an id that may be shown, which its secret cannot be found by. A session that
-- was unused for a third of its lifetime (hub.Session.Idle) is over.

-- +goose Up
ALTER TABLE directory.session
    ADD COLUMN id       uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN address  text NOT NULL DEFAULT '',
    ADD COLUMN client   text NOT NULL DEFAULT '',
    ADD COLUMN provider text NOT NULL DEFAULT '';

-- +goose StatementBegin
CREATE FUNCTION directory.sessions_of(account uuid)
RETURNS TABLE (id uuid, hash bytea, created_at timestamptz, seen_at timestamptz, expires_at timestamptz, address text, client text, provider text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.id, s.hash, s.created_at, s.seen_at, s.expires_at, s.address, s.client, s.provider
    FROM   directory.session s
    WHERE  s.tenant_id = directory.bound_tenant() AND s.account_id = account AND s.expires_at > now()
      AND  s.seen_at > now() - (s.expires_at - s.created_at) / 3;
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Ends one session of an account, or all but one where that is NULL.
CREATE FUNCTION directory.end_sessions(account uuid, one uuid, spared uuid) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH ended AS (
        DELETE FROM directory.session s
        WHERE  s.tenant_id = directory.bound_tenant() AND s.account_id = account
          AND  (one IS NULL OR s.id = one) AND s.id IS DISTINCT FROM spared
        RETURNING 1)
    SELECT count(*) FROM ended;
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.sessions_of, directory.end_sessions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.sessions_of, directory.end_sessions TO capstan_app;
