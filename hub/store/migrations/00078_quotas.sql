-- Limits of a tenant that differ from the hub's, and how much its rendered
-- manifests take, as it was last measured.

-- +goose Up
CREATE TABLE tenant_quota (
    tenant_id uuid NOT NULL,
    kind      text NOT NULL CHECK (kind <> ''),
    most      bigint NOT NULL CHECK (most >= 0),
    PRIMARY KEY (tenant_id, kind)
);
ALTER TABLE tenant_quota ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_quota FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tenant_quota
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_quota TO capstan_app;

ALTER TABLE organisation
    ADD COLUMN storage_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN storage_at    timestamptz;
