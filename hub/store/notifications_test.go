package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestTransitionsAreNoted(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "alpha", "alpha") // it has a service of notifications
	noted := func() (all []hub.Transition) {
		t.Helper()
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
			all, err = tx.Transitions(ctx, w.app.ID, 100)
			return err
		})
		return all
	}
	t.Run("NOTI-05 pain 35 changes are noted by the transaction that makes them, and are work", func(t *testing.T) {
		all := noted()
		if !slices.ContainsFunc(all, func(x hub.Transition) bool { return x.Operation == w.operation.ID && x.Phase == hub.Pending }) {
			t.Errorf("%+v", all)
		}
		items := must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkNotify, "r1", 10, time.Minute))
		if len(items) != 1 || items[0].Key != string(w.app.ID) {
			t.Fatalf("%+v", items)
		}
		var ids []int64
		for _, x := range all {
			ids = append(ids, x.ID)
		}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutNotified(ctx, w.app.ID, &hub.NotifiedState{Phase: hub.Pending}, ids)
		})
		check(t, db.System().Done(t.Context(), items))
		if left := noted(); len(left) > 0 {
			t.Errorf("%+v", left)
		}
	})
	t.Run("FT-W4 a message of the same transition is stored once", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			again := w.delivery
			again.ID = hub.NewID[hub.DeliveryID]()
			if stored, err := tx.PutDelivery(ctx, again); err != nil || stored {
				t.Errorf("%v, %v", stored, err)
			}
			return nil
		})
	})
	t.Run("NOTI-14 the end of an application is noted with what it was", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.RemoveApplication(ctx, w.app.ID)
		})
		all := noted()
		if len(all) == 0 || all[len(all)-1].Removed == nil || all[len(all)-1].Removed.Name != w.app.Name || all[len(all)-1].Removed.DeletingAt == nil {
			t.Errorf("%+v", all)
		}
	})
	t.Run("NOTI-05 nothing is noted for a tenant without a service", func(t *testing.T) {
		quiet := storetest.Tenant(t, db, "quiet")
		storetest.In(t, db, quiet, func(ctx context.Context, tx *store.Tenant) error {
			a := must[hub.Application](t)(tx.CreateApplication(ctx, newApp("web", "https://git.test/a/b", "")))
			if all := must[[]hub.Transition](t)(tx.Transitions(ctx, a.ID, 10)); len(all) > 0 {
				t.Errorf("%+v", all)
			}
			return nil
		})
	})
}
