package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	selectOperations = `
		SELECT o.id, coalesce(o.cluster_id::text, ''), o.kind, coalesce(o.snapshot_id::text, ''), o.revision, o.fence, o.options, o.initiator, o.reason,
		       o.phase, o.message, o.results, o.attempt, o.retry_at, o.created_at, o.started_at, o.finished_at, o.healthy_at, o.deadline, o.unblocked, o.application_id
		FROM   operation o
		WHERE  o.tenant_id = $1`
	operationByID  = selectOperations + ` AND o.id = $2`
	operationsByID = selectOperations + ` AND o.id = ANY ($2::uuid[])`
	operationsOpen = selectOperations + ` AND o.application_id = ANY ($2::uuid[]) AND o.phase IN ('Pending', 'Running', 'Terminating')`
	// Dry runs are left out: they have changed nothing.
	operationsNewest = `
		SELECT n.* FROM unnest($2::uuid[]) AS u (app)
		CROSS  JOIN LATERAL (` + selectOperations + ` AND o.application_id = u.app AND coalesce(o.options ->> 'dryRun', 'false') <> 'true'
		       ORDER BY o.created_at DESC, o.id DESC LIMIT 1) n`
	operationsOfApp = selectOperations + ` AND o.application_id = $2 ORDER BY o.created_at DESC, o.id DESC LIMIT $3`

	insertOperations = `
		INSERT INTO operation (tenant_id, id, application_id, cluster_id, kind, snapshot_id, revision, fence, options, initiator, reason,
		                       phase, message, attempt, retry_at, created_at, deadline)
		SELECT @tenant, u.id, u.app, nullif(u.cluster, '')::uuid, u.kind, nullif(u.snapshot, '')::uuid, u.revision, u.fence, u.options::json, u.initiator::json,
		       u.reason, u.phase, u.message, u.attempt, u.retry_at, u.created_at, u.deadline
		FROM   unnest(@ids::uuid[], @apps::uuid[], @clusters::text[], @kinds::text[], @snapshots::text[], @revisions::text[], @fences::bigint[], @options::text[], @initiators::text[], @reasons::text[],
		              @phases::text[], @messages::text[], @attempts::integer[], @retries::timestamptz[], @created::timestamptz[], @deadlines::timestamptz[])
		       AS u (id, app, cluster, kind, snapshot, revision, fence, options, initiator, reason, phase, message, attempt, retry_at, created_at, deadline)`
	setNewestOperation = `
		UPDATE application_status s SET operation_id = u.id
		FROM   unnest($2::uuid[], $3::uuid[]) AS u (id, app)
		WHERE  s.tenant_id = $1 AND s.application_id = u.app`
	endOperation = `
		UPDATE operation
		SET    phase = @phase, message = @message, finished_at = CASE WHEN @over THEN @now::timestamptz ELSE finished_at END
		WHERE  tenant_id = @tenant AND id = @id AND phase IN ('Pending', 'Running', 'Terminating')
		RETURNING application_id`
	startOperation = `
		UPDATE operation SET snapshot_id = @snapshot, revision = @revision, fence = @fence, message = '', options = @options
		WHERE  tenant_id = @tenant AND id = @id AND phase = 'Pending' AND snapshot_id IS NULL
		RETURNING application_id`
	retryOperation = `UPDATE operation SET retry_at = $3, options = $4 WHERE tenant_id = $1 AND id = $2 RETURNING application_id`
)

// A nullOperation is an operation that a join may not have found.
type nullOperation struct {
	id, kind, revision, reason, phase, message *string
	cluster, snapshot                          *string
	fence                                      *int64
	options, initiator, results                []byte
	attempt                                    *int
	retryAt, createdAt, startedAt, finishedAt  *time.Time
	healthyAt, deadline                        *time.Time
	unblocked                                  *bool
}

// dest is in the order of the columns.
func (n *nullOperation) dest() []any {
	return []any{
		&n.id, &n.cluster, &n.kind, &n.snapshot, &n.revision, &n.fence, &n.options, &n.initiator, &n.reason,
		&n.phase, &n.message, &n.results, &n.attempt, &n.retryAt, &n.createdAt, &n.startedAt, &n.finishedAt, &n.healthyAt, &n.deadline, &n.unblocked,
	}
}

// A messageDecoder caches decoded messages of operations: those of one change
// are equal for all applications. What it returns is shared, so nothing behind
// a pointer may be changed.
type messageDecoder struct {
	options, initiator []byte
	meansOptions       hub.OperationOptions
	meansInitiator     hub.Initiator
}

func (w *messageDecoder) read(n *nullOperation, op *hub.Operation) error {
	if w.options == nil || !bytes.Equal(n.options, w.options) {
		w.options, w.meansOptions = nil, hub.OperationOptions{}
		if n.options != nil {
			if err := json.Unmarshal(n.options, &w.meansOptions); err != nil {
				return err
			}
		}
		o := &w.meansOptions
		o.SyncOptions, o.Resources, o.Infos = slices.Clip(o.SyncOptions), slices.Clip(o.Resources), slices.Clip(o.Infos)
		w.options = n.options
	}
	if w.initiator == nil || !bytes.Equal(n.initiator, w.initiator) {
		w.initiator, w.meansInitiator = nil, hub.Initiator{}
		if n.initiator != nil {
			if err := json.Unmarshal(n.initiator, &w.meansInitiator); err != nil {
				return err
			}
		}
		w.initiator = n.initiator
	}
	op.Options, op.Initiator = w.meansOptions, w.meansInitiator
	if n.results == nil {
		return nil
	}
	return json.Unmarshal(n.results, &op.Results)
}

func (n *nullOperation) operation(w *messageDecoder) (*hub.Operation, error) {
	if n.id == nil {
		return nil, nil
	}
	op := &hub.Operation{
		ID: hub.OperationID(*n.id), Cluster: hub.ClusterID(*n.cluster), Kind: hub.OperationKind(*n.kind), Snapshot: hub.SnapshotID(*n.snapshot),
		Revision: *n.revision, Fence: *n.fence, Reason: *n.reason, Phase: hub.Phase(*n.phase), Message: *n.message, Attempt: *n.attempt,
		RetryAt: n.retryAt, OperationTimes: hub.OperationTimes{CreatedAt: *n.createdAt, StartedAt: n.startedAt, FinishedAt: n.finishedAt, HealthyAt: n.healthyAt, Deadline: *n.deadline},
		Unblocked: *n.unblocked,
	}
	if err := w.read(n, op); err != nil {
		return nil, fmt.Errorf("read operation %q: %w", op.ID, err)
	}
	return op, nil
}

func scanOperation(row pgx.CollectableRow) (hub.Operation, error) {
	var n nullOperation
	var app hub.ApplicationID
	if err := row.Scan(append(n.dest(), &app)...); err != nil {
		return hub.Operation{}, err
	}
	op, err := n.operation(&messageDecoder{})
	if err != nil {
		return hub.Operation{}, err
	}
	op.Application = app
	return *op, nil
}

func noOperation() error { return fault.New(fault.Missing, "there is no such operation") }

// Operation returns one operation with its results.
func (t *Tenant) Operation(ctx context.Context, id hub.OperationID) (hub.Operation, error) {
	if !hub.ValidID(string(id)) {
		return hub.Operation{}, noOperation()
	}
	op, err := one(ctx, t.tx, "operation", scanOperation, operationByID, t.id, id)
	return op, missing(err, "there is no such operation")
}

// OperationsByID returns those of the operations that there are.
func (t *Tenant) OperationsByID(ctx context.Context, want []hub.OperationID) (map[hub.OperationID]hub.Operation, error) {
	found, err := list(ctx, t.tx, "operations", scanOperation, operationsByID, t.id, ids(want))
	out := make(map[hub.OperationID]hub.Operation, len(found))
	for _, op := range found {
		out[op.ID] = op
	}
	return out, err
}

// Operations returns the newest operations of an application, newest first.
func (t *Tenant) Operations(ctx context.Context, app hub.ApplicationID, limit int) ([]hub.Operation, error) {
	if !hub.ValidID(string(app)) {
		return nil, noApp()
	}
	return list(ctx, t.tx, "operations", scanOperation, operationsOfApp, t.id, app, limit)
}

// OpenOperations returns the operation of each application that is not over.
func (t *Tenant) OpenOperations(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID]hub.Operation, error) {
	found, err := list(ctx, t.tx, "operations", scanOperation, operationsOpen, t.id, ids(apps))
	out := make(map[hub.ApplicationID]hub.Operation, len(found))
	for _, op := range found {
		out[op.Application] = op
	}
	return out, err
}

// NewestOperations returns the newest operation of each application that was no
// dry run, with its results.
func (t *Tenant) NewestOperations(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID]hub.Operation, error) {
	found, err := list(ctx, t.tx, "newest operations", scanOperation, operationsNewest, t.id, ids(apps))
	out := make(map[hub.ApplicationID]hub.Operation, len(found))
	for _, op := range found {
		out[op.Application] = op
	}
	return out, err
}

// PutOperations stores new operations, each the newest of its application.
// The error is fault.Conflict if an application has one that is not over.
func (t *Tenant) PutOperations(ctx context.Context, ops []hub.Operation) error {
	if err := t.AddOperations(ctx, ops); err != nil || len(ops) == 0 {
		return err
	}
	var id, app []string
	for i := range ops {
		id, app = append(id, string(ops[i].ID)), append(app, string(ops[i].Application))
	}
	_, err := exec(ctx, t.tx, "note newest operations", setNewestOperation, t.id, id, app)
	return err
}

// AddOperations is PutOperations without the note which is the newest of each
// application. SetTargets writes that for those whose targets it sets anyway.
func (t *Tenant) AddOperations(ctx context.Context, ops []hub.Operation) error {
	if len(ops) == 0 {
		return nil
	}
	var id, app, cluster, kind, snapshot, revision, options, initiator, reason, phase, message []string
	var fence []int64
	var attempt []int32
	var retry []*time.Time
	var created, deadline []time.Time
	for i := range ops {
		o := &ops[i]
		opts, err := jsonText(o.Options)
		if err != nil {
			return err
		}
		who, err := jsonText(o.Initiator)
		if err != nil {
			return err
		}
		id, app, cluster, kind = append(id, string(o.ID)), append(app, string(o.Application)), append(cluster, string(o.Cluster)), append(kind, string(o.Kind))
		snapshot, revision, fence = append(snapshot, string(o.Snapshot)), append(revision, o.Revision), append(fence, o.Fence)
		options, initiator, reason = append(options, opts), append(initiator, who), append(reason, o.Reason)
		phase, message, attempt = append(phase, string(o.Phase)), append(message, clean(o.Message)), append(attempt, int32(o.Attempt))
		retry, created, deadline = append(retry, o.RetryAt), append(created, micro(o.CreatedAt)), append(deadline, micro(o.Deadline))
		t.changed(changeOperation, string(o.ID))
		t.appChanged(o.Application)
	}
	_, err := exec(ctx, t.tx, "insert operations", insertOperations, pgx.StrictNamedArgs{
		"tenant": t.id, "ids": id, "apps": app, "clusters": cluster, "kinds": kind, "snapshots": snapshot, "revisions": revision,
		"fences": fence, "options": options, "initiators": initiator, "reasons": reason, "phases": phase, "messages": message,
		"attempts": attempt, "retries": retry, "created": created, "deadlines": deadline,
	})
	switch {
	case violates(err, "operation_running"):
		return fault.With(fault.New(fault.Conflict, "an operation is in progress already"), "application", "wait for it, or terminate it")
	case code(err) == foreignKeyViolation:
		return noApp()
	}
	return err
}

// EndOperation moves an operation that is not over to another phase, with a
// message. One that is over stays what it is, and that is no error.
func (t *Tenant) EndOperation(ctx context.Context, id hub.OperationID, phase hub.Phase, message string) error {
	if !hub.ValidID(string(id)) {
		return noOperation()
	}
	apps, err := list(ctx, t.tx, "ended operation", pgx.RowTo[string], endOperation, pgx.StrictNamedArgs{
		"tenant": t.id, "id": id, "phase": string(phase), "message": clean(message), "over": phase.Over(),
		"now": micro(time.Now()),
	})
	if err != nil {
		return err
	}
	return t.operationTouched(ctx, id, apps)
}

// operationTouched puts an operation into the feed, or finds out that there
// is none.
func (t *Tenant) operationTouched(ctx context.Context, id hub.OperationID, apps []string) error {
	if len(apps) == 0 {
		_, err := t.Operation(ctx, id)
		return err
	}
	t.changed(changeOperation, string(id))
	t.changed(changeApplication, apps[0])
	return nil
}

// GiveSnapshots stores what operations apply that waited for their manifests.
// The error is fault.Conflict if one does not wait any more.
func (t *Tenant) GiveSnapshots(ctx context.Context, ops []hub.Operation) error {
	for _, op := range ops {
		options, err := jsonText(op.Options)
		if err != nil {
			return err
		}
		apps, err := list(ctx, t.tx, "operation's snapshot", pgx.RowTo[string], startOperation, pgx.StrictNamedArgs{
			"tenant": t.id, "id": op.ID, "snapshot": op.Snapshot, "revision": op.Revision, "fence": op.Fence, "options": options,
		})
		if err != nil {
			return err
		}
		if len(apps) == 0 {
			return fault.New(fault.Conflict, "operation %s does not wait for manifests any more", op.ID)
		}
		if err := t.operationTouched(ctx, op.ID, apps); err != nil {
			return err
		}
	}
	return nil
}

// SetOperationRetry notes when an operation that failed is tried again, and
// with which options; nil means not at all.
func (t *Tenant) SetOperationRetry(ctx context.Context, id hub.OperationID, at *time.Time, options hub.OperationOptions) error {
	if !hub.ValidID(string(id)) {
		return noOperation()
	}
	text, err := jsonText(options)
	if err != nil {
		return err
	}
	apps, err := list(ctx, t.tx, "operation retry", pgx.RowTo[string], retryOperation, t.id, id, at, text)
	if err != nil {
		return err
	}
	return t.operationTouched(ctx, id, apps)
}
