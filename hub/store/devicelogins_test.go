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

func TestDeviceLogins(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant, other := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "bolt")
	d := hub.DeviceLogin{Hash: [32]byte{1}, UserCode: [32]byte{2}, Address: "192.0.2.1", Client: "capstan", Pace: hub.DevicePace, CreatedAt: now(), ExpiresAt: now().Add(time.Minute)}
	in := func(tenant hub.TenantID, do func(ctx context.Context, tx *store.Tenant) error) error {
		return db.InTenant(t.Context(), tenant, do)
	}
	put := func(tenant hub.TenantID, d hub.DeviceLogin) error {
		return in(tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.PutDeviceLogin(ctx, d) })
	}
	check(t, put(tenant, d))
	t.Run("SEC-E4 two devices of a tenant never show one code; those of two tenants may", func(t *testing.T) {
		twin := d
		twin.Hash = [32]byte{3}
		if err := put(tenant, twin); fault.KindOf(err) != fault.Conflict {
			t.Errorf("the error is %v", err)
		}
		check(t, put(other, twin))
	})
	t.Run("SEC-E4 of two decisions about a device the first counts", func(t *testing.T) {
		decide := func(as hub.DeviceDecision, at time.Time) error {
			return in(tenant, func(ctx context.Context, tx *store.Tenant) error {
				v := d
				v.Decision = as
				return tx.DecideDeviceLogin(ctx, v, at)
			})
		}
		if err := decide(hub.DeviceDenied, d.ExpiresAt); fault.KindOf(err) != fault.Missing {
			t.Errorf("an expired one is decided: %v", err)
		}
		check(t, decide(hub.DeviceDenied, now()))
		if err := decide(hub.DeviceDenied, now()); fault.KindOf(err) != fault.Missing {
			t.Errorf("it is decided twice: %v", err)
		}
	})
	t.Run("SEC-E4 sign-ins of devices that have expired are collected an hour later", func(t *testing.T) {
		count := func() (all int) {
			check(t, in(tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
				all, _, err = tx.DeviceLogins(ctx, d.Address, d.CreatedAt.Add(-time.Hour))
				return err
			}))
			return all
		}
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{time.Minute, 1}, {2 * time.Hour, 0}} {
			check(t, in(tenant, func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.Collect(ctx, now().Add(c.after))
				return err
			}))
			if got := count(); got != c.want {
				t.Errorf("%s later there are %d, want %d", c.after, got, c.want)
			}
		}
	})
}
