-- A repository may have a webhook secret of its own, which is a setting of the
-- tenant with the repository's id in its name. No release before this one has
-- stored any of them.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION directory.is_webhook_key(map text, key text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT map = 'argocd-secret' AND (starts_with(key, 'webhook.repository.') OR key IN (
        'webhook.github.secret', 'webhook.gitlab.secret', 'webhook.bitbucket.uuid', 'webhook.bitbucketserver.secret',
        'webhook.gogs.secret', 'webhook.azuredevops.username', 'webhook.azuredevops.password',
        'webhook.harbor.secret', 'webhook.registry.secret', 'webhook.generic.secret'));
$$;
-- +goose StatementEnd
