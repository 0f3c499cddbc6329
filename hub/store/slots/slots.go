// Package slots shares the connections of a pool among tenants. The store takes
// a slot before it takes a connection. A tenant with thousands of transactions
// then delays its own ones, and others by one transaction at most.
package slots

import (
	"context"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// reserveFrom is how many slots there must be for one to be reserved.
const reserveFrom = 4

// Slots are a fixed number of slots. A free one goes to the waiting tenant that
// has fewest, of equals to the one that came or was served longest ago, and in it
// to the first caller. Of four slots or more, the last free one is reserved for tenants
// that have none, as soon as there are two tenants. Many goroutines may use it.
type Slots struct {
	size int

	mu      sync.Mutex
	first   hub.TenantID // the only tenant so far; empty: there was none
	several bool         // there was another one
	used    int
	tenants map[hub.TenantID]*tenant // that have slots or wait for one
	turns   int64
	stats   Stats
}

// Stats are counts since the start.
type Stats struct {
	Waited   int64         // callers that had to wait, without those that gave up
	Wait     time.Duration // of all these together
	Canceled int64         // callers that gave up
}

type tenant struct {
	used    int
	turn    int64 // of its first caller, or of its last grant
	waiting []chan struct{}
}

// New returns free slots.
func New(size int) *Slots {
	return &Slots{size: size, tenants: map[hub.TenantID]*tenant{}}
}

// Acquire waits for a slot of the tenant. The caller must call release once,
// after it has returned its connection. The error is that of ctx.
func (s *Slots) Acquire(ctx context.Context, id hub.TenantID) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	release = func() { s.release(id) }
	granted := s.enter(id)
	if granted == nil {
		return release, nil
	}
	began := time.Now()
	select {
	case <-granted:
		s.waited(time.Since(began))
		return release, nil
	case <-ctx.Done():
		s.leave(id, granted)
		return nil, ctx.Err()
	}
}

// Stats returns the counts.
func (s *Slots) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// enter takes a slot and returns nil, or queues the caller and returns what is
// closed when it has one.
func (s *Slots) enter(id hub.TenantID) (granted chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == "" {
		s.first = id
	}
	s.several = s.several || id != s.first
	t := s.tenants[id]
	if t == nil {
		s.turns++
		t = &tenant{turn: s.turns}
		s.tenants[id] = t
	}
	// A caller overtakes nobody: whoever waits may not have a free slot now.
	if len(t.waiting) == 0 && s.permits(t) {
		s.take(t)
		return nil
	}
	granted = make(chan struct{})
	t.waiting = append(t.waiting, granted)
	return granted
}

func (s *Slots) waited(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Waited++
	s.stats.Wait += d
}

// leave withdraws a caller that waits. A slot that it got meanwhile is released.
func (s *Slots) leave(id hub.TenantID, granted chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Canceled++
	t := s.tenants[id]
	for i, w := range t.waiting {
		if w == granted {
			t.waiting = append(t.waiting[:i:i], t.waiting[i+1:]...)
			s.forget(id, t)
			return
		}
	}
	s.put(id, t)
}

func (s *Slots) release(id hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(id, s.tenants[id])
}

// put returns a slot and grants what is free. The caller holds mu.
func (s *Slots) put(id hub.TenantID, t *tenant) {
	s.used--
	t.used--
	s.forget(id, t)
	for next := s.next(); next != nil; next = s.next() {
		s.take(next)
		close(next.waiting[0])
		next.waiting = next.waiting[1:]
	}
}

// next returns the tenant that gets a free slot, or nil. The caller holds mu.
func (s *Slots) next() (first *tenant) {
	for _, t := range s.tenants {
		if len(t.waiting) == 0 || !s.permits(t) {
			continue
		}
		if first == nil || t.used < first.used || t.used == first.used && t.turn < first.turn {
			first = t
		}
	}
	return first
}

// permits reports whether a tenant may have a slot now. The caller holds mu.
func (s *Slots) permits(t *tenant) bool {
	free := s.size - s.used
	if t.used > 0 && s.several && s.size >= reserveFrom {
		free--
	}
	return free > 0
}

// take counts a slot. The caller holds mu.
func (s *Slots) take(t *tenant) {
	s.turns++
	s.used++
	t.used++
	t.turn = s.turns
}

// forget drops a tenant that has nothing. The caller holds mu.
func (s *Slots) forget(id hub.TenantID, t *tenant) {
	if t.used == 0 && len(t.waiting) == 0 {
		delete(s.tenants, id)
	}
}
