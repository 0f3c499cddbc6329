package lifecycle

import "time"

// A Reminder decides when a persistent cause is logged again: at once when it
// is new, and then after pauses that double from First to Max. The zero value
// uses a minute and an hour. One goroutine may use it.
type Reminder struct {
	First time.Duration // until the second time; zero: 1 min
	Max   time.Duration // longest time between two messages; zero: 1 h

	cause string
	next  time.Time
	wait  time.Duration
}

// Due reports whether a cause is to be logged now. An empty cause means that it
// has ended, which is not logged here; told reports whether it had been logged.
func (r *Reminder) Due(now time.Time, cause string) (due, reported bool) {
	reported = r.cause != ""
	first, most := r.First, r.Max
	if first <= 0 {
		first = time.Minute
	}
	if most <= 0 {
		most = time.Hour
	}
	switch {
	case cause == "":
		r.cause = ""
		return false, reported
	case cause != r.cause:
		r.cause, r.wait = cause, first
	case now.Before(r.next):
		return false, reported
	default:
		r.wait = min(2*r.wait, most)
	}
	r.next = now.Add(r.wait)
	return true, reported
}
