package dispatch

import (
	"sync"

	"github.com/capstan-cd/capstan/hub"
)

// subscriptions tells the streams of a cluster that its log may have grown. A lost
// hint costs a poll interval, never a row.
type subscriptions struct {
	mu      sync.Mutex
	streams map[hub.ClusterID]map[*subscription]struct{}
}

// A subscription is one stream's ear.
type subscription struct {
	notify chan struct{} // holds at most one
	pushed *pushedRows   // rows that came with the only hint since the last look
	more   bool          // there were others
}

// A pushedRows is what one transaction has added to a log.
type pushedRows struct {
	from, to hub.LogHead
	rows     []hub.LogRow
}

func newWakes() *subscriptions {
	return &subscriptions{streams: map[hub.ClusterID]map[*subscription]struct{}{}}
}

// Subscribe returns a subscription, and the function that ends it.
func (w *subscriptions) Subscribe(cluster hub.ClusterID) (*subscription, func()) {
	l := &subscription{notify: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams[cluster] == nil {
		w.streams[cluster] = map[*subscription]struct{}{}
	}
	w.streams[cluster][l] = struct{}{}
	return l, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.streams[cluster], l)
		if len(w.streams[cluster]) == 0 {
			delete(w.streams, cluster)
		}
	}
}

// wake reports whether there is a stream to hear it. News may be nil.
func (w *subscriptions) wake(cluster hub.ClusterID, additions *pushedRows) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.streams[cluster] {
		if l.more = l.more || l.pushed != nil || additions == nil; l.more {
			l.pushed = nil
		} else {
			l.pushed = additions
		}
		select {
		case l.notify <- struct{}{}:
		default: // one is waiting already
		}
	}
	return len(w.streams[cluster]) > 0
}

// pushed returns what has been added since the last look, if that is known; the
// stream reads the log otherwise.
func (w *subscriptions) pushed(l *subscription) *pushedRows {
	w.mu.Lock()
	defer w.mu.Unlock()
	additions := l.pushed
	l.pushed, l.more = nil, false
	return additions
}

// Wake hints that a cluster's log may have grown. A stream that another
// replica serves is told by Elsewhere.
func (d *Dispatcher) Wake(cluster hub.ClusterID) { d.wake(cluster, nil) }

func (d *Dispatcher) wake(cluster hub.ClusterID, additions *pushedRows) {
	if !d.wakes.wake(cluster, additions) && d.elsewhere != nil {
		d.elsewhere(cluster)
	}
}

// WakeHere is Wake for the streams of this replica alone: the hint has come
// from another one.
func (d *Dispatcher) WakeHere(cluster hub.ClusterID) { d.wakes.wake(cluster, nil) }

// Bursts knows of changes that concern many clusters while they are on their
// way out.
type Bursts interface {
	// Quiet returns what is closed when there is time for what can wait; nil: now.
	Quiet() <-chan struct{}
	// Sent hears that so many more clusters were sent rows, or with a negative
	// number that they have acknowledged them or are gone.
	Sent(n int)
}

// Bursts sets, before Run, whom dispatch asks before it asks agents whether
// they hold all. Without it that is done at once.
func (d *Dispatcher) Bursts(b Bursts) { d.bursts = b }

type noBursts struct{}

func (noBursts) Quiet() <-chan struct{} { return nil }
func (noBursts) Sent(int)               {}

// Elsewhere sets what is called, before Run, with hints for clusters that
// have no stream here. It must not block.
func (d *Dispatcher) Elsewhere(wakeThere func(hub.ClusterID)) { d.elsewhere = wakeThere }

// recentBlobs keeps the sealed bodies that were stored last, so that the rows
// that need them carry them along and the agent spares itself a round trip.
// It is a saving only: what has been dropped is fetched.
type recentBlobs struct {
	mu    sync.Mutex
	limit int
	size  int
	order []recentKey
	blobs map[recentKey]recentBlob
	last  uint64 // number of the newest one
}

type recentBlob struct {
	sealed []byte
	number uint64 // in order of being stored
}

// Digests are keyed per tenant by construction; the tenant is part of the key
// all the same.
type recentKey struct {
	tenant hub.TenantID
	digest hub.Digest
}

func newRecentBlobs(limit int) *recentBlobs {
	return &recentBlobs{limit: limit, blobs: map[recentKey]recentBlob{}}
}

func (r *recentBlobs) put(tenant hub.TenantID, objects []hub.SealedObject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		key := recentKey{tenant, o.Digest}
		if _, held := r.blobs[key]; held || len(o.Sealed) > r.limit/8 {
			continue
		}
		r.last++
		r.blobs[key] = recentBlob{o.Sealed, r.last}
		r.order = append(r.order, key)
		r.size += len(o.Sealed)
	}
	for r.size > r.limit {
		oldest := r.order[0]
		r.order = r.order[1:]
		r.size -= len(r.blobs[oldest].sealed)
		delete(r.blobs, oldest)
	}
}

// get returns a body, and its number among all that were stored.
func (r *recentBlobs) get(tenant hub.TenantID, digest hub.Digest) (sealed []byte, number uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.blobs[recentKey{tenant, digest}]
	return b.sealed, b.number, ok
}

// newest is the number of the body that was stored last.
func (r *recentBlobs) newest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
