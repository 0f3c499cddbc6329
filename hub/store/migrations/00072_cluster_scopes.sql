-- What the registration of a cluster limits it to: the project that it belongs
-- to, and the namespaces that are managed there.

-- +goose Up
ALTER TABLE cluster
    ADD COLUMN project           text NOT NULL DEFAULT '',
    ADD COLUMN namespaces        text[] NOT NULL DEFAULT '{}',
    ADD COLUMN cluster_resources boolean NOT NULL DEFAULT false,
    ADD COLUMN shard             bigint;
