package store_test

import (
	"context"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// An application is accepted while a fetch ends. Unless one of the two waits
// for the other, the fetch does not refresh it, and its own refresh does not
// read the result.
func TestAcceptedWhileAFetchEnds(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "acme")
	super := storetest.Connect(t, urls.Superuser)
	waits := func() (yes bool) {
		check(t, super.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&yes))
		return yes
	}
	fetched := make(chan error, 1)
	refreshed := map[string]bool{}
	var app hub.Application
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		app = must[hub.Application](t)(tx.CreateApplication(ctx, newApp("late", w.repository.URL, w.cluster.ID)))
		go func() {
			fetched <- db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.Fetched(ctx, w.repository.ID, []hub.Ref{{Name: "refs/heads/new", Commit: "c0ffee"}}, now(), "", false)
				tx.Enqueued(func(_, key string) { refreshed[key] = true })
				return err
			})
		}()
		for !waits() {
			select {
			case err := <-fetched:
				t.Fatalf("the fetch was stored (%v) and has not found the application: nothing would refresh it", err)
			default:
			}
		}
		return nil
	})
	check(t, <-fetched)
	if !refreshed[string(app.ID)] {
		t.Errorf("the fetch has %v refreshed and not the new application", refreshed)
	}
}
