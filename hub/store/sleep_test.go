package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestSleepInATransaction(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	awake := storetest.OpenURLs(t, urls.Config())
	cfg := urls.Config()
	cfg.Sleep = 100 * time.Millisecond
	sleeper := storetest.OpenURLs(t, cfg)
	tenant := storetest.Tenant(t, awake, "acme")
	key := string(hub.NewID[hub.ApplicationID]())
	check(t, awake.System().Enqueue(t.Context(), hub.WorkRefresh, tenant, key, time.Now(), false))
	items := must[[]hub.WorkItem](t)(awake.System().Claim(t.Context(), hub.WorkRefresh, "me", 1, time.Minute))
	if len(items) != 1 {
		t.Fatalf("%d items", len(items))
	}
	t.Run("FT-H3 FT-D1 locks of a process that sleeps in a transaction are released, and the transaction is rolled back", func(t *testing.T) {
		var held []bool
		sleep := func(ctx context.Context, tx *store.Tenant) error {
			good, err := tx.Held(ctx, hub.WorkRefresh, map[string]int64{key: items[0].Token})
			if err != nil {
				return err
			}
			held = append(held, good[key])
			if len(held) == 1 { // it does nothing until others have got what it has locked
				check(t, awake.System().Done(ctx, items))
			}
			return tx.Enqueue(ctx, hub.WorkFetch, key, time.Now(), false)
		}
		var err error
		for len(held) == 0 { // a slow process may lose its transaction before it has checked
			err = sleeper.InTenant(t.Context(), tenant, sleep)
		}
		if err != nil && fault.KindOf(err) != fault.Offline {
			t.Errorf("the error is %v", err)
		}
		if !held[0] || len(held) > 1 && held[1] {
			t.Errorf("the lease was good: %v", held)
		}
		if n := must[int](t)(awake.System().Depth(t.Context(), hub.WorkFetch)); err != nil && n != 0 {
			t.Errorf("%d items are there of a transaction that ended", n)
		}
	})
}
