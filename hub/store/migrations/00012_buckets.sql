-- Hashes by which an agent and the hub find what they hold differently
-- without sending it. The bucket of a row is the first two bytes of SHA-256 of
-- its key, as in shared/buckets; its leaf is what the agent's hash adds to it.
-- Rows of before have a leaf that no agent gives, so they are sent once more.

-- +goose Up
ALTER TABLE resource
    ADD COLUMN bucket integer NOT NULL DEFAULT 0,
    ADD COLUMN leaf   bigint NOT NULL DEFAULT 1;
UPDATE resource r
SET    bucket = get_byte(h.sum, 0) * 256 + get_byte(h.sum, 1)
FROM   (SELECT tenant_id, application_id, cluster_id, kind, namespace, name, api_group,
               sha256(convert_to('resource' || chr(31) || application_id || chr(31) || api_group || chr(31) || kind || chr(31) || namespace || chr(31) || name, 'UTF8')) AS sum
        FROM   resource) h
WHERE  (r.tenant_id, r.application_id, r.cluster_id, r.kind, r.namespace, r.name, r.api_group)
     = (h.tenant_id, h.application_id, h.cluster_id, h.kind, h.namespace, h.name, h.api_group);

-- The report on a whole application is of the one cluster that gave it last.
ALTER TABLE application_status
    ADD COLUMN report_cluster uuid,
    ADD COLUMN report_bucket  integer NOT NULL DEFAULT 0,
    ADD COLUMN report_leaf    bigint NOT NULL DEFAULT 0,
    ADD COLUMN report_mark    bigint NOT NULL DEFAULT 0;
CREATE INDEX application_status_report ON application_status (tenant_id, report_cluster) WHERE report_cluster IS NOT NULL;
