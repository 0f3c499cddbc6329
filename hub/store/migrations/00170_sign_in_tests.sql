-- Sign-ins that admins make to see what a provider says and which rights would
-- follow, before anybody is signed in by it.

-- +goose Up
-- sealed is what is tested in place of what is stored, with its secrets, until the
-- browser comes back; report is what the provider has said then.
CREATE TABLE sign_in_test (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    account_id uuid NOT NULL,
    provider   text NOT NULL,
    name       text NOT NULL,
    callback   text NOT NULL,
    sealed     bytea,
    report     jsonb,
    started_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, account_id) REFERENCES account ON DELETE CASCADE
);
CREATE INDEX sign_in_test_account ON sign_in_test (tenant_id, account_id);
CREATE INDEX sign_in_test_expiry ON sign_in_test (tenant_id, expires_at);
ALTER TABLE sign_in_test ENABLE ROW LEVEL SECURITY;
ALTER TABLE sign_in_test FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON sign_in_test
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON sign_in_test TO capstan_app;

-- Without a foreign key: a sign-in whose test is gone must not become one that counts.
ALTER TABLE sign_in ADD COLUMN test_id uuid;
