-- From which addresses an account has signed in: a stranger who fails with its
-- name does not keep it out there. An address is in the hash alone.

-- +goose Up
CREATE TABLE directory.known_address (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    tenant_id  uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    account_id uuid NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX known_address_account ON directory.known_address (tenant_id, account_id);
CREATE INDEX known_address_expiry ON directory.known_address (expires_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.known_address TO capstan_system;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION directory.end_account(account uuid, tokens_too boolean) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM directory.session WHERE tenant_id = directory.bound_tenant() AND account_id = account;
    DELETE FROM directory.token WHERE tenant_id = directory.bound_tenant() AND account_id = account AND tokens_too;
    DELETE FROM directory.known_address WHERE tenant_id = directory.bound_tenant() AND account_id = account AND tokens_too;
$$;
-- +goose StatementEnd
