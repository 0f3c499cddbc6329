// Package feed passes the ordered changes of a tenant to readers. A change is
// kind and id only; the API adds the content and decides who may see it. One
// follower per tenant reads the store's change log, and only while there are
// readers. A reader gets every change after its cursor, in order, or an error
// that it must list again. A slow reader costs neither other readers nor
// unbounded memory.
package feed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A Log is the change log of the store.
type Log interface {
	// Changes returns changes after a cursor in order, and the cursor after
	// the last one. The error is fault.Missing if the log no longer reaches
	// back to the cursor, and fault.Invalid if it is no cursor.
	Changes(ctx context.Context, tenant hub.TenantID, after string, limit int) ([]hub.Change, string, error)
	// Cursor is the present end of the log.
	Cursor(ctx context.Context, tenant hub.TenantID) (string, error)
}

const (
	batch      = 500                  // changes read at once
	ring       = 4096                 // changes in memory for each followed tenant
	pollEvery  = time.Second          // the poll that guarantees progress; notifications only make it faster
	settle     = 5 * time.Millisecond // after a notification, so that a burst is read as one
	backoffMax = 15 * time.Second
)

// A Feed serves the tenants of one replica. Many goroutines may use it.
type Feed struct {
	log   Log
	clock lifecycle.Clock
	slog  *slog.Logger

	mu      sync.Mutex
	tenants map[hub.TenantID]*follower
	wake    chan struct{} // capacity 1: somebody subscribed
}

// New makes a feed. Run must be running for its readers to receive anything.
func New(log Log, clock lifecycle.Clock, logger *slog.Logger) *Feed {
	return &Feed{log: log, clock: clock, slog: logger, tenants: map[hub.TenantID]*follower{}, wake: make(chan struct{}, 1)}
}

// Notify says that a tenant has something new. It never blocks.
func (f *Feed) Notify(tenant hub.TenantID) {
	f.mu.Lock()
	fo := f.tenants[tenant]
	f.mu.Unlock()
	if fo != nil {
		poke(fo.notify)
	}
}

// Run follows the tenants that somebody listens to, until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	for {
		for _, fo := range f.unstarted() {
			wait.Go(func() { f.follow(ctx, fo) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
	}
}

func (f *Feed) unstarted() []*follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*follower
	for _, fo := range f.tenants {
		if !fo.started {
			fo.started = true
			out = append(out, fo)
		}
	}
	return out
}

// A follower reads the log of one tenant into a ring.
type follower struct {
	tenant  hub.TenantID
	notify  chan struct{} // capacity 1
	started bool          // under Feed.mu
	readers int           // under Feed.mu

	mu      sync.Mutex
	base    string // cursor before the first change in the ring
	changes []hub.Change
	next    string        // cursor after the last one; base if there is none
	moved   chan struct{} // closed and replaced when next changes
}

// follow polls until there are no readers any more.
func (f *Feed) follow(ctx context.Context, fo *follower) {
	wait := pollEvery
	for f.wanted(fo) {
		err := fo.read(ctx, f.log)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			wait = pollEvery
		default:
			f.slog.WarnContext(ctx, "read changes", logkey.Tenant, fo.tenant, logkey.Error, err)
			wait = min(2*wait, backoffMax)
		}
		tick, stop := f.clock.After(wait)
		select {
		case <-ctx.Done():
			stop()
			return
		case <-tick:
		case <-fo.notify:
			if lifecycle.Sleep(ctx, f.clock, settle) != nil {
				stop()
				return
			}
		}
		stop()
	}
}

// wanted removes a follower without readers.
func (f *Feed) wanted(fo *follower) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fo.readers > 0 {
		return true
	}
	if f.tenants[fo.tenant] == fo {
		delete(f.tenants, fo.tenant)
	}
	return false
}

// read adds new changes of the log to the ring.
func (fo *follower) read(ctx context.Context, log Log) error {
	for {
		fo.mu.Lock()
		after := fo.next
		fo.mu.Unlock()
		changes, next, err := log.Changes(ctx, fo.tenant, after, batch)
		if fault.KindOf(err) == fault.Missing {
			// The log was trimmed: start again at its end. Readers before it
			// get an error.
			if next, err = log.Cursor(ctx, fo.tenant); err == nil {
				fo.restart(next)
			}
			return err
		}
		if err != nil {
			return err
		}
		fo.append(changes, next)
		if len(changes) < batch {
			return nil
		}
	}
}

func (fo *follower) restart(at string) {
	fo.mu.Lock()
	defer fo.mu.Unlock()
	fo.changes, fo.base, fo.next = nil, at, at
	close(fo.moved)
	fo.moved = make(chan struct{})
}

func (fo *follower) append(changes []hub.Change, next string) {
	fo.mu.Lock()
	defer fo.mu.Unlock()
	if next == fo.next {
		return
	}
	if len(changes) == 0 {
		// The end moved over nothing that concerns this tenant.
		if len(fo.changes) == 0 {
			fo.base = next
		}
	}
	fo.changes = append(fo.changes, changes...)
	if over := len(fo.changes) - ring; over > 0 {
		fo.base = fo.changes[over-1].Cursor
		fo.changes = append([]hub.Change(nil), fo.changes[over:]...)
	}
	fo.next = next
	close(fo.moved)
	fo.moved = make(chan struct{})
}

// after returns the ring's changes after a cursor. held is false if the ring
// does not contain the cursor.
func (fo *follower) after(cursor string) (changes []hub.Change, next string, moved <-chan struct{}, held bool) {
	fo.mu.Lock()
	defer fo.mu.Unlock()
	if cursor == fo.next {
		return nil, cursor, fo.moved, true
	}
	if cursor == fo.base {
		return fo.changes[:len(fo.changes):len(fo.changes)], fo.next, fo.moved, true
	}
	for i := len(fo.changes) - 1; i >= 0; i-- {
		if fo.changes[i].Cursor == cursor {
			return fo.changes[i+1 : len(fo.changes) : len(fo.changes)], fo.next, fo.moved, true
		}
	}
	return nil, "", fo.moved, false
}

// A Reader follows the changes of a tenant from a cursor. One goroutine uses
// it, and closes it.
type Reader struct {
	feed   *Feed
	fo     *follower
	cursor string
	once   sync.Once
}

// Read begins to follow after a cursor; empty means from now on. The error is
// fault.Invalid for a text that is no cursor, and fault.Missing for one that
// is too old: the caller must list again.
func (f *Feed) Read(ctx context.Context, tenant hub.TenantID, after string) (*Reader, error) {
	end, err := f.log.Cursor(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if after == "" {
		after = end
	} else if _, _, err := f.log.Changes(ctx, tenant, after, 1); err != nil {
		return nil, err
	}
	f.mu.Lock()
	fo := f.tenants[tenant]
	if fo == nil {
		fo = &follower{tenant: tenant, notify: make(chan struct{}, 1), base: end, next: end, moved: make(chan struct{})}
		f.tenants[tenant] = fo
		poke(f.wake)
	}
	fo.readers++
	f.mu.Unlock()
	poke(fo.notify)
	return &Reader{feed: f, fo: fo, cursor: after}, nil
}

// Cursor is where the reader stands.
func (r *Reader) Cursor() string { return r.cursor }

// Next waits for changes after the last ones that it returned, until ctx ends,
// whose error it then returns. The error is fault.Missing if the log was
// trimmed before it was read: the caller must list again.
func (r *Reader) Next(ctx context.Context) ([]hub.Change, error) {
	for {
		changes, next, moved, held := r.fo.after(r.cursor)
		if !held {
			var err error
			if changes, next, err = r.feed.log.Changes(ctx, r.fo.tenant, r.cursor, batch); err != nil {
				return nil, err
			}
		}
		if next != "" {
			r.cursor = next
		}
		if len(changes) > 0 {
			return changes, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-moved:
		}
	}
}

// Close ends the reading. It may be called twice.
func (r *Reader) Close() {
	r.once.Do(func() {
		r.feed.mu.Lock()
		r.fo.readers--
		r.feed.mu.Unlock()
		poke(r.fo.notify)
	})
}

// poke leaves a token if none waits.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
