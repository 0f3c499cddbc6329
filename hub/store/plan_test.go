package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// A queue that was empty when its plan was made fills at once.
func TestClaimPlan(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "x")
	super := storetest.Connect(t, urls.Superuser)
	const due, limit = 3000, 512
	fill := func() {
		t.Helper()
		_, err := super.Exec(t.Context(), `
			INSERT INTO work.item (kind, tenant_id, key, due, ready)
			SELECT $1, $2, gen_random_uuid(), now(), now() FROM generate_series(1, $3::integer)`, hub.WorkRefresh, w.tenant, due)
		check(t, err)
	}
	// As the planner knows a queue after a while of work: pages, and nothing in
	// them.
	fill()
	for _, statement := range []string{`DELETE FROM work.item`, `ANALYZE work.item`} {
		_, err := super.Exec(t.Context(), statement)
		check(t, err)
	}
	fill()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("B24 a claim looks at what it takes, shared %v", shared), func(t *testing.T) {
			refreshed, err := store.RowsOfClaim(t.Context(), db, hub.WorkRefresh, limit, time.Minute, shared)
			check(t, err)
			if refreshed > 20*due {
				t.Errorf("a claim of %d of %d items looked at %d rows", limit, due, refreshed)
			}
		})
	}
}
