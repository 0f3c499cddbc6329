-- The second lock: a row is visible and writable only in a transaction that
-- is bound to its tenant, for the owner of the tables too. Every table that a
-- later migration adds needs the same three statements and its grants; a test
-- reads the catalogue and fails without them.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY[
        'organisation', 'account', 'api_token', 'project', 'repository', 'repository_template', 'ref', 'cluster',
        'enrolment', 'application', 'application_status', 'app_source', 'condition', 'object', 'snapshot', 'log_head',
        'log_row', 'desired_head', 'log_ack', 'tombstone', 'operation', 'history', 'observed', 'resource', 'change',
        'audit_head', 'audit_record', 'idempotency']
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

-- Records of what happened are added and read, never changed.
REVOKE UPDATE, DELETE ON audit_record FROM capstan_app;
REVOKE DELETE ON audit_head FROM capstan_app;
REVOKE UPDATE, DELETE ON history FROM capstan_app;

GRANT USAGE ON SCHEMA public TO capstan_app, capstan_system;
-- The hub checks at its start that the schema is not older than itself.
GRANT SELECT ON goose_db_version TO capstan_system;
