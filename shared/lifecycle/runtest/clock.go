// Package runtest has test doubles of the environment: a clock that tests
// advance, and a port that refuses connections. It never waits in real time.
// Tests of parts that use a lifecycle.Clock or an address use it. Timers fire
// in order of their times, and only from Advance.
package runtest

import (
	"sort"
	"sync"
	"time"
)

// A Clock stands still until Advance moves it.
type Clock struct {
	mu      sync.Mutex
	changed *sync.Cond // a timer was added or removed
	now     time.Time
	timers  []*timer
}

type timer struct {
	at time.Time
	ch chan time.Time // capacity 1: firing never blocks
}

// NewClock makes a clock that shows now.
func NewClock(now time.Time) *Clock {
	c := &Clock{now: now}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After returns a channel that receives once the clock was moved by d.
func (c *Clock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.now.Add(d), ch: make(chan time.Time, 1)}
	if d <= 0 {
		t.ch <- c.now
		return t.ch, func() {}
	}
	c.timers = append(c.timers, t)
	c.changed.Broadcast()
	return t.ch, func() { c.drop(t) }
}

// Advance moves the clock and fires what has become due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	sort.SliceStable(c.timers, func(i, j int) bool { return c.timers[i].at.Before(c.timers[j].at) })
	for len(c.timers) > 0 && !c.timers[0].at.After(c.now) {
		c.timers[0].ch <- c.now
		c.timers = c.timers[1:]
	}
	c.changed.Broadcast()
}

// Wait blocks until at least n timers wait for the clock to move.
func (c *Clock) Wait(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.timers) < n {
		c.changed.Wait()
	}
}

func (c *Clock) drop(t *timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.timers {
		if other == t {
			c.timers = append(c.timers[:i], c.timers[i+1:]...)
			c.changed.Broadcast()
			return
		}
	}
}
