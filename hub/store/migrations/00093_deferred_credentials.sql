-- Credentials that no fetch uses: for writing to repositories, and for
-- generators. Apart from those of repositories, so that none is read by mistake.

-- +goose Up
CREATE TABLE deferred_credential (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('repository-write', 'repo-write-creds', 'scm-creds')),
    name       text NOT NULL DEFAULT '',
    url        text NOT NULL DEFAULT '',
    project    text NOT NULL DEFAULT '',
    username   text NOT NULL DEFAULT '',
    keys       text[] NOT NULL,
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT deferred_credential_of UNIQUE (tenant_id, kind, name, url, project)
);
ALTER TABLE deferred_credential ENABLE ROW LEVEL SECURITY;
ALTER TABLE deferred_credential FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON deferred_credential
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON deferred_credential TO capstan_app;
