package pacing

import (
	"sync"
	"time"
)

const (
	burstSize  = 32                     // applications in work at once that make a burst
	burstHolds = 2 * time.Second        // how long one burst may hold up what follows from it
	burstTail  = 50 * time.Millisecond  // after its last commit: the streams take the rows
	burstApart = 500 * time.Millisecond // of rest between two bursts; less makes them one
)

// burst is a change of many applications while it is on its way to their
// clusters. It delays nothing unless many applications are processed at once,
// and each burst only at its beginning, so that a busy hub stores reports as
// they come.
type burst struct {
	mu          sync.Mutex
	work        int           // applications in work
	outstanding int           // clusters that have not acknowledged what they were sent
	busy        bool          // a burst is under way
	began       time.Time     // of the newest burst; zero: there was none
	ended       time.Time     // of the newest burst, if it has
	quiet       chan struct{} // closed when nothing is delayed any more; nil: nothing is
	tail        bool          // the streams may still be taking rows
}

// add counts applications whose processing starts, or with a negative number
// ends.
func (w *burst) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work += n
	now := time.Now()
	switch {
	case !w.busy && w.work >= burstSize:
		w.busy = true
		if w.began.IsZero() || now.Sub(w.ended) > burstApart {
			w.began = now
		}
		if left := burstHolds - now.Sub(w.began); left > 0 && w.quiet == nil {
			quiet := make(chan struct{})
			w.quiet = quiet
			time.AfterFunc(left, func() { w.expire(quiet) })
		}
	case w.busy && w.work <= 0:
		w.busy, w.tail, w.ended = false, true, now
		if w.quiet != nil {
			time.AfterFunc(burstTail, w.afterDelay)
		}
	}
}

// afterDelay notes that the streams have had the time to take the rows of a burst.
func (w *burst) afterDelay() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy && time.Since(w.ended) >= burstTail {
		w.tail = false
		w.release()
	}
}

// release ends the delay, if all clusters have the burst. The lock is held.
func (w *burst) release() {
	if w.quiet != nil && !w.busy && !w.tail && w.outstanding <= 0 {
		close(w.quiet)
		w.quiet = nil
	}
}

// sent notes that so many more clusters were sent rows, or with a negative
// number that they have acknowledged them or are gone.
func (w *burst) sent(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outstanding += n
	w.release()
}

// done returns what is closed when all clusters have what a burst has for them,
// or when it has had its time; nil if there is nothing to wait for.
func (w *burst) done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.quiet
}

// expire ends the delay: the burst has exceeded its time.
func (w *burst) expire(quiet chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet == quiet {
		close(quiet)
		w.quiet = nil
	}
}
