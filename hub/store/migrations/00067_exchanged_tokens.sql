-- Tokens that were given for one of another issuer, such as of a CI system. A
-- foreign token counts once; its hash stays until it would have expired.

-- +goose Up
CREATE TABLE exchanged_token (
    tenant_id   uuid NOT NULL,
    id          uuid NOT NULL,
    proof       bytea NOT NULL CHECK (octet_length(proof) = 32),
    trust       text NOT NULL,
    subject     text NOT NULL,
    account_id  uuid,
    project_id  uuid,
    role        text NOT NULL DEFAULT '',
    expires_at  timestamptz NOT NULL,
    proof_until timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, account_id) REFERENCES account ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, project_id) REFERENCES project ON DELETE CASCADE,
    CONSTRAINT exchanged_token_proof UNIQUE (tenant_id, proof),
    CONSTRAINT exchanged_token_one CHECK ((account_id IS NULL) <> (project_id IS NULL))
);
CREATE INDEX exchanged_token_until ON exchanged_token (tenant_id, proof_until);
ALTER TABLE exchanged_token ENABLE ROW LEVEL SECURITY;
ALTER TABLE exchanged_token FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON exchanged_token
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON exchanged_token TO capstan_app;
CREATE TRIGGER exchanged_token_gone AFTER DELETE ON exchanged_token FOR EACH ROW EXECUTE FUNCTION directory.end_api_key();
