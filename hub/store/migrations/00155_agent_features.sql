-- What the agent of a cluster can do beyond the first release, by its own
-- words. Null: none has connected since this is stored.

-- +goose Up
ALTER TABLE cluster ADD COLUMN features text[];

-- +goose Down
ALTER TABLE cluster DROP COLUMN features;
