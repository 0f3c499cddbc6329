-- What an account may be used for, and what made it. All accounts of an earlier
-- version were made by people, and could sign in and use tokens.

-- +goose Up
ALTER TABLE account
    ADD COLUMN capabilities text[] NOT NULL DEFAULT '{login,apiKey}' CHECK (capabilities <@ ARRAY['login', 'apiKey']),
    ADD COLUMN origin text NOT NULL DEFAULT '' CHECK (origin IN ('', 'settings', 'scim'));
