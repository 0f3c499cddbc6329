package quota_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/quota"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

const a, b = hub.TenantID("a"), hub.TenantID("b")

// of limits tenant a alone.
func of(q hub.Quotas, storage int64) func(context.Context, hub.TenantID) (quota.Limits, error) {
	return func(_ context.Context, id hub.TenantID) (quota.Limits, error) {
		if id == a {
			return quota.Limits{Quotas: q, Storage: storage}, nil
		}
		return quota.Limits{}, nil
	}
}

func replicas(n int) func() int { return func() int { return n } }

func TestRates(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	allowed := func(r *quota.Rates, id hub.TenantID, n int) (yes int) {
		for range n {
			err := r.Request(t.Context(), id)
			switch {
			case err == nil:
				yes++
			case fault.KindOf(err) != fault.Exceeded:
				t.Errorf("a refusal is %v", err)
			}
		}
		return yes
	}
	t.Run("UX-ACC-8 requests are limited per minute, and another tenant is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := quota.New(of(hub.Quotas{hub.QuotaRequests: 60}, 0), replicas(1), lifecycle.System{}, log)
			if n := allowed(r, a, 100); n != 60 {
				t.Errorf("%d of 100 requests are allowed", n)
			}
			if n := allowed(r, b, 100); n != 100 {
				t.Errorf("%d of 100 requests of another tenant are allowed", n)
			}
			time.Sleep(10 * time.Second)
			if n := allowed(r, a, 100); n != 10 {
				t.Errorf("%d are allowed 10 s later", n)
			}
		})
	})
	t.Run("UX-ACC-8 replicas share a tenant's rate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sum := 0
			for range 3 {
				sum += allowed(quota.New(of(hub.Quotas{hub.QuotaRequests: 60}, 0), replicas(3), lifecycle.System{}, log), a, 100)
			}
			if sum != 60 {
				t.Errorf("%d are allowed by three replicas", sum)
			}
		})
	})
	t.Run("UX-ACC-8 renders wait for their turn, and are not refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := quota.New(of(hub.Quotas{hub.QuotaRenders: 6}, 0), replicas(1), lifecycle.System{}, log)
			began := time.Now()
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					if err := r.Render(t.Context(), a); err != nil {
						t.Error(err)
					}
				})
			}
			if err := r.Render(t.Context(), b); err != nil || time.Since(began) > 0 {
				t.Errorf("another tenant waits %s: %v", time.Since(began), err)
			}
			wg.Wait()
			if took := time.Since(began); took != time.Minute {
				t.Errorf("12 renders took %s", took)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Render(ctx, a); !errors.Is(err, context.Canceled) {
				t.Errorf("a render that is cancelled: %v", err)
			}
		})
	})
	t.Run("UX-ACC-8 nothing is rendered when the manifests take too much", func(t *testing.T) {
		r := quota.New(of(hub.Quotas{hub.QuotaStorage: 1000}, 1001), replicas(1), lifecycle.System{}, log)
		if err := r.Render(t.Context(), a); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("the error is %v", err)
		}
		r = quota.New(of(hub.Quotas{hub.QuotaStorage: 1000}, 1000), replicas(1), lifecycle.System{}, log)
		if err := r.Render(t.Context(), a); err != nil {
			t.Error(err)
		}
	})
	t.Run("UX-ACC-8 another limit counts soon, and the last one while none can be read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			most, failing := int64(5), error(nil)
			r := quota.New(func(context.Context, hub.TenantID) (quota.Limits, error) {
				return quota.Limits{Quotas: hub.Quotas{hub.QuotaRequests: most}}, failing
			}, replicas(1), lifecycle.System{}, log)
			if n := allowed(r, a, 100); n != 5 {
				t.Errorf("%d are allowed", n)
			}
			most = 50
			time.Sleep(quota.Fresh)
			if n := allowed(r, a, 100); n != 50 {
				t.Errorf("%d are allowed by the new limit", n)
			}
			most, failing = 0, errors.New("away")
			time.Sleep(time.Minute)
			if n := allowed(r, a, 100); n != 50 {
				t.Errorf("%d are allowed while the limit cannot be read", n)
			}
			failing = nil
			r.Forget(a)
			if n := allowed(r, a, 1000); n != 1000 {
				t.Errorf("%d are allowed without a limit", n)
			}
		})
	})
}
