// Package quota limits the rates of tenants: requests to the API and renders.
// Counts are not its business: the store checks them where something is
// written. The API asks before it serves a request, the daemon before a render.
//
// What always holds: each replica has an equal share of a tenant's rate, so all
// together do not exceed it, and no tenant ever waits for another one. A limit
// that cannot be read stays what it was.
package quota

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Fresh is how long limits that were read are used before they are read again.
const Fresh = 10 * time.Second

// Limits are what a tenant may have, and what its manifests take.
type Limits struct {
	Quotas  hub.Quotas
	Storage int64 // bytes in use, as they were last measured
}

// Rates counts for all tenants of one replica. Many goroutines may use it.
type Rates struct {
	load  func(ctx context.Context, tenant hub.TenantID) (Limits, error)
	share func() int // how many replicas there are
	clock lifecycle.Clock
	log   *slog.Logger

	mu      sync.Mutex
	tenants map[hub.TenantID]*tenant
}

// tenant is what is known of one. Its bucket of a rate without limit is nil.
type tenant struct {
	reading sync.Mutex // whoever has it reads the limits, the others use the last ones

	mu                sync.Mutex
	read              time.Time
	limits            Limits
	share             int
	requests, renders *rate.Limiter
}

// New makes it. The function load reads what counts for a tenant, share returns
// how many replicas there are.
func New(load func(ctx context.Context, tenant hub.TenantID) (Limits, error), share func() int, clock lifecycle.Clock, log *slog.Logger) *Rates {
	return &Rates{load: load, share: share, clock: clock, log: log, tenants: map[hub.TenantID]*tenant{}}
}

// Request counts a request to the API. The error is hub.ErrRate if there are
// too many.
func (r *Rates) Request(ctx context.Context, id hub.TenantID) error {
	t := r.of(ctx, id)
	bucket, limits := t.bucket(hub.QuotaRequests)
	if bucket == nil || bucket.AllowN(r.clock.Now(), 1) {
		return nil
	}
	return hub.ErrRate(hub.QuotaRequests, limits.Quotas[hub.QuotaRequests])
}

// Render waits until the tenant may render once more. The error is
// fault.Exceeded if its manifests take more than they may.
func (r *Rates) Render(ctx context.Context, id hub.TenantID) error {
	t := r.of(ctx, id)
	bucket, limits := t.bucket(hub.QuotaRenders)
	if most := limits.Quotas[hub.QuotaStorage]; most > 0 && limits.Storage > most {
		return fault.With(fault.New(fault.Exceeded, "the manifests of the tenant take %d bytes, and %d are allowed", limits.Storage, most), "quota "+string(hub.QuotaStorage),
			"delete applications and refresh this one, or ask a platform admin for a higher quota")
	}
	if bucket == nil {
		return nil
	}
	now := r.clock.Now()
	place := bucket.ReserveN(now, 1)
	if err := lifecycle.Sleep(ctx, r.clock, place.DelayFrom(now)); err != nil {
		place.CancelAt(r.clock.Now())
		return err
	}
	return nil
}

// Forget drops what is known of a tenant: it is gone, or its limits have
// changed.
func (r *Rates) Forget(id hub.TenantID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tenants, id)
}

// of finds a tenant, with limits that are fresh or being read.
func (r *Rates) of(ctx context.Context, id hub.TenantID) *tenant {
	r.mu.Lock()
	t := r.tenants[id]
	if t == nil {
		t = &tenant{}
		r.tenants[id] = t
	}
	r.mu.Unlock()
	now := r.clock.Now()
	if !t.stale(now) || !t.reading.TryLock() {
		return t
	}
	defer t.reading.Unlock()
	limits, err := r.load(ctx, id)
	if err != nil {
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "the quotas of a tenant cannot be read; the last ones count", logkey.Tenant, id, logkey.Error, err)
		}
		t.postpone(now)
		return t
	}
	t.set(limits, max(1, r.share()), now)
	return t
}

func (t *tenant) stale(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read.IsZero() || now.Sub(t.read) >= Fresh
}

func (t *tenant) postpone(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read = now
}

func (t *tenant) bucket(name hub.Quota) (*rate.Limiter, Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name == hub.QuotaRequests {
		return t.requests, t.limits
	}
	return t.renders, t.limits
}

// set takes limits over. A bucket whose size stays keeps what is in it.
func (t *tenant) set(l Limits, share int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range []struct {
		name   hub.Quota
		bucket **rate.Limiter
	}{{hub.QuotaRequests, &t.requests}, {hub.QuotaRenders, &t.renders}} {
		most := l.Quotas[b.name]
		switch {
		case most == 0:
			*b.bucket = nil
		case *b.bucket == nil || most != t.limits.Quotas[b.name] || share != t.share:
			perMinute := float64(most) / float64(share)
			*b.bucket = rate.NewLimiter(rate.Limit(perMinute/60), max(1, int(perMinute)))
		}
	}
	t.limits, t.share, t.read = l, share, now
}
