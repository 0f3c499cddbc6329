-- Sign-ins of devices without a browser (RFC 8628) that have begun: somebody
-- approves them in a browser, by a code that the device shows.

-- +goose Up
-- hash is that of the secret which only the device has; user_code is a keyed
-- hash of the code that people type. session is the hash of the session that
-- has approved it: when that ends, the approval is void.
CREATE TABLE device_login (
    tenant_id  uuid NOT NULL,
    hash       bytea NOT NULL CHECK (octet_length(hash) = 32),
    user_code  bytea NOT NULL CHECK (octet_length(user_code) = 32),
    address    text NOT NULL,
    client     text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    pace       integer NOT NULL CHECK (pace > 0),
    polled_at  timestamptz,
    decision   text NOT NULL DEFAULT '' CHECK (decision IN ('', 'approved', 'denied')),
    account_id uuid,
    session    bytea CHECK (octet_length(session) = 32),
    PRIMARY KEY (tenant_id, hash),
    CONSTRAINT device_login_user_code UNIQUE (tenant_id, user_code),
    CONSTRAINT device_login_approved CHECK ((decision = 'approved') = (account_id IS NOT NULL AND session IS NOT NULL)),
    FOREIGN KEY (tenant_id, account_id) REFERENCES account ON DELETE CASCADE
);
CREATE INDEX device_login_expiry ON device_login (tenant_id, expires_at);
CREATE INDEX device_login_account ON device_login (tenant_id, account_id);
ALTER TABLE device_login ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_login FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_login
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON device_login TO capstan_app;
