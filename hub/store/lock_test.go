package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// What is locked is what is there now, whatever was done to it before.
func TestLockApplications(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "acme")
	var app hub.Application
	var op hub.Operation
	in := func(fn func(context.Context, *store.Tenant) error) { storetest.In(t, db, w.tenant, fn) }
	in(func(ctx context.Context, tx *store.Tenant) error {
		app = must[hub.Application](t)(tx.CreateApplication(ctx, newApp("seen", w.repository.URL, w.cluster.ID)))
		op = newOperation(app, "")
		return tx.PutOperations(ctx, []hub.Operation{op})
	})
	lock := func(ctx context.Context, tx *store.Tenant) hub.Application {
		got := must[map[hub.ApplicationID]hub.Application](t)(tx.LockApplications(ctx, []hub.ApplicationID{app.ID, hub.NewID[hub.ApplicationID]()}))
		if len(got) != 1 {
			t.Fatalf("%d applications are there", len(got))
		}
		return got[app.ID]
	}
	rolledBack := errors.New("rolled back")
	cases := []struct {
		name   string
		change func(ctx context.Context, tx *store.Tenant) error
	}{
		{"nothing has changed", func(context.Context, *store.Tenant) error { return nil }},
		{"a change was rolled back", func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.MarkDeleting(ctx, app.ID, true))
			return rolledBack
		}},
		{"its labels have changed", func(ctx context.Context, tx *store.Tenant) error {
			a := must[hub.Application](t)(tx.ApplicationByID(ctx, app.ID))
			a.Labels = map[string]string{"tier": "web"}
			_, err := tx.UpdateApplication(ctx, a, 0)
			return err
		}},
		{"it was looked at", func(ctx context.Context, tx *store.Tenant) error {
			return tx.Unchanged(ctx, []hub.Unchanged{{Application: app.ID, Revision: "c0ffee", RefreshedAt: now()}})
		}},
		{"its operation has ended", func(ctx context.Context, tx *store.Tenant) error {
			return tx.EndOperation(ctx, op.ID, hub.Failed, "it is over")
		}},
		{"it has another operation", func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutOperations(ctx, []hub.Operation{newOperation(app, "")})
		}},
		{"another application renders it", func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutRenderedBy(ctx, hub.RenderedBy{Object: string(app.ID), Kind: "Application", Parent: w.app.ID, Applied: []byte(`{}`)})
		}},
		{"it has a condition", func(ctx context.Context, tx *store.Tenant) error {
			return tx.SetCondition(ctx, app.ID, hub.SyncError, "no")
		}},
		{"it has the same condition still", func(context.Context, *store.Tenant) error { return nil }},
		{"its condition is gone", func(ctx context.Context, tx *store.Tenant) error {
			return tx.SetCondition(ctx, app.ID, hub.SyncError, "")
		}},
		{"its repository fails", func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Fetched(ctx, w.repository.ID, nil, now(), "no answer", false)
			return err
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := inTenant(t, db, w.tenant, c.change); err != nil && !errors.Is(err, rolledBack) {
				t.Fatal(err)
			}
			in(func(ctx context.Context, tx *store.Tenant) error {
				got := lock(ctx, tx)
				if diff := cmp.Diff(must[hub.Application](t)(tx.ApplicationByID(ctx, app.ID)), got); diff != "" {
					t.Errorf("it is another one (-read +locked):\n%s", diff)
				}
				return nil
			})
		})
	}
	in(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.Fetched(ctx, w.repository.ID, []hub.Ref{{Name: "refs/heads/main", Commit: "c0ffee"}}, now(), "", false)
		return err
	})
	t.Run("the transaction itself has changed it", func(t *testing.T) {
		in(func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.MarkDeleting(ctx, app.ID, true))
			if got := lock(ctx, tx); got.DeletingAt == nil {
				t.Errorf("locked: %+v", got)
			}
			return nil
		})
	})
}
