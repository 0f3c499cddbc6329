-- What the access policy of a tenant was after each change, so that people see
-- who has changed what, and can take a change back.

-- +goose Up
-- content has the keys of argocd-rbac-cm with their values; changed names those
-- that the change was about. reverts is the version that was taken up again, or 0.
CREATE TABLE policy_version (
    tenant_id uuid NOT NULL,
    number    bigint NOT NULL CHECK (number > 0),
    stored_at timestamptz NOT NULL,
    stored_by text NOT NULL,
    reverts   bigint NOT NULL DEFAULT 0,
    changed   text[] NOT NULL,
    content   jsonb NOT NULL,
    PRIMARY KEY (tenant_id, number)
);
ALTER TABLE policy_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE policy_version FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON policy_version
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON policy_version TO capstan_app;
