-- The list of all managed objects of a tenant is read by pages, in this order.

-- +goose Up
CREATE INDEX resource_listed ON resource (tenant_id, kind, namespace, name, api_group, application_id, cluster_id) WHERE managed;

-- +goose Down
DROP INDEX resource_listed;
