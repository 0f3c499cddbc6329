-- For which version of its project an application was planned: a change of the
-- project, such as of its sync windows, is planned anew.

-- +goose Up
ALTER TABLE application_status ADD COLUMN planned_project bigint NOT NULL DEFAULT 0;
