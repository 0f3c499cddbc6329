package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// garbage is a database with two tenants that are filled past the store.
type garbage struct {
	t             *testing.T
	db            *store.DB
	tenant, other hub.TenantID
	super         *pgx.Conn
}

func newGarbage(t *testing.T) *garbage {
	t.Helper()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	return &garbage{t: t, db: db, tenant: storetest.Tenant(t, db, "acme"), other: storetest.Tenant(t, db, "other"), super: storetest.Connect(t, urls.Superuser)}
}

func (g *garbage) fill(sql string, args ...any) {
	g.t.Helper()
	_, err := g.super.Exec(g.t.Context(), sql, args...)
	check(g.t, err)
}

// collect removes one part of what the tenant needs no more.
func (g *garbage) collect() (more bool) {
	storetest.In(g.t, g.db, g.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
		more, err = tx.Collect(ctx, time.Now())
		return err
	})
	return more
}

func TestCollectInParts(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	db, tenant, other, fill := g.db, g.tenant, g.other, g.fill
	count := func(sql string, args ...any) (n int) {
		t.Helper()
		check(t, g.super.QueryRow(t.Context(), sql, args...).Scan(&n))
		return n
	}
	const changes = `INSERT INTO change (tenant_id, xid, kind, ref, at) SELECT $1, (3 + n / 100)::text::xid8, 'application', gen_random_uuid(), now() - $3::interval FROM generate_series(1, $2) n`
	fill(changes, tenant, 12000, "2 hours")
	fill(changes, other, 100, "2 hours")
	fill(`INSERT INTO idempotency (tenant_id, caller, key, request_hash, created_at) SELECT $1, 'ann', n::text, '\x00', now() - interval '2 days' FROM generate_series(1, 6000) n`, tenant)
	fill(`INSERT INTO idempotency (tenant_id, caller, key, request_hash) VALUES ($1, 'ann', 'today', '\x00')`, tenant)
	fill(`INSERT INTO directory.login_failure (key, count, first_at, last_at) SELECT sha256(n::text::bytea), 1, now() - interval '2 days', now() - interval '2 days' FROM generate_series(1, 7000) n`)
	t.Run("FT-D10 what has piled up is removed in parts, the oldest first, each in a transaction of its own", func(t *testing.T) {
		for i, left := range []int{7000, 2000, 0} {
			if more := g.collect(); more != (left > 0) {
				t.Errorf("part %d: more = %v", i, more)
			}
			if n := count(`SELECT count(*) FROM change WHERE tenant_id = $1 AND kind = 'application'`, tenant); n != left {
				t.Errorf("part %d: %d changes are left, want %d", i, n, left)
			}
			if n := count(`SELECT count(*) FROM organisation WHERE tenant_id = $1 AND feed_floor > (SELECT coalesce(min(xid), '18446744073709551615') FROM change WHERE tenant_id = $1)`, tenant); n != 0 {
				t.Errorf("part %d: the floor of the feed is above a change that is left", i)
			}
		}
		if n := count(`SELECT count(*) FROM idempotency WHERE tenant_id = $1`, tenant); n != 1 {
			t.Errorf("%d answers are left, want today's", n)
		}
		if n := count(`SELECT count(*) FROM change WHERE tenant_id = $1 AND kind = 'application'`, other); n != 100 {
			t.Errorf("ISO-1 %d changes of another tenant are left, want all 100", n)
		}
		if g.collect() {
			t.Error("there is said to be more when nothing is left")
		}
	})
	t.Run("FT-D10 so are expired rows of the directory", func(t *testing.T) {
		for i, left := range []int{2000, 0} {
			if more := must[bool](t)(db.System().Collect(t.Context(), time.Now())); more != (left > 0) {
				t.Errorf("part %d: more = %v", i, more)
			}
			if n := count(`SELECT count(*) FROM directory.login_failure`); n != left {
				t.Errorf("part %d: %d rows are left, want %d", i, n, left)
			}
		}
	})
}

// TestCollectObjects counts rows: a part is a transaction of its own.
func TestCollectObjects(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	tenant, other, fill := g.tenant, g.other, g.fill
	const objects = `INSERT INTO object (tenant_id, digest, sealed, size, kept_until) SELECT $1, sha256(n::text::bytea), 'x', 1, now() - n * interval '1 second' FROM generate_series(1, $2) n`
	fill(objects, tenant, 12000)
	fill(objects, other, 10)
	// Of the first two thirds every object is used, as of a snapshot of 8,000.
	fill(`SET session_replication_role = replica`) // a snapshot of no application will do
	fill(`INSERT INTO snapshot (tenant_id, id, application_id, revision, params_hash, objects, object_count, digests, inputs, source_type, created_at)
		SELECT $1, gen_random_uuid(), gen_random_uuid(), 'r', sha256(''), '', 8000, array_agg(sha256(n::text::bytea)), '', 'Directory', now() FROM generate_series(1, 8000) n`, tenant)
	type counts struct{ due, kept, all int }
	count := func() (c counts) {
		t.Helper()
		check(t, g.super.QueryRow(t.Context(), `
			SELECT count(*) FILTER (WHERE kept_until < now()), count(*) FILTER (WHERE kept_until > now() + interval '1 minute'), count(*)
			FROM object WHERE tenant_id = $1`, tenant).Scan(&c.due, &c.kept, &c.all))
		return c
	}
	t.Run("FT-D10 INV-9 objects are collected in parts: used ones stay and are not due again, the others are deleted", func(t *testing.T) {
		for i, want := range []counts{{7000, 1000, 8000}, {2000, 6000, 8000}, {0, 8000, 8000}} {
			more := g.collect()
			if got := count(); got != want || more != (want.due > 0) {
				t.Errorf("part %d: %+v, more = %v; want %+v", i, got, more, want)
			}
		}
		var n int
		check(t, g.super.QueryRow(t.Context(), `SELECT count(*) FROM object WHERE tenant_id = $1 AND kept_until < now()`, other).Scan(&n))
		if n != 10 {
			t.Errorf("ISO-1 %d objects of another tenant are due, want all 10", n)
		}
	})
}

// TestCollectPastWhatStays has more old rows that have to stay than one part
// may delete, all of them before those that nothing needs.
func TestCollectPastWhatStays(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	const stay, gone = 6000, 3000
	count := func(sql string) (n int) {
		t.Helper()
		check(t, g.super.QueryRow(t.Context(), sql, g.tenant).Scan(&n))
		return n
	}
	collectAll := func() {
		t.Helper()
		for range 20 {
			if !g.collect() {
				return
			}
		}
		t.Fatal("after 20 parts there is said to be more")
	}
	g.fill(`SET session_replication_role = replica`) // rows of no application and no cluster will do
	t.Run("FT-D10 snapshots that a rollback may use do not keep the others from being collected", func(t *testing.T) {
		const app = `'00000000-0000-4000-8000-000000000001'::uuid`
		g.fill(`INSERT INTO snapshot (tenant_id, id, application_id, revision, params_hash, objects, object_count, digests, inputs, source_type, created_at)
			SELECT $1, gen_random_uuid(), `+app+`, CASE WHEN n <= $2::int THEN 'deployed' ELSE 'replaced' END, sha256(''), '', 0, '{}', '', 'Directory',
			       now() - interval '30 days' + n * interval '1 second' FROM generate_series(1, $2::int + $3::int) n`, g.tenant, stay, gone)
		g.fill(`INSERT INTO history (tenant_id, application_id, id, snapshot_id, revision, initiator, started_at, deployed_at)
			SELECT $1, application_id, row_number() OVER (), id, 'r', '{}', now(), now() FROM snapshot WHERE tenant_id = $1 AND revision = 'deployed'`, g.tenant)
		collectAll()
		if n := count(`SELECT count(*) FROM snapshot WHERE tenant_id = $1 AND revision = 'replaced'`); n != 10 {
			t.Errorf("%d snapshots that were never deployed are left, want the newest ten", n)
		}
		if n := count(`SELECT count(*) FROM snapshot WHERE tenant_id = $1 AND revision = 'deployed'`); n != stay {
			t.Errorf("INV-9 %d of %d snapshots of the history are left", n, stay)
		}
	})
	t.Run("FT-D10 rows that are still valid do not keep the desired log from being trimmed", func(t *testing.T) {
		const cluster = `'00000000-0000-4000-8000-000000000002'::uuid`
		g.fill(`INSERT INTO log_row (tenant_id, cluster_id, seq, kind, application_id, body, chain, created_at)
			SELECT $1, `+cluster+`, n, 1, gen_random_uuid(), 'state', sha256(''), now() - interval '30 days' FROM generate_series(1, $2) n`, g.tenant, stay)
		g.fill(`INSERT INTO desired_head (tenant_id, cluster_id, application_id, seq, leaf)
			SELECT tenant_id, cluster_id, application_id, seq, sha256('') FROM log_row WHERE tenant_id = $1`, g.tenant)
		g.fill(`INSERT INTO log_row (tenant_id, cluster_id, seq, kind, application_id, body, chain, created_at)
			SELECT $1, `+cluster+`, $2::int + n, 1, gen_random_uuid(), 'state', sha256(''), now() - interval '30 days' FROM generate_series(1, $3) n`, g.tenant, stay, gone)
		g.fill(`INSERT INTO log_head (tenant_id, cluster_id, incarnation, chain) VALUES ($1, `+cluster+`, '', '')`, g.tenant)
		g.fill(`INSERT INTO log_ack (tenant_id, cluster_id, acked_seq) VALUES ($1, `+cluster+`, $2)`, g.tenant, stay+gone)
		collectAll()
		if n := count(`SELECT count(*) FROM log_row WHERE tenant_id = $1 AND body <> ''`); n != stay {
			t.Errorf("INV-9 %d valid rows are left, want %d", n, stay)
		}
		if n := count(`SELECT count(*) FROM log_row WHERE tenant_id = $1 AND body = ''`); n != 1 {
			t.Errorf("%d rows that nothing needs are left, want the newest that the agent has stored", n)
		}
		if n := count(`SELECT count(*) FROM log_checkpoint WHERE tenant_id = $1`); n != (stay+gone-1)/64-stay/64 {
			t.Errorf("%d chain hashes of trimmed rows are left, want every 64th", n)
		}
	})
}
