-- The secrets of registries, and of senders that use Capstan's own form. No
-- release before this one has stored any of them: settings with an unknown name
-- are refused.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION directory.is_webhook_key(map text, key text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT map = 'argocd-secret' AND key IN (
        'webhook.github.secret', 'webhook.gitlab.secret', 'webhook.bitbucket.uuid', 'webhook.bitbucketserver.secret',
        'webhook.gogs.secret', 'webhook.azuredevops.username', 'webhook.azuredevops.password',
        'webhook.harbor.secret', 'webhook.registry.secret', 'webhook.generic.secret');
$$;
-- +goose StatementEnd
