package daemon

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

const renewEvery = workLease / 3

type renewals chan []hub.WorkItem

func (r renewals) Renew(_ context.Context, items []hub.WorkItem, lease time.Duration) (int, error) {
	if lease != workLease {
		panic("another lease")
	}
	r <- items
	return len(items), nil
}

func TestLeases(t *testing.T) {
	t.Parallel()
	t.Run("a lease is renewed until it is released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, seen := newLeases(), make(renewals, 100)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = l.renew(ctx, seen, slog.New(slog.DiscardHandler)) }()
			l.took([]hub.WorkItem{{Token: 1}, {Token: 2}})
			if items := <-seen; len(items) != 2 {
				t.Errorf("%d renewed", len(items))
			}
			l.release([]hub.WorkItem{{Token: 1}})
			if items := <-seen; len(items) != 1 || items[0].Token != 2 {
				t.Errorf("renewed %+v", items)
			}
			time.Sleep(longestHold + renewEvery)
			synctest.Wait()
			for len(seen) > 0 {
				<-seen
			}
			time.Sleep(2 * renewEvery)
			synctest.Wait()
			if len(seen) != 0 {
				t.Error("work that nobody gives back is renewed for ever")
			}
			cancel()
			synctest.Wait()
		})
	})
}

func TestWorkOfADeadReplica(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	key := string(hub.NewID[hub.RepositoryID]())
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		return tx.Enqueue(ctx, hub.WorkFetch, key, time.Now(), false)
	})
	dead, other := newQueue(db.System(), "one"), newQueue(db.System(), "two")
	items, err := dead.Claim(t.Context(), hub.WorkFetch, 10)
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	t.Run("FT-H1 a replica that restarts under its name resumes its work at once", func(t *testing.T) {
		if n, err := db.System().GiveBack(t.Context(), other.owner); err != nil || n != 0 {
			t.Fatalf("%d items of another replica were taken, %v", n, err)
		}
		if n, err := db.System().GiveBack(t.Context(), dead.owner); err != nil || n != 1 {
			t.Fatalf("%d items, %v", n, err)
		}
		again, err := other.Claim(t.Context(), hub.WorkFetch, 10)
		if err != nil || len(again) != 1 || again[0].Key != key {
			t.Fatal(again, err)
		}
		// The dead one's hands are off.
		if err := dead.Done(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		if n, err := db.System().Renew(t.Context(), again, time.Minute); err != nil || n != 1 {
			t.Errorf("the work was taken away again: %d, %v", n, err)
		}
	})
}
