-- An agent that attaches says nothing yet of how its cluster is. Until a beat
-- says that the hub has everything, what is known stays as old as it was: the
-- time at which it was current is seen_at less lag_ms. Replicas of an earlier
-- version, which set lag_ms to 0 when an agent attaches, follow by the trigger.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION directory.keep_as_of() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.lag_ms := OLD.lag_ms + (extract(epoch FROM NEW.seen_at - OLD.seen_at) * 1000)::bigint;
    RETURN NEW;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION directory.keep_as_of FROM PUBLIC;
CREATE TRIGGER keep_as_of BEFORE UPDATE ON directory.presence
    FOR EACH ROW WHEN (NEW.session_id IS NOT NULL AND NEW.session_id IS DISTINCT FROM OLD.session_id)
    EXECUTE FUNCTION directory.keep_as_of();
