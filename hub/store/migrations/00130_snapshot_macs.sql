-- A snapshot has a message authentication code under a key of its tenant, which
-- the database does not have. Snapshots of earlier releases have none.

-- +goose Up
ALTER TABLE snapshot ADD COLUMN mac bytea;

-- +goose Down
ALTER TABLE snapshot DROP COLUMN mac;
