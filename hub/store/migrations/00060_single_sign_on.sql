-- People who sign in by an identity provider of their tenant: who they are
-- there, sign-ins that have begun, and what the provider said of those who are
-- signed in. Accounts without a provider are local.

-- +goose Up
ALTER TABLE account
    ADD COLUMN provider text NOT NULL DEFAULT '',
    ADD COLUMN realm    text NOT NULL DEFAULT '',
    ADD COLUMN subject  text NOT NULL DEFAULT '',
    ADD CONSTRAINT account_provider CHECK ((provider = '') = (subject = ''));
CREATE UNIQUE INDEX account_person ON account (tenant_id, provider, realm, subject) WHERE provider <> '';

-- hash is that of the state which comes back from the provider, browser that of
-- a secret which only the browser has that began. Nonce and PKCE verifier are
-- derived from both, and stored nowhere.
CREATE TABLE sign_in (
    tenant_id  uuid NOT NULL,
    hash       bytea NOT NULL CHECK (octet_length(hash) = 32),
    browser    bytea NOT NULL CHECK (octet_length(browser) = 32),
    provider   text NOT NULL,
    callback   text NOT NULL,
    return_to  text NOT NULL,
    client     text NOT NULL DEFAULT '',
    challenge  text NOT NULL DEFAULT '',
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, hash)
);
CREATE INDEX sign_in_expiry ON sign_in (tenant_id, expires_at);

-- hash is that of the session, which directory.session has as well, or of a
-- code that a command line exchanges for a session.
CREATE TABLE session_claims (
    tenant_id  uuid NOT NULL,
    hash       bytea NOT NULL CHECK (octet_length(hash) = 32),
    account_id uuid NOT NULL,
    provider   text NOT NULL,
    groups     text[] NOT NULL,
    sealed     bytea,
    challenge  text NOT NULL DEFAULT '',
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, hash),
    FOREIGN KEY (tenant_id, account_id) REFERENCES account ON DELETE CASCADE
);
CREATE INDEX session_claims_account ON session_claims (tenant_id, account_id);
CREATE INDEX session_claims_expiry ON session_claims (tenant_id, expires_at);

-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['sign_in', 'session_claims']
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
