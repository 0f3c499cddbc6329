package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	selectTransitions = `
		SELECT id, application_id, at, coalesce(sync, ''), coalesce(health, ''), health_since, coalesce(operation_id::text, ''), coalesce(phase, ''), removed
		FROM   transition
		WHERE  tenant_id = $1 AND application_id = $2
		ORDER  BY id LIMIT $3`
	dropTransitions = `DELETE FROM transition WHERE tenant_id = $1 AND application_id = $2 AND id = ANY ($3::bigint[])`
	selectNotified  = `SELECT state FROM notified WHERE tenant_id = $1 AND application_id = $2`
	upsertNotified  = `
		INSERT INTO notified (tenant_id, application_id, state) VALUES ($1, $2, $3)
		ON CONFLICT (tenant_id, application_id) DO UPDATE SET state = excluded.state`
	deleteNotified = `DELETE FROM notified WHERE tenant_id = $1 AND application_id = $2`
	insertDelivery = `
		INSERT INTO delivery (tenant_id, id, dedup, application_id, namespace, name, project, trigger_name, templates, service, service_type, recipient,
		                      state, reason, sealed, shown, redelivers, created_at, due_at, finished_at)
		VALUES (@tenant, @id, @dedup, nullif(@app, '')::uuid, @namespace, @name, @project, @trigger, @templates, @service, @type, @recipient,
		        @state, @reason, @sealed, @shown, nullif(@redelivers, '')::uuid, @created, @due, @finished)
		ON CONFLICT ON CONSTRAINT delivery_once DO NOTHING`
	selectDeliveries = `
		SELECT d.id, coalesce(d.application_id::text, ''), d.namespace, d.name, d.project, d.trigger_name, d.templates, d.service, d.service_type, d.recipient,
		       d.state, d.reason, d.shown, d.attempts, coalesce(d.redelivers::text, ''), d.created_at, d.due_at, d.finished_at
		FROM   delivery d
		WHERE  d.tenant_id = @tenant`
	deliveryByID = selectDeliveries + ` AND d.id = @id`
	deliveryPage = selectDeliveries + `
		  AND  (@app = '' OR d.application_id = nullif(@app, '')::uuid)
		  AND  (@state = '' OR d.state = @state)
		  AND  (@service = '' OR d.service = @service)
		  AND  (@trigger = '' OR d.trigger_name = @trigger)
		  AND  (@every::boolean OR d.project = ANY (@projects::text[]))
		  AND  (@before = '' OR (d.created_at, d.id) < (SELECT b.created_at, b.id FROM delivery b WHERE b.tenant_id = @tenant AND b.id = nullif(@before, '')::uuid))
		ORDER  BY d.created_at DESC, d.id DESC
		LIMIT  @limit`
	selectDeliveryMessage = `SELECT dedup, sealed FROM delivery WHERE tenant_id = $1 AND id = $2`
	updateDelivery        = `
		UPDATE delivery SET state = @state, reason = @reason, attempts = @attempts, due_at = @due, finished_at = @finished
		WHERE  tenant_id = @tenant AND id = @id AND state = 'pending'`
	selectEarlier = `
		SELECT max(coalesce(e.due_at, e.created_at))
		FROM   delivery d
		JOIN   delivery e ON e.tenant_id = $1 AND e.application_id = d.application_id AND e.service = d.service AND e.recipient = d.recipient AND e.state = 'pending'
		WHERE  d.tenant_id = $1 AND d.id = $2 AND (e.created_at, e.id) < (d.created_at, d.id)`
	countDeliveries   = `SELECT count(*) FROM delivery WHERE tenant_id = $1 AND created_at > $2 AND state <> 'skipped'`
	collectDeliveries = `
		DELETE FROM delivery
		WHERE  tenant_id = $1 AND id IN (
		         SELECT x.id FROM (
		           SELECT d.id, d.created_at, row_number() OVER (ORDER BY d.created_at DESC, d.id DESC) AS age
		           FROM delivery d WHERE d.tenant_id = $1 AND d.state <> 'pending') x
		         WHERE x.created_at < $2 OR x.age > $3
		         LIMIT $4)`
	selectCommitOf = `SELECT commit FROM snapshot WHERE tenant_id = $1 AND application_id = $2 AND revision = $3 AND commit IS NOT NULL ORDER BY created_at DESC LIMIT 1`
	selectSealedOf = `SELECT key, sealed FROM setting WHERE tenant_id = $1 AND map = $2 AND sealed IS NOT NULL`
	selectThread   = `SELECT place, message FROM message_thread WHERE tenant_id = $1 AND service = $2 AND recipient = $3 AND key = $4`
	upsertThread   = `
		INSERT INTO message_thread (tenant_id, service, recipient, key, place, message, used_at) VALUES ($1, $2, $3, $4, $5, $6, now())
		ON CONFLICT (tenant_id, service, recipient, key) DO UPDATE SET place = excluded.place, message = excluded.message, used_at = now()`
	collectThreads = `
		DELETE FROM message_thread
		WHERE  tenant_id = $1 AND (service, recipient, key) IN (
		         SELECT x.service, x.recipient, x.key FROM message_thread x WHERE x.tenant_id = $1 AND x.used_at < $2 LIMIT $3)`
)

func noDelivery() error { return fault.New(fault.Missing, "there is no such delivery") }

// Transitions returns the oldest changes of an application that were not decided
// about yet.
func (t *Tenant) Transitions(ctx context.Context, app hub.ApplicationID, limit int) ([]hub.Transition, error) {
	if !hub.ValidID(string(app)) {
		return nil, nil
	}
	return list(ctx, t.tx, "transitions", func(row pgx.CollectableRow) (x hub.Transition, err error) {
		var removed []byte
		if err := row.Scan(&x.ID, &x.Application, &x.At, &x.Sync, &x.Health, &x.HealthSince, &x.Operation, &x.Phase, &removed); err != nil {
			return x, err
		}
		if removed != nil {
			x.Removed = &hub.Application{}
			err = readRemoved(removed, x.Removed)
		}
		return x, err
	}, selectTransitions, t.id, app, limit)
}

// readRemoved reads an application that is there no more.
func readRemoved(text []byte, into *hub.Application) error {
	var row struct {
		ID                       hub.ApplicationID
		Namespace, Name, Project string
		Labels, Annotations      map[string]string
		Spec                     json.RawMessage
		CreatedAt                time.Time
		DeletingAt               *time.Time
	}
	if err := json.Unmarshal(text, &row); err != nil {
		return fmt.Errorf("read a removed application: %w", err)
	}
	*into = hub.Application{
		ID: row.ID, Project: row.Project, Spec: row.Spec, DeletingAt: row.DeletingAt,
		Meta: hub.Meta{Namespace: row.Namespace, Name: row.Name, Labels: row.Labels, Annotations: row.Annotations, CreatedAt: row.CreatedAt},
	}
	return nil
}

// Notified returns what recipients know of an application; nil: nothing was
// decided about it yet.
func (t *Tenant) Notified(ctx context.Context, app hub.ApplicationID) (*hub.NotifiedState, error) {
	if !hub.ValidID(string(app)) {
		return nil, nil
	}
	found, err := list(ctx, t.tx, "what was notified", pgx.RowTo[hub.NotifiedState], selectNotified, t.id, app)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// PutNotified stores what was decided about transitions: they are not decided
// about again. Without a state, the application is forgotten.
func (t *Tenant) PutNotified(ctx context.Context, app hub.ApplicationID, state *hub.NotifiedState, decided []int64) error {
	if !hub.ValidID(string(app)) {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(dropTransitions, t.id, app, decided)
	if state == nil {
		b.Queue(deleteNotified, t.id, app)
	} else {
		b.Queue(upsertNotified, t.id, app, state)
	}
	return send(ctx, t.tx, "store what was notified", b)
}

// PutDelivery stores a message. One that was stored before is left as it is, and
// stored is false. A pending one becomes work.
func (t *Tenant) PutDelivery(ctx context.Context, d hub.Delivery) (stored bool, err error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return false, err
	}
	sealed, err := encryption.Seal(keys.Credential, deliveryFor(t.id, d.Dedup), d.Message)
	if err != nil {
		return false, fmt.Errorf("seal a message: %w", err)
	}
	n, err := exec(ctx, t.tx, "insert delivery", insertDelivery, pgx.StrictNamedArgs{
		"tenant": t.id, "id": d.ID, "dedup": d.Dedup, "app": string(d.Application), "namespace": d.Namespace, "name": d.Name, "project": d.Project,
		"trigger": d.Trigger, "templates": nonNil(d.Templates), "service": d.Service, "type": d.ServiceType, "recipient": d.Recipient,
		"state": string(d.State), "reason": d.Reason, "sealed": sealed, "shown": string(d.Shown), "redelivers": string(d.Redelivers),
		"created": micro(d.CreatedAt), "due": d.DueAt, "finished": d.FinishedAt,
	})
	if err != nil || n == 0 {
		return false, err
	}
	if d.State == hub.DeliveryPending {
		t.enqueue(hub.WorkDeliver, string(d.ID), d.CreatedAt, false)
	}
	return true, nil
}

// deliveryFor is the associated data of a sealed message.
func deliveryFor(tenant hub.TenantID, dedup []byte) []byte {
	return append([]byte(string(tenant)+"delivery\x00"), dedup...)
}

// Delivery returns one, without its message.
func (t *Tenant) Delivery(ctx context.Context, id hub.DeliveryID) (hub.Delivery, error) {
	if !hub.ValidID(string(id)) {
		return hub.Delivery{}, noDelivery()
	}
	d, err := one(ctx, t.tx, "delivery", scanDelivery, deliveryByID, pgx.StrictNamedArgs{"tenant": t.id, "id": id})
	return d, missing(err, "there is no such delivery")
}

// DeliveryMessage opens the message of a delivery, only for the hub's own use.
func (t *Tenant) DeliveryMessage(ctx context.Context, id hub.DeliveryID) (json.RawMessage, error) {
	if !hub.ValidID(string(id)) {
		return nil, noDelivery()
	}
	var dedup, sealed []byte
	if err := t.tx.QueryRow(ctx, selectDeliveryMessage, t.id, id).Scan(&dedup, &sealed); err != nil {
		return nil, missing(err, "there is no such delivery")
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return nil, err
	}
	plain, err := encryption.Open(keys.Credential, deliveryFor(t.id, dedup), sealed)
	if err != nil {
		return nil, fmt.Errorf("open the message of delivery %s: %w", id, err)
	}
	return plain, nil
}

// Deliveries returns the newest of those that a filter chooses, without their
// messages.
func (t *Tenant) Deliveries(ctx context.Context, f hub.DeliveryFilter) ([]hub.Delivery, error) {
	if f.Application != "" && !hub.ValidID(string(f.Application)) || f.Before != "" && !hub.ValidID(string(f.Before)) {
		return nil, nil
	}
	return list(ctx, t.tx, "deliveries", scanDelivery, deliveryPage, pgx.StrictNamedArgs{
		"tenant": t.id, "app": string(f.Application), "state": string(f.State), "service": f.Service, "trigger": f.Trigger,
		"every": f.Projects == nil, "projects": nonNil(f.Projects), "before": string(f.Before), "limit": f.Limit,
	})
}

func scanDelivery(row pgx.CollectableRow) (d hub.Delivery, err error) {
	err = row.Scan(&d.ID, &d.Application, &d.Namespace, &d.Name, &d.Project, &d.Trigger, &d.Templates, &d.Service, &d.ServiceType, &d.Recipient,
		&d.State, &d.Reason, &d.Shown, &d.Attempts, &d.Redelivers, &d.CreatedAt, &d.DueAt, &d.FinishedAt)
	return d, err
}

// UpdateDelivery stores how far a pending delivery has come.
func (t *Tenant) UpdateDelivery(ctx context.Context, d hub.Delivery) error {
	if !hub.ValidID(string(d.ID)) {
		return noDelivery()
	}
	attempts, err := json.Marshal(d.Attempts)
	if err != nil {
		return fmt.Errorf("write the attempts of a delivery: %w", err)
	}
	_, err = exec(ctx, t.tx, "update delivery", updateDelivery, pgx.StrictNamedArgs{
		"tenant": t.id, "id": d.ID, "state": string(d.State), "reason": d.Reason, "attempts": string(attempts), "due": d.DueAt, "finished": d.FinishedAt,
	})
	return err
}

// DeliveriesSince counts the deliveries that began after a time and were not
// skipped.
func (t *Tenant) DeliveriesSince(ctx context.Context, after time.Time) (int64, error) {
	return one(ctx, t.tx, "number of deliveries", pgx.RowTo[int64], countDeliveries, t.id, after)
}

// Thread returns where the messages of a grouping key began; without a message,
// they did not.
func (t *Tenant) Thread(ctx context.Context, of hub.Thread) (hub.Thread, error) {
	_, err := list(ctx, t.tx, "thread", func(row pgx.CollectableRow) (none struct{}, err error) {
		return none, row.Scan(&of.Place, &of.Message)
	}, selectThread, t.id, of.Service, of.Recipient, of.Key)
	return of, err
}

// PutThread stores where the messages of a grouping key began.
func (t *Tenant) PutThread(ctx context.Context, of hub.Thread) error {
	_, err := exec(ctx, t.tx, "store thread", upsertThread, t.id, of.Service, of.Recipient, of.Key, of.Place, of.Message)
	return err
}

// CommitOf returns what was noted of the commit that an application was rendered
// from.
func (t *Tenant) CommitOf(ctx context.Context, app hub.ApplicationID, revision string) (info hub.CommitInfo, found bool, err error) {
	if !hub.ValidID(string(app)) {
		return info, false, nil
	}
	all, err := list(ctx, t.tx, "commit", pgx.RowTo[[]byte], selectCommitOf, t.id, app, revision)
	if err != nil || len(all) == 0 {
		return info, false, err
	}
	if err := json.Unmarshal(all[0], &info); err != nil {
		return info, false, fmt.Errorf("read what is known of a commit: %w", err)
	}
	return info, true, nil
}

// SettingSecrets opens all secrets of a map, by their keys, only for the hub's
// own use.
func (t *Tenant) SettingSecrets(ctx context.Context, name string) (map[string]string, error) {
	sealed := map[string][]byte{}
	_, err := list(ctx, t.tx, "secrets of settings", func(row pgx.CollectableRow) (none struct{}, err error) {
		var key string
		var value []byte
		err = row.Scan(&key, &value)
		sealed[key] = value
		return none, err
	}, selectSealedOf, t.id, name)
	if err != nil || len(sealed) == 0 {
		return nil, err
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(sealed))
	for key, value := range sealed {
		plain, err := encryption.Open(keys.Credential, settingFor(t.id, name, key), value)
		if err != nil {
			return nil, fmt.Errorf("open setting %s of %s: %w", key, name, err)
		}
		out[key] = string(plain)
	}
	return out, nil
}

// EarlierDelivery returns when an earlier message about the same application to
// the same recipient is sent; nil: there is none that waits.
func (t *Tenant) EarlierDelivery(ctx context.Context, id hub.DeliveryID) (*time.Time, error) {
	if !hub.ValidID(string(id)) {
		return nil, noDelivery()
	}
	return one(ctx, t.tx, "earlier delivery", pgx.RowTo[*time.Time], selectEarlier, t.id, id)
}
