package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// adds are what each counted quota limits, and how one of it is added.
func adds(user hub.UserID) map[hub.Quota]func(ctx context.Context, tx *store.Tenant, name string) error {
	return map[hub.Quota]func(ctx context.Context, tx *store.Tenant, name string) error{
		hub.QuotaApplications: func(ctx context.Context, tx *store.Tenant, name string) error {
			_, err := tx.CreateApplication(ctx, newApp(name, "https://git.test/"+name, ""))
			return err
		},
		hub.QuotaClusters: func(ctx context.Context, tx *store.Tenant, name string) error {
			_, err := tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: name}})
			return err
		},
		hub.QuotaRepositories: func(ctx context.Context, tx *store.Tenant, name string) error {
			_, err := tx.PutRepository(ctx, hub.Repository{URL: "https://git.test/" + name, Registered: true}, nil)
			return err
		},
		hub.QuotaUsers: func(ctx context.Context, tx *store.Tenant, name string) error {
			_, err := tx.CreateUser(ctx, hub.User{Name: name}, "hash")
			return err
		},
		hub.QuotaTokens: func(ctx context.Context, tx *store.Tenant, name string) error {
			return tx.PutToken(ctx, hub.APIToken{ID: hub.NewID[hub.TokenID](), User: user, Name: name, Prefix: name, Hash: [32]byte([]byte(fmt.Sprintf("%32s", name)))})
		},
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	cfg := urls.Config()
	cfg.Quotas = hub.Quotas{hub.QuotaApplications: 10, hub.QuotaClusters: 10, hub.QuotaRepositories: 10, hub.QuotaUsers: 10, hub.QuotaTokens: 10}
	db := storetest.OpenURLs(t, cfg)
	tenant := storetest.Tenant(t, db, "acme")
	var user hub.User
	in := func(do func(ctx context.Context, tx *store.Tenant) error) { storetest.In(t, db, tenant, do) }
	in(func(ctx context.Context, tx *store.Tenant) error {
		user = must[hub.User](t)(tx.CreateUser(ctx, hub.User{Name: "ann"}, "hash"))
		return nil
	})
	for name, add := range adds(user.ID) {
		t.Run("UX-ACC-8 many writers at once cannot exceed the quota of "+string(name), func(t *testing.T) {
			t.Parallel()
			var wg sync.WaitGroup
			var mu sync.Mutex
			refused := 0
			for i := range 40 {
				wg.Go(func() {
					err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
						if i%2 == 0 { // with and without a record of it
							check(t, tx.AppendAudit(ctx, record(fmt.Sprint(i))))
						}
						return add(ctx, tx, fmt.Sprintf("x%02d", i))
					})
					if err == nil {
						return
					}
					e, _ := fault.As(err)
					if e == nil || e.Code != hub.CodeQuota || e.Kind != fault.Exceeded {
						t.Errorf("writer %d: %v", i, err)
					}
					mu.Lock()
					refused++
					mu.Unlock()
				})
			}
			wg.Wait()
			var use int64
			in(func(ctx context.Context, tx *store.Tenant) error {
				use, _ = must[hub.Usage](t)(tx.Usage(ctx)).Of(name)
				return nil
			})
			first := int64(0)
			if name == hub.QuotaUsers {
				first = 1
			}
			if use != 10 || int64(refused) != 40-(10-first) {
				t.Errorf("%d are there, %d were refused", use, refused)
			}
		})
	}
	t.Run("UX-ACC-8 limits of a tenant come before those of the hub", func(t *testing.T) {
		other := storetest.Tenant(t, db, "bolt")
		add := adds("")[hub.QuotaApplications]
		fill := func(n int) error {
			return db.InTenant(t.Context(), other, func(ctx context.Context, tx *store.Tenant) error {
				for i := range n {
					if err := add(ctx, tx, fmt.Sprintf("a%d-%d", n, i)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		put := func(q hub.Quotas, drop ...hub.Quota) {
			storetest.In(t, db, other, func(ctx context.Context, tx *store.Tenant) error { return tx.PutQuotas(ctx, q, drop) })
		}
		if err := fill(11); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("one transaction adds too many: %v", err)
		}
		put(hub.Quotas{hub.QuotaApplications: 12})
		check(t, fill(12))
		put(hub.Quotas{hub.QuotaApplications: 5})
		storetest.In(t, db, other, func(ctx context.Context, tx *store.Tenant) error {
			app := must[hub.Application](t)(tx.Application(ctx, "argocd", "a12-0"))
			app.Labels = map[string]string{"a": "b"}
			_, err := tx.UpdateApplication(ctx, app, 0)
			return err // what is there can be changed when the quota is lowered
		})
		if err := fill(1); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("a lowered quota: %v", err)
		}
		put(hub.Quotas{hub.QuotaApplications: 0})
		check(t, fill(2)) // no limit, whatever the hub's is
		put(nil, hub.QuotaApplications)
		if err := fill(1); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("the hub's quota is not back: %v", err)
		}
	})
	t.Run("storage is measured", func(t *testing.T) {
		w := build(t, db, "measured", "canary-measured")
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.MeasureStorage(ctx))
			u := must[hub.Usage](t)(tx.Usage(ctx))
			if u.StorageBytes < 30 || u.StorageAt == nil {
				t.Errorf("the usage is %+v", u)
			}
			return nil
		})
	})
}
