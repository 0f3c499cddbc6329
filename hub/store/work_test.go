package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func key() string { return string(hub.NewID[hub.ApplicationID]()) }

func claim(t *testing.T, db *store.DB, limit int, lease time.Duration) []hub.WorkItem {
	t.Helper()
	return must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkRefresh, "replica", limit, lease))
}

func put(t *testing.T, db *store.DB, tenant hub.TenantID, key string, due time.Time, forced bool) {
	t.Helper()
	check(t, db.System().Enqueue(t.Context(), hub.WorkRefresh, tenant, key, due, forced))
}

func TestWorkQueue(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-time.Minute)

	t.Run("enqueueing twice is one item with the earlier time", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant, k := storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, time.Now().Add(time.Hour), false)
		if got := claim(t, db, 10, time.Minute); len(got) != 0 {
			t.Fatalf("claimed %v before it was due", got)
		}
		put(t, db, tenant, k, past, true)
		put(t, db, tenant, k, time.Now().Add(time.Hour), false)
		got := claim(t, db, 10, time.Minute)
		if len(got) != 1 || got[0].Key != k || !got[0].Forced || got[0].Tenant != tenant || got[0].Attempts != 0 {
			t.Fatalf("claimed %+v, want the one item, forced", got)
		}
		if again := claim(t, db, 10, time.Minute); len(again) != 0 {
			t.Errorf("a leased item was claimed again: %v", again)
		}
		check(t, db.System().Done(t.Context(), got))
		if n := must[int](t)(db.System().Depth(t.Context(), hub.WorkRefresh)); n != 0 {
			t.Errorf("%d items are left after Done", n)
		}
	})
	t.Run("INV-1 a claim whose caller is cancelled leases nothing", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant, k := storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, past, true)
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*15*time.Microsecond)
			got, err := db.System().Claim(ctx, hub.WorkRefresh, "replica", 1, time.Hour)
			cancel()
			if err == nil {
				check(t, db.System().Later(t.Context(), got, past))
			}
			if n := must[int](t)(db.System().Depth(t.Context(), hub.WorkRefresh)); n != 1 {
				t.Fatalf("%d items may be claimed after the claim %d, which ended with %v", n, i, err)
			}
		}
		if got := claim(t, db, 1, time.Minute); len(got) != 1 || !got[0].Forced {
			t.Errorf("claimed %+v, want the item, forced", got)
		}
	})
	t.Run("INV-1 what is enqueued while it is leased is not lost", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant, k := storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, past, false)
		first := claim(t, db, 1, time.Minute)
		put(t, db, tenant, k, past, true)
		check(t, db.System().Done(t.Context(), first))
		second := claim(t, db, 1, time.Minute)
		if len(second) != 1 || !second[0].Forced {
			t.Fatalf("after Done claimed %+v, want the item again, forced", second)
		}
		check(t, db.System().Done(t.Context(), second))
		if third := claim(t, db, 1, time.Minute); len(third) != 0 {
			t.Errorf("claimed %+v, want nothing more", third)
		}
	})
	t.Run("INV-1 what is enqueued by a transaction that commits during Done is due at once", func(t *testing.T) {
		t.Parallel()
		urls := storetest.Database(t)
		db := storetest.OpenURLs(t, urls.Config())
		tenant, k := storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, past, false)
		first := claim(t, db, 1, time.Hour)
		other, super := storetest.Connect(t, urls.Superuser), storetest.Connect(t, urls.Superuser)
		tx := must[pgx.Tx](t)(other.Begin(t.Context()))
		_, err := tx.Exec(t.Context(), `SELECT work.put($1, ARRAY[$2], ARRAY[$3::uuid], ARRAY[$4::timestamptz], ARRAY[false])`, tenant, hub.WorkRefresh, k, past)
		check(t, err)
		done := make(chan error, 1)
		go func() { done <- db.System().Done(t.Context(), first) }()
		for waiting := 0; waiting == 0; { // until Done waits for the row
			check(t, super.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&waiting))
		}
		check(t, tx.Commit(t.Context()))
		check(t, <-done)
		if again := claim(t, db, 1, time.Minute); len(again) != 1 {
			t.Errorf("claimed %+v, want the item again at once, not when its lease ends", again)
		}
	})
	t.Run("B01 a release reports work that is already due again, and no later work", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		for name, give := range map[string]func([]hub.WorkItem) (bool, error){
			"Finish": func(items []hub.WorkItem) (bool, error) { return db.System().Finish(t.Context(), items) },
			"PutOff": func(items []hub.WorkItem) (bool, error) {
				return db.System().PutOff(t.Context(), items, time.Now().Add(time.Hour))
			},
		} {
			for _, due := range []time.Time{{}, time.Now().Add(time.Hour), past} {
				k := key()
				put(t, db, tenant, k, past, false)
				items := claim(t, db, 10, time.Minute)
				if !due.IsZero() {
					put(t, db, tenant, k, due, false)
				}
				if again := must[bool](t)(give(items)); again != due.Equal(past) {
					t.Errorf("%s, enqueued meanwhile for %v: again is %v", name, due, again)
				}
				check(t, db.System().Done(t.Context(), claim(t, db, 10, time.Minute)))
			}
		}
	})
	t.Run("INV-4 a lost lease decides nothing", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant, k := storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, past, true)
		lost := claim(t, db, 1, -time.Second) // a lease that has run out already
		held := claim(t, db, 1, time.Minute)
		if len(held) != 1 || held[0].Attempts != 1 || !held[0].Forced {
			t.Fatalf("after the lease ran out claimed %+v, want the item, forced, on its second try", held)
		}
		check(t, db.System().Done(t.Context(), lost))
		check(t, db.System().Later(t.Context(), lost, past))
		if n := must[int](t)(db.System().Renew(t.Context(), lost, time.Hour)); n != 0 {
			t.Errorf("renewed %d lost leases", n)
		}
		if n := must[int](t)(db.System().Renew(t.Context(), held, time.Hour)); n != 1 {
			t.Errorf("renewed %d held leases, want 1", n)
		}
		if again := claim(t, db, 1, time.Minute); len(again) != 0 {
			t.Errorf("the loser freed the item: %+v", again)
		}
	})
	t.Run("postponed work waits, unless it is enqueued earlier", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant, k := storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, past, true)
		check(t, db.System().Later(t.Context(), claim(t, db, 1, time.Minute), time.Now().Add(time.Hour)))
		if got := claim(t, db, 1, time.Minute); len(got) != 0 {
			t.Fatalf("claimed %+v before its time", got)
		}
		put(t, db, tenant, k, past, false)
		got := claim(t, db, 1, time.Minute)
		if len(got) != 1 || !got[0].Forced || got[0].Attempts != 1 {
			t.Errorf("claimed %+v, want the item still forced, on its second try", got)
		}
	})
	t.Run("LD tenants are served in turn", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		big, small := storetest.Tenant(t, db, "big"), storetest.Tenant(t, db, "small")
		for range 50 {
			put(t, db, big, key(), past.Add(-time.Hour), false)
		}
		put(t, db, small, key(), past, false)
		seen := map[hub.TenantID]int{}
		for _, w := range claim(t, db, 4, time.Minute) {
			seen[w.Tenant]++
		}
		if seen[small] != 1 || seen[big] != 3 {
			t.Errorf("of four claims the tenants got %v, want one for the small one", seen)
		}
	})
	t.Run("ISO-10 a suspended tenant's work is not claimed", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		put(t, db, tenant, key(), past, false)
		check(t, db.System().SetSuspended(t.Context(), tenant, true))
		if got := claim(t, db, 1, time.Minute); len(got) != 0 {
			t.Errorf("claimed %+v", got)
		}
		check(t, db.System().SetSuspended(t.Context(), tenant, false))
		if got := claim(t, db, 1, time.Minute); len(got) != 1 {
			t.Errorf("claimed %+v after the end of the suspension", got)
		}
	})
	t.Run("INV-4 of many claimers each item goes to one", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			for range 200 {
				check(t, tx.Enqueue(ctx, hub.WorkRefresh, key(), past, false))
			}
			return nil
		})
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					got, err := db.System().Claim(t.Context(), hub.WorkRefresh, "replica", 7, time.Minute)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, w := range got {
						seen[w.Key]++
					}
					done := len(seen) == 200
					mu.Unlock()
					if done {
						return
					}
				}
			})
		}
		wg.Wait()
		for k, n := range seen {
			if n != 1 {
				t.Errorf("%s was claimed %d times", k, n)
			}
		}
	})
	t.Run("INV-1 work of a transaction that fails is not enqueued", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		failed := errors.New("on purpose")
		err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.Enqueue(ctx, hub.WorkRefresh, key(), past, false))
			return failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("error %v, want the function's own", err)
		}
		if got := claim(t, db, 1, time.Minute); len(got) != 0 {
			t.Errorf("claimed %+v", got)
		}
	})
	t.Run("bad input", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		if err := db.System().Enqueue(t.Context(), hub.WorkRefresh, hub.NewID[hub.TenantID](), key(), past, false); fault.KindOf(err) != fault.Missing {
			t.Errorf("for no tenant: error %v, want Missing", err)
		}
		if err := db.System().Enqueue(t.Context(), hub.WorkRefresh, "x", "'; DROP TABLE work.item", past, false); err == nil {
			t.Error("a key that is no id was taken")
		}
		check(t, db.System().Done(t.Context(), nil))
		check(t, db.System().Later(t.Context(), nil, past))
	})
}
