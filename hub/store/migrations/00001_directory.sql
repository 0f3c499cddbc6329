-- Who is where: which tenant a secret, a certificate or a name belongs to.
-- Rows hold ids and hashes only. The role capstan_system works here and has
-- no right on any tenant's table; the role capstan_app reaches these tables
-- only through the functions and views below, which take the tenant from the
-- transaction and from nowhere else.

-- +goose Up
CREATE SCHEMA directory;

CREATE TABLE directory.tenant (
    id           uuid PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'),
    display_name text NOT NULL DEFAULT '',
    suspended    boolean NOT NULL DEFAULT false,
    ready        boolean NOT NULL DEFAULT false,
    created_at   timestamptz NOT NULL
);

CREATE TABLE directory.session (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    tenant_id  uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    account_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX session_account ON directory.session (tenant_id, account_id);
CREATE INDEX session_expiry ON directory.session (expires_at);

CREATE TABLE directory.token (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    id         uuid NOT NULL,
    tenant_id  uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    account_id uuid NOT NULL,
    expires_at timestamptz,
    used_at    timestamptz,
    UNIQUE (tenant_id, id)
);

CREATE TABLE directory.setup_link (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    tenant_id  uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    roles      text[] NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE directory.login_failure (
    key      bytea PRIMARY KEY CHECK (octet_length(key) = 32),
    count    integer NOT NULL,
    first_at timestamptz NOT NULL,
    last_at  timestamptz NOT NULL
);
CREATE INDEX login_failure_age ON directory.login_failure (last_at);

CREATE TABLE directory.join_token (
    hash         bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    tenant_id    uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    enrolment_id uuid NOT NULL,
    prefix       text NOT NULL,
    expires_at   timestamptz NOT NULL,
    UNIQUE (tenant_id, enrolment_id)
);
CREATE INDEX join_token_prefix ON directory.join_token (prefix);

CREATE TABLE directory.certificate (
    serial     text PRIMARY KEY,
    tenant_id  uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    cluster_id uuid NOT NULL,
    agent_id   text NOT NULL,
    not_before timestamptz NOT NULL,
    not_after  timestamptz NOT NULL
);
CREATE INDEX certificate_agent ON directory.certificate (tenant_id, cluster_id, agent_id);
CREATE INDEX certificate_expiry ON directory.certificate (not_after);

-- One row. Taking its lock orders revocations, so that a replica that has
-- seen a version has seen all before it.
CREATE TABLE directory.revocation_version (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  bigint NOT NULL
);
INSERT INTO directory.revocation_version (version) VALUES (0);

CREATE TABLE directory.revocation (
    version   bigint PRIMARY KEY,
    tenant_id uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    agent_id  text NOT NULL,
    serial    text NOT NULL DEFAULT '',
    until     timestamptz NOT NULL
);
CREATE INDEX revocation_until ON directory.revocation (until);

CREATE TABLE directory.authority (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Which replica holds an agent, and when it was last alive. Beats of all
-- tenants are written in one statement.
CREATE TABLE directory.presence (
    tenant_id    uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    cluster_id   uuid NOT NULL,
    session_id   text,
    replica      text NOT NULL,
    connected_at timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    backlog      bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, cluster_id)
) WITH (fillfactor = 70);

-- The agents of the transaction's tenant. An attachment that nobody has seen
-- for 90 seconds counts as gone: its replica died with it.
CREATE VIEW directory.my_presence WITH (security_barrier) AS
SELECT cluster_id, replica, seen_at,
       session_id IS NOT NULL AND seen_at > now() - interval '90 seconds' AS connected
FROM   directory.presence
WHERE  tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid;

-- +goose StatementBegin
CREATE FUNCTION directory.bound_tenant() RETURNS uuid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bound uuid := nullif(current_setting('app.tenant_id', true), '')::uuid;
BEGIN
    IF bound IS NULL THEN
        RAISE EXCEPTION 'no tenant is bound to this transaction' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN bound;
END $$;

CREATE FUNCTION directory.put_token(token_hash bytea, token_id uuid, account uuid, expiry timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO directory.token (hash, id, tenant_id, account_id, expires_at)
    VALUES (token_hash, token_id, directory.bound_tenant(), account, expiry);
$$;

CREATE FUNCTION directory.drop_token(token_id uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.token WHERE tenant_id = directory.bound_tenant() AND id = token_id;
$$;

CREATE FUNCTION directory.token_uses() RETURNS TABLE (id uuid, used_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.id, t.used_at FROM directory.token t WHERE t.tenant_id = directory.bound_tenant();
$$;

CREATE FUNCTION directory.end_account(account uuid, tokens_too boolean) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.session WHERE tenant_id = directory.bound_tenant() AND account_id = account;
    DELETE FROM directory.token WHERE tenant_id = directory.bound_tenant() AND account_id = account AND tokens_too;
$$;

CREATE FUNCTION directory.put_join_token(token_hash bytea, enrolment uuid, shown text, expiry timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO directory.join_token (hash, tenant_id, enrolment_id, prefix, expires_at)
    VALUES (token_hash, directory.bound_tenant(), enrolment, shown, expiry);
$$;

CREATE FUNCTION directory.drop_join_tokens(enrolments uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.join_token WHERE tenant_id = directory.bound_tenant() AND enrolment_id = ANY (enrolments);
$$;

CREATE FUNCTION directory.put_certificate(cert text, cluster uuid, agent text, starts timestamptz, ends timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO directory.certificate (serial, tenant_id, cluster_id, agent_id, not_before, not_after)
    VALUES (cert, directory.bound_tenant(), cluster, agent, starts, ends)
    ON CONFLICT (serial) DO NOTHING;
$$;

-- Ends every certificate of one agent. It matters as long as the last of
-- them would have been good; an agent without any is named for eight days.
CREATE FUNCTION directory.revoke_agent(cluster uuid, agent text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant uuid := directory.bound_tenant();
    next   bigint;
BEGIN
    UPDATE directory.revocation_version SET version = version + 1 RETURNING version INTO next;
    INSERT INTO directory.revocation (version, tenant_id, agent_id, until)
    SELECT next, tenant, agent, greatest(max(c.not_after), now() + interval '8 days')
    FROM   directory.certificate c
    WHERE  c.tenant_id = tenant AND c.cluster_id = cluster AND c.agent_id = agent;
END $$;

CREATE FUNCTION directory.attach(cluster uuid, session text, replica_id text, at timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO directory.presence (tenant_id, cluster_id, session_id, replica, connected_at, seen_at)
    VALUES (directory.bound_tenant(), cluster, session, replica_id, at, at)
    ON CONFLICT (tenant_id, cluster_id) DO UPDATE
    SET session_id = excluded.session_id, replica = excluded.replica, connected_at = excluded.connected_at,
        seen_at = greatest(presence.seen_at, excluded.seen_at), backlog = 0;
$$;

CREATE FUNCTION directory.detach(cluster uuid, session text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        UPDATE directory.presence SET session_id = NULL
        WHERE  tenant_id = directory.bound_tenant() AND cluster_id = cluster AND session_id = session
        RETURNING 1)
    SELECT EXISTS (SELECT FROM gone);
$$;

CREATE FUNCTION directory.drop_presence(cluster uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.presence WHERE tenant_id = directory.bound_tenant() AND cluster_id = cluster;
$$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA directory FROM PUBLIC;
GRANT USAGE ON SCHEMA directory TO capstan_app, capstan_system;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA directory TO capstan_app;
GRANT SELECT ON directory.my_presence TO capstan_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA directory TO capstan_system;
REVOKE ALL ON directory.my_presence FROM capstan_system;
