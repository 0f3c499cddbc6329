-- Audit records are found by time, and a tenant may limit their age. What is
-- removed leaves its last number and hash, at which the chain goes on. Only a
-- function of the owner's role removes records: none that is younger than the
-- tenant's limit, and never one of the last 30 days.

-- +goose Up
CREATE INDEX audit_record_at ON audit_record (tenant_id, at);

ALTER TABLE audit_head
    ADD COLUMN floor_seq  bigint NOT NULL DEFAULT 0,
    ADD COLUMN floor_hash bytea NOT NULL DEFAULT '',
    ADD COLUMN keep_days  integer NOT NULL DEFAULT 0 CHECK (keep_days = 0 OR keep_days BETWEEN 30 AND 36500);
REVOKE UPDATE ON audit_head FROM capstan_app;
GRANT UPDATE (seq, hash, keep_days) ON audit_head TO capstan_app;

-- +goose StatementBegin
-- Removes up to most of the oldest records of the bound tenant that are older
-- than its limit, and returns how many. A log with a gap stays as it is: the gap
-- is evidence.
CREATE FUNCTION directory.prune_audit(most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tenant  uuid := directory.bound_tenant();
    days    integer;
    begins  bigint;
    ends    bigint;
    removed bigint;
    last    bytea;
BEGIN
    SELECT h.keep_days, h.floor_seq INTO days, begins FROM public.audit_head h WHERE h.tenant_id = tenant FOR UPDATE;
    IF coalesce(days, 0) = 0 THEN
        RETURN 0;
    END IF;
    SELECT coalesce(min(r.seq) FILTER (WHERE r.at >= now() - make_interval(days => days)) - 1, max(r.seq))
    INTO   ends
    FROM  (SELECT x.seq, x.at FROM public.audit_record x WHERE x.tenant_id = tenant AND x.seq > begins ORDER BY x.seq LIMIT most) r;
    SELECT x.hash INTO last FROM public.audit_record x WHERE x.tenant_id = tenant AND x.seq = ends AND ends > begins;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM public.audit_record x WHERE x.tenant_id = tenant AND x.seq > begins AND x.seq <= ends;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed <> ends - begins THEN
        RAISE EXCEPTION 'the audit log has a gap between % and %', begins, ends USING ERRCODE = 'data_corrupted';
    END IF;
    UPDATE public.audit_head h SET floor_seq = ends, floor_hash = last WHERE h.tenant_id = tenant;
    RETURN removed;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION directory.prune_audit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION directory.prune_audit TO capstan_app;
