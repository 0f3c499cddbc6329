-- The secret of each tenant's webhooks, sealed with the tenant's key, where an
-- event of a Git host finds it together with the repositories that it names.

-- +goose Up
CREATE TABLE directory.webhook_secret (
    tenant_id uuid PRIMARY KEY REFERENCES directory.tenant ON DELETE CASCADE,
    sealed    bytea NOT NULL
);

-- +goose StatementBegin
-- The tenant is that of the row, which the policy of its table has checked.
CREATE FUNCTION directory.note_webhook_secret() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM directory.webhook_secret WHERE tenant_id = OLD.tenant_id;
        RETURN NULL;
    END IF;
    IF NEW.sealed IS NULL THEN
        DELETE FROM directory.webhook_secret WHERE tenant_id = NEW.tenant_id;
        RETURN NULL;
    END IF;
    INSERT INTO directory.webhook_secret (tenant_id, sealed) VALUES (NEW.tenant_id, NEW.sealed)
    ON CONFLICT (tenant_id) DO UPDATE SET sealed = excluded.sealed;
    RETURN NULL;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.note_webhook_secret FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.note_webhook_secret TO capstan_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON directory.webhook_secret TO capstan_system;

CREATE TRIGGER webhook_secret_put AFTER INSERT OR UPDATE ON setting
    FOR EACH ROW WHEN (NEW.map = 'argocd-secret' AND NEW.key = 'webhook.github.secret')
    EXECUTE FUNCTION directory.note_webhook_secret();
CREATE TRIGGER webhook_secret_gone AFTER DELETE ON setting
    FOR EACH ROW WHEN (OLD.map = 'argocd-secret' AND OLD.key = 'webhook.github.secret')
    EXECUTE FUNCTION directory.note_webhook_secret();

-- +goose StatementBegin
DO $$
DECLARE
    t uuid;
BEGIN
    FOR t IN SELECT id FROM directory.tenant LOOP
        PERFORM set_config('app.tenant_id', t::text, true);
        INSERT INTO directory.webhook_secret (tenant_id, sealed)
        SELECT tenant_id, sealed FROM setting
        WHERE  tenant_id = t AND map = 'argocd-secret' AND key = 'webhook.github.secret' AND sealed IS NOT NULL;
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END $$;
-- +goose StatementEnd
