package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	nextHistory   = `UPDATE application_status SET history_id = history_id + 1 WHERE tenant_id = $1 AND application_id = $2 RETURNING history_id`
	insertHistory = `
		INSERT INTO history (tenant_id, application_id, id, operation_id, snapshot_id, revision, revisions, source, initiator, reason, started_at, deployed_at)
		VALUES ($1, $2, $3, nullif($4, '')::uuid, nullif($5, '')::uuid, $6, $7, $8, $9, $10, $11, $12)`
	selectHistory = `
		SELECT id, application_id, coalesce(operation_id::text, ''), coalesce(snapshot_id::text, ''), revision, revisions, source::text, initiator, reason, started_at, deployed_at,
		       (SELECT s.commit FROM snapshot s WHERE s.tenant_id = h.tenant_id AND s.id = h.snapshot_id AND s.revision = h.revision)
		FROM   history h
		WHERE  tenant_id = $1 AND application_id = $2
		ORDER  BY id DESC`
	selectHistoryPage = `
		SELECT id, application_id, coalesce(operation_id::text, ''), coalesce(snapshot_id::text, ''), revision, revisions, source::text, initiator, reason, started_at, deployed_at,
		       (SELECT s.commit FROM snapshot s WHERE s.tenant_id = h.tenant_id AND s.id = h.snapshot_id AND s.revision = h.revision)
		FROM   history h
		WHERE  tenant_id = $1 AND application_id = $2 AND id < $3
		ORDER  BY id DESC
		LIMIT  $4`
	selectHistoryEntry = `
		SELECT id, application_id, coalesce(operation_id::text, ''), coalesce(snapshot_id::text, ''), revision, revisions, source::text, initiator, reason, started_at, deployed_at,
		       (SELECT s.commit FROM snapshot s WHERE s.tenant_id = h.tenant_id AND s.id = h.snapshot_id AND s.revision = h.revision)
		FROM   history h
		WHERE  tenant_id = $1 AND application_id = $2 AND id = $3`
	// An operation is recorded once, however often its outcome is settled.
	selectRecorded = `SELECT EXISTS (SELECT FROM history WHERE tenant_id = $1 AND application_id = $2 AND operation_id = nullif($3, '')::uuid)`
)

// AppendHistory records a sync under the next number of its application; the
// number that the caller set is not looked at. An operation that is recorded
// already is not recorded again.
func (t *Tenant) AppendHistory(ctx context.Context, e hub.HistoryEntry) error {
	if !hub.ValidID(string(e.Application)) {
		return noApp()
	}
	if err := t.lockApps(ctx, []hub.ApplicationID{e.Application}); err != nil {
		return err
	}
	var recorded bool
	if err := t.tx.QueryRow(ctx, selectRecorded, t.id, e.Application, string(e.Operation)).Scan(&recorded); err != nil {
		return fmt.Errorf("look for history of operation %q: %w", e.Operation, err)
	}
	if recorded {
		return nil
	}
	if err := t.tx.QueryRow(ctx, nextHistory, t.id, e.Application).Scan(&e.ID); err != nil {
		return missing(err, "there is no such application")
	}
	var source any
	if len(e.Source) > 0 {
		source = string(e.Source)
	}
	_, err := exec(ctx, t.tx, "insert history", insertHistory, t.id, e.Application, e.ID, string(e.Operation), string(e.Snapshot), e.Revision,
		nonNil(e.Revisions), source, e.Initiator, e.Reason, micro(e.StartedAt), micro(e.DeployedAt))
	t.appChanged(e.Application)
	return err
}

func scanHistory(row pgx.CollectableRow) (e hub.HistoryEntry, err error) {
	var commit []byte
	err = row.Scan(&e.ID, &e.Application, &e.Operation, &e.Snapshot, &e.Revision, &e.Revisions, (*rawJSON)(&e.Source), &e.Initiator, &e.Reason,
		&e.StartedAt, &e.DeployedAt, &commit)
	if err == nil && commit != nil {
		err = json.Unmarshal(commit, &e.Commit)
	}
	return e, err
}

// History gives all recorded syncs of an application, newest first.
func (t *Tenant) History(ctx context.Context, app hub.ApplicationID) ([]hub.HistoryEntry, error) {
	if !hub.ValidID(string(app)) {
		return nil, noApp()
	}
	return list(ctx, t.tx, "history", scanHistory, selectHistory, t.id, app)
}

// HistoryPage gives at most limit recorded syncs of an application with
// numbers below before, newest first; before 0 means from the newest on.
func (t *Tenant) HistoryPage(ctx context.Context, app hub.ApplicationID, before int64, limit int) ([]hub.HistoryEntry, error) {
	if !hub.ValidID(string(app)) {
		return nil, noApp()
	}
	if before <= 0 {
		before = 1<<63 - 1
	}
	return list(ctx, t.tx, "history", scanHistory, selectHistoryPage, t.id, app, before, limit)
}

// HistoryEntry gives one recorded sync of an application.
func (t *Tenant) HistoryEntry(ctx context.Context, app hub.ApplicationID, id int64) (hub.HistoryEntry, error) {
	if !hub.ValidID(string(app)) {
		return hub.HistoryEntry{}, noApp()
	}
	e, err := one(ctx, t.tx, "history entry", scanHistory, selectHistoryEntry, t.id, app, id)
	if err := missing(err, "none"); fault.KindOf(err) == fault.Missing {
		return e, fault.With(fault.New(fault.Missing, "there is no history entry %d", id), "", "list the history to see its numbers")
	}
	return e, err
}
