package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

// traces are the tables that contain a text anywhere, in any schema.
func traces(t *testing.T, urls storetest.URLs, texts ...string) map[string]string {
	t.Helper()
	conn := storetest.Connect(t, urls.Superuser)
	out := map[string]string{}
	for _, r := range relations(t, conn) {
		if r.Kind != "r" && r.Kind != "p" {
			continue
		}
		for _, text := range texts {
			if queryOne[bool](t, conn, `SELECT EXISTS (SELECT FROM `+r.Name+` x WHERE strpos(x::text, $1) > 0)`, text) {
				out[r.Name] = text
			}
		}
	}
	return out
}

// purge removes everything of the tenants whose grace period is over.
func purge(t *testing.T, db *store.DB, at time.Time) {
	t.Helper()
	must[[]hub.Tenant](t)(db.System().BeginPurges(t.Context(), at))
	for _, id := range must[[]hub.TenantID](t)(db.System().Purges(t.Context(), at)) {
		for more := true; more; {
			more = must[bool](t)(db.System().PurgeTenant(t.Context(), id))
		}
		db.Forget(id)
	}
}

func TestDeletionOfTenants(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	s := db.System()
	gone, stays := build(t, db, "gone", "canary-gone"), build(t, db, "stays", "canary-stays")
	conn := storetest.Connect(t, urls.Superuser)
	// What is sealed for the tenant, as a thief of an old backup has it.
	sealed := queryOne[[]byte](t, conn, `SELECT credential FROM repository WHERE tenant_id = $1 AND credential IS NOT NULL LIMIT 1`, gone.tenant)
	keys := must[hub.TenantKeys](t)(db.Keys(t.Context(), gone.tenant))
	ad := []byte(string(gone.tenant) + string(gone.repository.ID))
	must[[]byte](t)(encryption.Open(keys.Credential, ad, sealed))
	at := time.Now()

	t.Run("FT-O1 a deleted tenant is suspended and can be restored within its grace period", func(t *testing.T) {
		check(t, s.DeleteTenant(t.Context(), gone.tenant, at, at.Add(time.Hour)))
		got := must[hub.Tenant](t)(s.Tenant(t.Context(), gone.tenant))
		if !got.Suspended || !got.Deleting() || !got.PurgeAt.Equal(at.Add(time.Hour).Truncate(time.Microsecond)) {
			t.Errorf("the deleted tenant is %+v", got)
		}
		if err := s.DeleteTenant(t.Context(), gone.tenant, at, at.Add(9*time.Hour)); fault.KindOf(err) != fault.Missing {
			t.Errorf("a second deletion moves the end of the grace period: %v", err)
		}
		if err := s.SetSuspended(t.Context(), gone.tenant, false); fault.KindOf(err) != fault.Missing {
			t.Errorf("a tenant that is being deleted is resumed: %v", err)
		}
		check(t, s.RestoreTenant(t.Context(), gone.tenant, at))
		if got = must[hub.Tenant](t)(s.Tenant(t.Context(), gone.tenant)); got.Suspended || got.Deleting() || got.SuspendedAt != nil {
			t.Errorf("the restored tenant is %+v", got)
		}
		check(t, s.SuspendTenant(t.Context(), gone.tenant, "unpaid", at))
		check(t, s.DeleteTenant(t.Context(), gone.tenant, at, at.Add(time.Hour)))
		check(t, s.RestoreTenant(t.Context(), gone.tenant, at))
		if got = must[hub.Tenant](t)(s.Tenant(t.Context(), gone.tenant)); !got.Suspended || got.SuspendedReason != "unpaid" {
			t.Errorf("a tenant that was suspended is restored as %+v", got)
		}
	})
	t.Run("FT-O1 nothing is purged before the grace period ends", func(t *testing.T) {
		check(t, s.DeleteTenant(t.Context(), gone.tenant, at, at.Add(time.Hour)))
		purge(t, db, at.Add(time.Hour-time.Second))
		if _, err := s.PurgeTenant(t.Context(), gone.tenant); fault.KindOf(err) != fault.Missing {
			t.Errorf("a purge before its time: %v", err)
		}
		if _, err := s.PurgeTenant(t.Context(), stays.tenant); fault.KindOf(err) != fault.Missing {
			t.Errorf("a purge of a tenant that nobody has deleted: %v", err)
		}
		storetest.In(t, db, gone.tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[hub.Application](t)(tx.ApplicationByID(ctx, gone.app.ID))
			return nil
		})
	})
	before := sums(t, conn, tenantTables(t, conn), stays.tenant)
	t.Run("ISO-10 a purge leaves no row of the tenant in any table", func(t *testing.T) {
		if len(traces(t, urls, "canary-gone")) < 15 {
			t.Fatal("the canaries are not in the tables")
		}
		_, err := conn.Exec(t.Context(), `UPDATE directory.tenant SET purge_at = now() WHERE id = $1`, gone.tenant)
		check(t, err)
		purge(t, db, time.Now())
		for table, text := range traces(t, urls, "canary-gone", string(gone.tenant)) {
			t.Errorf("%s still contains %s", table, text)
		}
		if err := s.RestoreTenant(t.Context(), gone.tenant, time.Now()); fault.KindOf(err) != fault.Missing {
			t.Errorf("a purged tenant is restored: %v", err)
		}
	})
	t.Run("ISO-10 the tenant's keys are destroyed, so what they sealed stays unreadable", func(t *testing.T) {
		if _, err := db.Keys(t.Context(), gone.tenant); fault.KindOf(err) != fault.Missing {
			t.Errorf("the hub still has the keys: %v", err)
		}
		other := must[hub.TenantKeys](t)(db.Keys(t.Context(), stays.tenant))
		for _, key := range []encryption.Key{other.Credential, other.Object, other.Feed} {
			if plain, err := encryption.Open(key, ad, sealed); err == nil {
				t.Errorf("another tenant's key opens it: %s", plain)
			}
		}
	})
	t.Run("ISO-10 other tenants keep everything", func(t *testing.T) {
		for table, sum := range sums(t, conn, tenantTables(t, conn), stays.tenant) {
			if sum != before[table] {
				t.Errorf("%s of another tenant has changed", table)
			}
		}
		if len(traces(t, urls, "canary-stays")) < 15 {
			t.Error("rows of another tenant are gone")
		}
	})
	t.Run("ISO-10 the name is free again", func(t *testing.T) {
		check(t, s.CreateTenant(t.Context(), hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: "gone"}))
	})
	t.Run("ISO-10 the hub's roles cannot purge by themselves", func(t *testing.T) {
		app := storetest.Connect(t, urls.App)
		if _, err := app.Exec(t.Context(), `SELECT work.purge_tenant($1, 10)`, stays.tenant); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("the application role may purge: %v", err)
		}
	})
}
