package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestTenants(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	ctx, s := t.Context(), db.System()
	id := storetest.Tenant(t, db, "acme")
	t.Run("PROJ-19 a tenant starts with a project that allows everything", func(t *testing.T) {
		storetest.In(t, db, id, func(ctx context.Context, tx *store.Tenant) error {
			p := must[hub.Project](t)(tx.Project(ctx, "default"))
			spec := must[hub.ProjectSpec](t)(hub.DecodeProject(p.Spec))
			if !slices.Equal(spec.SourceRepos, []string{"*"}) || len(spec.Destinations) != 1 || len(spec.ClusterResourceWhitelist) != 1 {
				t.Errorf("project %s", p.Spec)
			}
			return nil
		})
	})
	t.Run("names are unique and checked", func(t *testing.T) {
		wantKind(t, s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: "acme"}), fault.Conflict, "a second acme")
		for _, name := range []string{"", "Acme", "-a", "a-", "a b", "a.b", "ä", "x' OR true --", string(make([]byte, 64))} {
			wantKind(t, s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: name}), fault.Invalid, fmt.Sprintf("name %q", name))
		}
		wantKind(t, s.CreateTenant(ctx, hub.Tenant{ID: "x", Name: "fine"}), fault.Invalid, "no id")
		if all := must[[]hub.Tenant](t)(s.Tenants(ctx)); len(all) != 1 || all[0].ID != id {
			t.Errorf("tenants %+v", all)
		}
	})
	t.Run("an unknown tenant is refused as such", func(t *testing.T) {
		_, err := s.TenantByName(ctx, "nobody")
		wantKind(t, err, fault.Missing, "by name")
		for _, unknown := range []hub.TenantID{"", "x", hub.NewID[hub.TenantID]()} {
			_, err = s.Tenant(ctx, unknown)
			wantKind(t, err, fault.Missing, "by id")
			_, err = db.Keys(ctx, unknown)
			wantKind(t, err, fault.Missing, "keys")
			wantKind(t, s.SetSuspended(ctx, unknown, true), fault.Missing, "suspend")
			wantKind(t, inTenant(t, db, unknown, func(context.Context, *store.Tenant) error { return nil }), fault.Missing, "InTenant")
		}
	})
	t.Run("FT-D1 an unfinished request releases its name", func(t *testing.T) {
		for name, age := range map[string]string{"fresh": "1 second", "stale": "2 minutes"} {
			_, err := storetest.Connect(t, urls.Superuser).Exec(ctx,
				`INSERT INTO directory.tenant (id, name, created_at) VALUES (gen_random_uuid(), $1, now() - $2::text::interval)`, name, age)
			check(t, err)
		}
		wantKind(t, s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: "fresh"}), fault.Conflict, "still being made")
		check(t, s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: "stale"}))
		_, err := s.TenantByName(ctx, "fresh")
		wantKind(t, err, fault.Missing, "not finished")
	})
	t.Run("of many who create one name, one does", func(t *testing.T) {
		var wg sync.WaitGroup
		errs := make(chan error, 8)
		for range 8 {
			wg.Go(func() { errs <- s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: "race"}) })
		}
		wg.Wait()
		close(errs)
		made := 0
		for err := range errs {
			if err == nil {
				made++
			} else {
				wantKind(t, err, fault.Conflict, "race")
			}
		}
		if made != 1 {
			t.Errorf("%d tenants were made", made)
		}
	})
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	t.Run("FT-D4 a deadlock is tried again", func(t *testing.T) {
		var clusters []hub.Cluster
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			clusters = nil
			for _, name := range []string{"a", "b"} {
				clusters = append(clusters, must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: name}})))
			}
			return nil
		})
		var met sync.WaitGroup
		met.Add(2)
		var once [2]sync.Once
		var wg sync.WaitGroup
		for i, order := range [][2]int{{0, 1}, {1, 0}} {
			wg.Go(func() {
				err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
					for n, at := range order {
						if _, err := tx.UpdateCluster(ctx, clusters[at], 0); err != nil {
							return err
						}
						if n == 0 {
							once[i].Do(func() { met.Done(); met.Wait() })
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			if c := must[hub.Cluster](t)(tx.Cluster(ctx, "a")); c.Version != 3 {
				t.Errorf("version %d, want one for each writer", c.Version)
			}
			return nil
		})
	})
	t.Run("a reading transaction cannot write", func(t *testing.T) {
		err := db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "x"}})
			return err
		})
		if err == nil {
			t.Error("it did")
		}
	})
	t.Run("a cancelled context is reported as such", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := db.InTenant(ctx, tenant, func(context.Context, *store.Tenant) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
	})
}
