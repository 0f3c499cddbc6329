package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	insertHistory = `
		WITH numbered AS (
			UPDATE application_status SET history_id = history_id + 1
			WHERE  tenant_id = @tenant AND application_id = ANY (@apps::uuid[])
			RETURNING application_id, history_id
		)
		INSERT INTO history (tenant_id, application_id, id, operation_id, snapshot_id, revision, revisions, source, initiator, reason, started_at, deployed_at)
		SELECT @tenant, u.app, n.history_id, nullif(u.operation, '')::uuid, nullif(u.snapshot, '')::uuid, u.revision,
		       u.revisions::text[], u.source::json, u.initiator::json, u.reason, u.started_at, u.deployed_at
		FROM   unnest(@apps::uuid[], @operations::text[], @snapshots::text[], @revisions::text[], @each_revisions::text[],
		              @sources::text[], @initiators::text[], @reasons::text[], @started::timestamptz[], @deployed::timestamptz[])
		       AS u (app, operation, snapshot, revision, revisions, source, initiator, reason, started_at, deployed_at)
		JOIN   numbered n ON n.application_id = u.app`
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

// AppendHistory records syncs, at most one of each application, under the next
// number of the application; the caller's numbers are ignored. An operation
// that is recorded already is not recorded again.
func (t *Tenant) AppendHistory(ctx context.Context, entries []hub.HistoryEntry) error {
	apps := make([]hub.ApplicationID, len(entries))
	for i, e := range entries {
		if apps[i] = e.Application; !hub.ValidID(string(e.Application)) {
			return noApp()
		}
	}
	if len(apps) == 0 {
		return nil
	}
	if err := t.lockApps(ctx, apps); err != nil {
		return err
	}
	fresh, err := t.unrecorded(ctx, entries)
	if err != nil || len(fresh) == 0 {
		return err
	}
	var app, operation, snapshot, revision, revisions, initiator, reason []string
	var source []*string
	var started, deployed []time.Time
	for _, e := range fresh {
		who, err := jsonText(e.Initiator)
		if err != nil {
			return err
		}
		var text *string
		if len(e.Source) > 0 {
			s := string(e.Source)
			text = &s
		}
		app, operation, snapshot = append(app, string(e.Application)), append(operation, string(e.Operation)), append(snapshot, string(e.Snapshot))
		revision, revisions, source = append(revision, e.Revision), append(revisions, arrayText(e.Revisions)), append(source, text)
		initiator, reason = append(initiator, who), append(reason, e.Reason)
		started, deployed = append(started, micro(e.StartedAt)), append(deployed, micro(e.DeployedAt))
		t.appChanged(e.Application)
	}
	n, err := exec(ctx, t.tx, "insert history", insertHistory, pgx.StrictNamedArgs{
		"tenant": t.id, "apps": app, "operations": operation, "snapshots": snapshot, "revisions": revision, "each_revisions": revisions,
		"sources": source, "initiators": initiator, "reasons": reason, "started": started, "deployed": deployed,
	})
	if err == nil && int(n) != len(fresh) {
		return noApp()
	}
	return err
}

// unrecorded leaves out what is recorded already.
func (t *Tenant) unrecorded(ctx context.Context, entries []hub.HistoryEntry) ([]hub.HistoryEntry, error) {
	b := &pgx.Batch{}
	var out []hub.HistoryEntry
	for _, e := range entries {
		b.Queue(selectRecorded, t.id, e.Application, string(e.Operation)).QueryRow(func(row pgx.Row) error {
			var recorded bool
			if err := row.Scan(&recorded); err != nil {
				return err
			}
			if !recorded {
				out = append(out, e)
			}
			return nil
		})
	}
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read the history of %d operations: %w", len(entries), err)
	}
	return out, nil
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

// History returns all recorded syncs of an application, newest first.
func (t *Tenant) History(ctx context.Context, app hub.ApplicationID) ([]hub.HistoryEntry, error) {
	if !hub.ValidID(string(app)) {
		return nil, noApp()
	}
	return list(ctx, t.tx, "history", scanHistory, selectHistory, t.id, app)
}

// HistoryPage returns at most limit recorded syncs of an application with
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

// HistoryEntry returns one recorded sync of an application.
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
