-- A tenant's settings, key by key, and their way to the clusters in the
-- desired log. Values of secrets are sealed and stand in no other column.

-- +goose Up
CREATE TABLE setting (
    tenant_id  uuid NOT NULL,
    map        text NOT NULL CHECK (map <> ''),
    key        text NOT NULL CHECK (key <> ''),
    value      text NOT NULL,
    sealed     bytea,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (tenant_id, map, key),
    CHECK (sealed IS NULL OR value = '')
);

-- Counts the changes of a tenant's settings; its lock orders them.
CREATE TABLE setting_version (
    tenant_id uuid PRIMARY KEY,
    version   bigint NOT NULL
);

-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['setting', 'setting_version']
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

ALTER TABLE log_row DROP CONSTRAINT log_row_kind_check;
ALTER TABLE log_row ADD CONSTRAINT log_row_kind_check CHECK (kind BETWEEN 1 AND 5);
