package daemon

import (
	"context"
	"sync"
	"time"
)

const (
	burstSize  = 32                     // applications in work at once that make a burst
	burstHolds = 2 * time.Second        // how long one burst may hold up what follows from it
	burstTail  = 50 * time.Millisecond  // after its last commit: the streams take the rows
	burstApart = 500 * time.Millisecond // of rest between two bursts; less makes them one
)

// A wayOut lets a change go to all clusters that it concerns before the hub
// deals with what comes back from the first of them, and before it asks them
// whether they hold all: that needs the database as well, and is cheaper taken
// together. It holds nothing up unless many applications are in work at once,
// and each burst only for its first moments, so that a hub which always works
// stores reports as they come.
type wayOut struct {
	burst func() // hears that a burst begins; nil: nobody does
	mu    sync.Mutex
	work  int           // applications in work
	sent  int           // clusters that have not acknowledged what they were sent
	busy  bool          // a burst is under way
	began time.Time     // of the newest burst; zero: there was none
	ended time.Time     // of the newest burst, if it has
	calm  chan struct{} // closed when nothing is held up any more; nil: nothing is
	tail  bool          // the streams may still be taking rows
}

// add notes that applications were taken into work, or with a negative number
// that they are done.
func (w *wayOut) add(n int) {
	if w.begins(n) && w.burst != nil {
		w.burst()
	}
}

func (w *wayOut) begins(n int) (burst bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work += n
	now := time.Now()
	switch {
	case !w.busy && w.work >= burstSize:
		w.busy, burst = true, true
		if w.began.IsZero() || now.Sub(w.ended) > burstApart {
			w.began = now
		}
		if left := burstHolds - now.Sub(w.began); left > 0 && w.calm == nil {
			calm := make(chan struct{})
			w.calm = calm
			time.AfterFunc(left, func() { w.expire(calm) })
		}
	case w.busy && w.work <= 0:
		w.busy, w.tail, w.ended = false, true, now
		if w.calm != nil {
			time.AfterFunc(burstTail, w.taken)
		}
	}
	return burst
}

// taken notes that the streams have had the time to take the rows of a burst.
func (w *wayOut) taken() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy && time.Since(w.ended) >= burstTail {
		w.tail = false
		w.release()
	}
}

// release lets go what was held up, if the burst has arrived everywhere. The
// lock is held.
func (w *wayOut) release() {
	if w.calm != nil && !w.busy && !w.tail && w.sent <= 0 {
		close(w.calm)
		w.calm = nil
	}
}

// Sent notes that so many more clusters were sent rows, or with a negative
// number that they have acknowledged them or are gone.
func (w *wayOut) Sent(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent += n
	w.release()
}

// Calm gives what is closed when all clusters have what a burst has for them,
// or when it has had its time; nil if there is nothing to wait for.
func (w *wayOut) Calm() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// expire lets go what was held up: the burst has had its time.
func (w *wayOut) expire(calm chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm == calm {
		close(calm)
		w.calm = nil
	}
}

// wait returns when there is nothing to wait for any more, or when ctx ends.
func (w *wayOut) wait(ctx context.Context) {
	calm := w.Calm()
	if calm == nil {
		return
	}
	select {
	case <-calm:
	case <-ctx.Done():
	}
}
