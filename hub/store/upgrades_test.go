package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestUpgrades(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w, stranger := build(t, db, "upgrades", "upgrades"), build(t, db, "stranger", "stranger")
	in := func(tenant hub.TenantID, do func(ctx context.Context, tx *store.Tenant) error) error {
		return db.InTenant(t.Context(), tenant, do)
	}
	stored := func() (u *hub.Upgrade) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			u = must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID)).Upgrade
			return nil
		})
		return u
	}
	order := func(id string) hub.Upgrade {
		return hub.Upgrade{ID: id, Image: "r/a:" + id, Phase: hub.UpgradePending, By: "me", OrderedAt: now(), ExpiresAt: now().Add(time.Hour), Deadline: time.Minute}
	}
	put := func(u hub.Upgrade) {
		t.Helper()
		check(t, in(w.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.PutUpgrade(ctx, w.cluster.ID, u) }))
	}
	one, two := order("one"), order("two")
	check(t, in(w.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.OrderUpgrade(ctx, w.cluster.ID, one) }))
	t.Run("FT-A5 a request is stored, and enqueued as work", func(t *testing.T) {
		if diff := cmp.Diff(&one, stored()); diff != "" {
			t.Error(diff)
		}
		items := must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkUpgrade, "r1", 10, time.Minute))
		if len(items) != 1 || items[0].Key != string(w.cluster.ID) || items[0].Tenant != w.tenant {
			t.Errorf("work %+v", items)
		}
	})
	t.Run("ISO-1 another tenant can request nothing here", func(t *testing.T) {
		err := in(stranger.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.OrderUpgrade(ctx, w.cluster.ID, two) })
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v, want Missing", err)
		}
		check(t, in(stranger.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutUpgrade(ctx, w.cluster.ID, one.End(hub.UpgradeFailed, "stolen", now()))
		}))
		if diff := cmp.Diff(&one, stored()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("FT-A5 a finished request is not changed, and neither is a newer one", func(t *testing.T) {
		put(two.End(hub.UpgradeSucceeded, "of another order", now()))
		if diff := cmp.Diff(&one, stored()); diff != "" {
			t.Error(diff)
		}
		over := one.End(hub.UpgradeRolledBack, "it crashed\x00", now())
		put(over)
		put(one.End(hub.UpgradeSucceeded, "late", now()))
		over.Message = "it crashed\uFFFD"
		if diff := cmp.Diff(&over, stored()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("FT-A5 the agent reports whether it may be upgraded, at each connection", func(t *testing.T) {
		for i, may := range []bool{true, false} {
			check(t, db.System().Connected(t.Context(), hub.Attachment{
				Tenant: w.tenant, Cluster: w.cluster.ID, Session: []string{"s1", "s2"}[i], Replica: "r1", Upgradable: may, Features: [][]string{{"resolve-secrets"}, nil}[i], At: now(),
			}))
			storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
				if c := must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID)); c.Upgradable != may {
					t.Errorf("upgradable %t, want %t", c.Upgradable, may)
				} else if c.Features == nil || slices.Contains(c.Features, "resolve-secrets") != (i == 0) {
					t.Errorf("the agent's features are %q", c.Features)
				}
				return nil
			})
		}
	})
}
