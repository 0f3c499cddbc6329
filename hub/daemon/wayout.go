package daemon

import (
	"context"
	"sync"
	"time"
)

const (
	burstSize  = 32                     // applications in work at once that make a burst
	burstHolds = time.Second            // how long one burst may hold up what follows from it
	burstTail  = 50 * time.Millisecond  // after its last commit: the rows are being sent
	burstApart = 500 * time.Millisecond // of rest between two bursts; less makes them one
)

// A wayOut lets a change go to all clusters that it concerns before the hub
// deals with what comes back from the first of them: both need the database,
// and what comes back is cheaper taken together. It holds nothing up unless
// many applications are in work at once, and each burst only for its first
// moments, so that a hub which always works stores reports as they come.
type wayOut struct {
	burst func() // hears that a burst begins; nil: nobody does
	mu    sync.Mutex
	work  int           // applications in work
	began time.Time     // of the newest burst; zero: there was none
	ended time.Time     // of the newest burst, if it has
	over  chan struct{} // closed when the burst ends; nil: there is none
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
	switch {
	case w.over == nil && w.work >= burstSize:
		burst = true
		if now := time.Now(); w.began.IsZero() || now.Sub(w.ended) > burstApart {
			w.began = now
		}
		w.over = make(chan struct{})
	case w.over != nil && w.work <= 0:
		w.ended = time.Now()
		close(w.over)
		w.over = nil
	}
	return burst
}

// wait returns when no burst is on its way out, when the burst has had its
// time, or when ctx ends.
func (w *wayOut) wait(ctx context.Context) {
	w.mu.Lock()
	now, over := time.Now(), w.over
	left, tail := burstHolds-now.Sub(w.began), burstTail-now.Sub(w.ended)
	w.mu.Unlock()
	if over != nil && left > 0 {
		if !until(ctx, left, over) {
			return
		}
		tail = burstTail
	}
	if over == nil && tail <= 0 || left <= 0 {
		return
	}
	until(ctx, min(left, tail), nil)
}

// until waits for over, and says whether it came in time.
func until(ctx context.Context, most time.Duration, over <-chan struct{}) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-over:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
