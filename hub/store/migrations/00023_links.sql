-- Where people reach what an agent sees, and whether its deletion waits for
-- approval; which hooks the deletion of an application runs; and since when a repository cannot be fetched.

-- +goose Up
ALTER TABLE resource
    ADD COLUMN links   json,
    ADD COLUMN confirm boolean NOT NULL DEFAULT false;
ALTER TABLE application_status ADD COLUMN deletion_hooks text[] NOT NULL DEFAULT '{}';
ALTER TABLE repository ADD COLUMN error_since timestamptz;
UPDATE repository SET error_since = error_at;
