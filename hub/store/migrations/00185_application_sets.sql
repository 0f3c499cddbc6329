-- Application sets, the applications that they have generated, and the
-- repositories that their generators read.

-- +goose Up
-- status is written by the reconcile alone and does not raise the version.
-- watches says what else wakes the set: rollout.
CREATE TABLE application_set (
    tenant_id   uuid NOT NULL,
    id          uuid NOT NULL,
    namespace   text COLLATE "C" NOT NULL CHECK (namespace <> ''),
    name        text COLLATE "C" NOT NULL CHECK (name <> ''),
    labels      jsonb NOT NULL DEFAULT '{}',
    annotations jsonb NOT NULL DEFAULT '{}',
    finalizers  text[] NOT NULL DEFAULT '{}',
    project     text NOT NULL,
    spec        json NOT NULL,
    version     bigint NOT NULL DEFAULT 1,
    generation  bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    deleting_at timestamptz,
    deletion    text NOT NULL DEFAULT '' CHECK (deletion IN ('', 'cascade', 'orphan')),
    watches     text[] NOT NULL DEFAULT '{}',
    status      json NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT application_set_name UNIQUE (tenant_id, namespace, name)
);
CREATE INDEX application_set_project ON application_set (tenant_id, project);
CREATE INDEX application_set_rollout ON application_set (tenant_id, id) WHERE 'rollout' = ANY (watches);

CREATE TABLE application_set_member (
    tenant_id      uuid NOT NULL,
    application_id uuid NOT NULL,
    set_id         uuid NOT NULL,
    PRIMARY KEY (tenant_id, application_id),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, set_id) REFERENCES application_set (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX application_set_member_set ON application_set_member (tenant_id, set_id);

CREATE TABLE application_set_repository (
    tenant_id     uuid NOT NULL,
    set_id        uuid NOT NULL,
    repository_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, set_id, repository_id),
    FOREIGN KEY (tenant_id, set_id) REFERENCES application_set (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repository (tenant_id, id)
);
CREATE INDEX application_set_repository_repository ON application_set_repository (tenant_id, repository_id);

-- An application may render application sets, too.
ALTER TABLE rendered ADD COLUMN application_set_id uuid;
ALTER TABLE rendered DROP CONSTRAINT rendered_check;
ALTER TABLE rendered ADD CONSTRAINT rendered_check
    CHECK (num_nonnulls(application_id, project_id, application_set_id) = 1 AND object_id = coalesce(application_id, project_id, application_set_id));
ALTER TABLE rendered ADD FOREIGN KEY (tenant_id, application_set_id) REFERENCES application_set (tenant_id, id) ON DELETE CASCADE;
CREATE INDEX rendered_application_set ON rendered (tenant_id, application_set_id);

-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['application_set', 'application_set_member', 'application_set_repository']
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
