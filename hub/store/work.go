package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An enqueue is what makes one item of work.
type enqueue struct{ kind, key string }

// A request is when the item is due, and whether it is forced.
type request struct {
	due    time.Time
	forced bool
}

const (
	tenantEnqueue = `SELECT work.enlist($1, $2::uuid[], $3, $4)`
	heldLeases    = `SELECT work.still_leased($1, $2::uuid[], $3)`
)

// Held returns which leases of this tenant's items are still valid, by key:
// token by token, and until the transaction ends. What is written for an item
// in that transaction cannot be overwritten by a replica that had the item
// before: its lease is invalid.
func (t *Tenant) Held(ctx context.Context, kind string, leases map[string]int64) (map[string]bool, error) {
	var keys []string
	var tokens []int64
	for key, token := range leases {
		if hub.ValidID(key) {
			keys, tokens = append(keys, key), append(tokens, token)
		}
	}
	held, err := list(ctx, t.tx, "leases", pgx.RowTo[string], heldLeases, kind, keys, tokens)
	out := make(map[string]bool, len(held))
	for _, key := range held {
		out[key] = true
	}
	return out, err
}

// Enqueue makes work of this tenant due; it becomes visible when the
// transaction commits. If the same item is enqueued again, the earlier time
// counts, and forced stays set until the item is done.
func (t *Tenant) Enqueue(_ context.Context, kind, key string, due time.Time, forced bool) error {
	if !hub.ValidID(key) {
		return fault.New(fault.Internal, "work %q for %q, which is no id", kind, key)
	}
	t.enqueue(kind, key, due, forced)
	return nil
}

func (t *Tenant) enqueue(kind, key string, due time.Time, forced bool) {
	if t.enqueued == nil {
		t.enqueued = map[enqueue]request{}
	}
	e := enqueue{kind, key}
	if old, ok := t.enqueued[e]; ok {
		forced = forced || old.forced
		if old.due.Before(due) {
			due = old.due
		}
	}
	t.enqueued[e] = request{due, forced}
}

// Enqueued calls each with what the transaction has enqueued so far.
func (t *Tenant) Enqueued(each func(kind, key string)) {
	for e := range t.enqueued {
		each(e.kind, e.key)
	}
}

// DelayWork delays what the transaction has enqueued of a kind, by another
// duration for each item. What is forced is not delayed.
func (t *Tenant) DelayWork(kind string, by func() time.Duration) {
	for e, r := range t.enqueued {
		if e.kind == kind && !r.forced {
			r.due = r.due.Add(by())
			t.enqueued[e] = r
		}
	}
}

func (t *Tenant) queueWork(b *pgx.Batch) {
	if len(t.enqueued) == 0 {
		return
	}
	var kinds, keys []string
	var dues []time.Time
	var forces []bool
	for e, r := range t.enqueued {
		kinds, keys, dues, forces = append(kinds, e.kind), append(keys, e.key), append(dues, r.due), append(forces, r.forced)
	}
	b.Queue(tenantEnqueue, kinds, keys, dues, forces)
}

const (
	systemEnqueue = `SELECT work.put(@tenant, ARRAY[@kind], ARRAY[@key::uuid], ARRAY[@due::timestamptz], ARRAY[@forced::boolean])`

	// Tenants are served in turn: the oldest item of each comes before the
	// second oldest of any. The tenants are found by skipping through the
	// index, so the cost depends on their number and not on the length of the
	// queue. While nothing is due, it is one lookup in another index. Found
	// items are locked by ctid (place). A lookup by key would search each item
	// among all due ones, because the queue fills faster than statistics are
	// updated. The second condition on ready cannot use an index, and this role
	// scans no tables, so no other join is possible. A plan made while the
	// queue was empty would compare each place with each item. An item that is
	// enqueued again at the same time has another place by then. It is left to
	// the next claim.
	claimHead = `
		WITH RECURSIVE waiting AS (
			(SELECT i.tenant_id FROM work.item i
			 WHERE  i.kind = $1 AND EXISTS (SELECT FROM work.item r WHERE r.kind = $1 AND r.ready <= now())
			 ORDER  BY i.tenant_id LIMIT 1)
			UNION ALL
			SELECT (SELECT i.tenant_id FROM work.item i WHERE i.kind = $1 AND i.tenant_id > w.tenant_id ORDER BY i.tenant_id LIMIT 1)
			FROM   waiting w
			WHERE  w.tenant_id IS NOT NULL
		), turns AS (
			SELECT c.place, c.ready, row_number() OVER (PARTITION BY w.tenant_id ORDER BY c.ready) AS turn
			FROM   waiting w
			JOIN   directory.tenant t ON t.id = w.tenant_id AND t.ready AND NOT t.suspended AND t.id <> ALL ($5::uuid[])
			CROSS  JOIN LATERAL (
				SELECT i.ctid AS place, i.ready FROM work.item i
				WHERE  i.kind = $1 AND i.tenant_id = w.tenant_id AND i.ready <= now()`
	claimTail = `
				ORDER  BY i.ready LIMIT $3) c
		), picked AS MATERIALIZED (
			SELECT i.ctid AS place
			FROM   turns s
			JOIN   work.item i ON i.ctid = s.place
			WHERE  i.ready - interval '0' <= now()
			ORDER  BY s.turn, s.ready
			LIMIT  $3
			FOR UPDATE OF i SKIP LOCKED
		)
		UPDATE work.item i
		SET    due = 'infinity', ready = now() + $4::interval, token = nextval('work.lease'), owner = $2,
		       forced = i.forced OR i.forced_next, forced_next = false, attempts = i.attempts + 1
		FROM   picked p
		WHERE  i.ctid = p.place
		RETURNING i.kind, i.tenant_id, i.key, i.forced, i.token, i.attempts - 1`
	claimWork = claimHead + claimTail
	// Rendezvous hashing: each item has its replica among those that live,
	// and only the items of a replica that is gone find another one. What its
	// replica leaves waiting is anybody's.
	claimShare = claimHead + `
				  AND  (i.ready <= now() - $7::interval
				        OR $2 = (SELECT r FROM unnest($6::text[]) r ORDER BY hashtextextended(coalesce(i.route, i.key)::text || r, 0) DESC LIMIT 1))` + claimTail

	// A transaction that enqueues an item again may be about to commit. Only with
	// the rows locked do the next two statements see the same: Otherwise the
	// first one finds nothing to update, the second one nothing to delete, and
	// the item waits until its lease ends.
	//
	// All items are looked up at once and not one by one. The queue fills and
	// empties faster than statistics are updated. One lookup by the wrong index
	// is cheap; one for each item is not. A token belongs to one item, so no
	// other items match.
	lockWork = `
		SELECT FROM work.item i
		WHERE  i.kind = ANY ($1::text[]) AND i.tenant_id = ANY ($2::uuid[]) AND i.key = ANY ($3::uuid[]) AND $4::bigint[] IS NOT NULL
		ORDER  BY i.kind, i.tenant_id, i.key
		FOR    UPDATE OF i`
	// An item that was enqueued again while it was leased stays.
	keepWork = `
		WITH kept AS (
			UPDATE work.item i
			SET    ready = i.due, token = NULL, owner = '', forced = i.forced_next, forced_next = false, attempts = 0
			WHERE  i.kind = ANY ($1::text[]) AND i.tenant_id = ANY ($2::uuid[]) AND i.key = ANY ($3::uuid[]) AND i.token = ANY ($4::bigint[]) AND i.due < 'infinity'
			RETURNING i.due
		)
		SELECT EXISTS (SELECT FROM kept WHERE due <= clock_timestamp())`
	dropWork = `
		DELETE FROM work.item i
		WHERE  i.kind = ANY ($1::text[]) AND i.tenant_id = ANY ($2::uuid[]) AND i.key = ANY ($3::uuid[]) AND i.token = ANY ($4::bigint[])
		  AND  i.due = 'infinity'`
	postponeWork = `
		WITH kept AS (
			UPDATE work.item i
			SET    due = least(i.due, @due::timestamptz), ready = least(i.due, @due::timestamptz), token = NULL, owner = '',
			       forced = i.forced OR i.forced_next, forced_next = false
			WHERE  i.kind = ANY (@kinds::text[]) AND i.tenant_id = ANY (@tenants::uuid[]) AND i.key = ANY (@keys::uuid[]) AND i.token = ANY (@tokens::bigint[])
			RETURNING i.due
		)
		SELECT EXISTS (SELECT FROM kept WHERE due <= clock_timestamp())`
	renewWork = `
		UPDATE work.item i
		SET    ready = now() + @lease::interval
		WHERE  i.kind = ANY (@kinds::text[]) AND i.tenant_id = ANY (@tenants::uuid[]) AND i.key = ANY (@keys::uuid[]) AND i.token = ANY (@tokens::bigint[])`
	returnWork = `
		UPDATE work.item i
		SET    due = least(i.due, now()), ready = now(), token = NULL, owner = '', attempts = i.attempts - 1,
		       forced = i.forced OR i.forced_next, forced_next = false
		WHERE  i.kind = ANY ($1::text[]) AND i.tenant_id = ANY ($2::uuid[]) AND i.key = ANY ($3::uuid[]) AND i.token = ANY ($4::bigint[])`
	giveBackWork = `
		UPDATE work.item i
		SET    due = least(i.due, now()), ready = now(), token = NULL, owner = '',
		       forced = i.forced OR i.forced_next, forced_next = false
		WHERE  i.owner = $1 AND i.token IS NOT NULL`
	countWork = `SELECT count(*) FROM work.item WHERE kind = $1 AND due <= now()`
)

// Enqueue makes work of a tenant due, outside of its transactions.
func (s *System) Enqueue(ctx context.Context, kind string, tenant hub.TenantID, key string, due time.Time, forced bool) error {
	if !hub.ValidID(key) || !hub.ValidID(string(tenant)) {
		return fault.New(fault.Internal, "work %q for %q of tenant %q, which are no ids", kind, key, tenant)
	}
	_, err := exec(ctx, s.db.system, "enqueue", systemEnqueue, pgx.StrictNamedArgs{
		"tenant": tenant, "kind": kind, "key": key, "due": due, "forced": forced,
	})
	if code(err) == foreignKeyViolation {
		return noTenant()
	}
	return classify(err)
}

// Claim leases up to limit items that are due to owner. Tenants are served in
// turn. An item that is neither done nor put off within the lease is due again.
func (s *System) Claim(ctx context.Context, kind, owner string, limit int, lease time.Duration) ([]hub.WorkItem, error) {
	return s.ClaimExcept(ctx, kind, owner, limit, lease, nil)
}

// claimGrace is how much longer than its caller a claim may live.
const claimGrace = 2 * time.Second

// ClaimExcept is Claim that leaves out some tenants.
func (s *System) ClaimExcept(ctx context.Context, kind, owner string, limit int, lease time.Duration, except []hub.TenantID) ([]hub.WorkItem, error) {
	return s.claim(ctx, claimWork, kind, owner, limit, lease, some(except))
}

// ClaimShare is ClaimExcept for one of several replicas, which share out the
// items by their repositories.
func (s *System) ClaimShare(ctx context.Context, kind, owner string, among []string, limit int, lease time.Duration, except []hub.TenantID) ([]hub.WorkItem, error) {
	return s.claim(ctx, claimShare, kind, owner, limit, lease, some(except), among, s.db.homeWait)
}

// some returns an empty list for none: null would leave out all.
func some(tenants []hub.TenantID) []hub.TenantID {
	if tenants == nil {
		return []hub.TenantID{}
	}
	return tenants
}

// claim is not cancelled with its caller: the database may have executed it
// already, and what it leased would wait until the lease ends. It is returned
// instead.
func (s *System) claim(ctx context.Context, statement string, args ...any) ([]hub.WorkItem, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	own, end := outlive(ctx, claimGrace)
	defer end()
	var out []hub.WorkItem
	err := retry(ctx, func() (err error) {
		out, err = list(own, s.db.system, "work", func(row pgx.CollectableRow) (w hub.WorkItem, err error) {
			err = row.Scan(&w.Kind, &w.Tenant, &w.Key, &w.Forced, &w.Token, &w.Attempts)
			return w, err
		}, statement, args...)
		return err
	})
	if err == nil && ctx.Err() != nil {
		kinds, tenants, keys, tokens := columns(out)
		_, err = exec(own, s.db.system, "return work", returnWork, kinds, tenants, keys, tokens)
		return nil, errors.Join(ctx.Err(), classify(err))
	}
	return out, err
}

// outlive returns a context that ends a while after ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, func()) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return own, func() { stop(); cancel() }
}

// Done releases finished items. One that was enqueued again in between stays
// and is due then; one whose lease was lost is not changed.
func (s *System) Done(ctx context.Context, items []hub.WorkItem) error {
	_, err := s.Finish(ctx, items)
	return err
}

// Finish is Done, and reports whether some of it is due again already: it was
// enqueued while it was leased, when a notification found nothing to claim.
func (s *System) Finish(ctx context.Context, items []hub.WorkItem) (again bool, err error) {
	if len(items) == 0 {
		return false, nil
	}
	kinds, tenants, keys, tokens := columns(items)
	err = s.repeatable(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		// Without a begin, a batch is one transaction and one round trip.
		b := &pgx.Batch{}
		b.Queue(lockWork, kinds, tenants, keys, tokens)
		b.Queue(keepWork, kinds, tenants, keys, tokens).QueryRow(func(row pgx.Row) error { return row.Scan(&again) })
		b.Queue(dropWork, kinds, tenants, keys, tokens)
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("finish work: %w", err)
		}
		return nil
	})
	return again, err
}

// Later releases items for another attempt at due, or earlier if they were
// enqueued for earlier in between.
func (s *System) Later(ctx context.Context, items []hub.WorkItem, due time.Time) error {
	_, err := s.PutOff(ctx, items, due)
	return err
}

// PutOff is Later, and reports whether some of it is due already.
func (s *System) PutOff(ctx context.Context, items []hub.WorkItem, due time.Time) (now bool, err error) {
	if len(items) == 0 {
		return false, nil
	}
	kinds, tenants, keys, tokens := columns(items)
	err = s.repeatable(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		args := pgx.StrictNamedArgs{"kinds": kinds, "tenants": tenants, "keys": keys, "tokens": tokens, "due": due}
		if err := conn.QueryRow(ctx, postponeWork, args).Scan(&now); err != nil {
			return fmt.Errorf("put work off: %w", err)
		}
		return nil
	})
	return now, err
}

// Succeed ends all leases of earlier processes of a replica of that name. Those
// processes have ended, or will find that they have lost their leases.
func (s *System) Succeed(ctx context.Context, name, id string) (int, error) {
	var n int64
	err := s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		former, err := list(ctx, tx, "former processes", pgx.RowTo[string], forgetFormer, name, id)
		if err != nil {
			return err
		}
		for _, owner := range former {
			freed, err := exec(ctx, tx, "give back work", giveBackWork, owner)
			if err != nil {
				return err
			}
			n += freed
		}
		return nil
	})
	return int(n), err
}

// GiveBack ends all leases of an owner, whose earlier process has ended, and
// returns their number. Its items are due again.
func (s *System) GiveBack(ctx context.Context, owner string) (int, error) {
	var n int64
	err := retry(ctx, func() (err error) {
		n, err = exec(ctx, s.db.system, "give back work", giveBackWork, owner)
		return err
	})
	return int(n), err
}

// Renew makes the leases of items last for lease from now, and returns how many
// of them the caller still has.
func (s *System) Renew(ctx context.Context, items []hub.WorkItem, lease time.Duration) (int, error) {
	kinds, tenants, keys, tokens := columns(items)
	n, err := exec(ctx, s.db.system, "renew leases", renewWork, pgx.StrictNamedArgs{
		"kinds": kinds, "tenants": tenants, "keys": keys, "tokens": tokens, "lease": lease,
	})
	return int(n), classify(err)
}

// Depth counts the items of a kind that are due and not leased.
func (s *System) Depth(ctx context.Context, kind string) (int, error) {
	var n int
	err := s.db.system.QueryRow(ctx, countWork, kind).Scan(&n)
	return n, classify(err)
}

func columns(items []hub.WorkItem) (kinds, tenants, keys []string, tokens []int64) {
	for _, w := range items {
		kinds, tenants, keys, tokens = append(kinds, w.Kind), append(tenants, string(w.Tenant)), append(keys, w.Key), append(tokens, w.Token)
	}
	return kinds, tenants, keys, tokens
}
