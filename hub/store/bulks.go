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
	insertBulk = `
		INSERT INTO bulk (tenant_id, id, action, options, query, owner, caller, created_at)
		VALUES (@tenant, @id, @action, @options, @query, @owner, @caller, @created)`
	insertBulkItems = `
		INSERT INTO bulk_item (tenant_id, bulk_id, ordinal, namespace, name)
		SELECT $1, $2, x.ordinal, x.namespace, x.name
		FROM   unnest($3::integer[], $4::text[], $5::text[]) AS x (ordinal, namespace, name)`
	bulkColumns = `
		SELECT b.id, b.action, b.options, b.query, b.caller, b.created_at, b.finished_at, b.cancelled,
		       coalesce((SELECT jsonb_object_agg(c.state, c.n)
		                 FROM   (SELECT i.state, count(*) AS n FROM bulk_item i WHERE i.tenant_id = $1 AND i.bulk_id = b.id GROUP BY i.state) c), '{}')
		FROM   bulk b
		WHERE  b.tenant_id = $1`
	selectBulk      = bulkColumns + ` AND b.id = $2`
	selectBulks     = bulkColumns + ` AND b.owner = $2 ORDER BY b.created_at DESC, b.id DESC LIMIT $3`
	selectBulkItems = `
		SELECT ordinal, namespace, name, state, message, operation_id, at
		FROM   bulk_item
		WHERE  tenant_id = $1 AND bulk_id = $2 AND ordinal > $3 AND ($4 = '' OR state = $4)
		ORDER  BY ordinal LIMIT $5`
	countOpenBulks = `SELECT count(*) FROM bulk WHERE tenant_id = $1 AND finished_at IS NULL`
	settleBulkItem = `
		UPDATE bulk_item SET state = 'done', at = now()
		WHERE  tenant_id = $1 AND bulk_id = $2 AND ordinal = $3 AND state = 'pending'`
	noteBulkItems = `
		UPDATE bulk_item i
		SET    state = CASE WHEN i.state = 'pending' THEN x.state ELSE i.state END,
		       message = x.message, operation_id = x.operation, at = coalesce(i.at, now())
		FROM   unnest($3::integer[], $4::text[], $5::text[], $6::text[]) AS x (ordinal, state, message, operation)
		WHERE  i.tenant_id = $1 AND i.bulk_id = $2 AND i.ordinal = x.ordinal AND (i.state = 'pending' OR i.state = x.state)`
	cancelBulk = `
		WITH ended AS (
			UPDATE bulk_item SET state = 'cancelled', at = $4
			WHERE  tenant_id = $1 AND bulk_id = $2 AND state = 'pending'
		)
		UPDATE bulk SET cancelled = $3, finished_at = $4
		WHERE  tenant_id = $1 AND id = $2 AND finished_at IS NULL`
	finishBulk = `
		UPDATE bulk b SET finished_at = $3
		WHERE  b.tenant_id = $1 AND b.id = $2 AND b.finished_at IS NULL
		  AND  NOT EXISTS (SELECT FROM bulk_item i WHERE i.tenant_id = $1 AND i.bulk_id = $2 AND i.state = 'pending')`
	collectBulk = `DELETE FROM bulk WHERE tenant_id = $1 AND id IN (SELECT s.id FROM bulk s WHERE s.tenant_id = $1 AND s.created_at < $2 LIMIT $3)`
)

func noBulk() error { return fault.New(fault.Missing, "there is no such bulk request") }

// CreateBulk stores a request with its applications, all of them pending.
func (t *Tenant) CreateBulk(ctx context.Context, b hub.Bulk, items []hub.BulkItem) error {
	options, err := json.Marshal(b.Options)
	if err != nil {
		return err
	}
	caller, err := hub.BulkCaller(b.By)
	if err != nil {
		return err
	}
	if _, err := exec(ctx, t.tx, "insert bulk request", insertBulk, pgx.StrictNamedArgs{
		"tenant": t.id, "id": b.ID, "action": string(b.Action), "options": options, "query": b.Query, "owner": b.Owner(),
		"caller": []byte(caller), "created": micro(b.CreatedAt),
	}); err != nil {
		return err
	}
	ordinals, namespaces, names := make([]int, len(items)), make([]string, len(items)), make([]string, len(items))
	for i, item := range items {
		ordinals[i], namespaces[i], names[i] = item.Ordinal, item.Namespace, item.Name
	}
	_, err = exec(ctx, t.tx, "insert applications of a bulk request", insertBulkItems, t.id, b.ID, ordinals, namespaces, names)
	return err
}

// Bulk returns a request with the numbers of its applications.
func (t *Tenant) Bulk(ctx context.Context, id hub.BulkID) (hub.Bulk, error) {
	if !hub.ValidID(string(id)) {
		return hub.Bulk{}, noBulk()
	}
	b, err := one(ctx, t.tx, "bulk request", scanBulk, selectBulk, t.id, id)
	b.By.Tenant = t.id
	return b, missing(err, "there is no such bulk request")
}

// Bulks returns the newest requests of an owner.
func (t *Tenant) Bulks(ctx context.Context, owner string, limit int) ([]hub.Bulk, error) {
	return list(ctx, t.tx, "bulk requests", scanBulk, selectBulks, t.id, owner, limit)
}

func scanBulk(row pgx.CollectableRow) (b hub.Bulk, err error) {
	var options, caller, counts []byte
	if err := row.Scan(&b.ID, &b.Action, &options, &b.Query, &caller, &b.CreatedAt, &b.FinishedAt, &b.Cancelled, &counts); err != nil {
		return b, err
	}
	for into, text := range map[any][]byte{&b.Options: options, &b.By: caller, &b.Counts: counts} {
		if err := json.Unmarshal(text, into); err != nil {
			return b, fmt.Errorf("read bulk request %s: %w", b.ID, err)
		}
	}
	return b, nil
}

// BulkItems returns applications of a request after an ordinal, in one state or,
// if that is empty, in any.
func (t *Tenant) BulkItems(ctx context.Context, id hub.BulkID, state hub.BulkState, after, limit int) ([]hub.BulkItem, error) {
	if !hub.ValidID(string(id)) {
		return nil, noBulk()
	}
	return list(ctx, t.tx, "applications of a bulk request", func(row pgx.CollectableRow) (i hub.BulkItem, err error) {
		var at *time.Time
		err = row.Scan(&i.Ordinal, &i.Namespace, &i.Name, &i.State, &i.Message, &i.Operation, &at)
		if at != nil {
			i.At = *at
		}
		return i, err
	}, selectBulkItems, t.id, id, after, string(state), limit)
}

// OpenBulks counts the requests of the tenant that have not finished.
func (t *Tenant) OpenBulks(ctx context.Context) (int, error) {
	return one(ctx, t.tx, "number of bulk requests", pgx.RowTo[int], countOpenBulks, t.id)
}

// SettleBulkItem says that an item is done, in the transaction of its effect.
// The error is fault.Conflict if it is not pending any more.
func (t *Tenant) SettleBulkItem(ctx context.Context, m hub.BulkMark) error {
	if !hub.ValidID(string(m.ID)) {
		return noBulk()
	}
	n, err := exec(ctx, t.tx, "settle application of a bulk request", settleBulkItem, t.id, m.ID, m.Ordinal)
	if err == nil && n == 0 {
		return fault.New(fault.Conflict, "this was done, or cancelled, already")
	}
	return err
}

// NoteBulkItems stores what became of items. One that is done or cancelled stays so.
func (t *Tenant) NoteBulkItems(ctx context.Context, id hub.BulkID, items []hub.BulkItem) error {
	if !hub.ValidID(string(id)) {
		return noBulk()
	}
	ordinals := make([]int, len(items))
	states, messages, operations := make([]string, len(items)), make([]string, len(items)), make([]string, len(items))
	for i, item := range items {
		ordinals[i], states[i], messages[i], operations[i] = item.Ordinal, string(item.State), item.Message, string(item.Operation)
	}
	_, err := exec(ctx, t.tx, "note applications of a bulk request", noteBulkItems, t.id, id, ordinals, states, messages, operations)
	return err
}

// CancelBulk ends what is pending of a request. One that has finished stays as it is.
func (t *Tenant) CancelBulk(ctx context.Context, id hub.BulkID, why string, now time.Time) error {
	if !hub.ValidID(string(id)) {
		return noBulk()
	}
	_, err := exec(ctx, t.tx, "cancel bulk request", cancelBulk, t.id, id, why, micro(now))
	return err
}

// FinishBulk ends a request of which nothing is pending.
func (t *Tenant) FinishBulk(ctx context.Context, id hub.BulkID, now time.Time) error {
	if !hub.ValidID(string(id)) {
		return noBulk()
	}
	_, err := exec(ctx, t.tx, "finish bulk request", finishBulk, t.id, id, micro(now))
	return err
}
