package store_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestLockOrder(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	tenant := storetest.Tenant(t, db, "acme")
	super := storetest.Connect(t, urls.Superuser)
	low, high := hub.NewID[hub.ClusterID](), hub.NewID[hub.ClusterID]()
	if low > high {
		low, high = high, low
	}
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for _, id := range []hub.ClusterID{high, low} { // the table has them the other way round
			if _, err := tx.CreateCluster(ctx, hub.Cluster{ID: id, Meta: hub.Meta{Name: "c" + string(id)}}); err != nil {
				return err
			}
		}
		return nil
	})
	t.Run("INV-8 logs are locked in the order of their clusters' ids, so that there is no deadlock", func(t *testing.T) {
		var tries atomic.Int32
		other := make(chan error, 1)
		err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			if tries.Add(1) > 1 {
				return nil
			}
			if _, err := tx.LockClusters(ctx, []hub.ClusterID{low}); err != nil {
				return err
			}
			go func() {
				other <- db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
					tries.Add(1)
					_, err := tx.LockClusters(ctx, []hub.ClusterID{high, low})
					return err
				})
			}()
			for waiting := 0; waiting == 0; { // until the other one waits for a row
				check(t, super.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&waiting))
			}
			// A transaction that waits for the lower one does not hold the
			// higher one.
			_, err := tx.LockClusters(ctx, []hub.ClusterID{high})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-other; err != nil {
			t.Fatal(err)
		}
		if n := tries.Load(); n != 2 {
			t.Errorf("%d tries of two transactions: they waited for each other", n)
		}
	})
}
