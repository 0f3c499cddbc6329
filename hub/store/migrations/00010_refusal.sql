-- The newest attempt of an agent that the hub refused stays with its cluster
-- until a connection follows, so that people see why none does.

-- +goose Up
ALTER TABLE cluster ADD COLUMN refusal jsonb;
