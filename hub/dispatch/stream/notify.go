package stream

import (
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
)

// subscriptions tells the streams of a cluster that its log may have grown. A lost
// hint costs a poll interval, never a row.
type subscriptions struct {
	mu      sync.Mutex
	streams map[hub.ClusterID]map[*subscription]struct{}
}

// A subscription is one stream's ear.
type subscription struct {
	notify chan struct{}    // holds at most one
	pushed *wire.PushedRows // rows that came with the only hint since the last look
	more   bool             // there were others
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
func (w *subscriptions) wake(cluster hub.ClusterID, additions *wire.PushedRows) bool {
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
func (w *subscriptions) pushed(l *subscription) *wire.PushedRows {
	w.mu.Lock()
	defer w.mu.Unlock()
	additions := l.pushed
	l.pushed, l.more = nil, false
	return additions
}

// Wake hints that a cluster's log may have grown. A stream that another
// replica serves is told by Elsewhere.
func (s *Server) Wake(cluster hub.ClusterID) { s.Push(cluster, nil) }

// Push is Wake that says what has been added to the log; nil: it has to be
// read.
func (s *Server) Push(cluster hub.ClusterID, additions *wire.PushedRows) {
	if !s.wakes.wake(cluster, additions) && s.elsewhere != nil {
		s.elsewhere(cluster)
	}
}

// WakeHere is Wake for the streams of this replica alone: the hint has come
// from another one.
func (s *Server) WakeHere(cluster hub.ClusterID) { s.wakes.wake(cluster, nil) }

// Bursts knows of changes that concern many clusters while they are on their
// way out.
type Bursts interface {
	// Quiet returns what is closed when there is time for what can wait; nil: now.
	Quiet() <-chan struct{}
	// Sent hears that so many more clusters were sent rows, or with a negative
	// number that they have acknowledged them or are gone.
	Sent(n int)
}

// Bursts sets, before Run, whom the server asks before it asks agents whether
// they hold all. Without it that is done at once.
func (s *Server) Bursts(b Bursts) { s.bursts = b }

type noBursts struct{}

func (noBursts) Quiet() <-chan struct{} { return nil }
func (noBursts) Sent(int)               {}

// Elsewhere sets what is called, before Run, with hints for clusters that
// have no stream here. It must not block.
func (s *Server) Elsewhere(wakeThere func(hub.ClusterID)) { s.elsewhere = wakeThere }
