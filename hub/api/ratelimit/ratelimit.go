// Package ratelimit bounds how many requests an address, a caller or a tenant may send
// in a second. The figures are those of one replica.
package ratelimit

import (
	"sync"

	"golang.org/x/time/rate"
)

// A Rate is how many requests may come in a second, and how many at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Rates bound who may ask how much. Zero fields mean their defaults.
type Rates struct {
	Address Rate // everything from one address; default 500, 1000
	SignIn  Rate // sign-ins and set-ups from one address; default 1, 20
	Caller  Rate // one session or token; default 100, 300
	Tenant  Rate // all of a tenant; default 500, 1500
}

// WithDefaults fills what is zero.
func (r Rates) WithDefaults() Rates {
	fill := func(rate *Rate, perSecond float64, burst int) {
		if *rate == (Rate{}) {
			*rate = Rate{perSecond, burst}
		}
	}
	fill(&r.Address, 500, 1000)
	fill(&r.SignIn, 1, 20)
	fill(&r.Caller, 100, 300)
	fill(&r.Tenant, 500, 1500)
	return r
}

// Limits count the requests of one replica.
type Limits struct{ Address, SignIn, Caller, Tenant *Buckets }

// New returns limits at which nothing was counted yet.
func New(r Rates) *Limits {
	return &Limits{newBuckets(r.Address), newBuckets(r.SignIn), newBuckets(r.Caller), newBuckets(r.Tenant)}
}

// maxBuckets bounds the number of names. There are two generations: a name in
// use stays, an unused one is dropped, and a flood of new names does not drop
// the busy ones at once.
const maxBuckets = 10_000

// Buckets hold a token bucket for each name.
type Buckets struct {
	rate Rate

	mu       sync.Mutex
	now, old map[string]*rate.Limiter
}

func newBuckets(r Rate) *Buckets {
	return &Buckets{rate: r, now: map[string]*rate.Limiter{}, old: map[string]*rate.Limiter{}}
}

// Allow counts one request of a name.
func (b *Buckets) Allow(name string) bool { return b.of(name).Allow() }

func (b *Buckets) of(name string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.now[name]; ok {
		return l
	}
	l, ok := b.old[name]
	if !ok {
		l = rate.NewLimiter(rate.Limit(b.rate.PerSecond), b.rate.Burst)
	}
	if len(b.now) >= maxBuckets {
		b.old, b.now = b.now, make(map[string]*rate.Limiter)
	}
	b.now[name] = l
	return l
}
