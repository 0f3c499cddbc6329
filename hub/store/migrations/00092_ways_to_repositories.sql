-- How a repository is reached, and what is fetched of it. A proxy is stored here
-- without its user name and password, which are part of the credential.

-- +goose Up
ALTER TABLE repository
    ADD COLUMN proxy    text    NOT NULL DEFAULT '',
    ADD COLUMN no_proxy text    NOT NULL DEFAULT '',
    ADD COLUMN lfs      boolean NOT NULL DEFAULT false,
    ADD COLUMN depth    integer NOT NULL DEFAULT 0 CHECK (depth >= 0);
ALTER TABLE repository_template
    ADD COLUMN proxy    text NOT NULL DEFAULT '',
    ADD COLUMN no_proxy text NOT NULL DEFAULT '';
