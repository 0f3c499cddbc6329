-- Requests about many applications, and what became of each of them.

-- +goose Up
-- caller is who asked, as they were then, without any secret.
CREATE TABLE bulk (
    tenant_id   uuid NOT NULL,
    id          uuid NOT NULL,
    action      text NOT NULL CHECK (action IN ('sync', 'refresh', 'pause', 'resume', 'delete')),
    options     jsonb NOT NULL,
    query       text NOT NULL,
    owner       text NOT NULL,
    caller      jsonb NOT NULL,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz,
    cancelled   text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX bulk_owner ON bulk (tenant_id, owner, created_at DESC);
CREATE INDEX bulk_age ON bulk (tenant_id, created_at);
CREATE INDEX bulk_open ON bulk (tenant_id) WHERE finished_at IS NULL;

CREATE TABLE bulk_item (
    tenant_id    uuid NOT NULL,
    bulk_id      uuid NOT NULL,
    ordinal      integer NOT NULL CHECK (ordinal > 0),
    namespace    text NOT NULL,
    name         text NOT NULL,
    state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'refused', 'failed', 'cancelled')),
    message      text NOT NULL DEFAULT '',
    operation_id text NOT NULL DEFAULT '',
    at           timestamptz,
    PRIMARY KEY (tenant_id, bulk_id, ordinal),
    FOREIGN KEY (tenant_id, bulk_id) REFERENCES bulk ON DELETE CASCADE
);
CREATE INDEX bulk_item_pending ON bulk_item (tenant_id, bulk_id, ordinal) WHERE state = 'pending';

ALTER TABLE bulk ENABLE ROW LEVEL SECURITY;
ALTER TABLE bulk FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON bulk
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
ALTER TABLE bulk_item ENABLE ROW LEVEL SECURITY;
ALTER TABLE bulk_item FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON bulk_item
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON bulk, bulk_item TO capstan_app;
