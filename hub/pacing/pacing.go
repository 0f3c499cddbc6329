// Package pacing decides what may wait while the hub sends a change to many
// clusters, or while a tenant's applications arrive one request after the
// other. Work that waits is done in fewer, larger batches, and leaves processor
// and database to what somebody waits for. It never delays a single change, and
// nothing for longer than two seconds. The daemon builds one Pacer per process.
// Reasons and figures: docs/decisions/0031, 0048 and 0064.
package pacing

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
)

// A Class is a kind of work that may wait.
type Class int

const (
	// Feedback is what a change brings back: reports, outcomes of operations,
	// comparisons of root hashes, old rows.
	Feedback Class = iota
	// Refresh is the refresh of applications.
	Refresh
)

// A Pacer knows the changes that are on their way to clusters and the requests
// that bring applications. Its methods may be called at the same time.
type Pacer struct {
	burst  burst
	writes writes
}

// New returns a pacer. It calls released, which must not block, when work that
// Held has named may be done.
func New(released func()) *Pacer {
	return &Pacer{writes: writes{released: released}}
}

// Wait returns when feedback of a tenant need not wait any more, or when ctx
// ends. Without a tenant it waits for changes on their way alone.
func (p *Pacer) Wait(ctx context.Context, tenant hub.TenantID) {
	await(ctx, p.burst.done())
	await(ctx, p.writes.done(tenant))
}

// await waits until done is closed, unless it is nil, or until ctx ends.
func await(ctx context.Context, done <-chan struct{}) {
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Held returns the tenants whose work of a class waits now.
func (p *Pacer) Held(c Class) []hub.TenantID {
	held := p.writes.following()
	if c != Refresh {
		return held
	}
	for _, tenant := range p.writes.arriving() {
		if !slices.Contains(held, tenant) {
			held = append(held, tenant)
		}
	}
	return held
}

// Refreshing counts applications whose refresh begins, or with a negative
// number ends.
func (p *Pacer) Refreshing(n int) { p.burst.add(n) }

// Sent notes that so many more clusters were sent rows, or with a negative
// number that they have acknowledged them or are gone.
func (p *Pacer) Sent(n int) { p.burst.sent(n) }

// Quiet returns what is closed when all clusters have what a change has for
// them, or when it has had its time; nil if there is nothing to wait for.
func (p *Pacer) Quiet() <-chan struct{} { return p.burst.done() }

// Arriving notes a request with many applications of a tenant. Its end is to be
// called once.
func (p *Pacer) Arriving(tenant hub.TenantID) (end func()) { return p.writes.begin(tenant) }

// Alone notes a request that brings one object. Its end is to be called once,
// with what follows from it or nil. That begins at once, unless other requests
// came just before: then it begins when no more come.
func (p *Pacer) Alone(tenant hub.TenantID) (end func(follows func())) {
	return p.writes.alone(tenant)
}
