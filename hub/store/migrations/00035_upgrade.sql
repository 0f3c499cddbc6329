-- Whether the hub may upgrade the agent of a cluster, as the agent says, and
-- the newest order to do so with what became of it.

-- +goose Up
ALTER TABLE cluster
    ADD COLUMN upgradable boolean NOT NULL DEFAULT false,
    ADD COLUMN upgrade    jsonb;
