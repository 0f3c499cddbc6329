package pacing

import (
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

// writes are the requests that bring applications. What follows from those of a
// tenant waits until all of one request, or of many consecutive requests, have
// arrived: refreshing in small batches costs half as much again and delays the
// rest. Other tenants and a single write do not wait, and nothing waits longer
// than arriveFor.
type writes struct {
	released func() // called when delayed work may start; nil: no observer

	mu     sync.Mutex
	of     map[*request]struct{}
	series map[hub.TenantID]*series
}

type request struct {
	tenant hub.TenantID
	began  time.Time
}

// A series are requests of one tenant that follow one another.
type series struct {
	running int           // requests under way
	began   time.Time     // of the second request; zero: there was only one
	last    time.Time     // when the newest one was through; zero: none was
	after   []func()      // what follows from them
	quiet   chan struct{} // closed when nothing is delayed any more; nil: nothing is
}

// over reports whether the next request belongs to another series.
func (s *series) over(now time.Time) bool {
	return s.running == 0 && s.quiet == nil && now.Sub(s.last) > seriesApart
}

// mustWait reports whether what follows waits, and when to ask again.
func (s *series) mustWait(now time.Time) (wait time.Duration, yes bool) {
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
func (a *writes) begin(tenant hub.TenantID) (end func()) {
	one := &request{tenant, time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[*request]struct{}{}
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
func (a *writes) alone(tenant hub.TenantID) (through func(follows func())) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.series == nil {
		a.series = map[hub.TenantID]*series{}
	}
	s := a.series[tenant]
	if s == nil || s.over(now) {
		a.forget(now)
		s = &series{}
		a.series[tenant] = s
	} else if s.began.IsZero() {
		s.began = now
	}
	s.running++
	return func(follows func()) { a.through(tenant, s, follows) }
}

func (a *writes) through(tenant hub.TenantID, s *series, follows func()) {
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
func (a *writes) release(tenant hub.TenantID, s *series) {
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
	if a.released != nil {
		a.released()
	}
}

// forget drops the tenants that have sent one request. The lock is held.
func (a *writes) forget(now time.Time) {
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

// arriving are the tenants with a request of many applications that has not
// ended, nor lasted for too long.
func (a *writes) arriving() []hub.TenantID {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []hub.TenantID
	for one := range a.of {
		if time.Since(one.began) < arriveFor && !slices.Contains(out, one.tenant) {
			out = append(out, one.tenant)
		}
	}
	return out
}

// following are the tenants whose requests follow one another.
func (a *writes) following() []hub.TenantID {
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

// done returns what is closed when nothing of a tenant is delayed any more; nil
// if nothing is.
func (a *writes) done(tenant hub.TenantID) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.series[tenant]; s != nil {
		return s.quiet
	}
	return nil
}
