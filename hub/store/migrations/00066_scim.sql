-- People and groups that an identity provider provisions by SCIM 2.0. A user is
-- an account with the same id, and ends with it.

-- +goose Up
CREATE TABLE scim_token (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    name       text NOT NULL CHECK (name <> ''),
    prefix     text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT scim_token_name UNIQUE (tenant_id, name)
);
CREATE TRIGGER scim_token_gone AFTER DELETE ON scim_token FOR EACH ROW EXECUTE FUNCTION directory.end_api_key();

CREATE TABLE scim_user (
    tenant_id   uuid NOT NULL,
    id          uuid NOT NULL,
    user_name   text NOT NULL CHECK (user_name <> ''),
    external_id text NOT NULL DEFAULT '',
    active      boolean NOT NULL,
    attributes  jsonb NOT NULL DEFAULT '{}',
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, id) REFERENCES account ON DELETE CASCADE
);
CREATE UNIQUE INDEX scim_user_name ON scim_user (tenant_id, lower(user_name));
CREATE INDEX scim_user_external ON scim_user (tenant_id, external_id);

CREATE TABLE scim_group (
    tenant_id    uuid NOT NULL,
    id           uuid NOT NULL,
    display_name text NOT NULL CHECK (display_name <> ''),
    external_id  text NOT NULL DEFAULT '',
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX scim_group_name ON scim_group (tenant_id, lower(display_name));

CREATE TABLE scim_member (
    tenant_id uuid NOT NULL,
    group_id  uuid NOT NULL,
    user_id   uuid NOT NULL,
    PRIMARY KEY (tenant_id, group_id, user_id),
    FOREIGN KEY (tenant_id, group_id) REFERENCES scim_group ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, user_id) REFERENCES scim_user ON DELETE CASCADE
);
CREATE INDEX scim_member_user ON scim_member (tenant_id, user_id);

-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['scim_token', 'scim_user', 'scim_group', 'scim_member']
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
