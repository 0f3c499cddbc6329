package store_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestStatistics(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "x")
	super := storetest.Connect(t, urls.Superuser)
	size := func() (rows float64) {
		check(t, super.QueryRow(t.Context(), `SELECT reltuples FROM pg_class WHERE oid = 'snapshot'::regclass`).Scan(&rows))
		return rows
	}
	fill := func(n int) {
		t.Helper()
		_, err := super.Exec(t.Context(), `
			INSERT INTO snapshot (tenant_id, id, application_id, revision, params_hash, objects, object_count, digests, inputs, source_type, created_at)
			SELECT $1, gen_random_uuid(), $2, 'c0ffee', decode(repeat('00', 32), 'hex'), '', 0, '{}', '', 'Directory', now() FROM generate_series(1, $3::integer)`, w.tenant, w.app.ID, n)
		check(t, err)
		_, err = super.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		check(t, err)
	}
	t.Run("a table that has just been filled is analysed", func(t *testing.T) {
		fill(500)
		for must[bool](t)(db.System().RefreshStatistics(t.Context())) {
		}
		if got := size(); got < 500 {
			t.Errorf("the planner believes in %v rows", got)
		}
	})
	t.Run("one that has hardly grown since is not", func(t *testing.T) {
		before := size()
		fill(50)
		if must[bool](t)(db.System().RefreshStatistics(t.Context())) {
			t.Error("a table was looked at")
		}
		if got := size(); got != before {
			t.Skipf("the server has looked by itself: %v rows, before %v", got, before)
		}
	})
	t.Run("ISO-1 the role that serves tenants may not read it", func(t *testing.T) {
		if _, err := storetest.Connect(t, urls.App).Exec(t.Context(), `SELECT work.refresh_statistic()`); err == nil {
			t.Error("the role of tenants' transactions may refresh statistics")
		}
	})
}
