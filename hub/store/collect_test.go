package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestCollectInParts(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	tenant, other := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "other")
	super := storetest.Connect(t, urls.Superuser)
	fill := func(sql string, args ...any) {
		t.Helper()
		if _, err := super.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	count := func(sql string, args ...any) (n int) {
		t.Helper()
		check(t, super.QueryRow(t.Context(), sql, args...).Scan(&n))
		return n
	}
	const changes = `INSERT INTO change (tenant_id, xid, kind, ref, at) SELECT $1, (3 + n / 100)::text::xid8, 'application', gen_random_uuid(), now() - $3::interval FROM generate_series(1, $2) n`
	fill(changes, tenant, 12000, "2 hours")
	fill(changes, other, 100, "2 hours")
	fill(`INSERT INTO idempotency (tenant_id, caller, key, request_hash, created_at) SELECT $1, 'ann', n::text, '\x00', now() - interval '2 days' FROM generate_series(1, 6000) n`, tenant)
	fill(`INSERT INTO idempotency (tenant_id, caller, key, request_hash) VALUES ($1, 'ann', 'today', '\x00')`, tenant)
	fill(`INSERT INTO directory.login_failure (key, count, first_at, last_at) SELECT sha256(n::text::bytea), 1, now() - interval '2 days', now() - interval '2 days' FROM generate_series(1, 7000) n`)
	collect := func() (more bool) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
			more, err = tx.Collect(ctx, time.Now())
			return err
		})
		return more
	}
	t.Run("FT-D10 what has piled up is removed in parts, the oldest first, each in a transaction of its own", func(t *testing.T) {
		for i, left := range []int{7000, 2000, 0} {
			if more := collect(); more != (left > 0) {
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
		if collect() {
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
