-- Tombstones that are too many for a row of the desired log travel as blobs.
-- These stay, and are served, as long as the newest state refers to them.

-- +goose Up
ALTER TABLE desired_head ADD COLUMN lists bytea NOT NULL DEFAULT ''; -- digests of 32 bytes each, one after the other
