-- Which objects of the hub an application has rendered, and what it wrote of
-- them: an application may hold applications and projects.

-- +goose Up
CREATE TABLE rendered (
    tenant_id      uuid NOT NULL,
    object_id      uuid NOT NULL,
    application_id uuid,
    project_id     uuid,
    parent_id      uuid NOT NULL,
    applied        json NOT NULL,
    PRIMARY KEY (tenant_id, object_id),
    CHECK (num_nonnulls(application_id, project_id) = 1 AND object_id = coalesce(application_id, project_id)),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, project_id) REFERENCES project (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, parent_id) REFERENCES application (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX rendered_application ON rendered (tenant_id, application_id);
CREATE INDEX rendered_project ON rendered (tenant_id, project_id);
CREATE INDEX rendered_parent ON rendered (tenant_id, parent_id);

ALTER TABLE rendered ENABLE ROW LEVEL SECURITY;
ALTER TABLE rendered FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON rendered
    USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON rendered TO capstan_app;
