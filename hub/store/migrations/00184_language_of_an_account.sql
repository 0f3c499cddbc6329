-- The language in which an account reads the console (decision 0183); empty:
-- the browser's languages decide.

-- +goose Up
ALTER TABLE account ADD COLUMN language text NOT NULL DEFAULT '' CHECK (language IN ('', 'en', 'ja'));

-- +goose Down
ALTER TABLE account DROP COLUMN language;
