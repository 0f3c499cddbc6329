-- Tokens of what is no account: of roles of projects, first of all.

-- +goose Up
-- Where the hub finds the tenant of such a token. id is that of the tenant's own
-- row about it, which says what the token is for.
CREATE TABLE directory.api_key (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    tenant_id  uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    kind       text NOT NULL CHECK (kind IN ('role', 'scim', 'exchange')),
    id         uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    UNIQUE (tenant_id, id)
);
CREATE INDEX api_key_expiry ON directory.api_key (expires_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.api_key TO capstan_system;

-- +goose StatementBegin
CREATE FUNCTION directory.put_api_key(key_hash bytea, key_kind text, key_id uuid, expiry timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO directory.api_key (hash, tenant_id, kind, id, expires_at)
    VALUES (key_hash, directory.bound_tenant(), key_kind, key_id, expiry);
$$;

CREATE FUNCTION directory.api_key_uses() RETURNS TABLE (id uuid, used_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.id, k.used_at FROM directory.api_key k WHERE k.tenant_id = directory.bound_tenant();
$$;

-- A key ends with the row that it is for. The tenant is that of the row, which
-- the policy of its table has checked.
CREATE FUNCTION directory.end_api_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM directory.api_key k WHERE k.tenant_id = OLD.tenant_id AND k.id = OLD.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.put_api_key, directory.api_key_uses, directory.end_api_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.put_api_key, directory.api_key_uses, directory.end_api_key TO capstan_app;

CREATE TABLE role_token (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    project_id uuid NOT NULL,
    role       text NOT NULL CHECK (role <> ''),
    name       text NOT NULL CHECK (name <> ''),
    prefix     text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, project_id) REFERENCES project ON DELETE CASCADE,
    CONSTRAINT role_token_name UNIQUE (tenant_id, project_id, role, name)
);
ALTER TABLE role_token ENABLE ROW LEVEL SECURITY;
ALTER TABLE role_token FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON role_token
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON role_token TO capstan_app;
CREATE TRIGGER role_token_gone AFTER DELETE ON role_token FOR EACH ROW EXECUTE FUNCTION directory.end_api_key();
