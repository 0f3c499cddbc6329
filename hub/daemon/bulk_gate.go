package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

const (
	// arriveFor is how long what follows from the writes of a tenant may wait for
	// more of them.
	arriveFor = 2 * time.Second
	// seriesApart is how soon the next write comes of a series of requests that
	// bring one object each.
	seriesApart = 100 * time.Millisecond
	// seriesOpen is how long a series that lasts lets go what has waited.
	seriesOpen = 100 * time.Millisecond
)

// bulkGate delays the refresh of applications until all of one request, or of
// many consecutive requests, have arrived: refreshing in small batches costs
// half as much again and delays the rest. It does not delay other tenants or a
// single write, and nothing for longer than arriveFor.
type bulkGate struct {
	let func() // called when delayed work may start; nil: no observer

	mu     sync.Mutex
	of     map[*bulkRequest]struct{}
	series map[hub.TenantID]*requestSeries
}

type bulkRequest struct {
	tenant hub.TenantID
	began  time.Time
}

// A requestSeries are requests of one tenant that follow one another.
type requestSeries struct {
	running int           // requests under way
	began   time.Time     // of the second request; zero: there was only one
	last    time.Time     // when the newest one was through; zero: none was
	after   []func()      // what follows from them
	quiet   chan struct{} // closed when nothing is delayed any more; nil: nothing is
}

// over reports whether the next request belongs to another series.
func (s *requestSeries) over(now time.Time) bool {
	return s.running == 0 && s.quiet == nil && now.Sub(s.last) > seriesApart
}

// mustWait reports whether what follows waits, and when to ask again.
func (s *requestSeries) mustWait(now time.Time) (wait time.Duration, yes bool) {
	if s.began.IsZero() {
		return 0, false
	}
	wait = arriveFor - now.Sub(s.began)%(arriveFor+seriesOpen)
	if s.running > 0 {
		return min(wait, seriesApart), wait > 0
	}
	wait = min(wait, seriesApart-now.Sub(s.last))
	return wait, wait > 0
}

// begin notes a request; its end is to be called once.
func (a *bulkGate) begin(tenant hub.TenantID) (end func()) {
	one := &bulkRequest{tenant, time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[*bulkRequest]struct{}{}
	}
	a.of[one] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.of, one)
	}
}

// alone notes a request that brings one object; through is to be called once,
// with what follows from it, if anything does. That begins at once, unless
// others came just before it: then it begins when no other one comes, and after
// arriveFor in any case.
func (a *bulkGate) alone(tenant hub.TenantID) (through func(follows func())) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.series == nil {
		a.series = map[hub.TenantID]*requestSeries{}
	}
	s := a.series[tenant]
	if s == nil || s.over(now) {
		a.forget(now)
		s = &requestSeries{}
		a.series[tenant] = s
	} else if s.began.IsZero() {
		s.began = now
	}
	s.running++
	return func(follows func()) { a.through(tenant, s, follows) }
}

func (a *bulkGate) through(tenant hub.TenantID, s *requestSeries, follows func()) {
	now := time.Now()
	a.mu.Lock()
	s.running--
	s.last = now
	wait, held := s.mustWait(now)
	if follows != nil && (held || s.quiet != nil) {
		s.after = append(s.after, follows)
		if s.quiet == nil {
			s.quiet = make(chan struct{})
			time.AfterFunc(wait, func() { a.release(tenant, s) })
		}
		follows = nil
	}
	a.mu.Unlock()
	if follows != nil {
		follows()
	}
}

// release starts the delayed work of a series if that is due, and checks again
// otherwise.
func (a *bulkGate) release(tenant hub.TenantID, s *requestSeries) {
	now := time.Now()
	a.mu.Lock()
	if wait, held := s.mustWait(now); held {
		a.mu.Unlock()
		time.AfterFunc(wait, func() { a.release(tenant, s) })
		return
	}
	after := s.after
	s.after = nil
	if s.quiet != nil {
		close(s.quiet)
		s.quiet = nil
	}
	if s.running == 0 && now.Sub(s.last) >= seriesApart && a.series[tenant] == s {
		delete(a.series, tenant)
	}
	a.mu.Unlock()
	for _, do := range after {
		do()
	}
	if a.let != nil {
		a.let()
	}
}

// forget drops the tenants that have sent one request. The lock is held.
func (a *bulkGate) forget(now time.Time) {
	const many = 256
	if len(a.series) < many {
		return
	}
	for tenant, s := range a.series {
		if s.over(now) {
			delete(a.series, tenant)
		}
	}
}

// tenants are those whose applications still arrive.
func (a *bulkGate) tenants() []hub.TenantID {
	out := a.following()
	a.mu.Lock()
	defer a.mu.Unlock()
	for one := range a.of {
		if time.Since(one.began) < arriveFor && !slices.Contains(out, one.tenant) {
			out = append(out, one.tenant)
		}
	}
	return out
}

// following are the tenants whose requests follow one another.
func (a *bulkGate) following() []hub.TenantID {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []hub.TenantID
	for tenant, s := range a.series {
		if s.quiet != nil {
			out = append(out, tenant)
		}
	}
	return out
}

// wait returns when nothing of a tenant is delayed, or when ctx ends.
func (a *bulkGate) wait(ctx context.Context, tenant hub.TenantID) {
	a.mu.Lock()
	var quiet chan struct{}
	if s := a.series[tenant]; s != nil {
		quiet = s.quiet
	}
	a.mu.Unlock()
	if quiet == nil {
		return
	}
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}
