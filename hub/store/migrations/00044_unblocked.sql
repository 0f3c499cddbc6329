-- An agent says of an operation that failed because of who owned objects that
-- this is no longer in its way. Replicas of an earlier version do not ask for it.

-- +goose Up
ALTER TABLE operation ADD COLUMN unblocked boolean NOT NULL DEFAULT false;
