-- The SSH servers that a tenant trusts, and a way from the address that a
-- webhook names to the repository that is fetched over another scheme.

-- +goose Up
CREATE TABLE host_key (
    tenant_id  uuid NOT NULL,
    host       text NOT NULL CHECK (host <> ''),
    type       text NOT NULL CHECK (type <> ''),
    key        text NOT NULL CHECK (key <> ''),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, host, type)
);

ALTER TABLE host_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE host_key FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON host_key
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON host_key TO capstan_app;

-- Host and path of a normalised URL, as hub.RepoPlace gives them.
CREATE INDEX repository_place ON repository
    (tenant_id, regexp_replace(url, '^[a-z+]+://(\[[^]]*\]|[^/:]*)(:[0-9]+)?', '\1'));
