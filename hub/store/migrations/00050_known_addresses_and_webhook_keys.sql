-- What the hub knows of those who come to its door: the addresses from which
-- accounts have signed in, and the secrets that events of Git hosts prove.

-- +goose Up
-- A stranger who fails with an account's name does not keep it out where it is
-- known. An address is in the hash alone.
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

-- The secrets of each tenant's webhooks, one for each kind of sender, sealed
-- with the tenant's key. directory.webhook_secret has that of GitHub alone;
-- replicas of an earlier version read it.
CREATE TABLE directory.webhook_key (
    tenant_id uuid NOT NULL REFERENCES directory.tenant ON DELETE CASCADE,
    key       text NOT NULL,
    sealed    bytea NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.webhook_key TO capstan_system;

-- +goose StatementBegin
CREATE FUNCTION directory.is_webhook_key(map text, key text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT map = 'argocd-secret' AND key IN (
        'webhook.github.secret', 'webhook.gitlab.secret', 'webhook.bitbucket.uuid', 'webhook.bitbucketserver.secret',
        'webhook.gogs.secret', 'webhook.azuredevops.username', 'webhook.azuredevops.password');
$$;

-- The tenant is that of the row, which the policy of its table has checked.
CREATE FUNCTION directory.note_webhook_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM directory.webhook_key k WHERE k.tenant_id = OLD.tenant_id AND k.key = OLD.key;
        RETURN NULL;
    END IF;
    IF NEW.sealed IS NULL THEN
        DELETE FROM directory.webhook_key k WHERE k.tenant_id = NEW.tenant_id AND k.key = NEW.key;
        RETURN NULL;
    END IF;
    INSERT INTO directory.webhook_key (tenant_id, key, sealed) VALUES (NEW.tenant_id, NEW.key, NEW.sealed)
    ON CONFLICT (tenant_id, key) DO UPDATE SET sealed = excluded.sealed;
    RETURN NULL;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.is_webhook_key, directory.note_webhook_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.is_webhook_key, directory.note_webhook_key TO capstan_app;

CREATE TRIGGER webhook_key_put AFTER INSERT OR UPDATE ON setting
    FOR EACH ROW WHEN (directory.is_webhook_key(NEW.map, NEW.key)) EXECUTE FUNCTION directory.note_webhook_key();
CREATE TRIGGER webhook_key_gone AFTER DELETE ON setting
    FOR EACH ROW WHEN (directory.is_webhook_key(OLD.map, OLD.key)) EXECUTE FUNCTION directory.note_webhook_key();

-- +goose StatementBegin
DO $$
DECLARE
    t uuid;
BEGIN
    FOR t IN SELECT id FROM directory.tenant LOOP
        PERFORM set_config('app.tenant_id', t::text, true);
        INSERT INTO directory.webhook_key (tenant_id, key, sealed)
        SELECT s.tenant_id, s.key, s.sealed FROM setting s
        WHERE  s.tenant_id = t AND directory.is_webhook_key(s.map, s.key) AND s.sealed IS NOT NULL;
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END $$;
-- +goose StatementEnd
