package syncwindow

import (
	"fmt"
	"strings"
	"time"
)

// A Use is what sync windows permit or deny.
type Use int

// The uses.
const (
	Automated Use = iota // an operation that automation starts
	Manual               // an operation that a person starts
	Heal                 // self-heal: reverting drift from the accepted state
)

// Of returns the use of an operation.
func Of(automated bool) Use {
	if automated {
		return Automated
	}
	return Manual
}

// A Set is the windows of one application. The zero Set allows everything
// (WIN-05). It may be used by many goroutines.
type Set struct {
	windows []compiled
	broken  []string // of invalid windows, which therefore close it
}

// New makes the set of some windows. An invalid one closes the application,
// because what it should deny is unknown.
func New(windows []Window) Set {
	var s Set
	for _, w := range windows {
		c, err := compile(w)
		if err == nil && w.Kind != Allow && w.Kind != Deny {
			err = fmt.Errorf("kind %q is unknown", short(w.Kind))
		}
		if err != nil {
			s.broken = append(s.broken, fmt.Sprintf("a sync window of its project cannot be read: %v", err))
			continue
		}
		s.windows = append(s.windows, c)
	}
	return s
}

// Empty reports whether the application has no windows.
func (s Set) Empty() bool { return len(s.windows)+len(s.broken) == 0 }

// closing returns the windows that close the application at t: the active
// denies, or, without these, all its allows if none is active.
func (s Set) closing(t time.Time) []*compiled {
	var denies, allows []*compiled
	open := false
	for i := range s.windows {
		w := &s.windows[i]
		active := w.active(t)
		switch {
		case w.Kind == Deny && active:
			denies = append(denies, w)
		case w.Kind == Allow:
			allows = append(allows, w)
			open = open || active
		}
	}
	if len(denies) > 0 {
		return denies
	}
	if open {
		return nil
	}
	return allows
}

func all(ws []*compiled, is func(*compiled) bool) bool {
	for _, w := range ws {
		if !is(w) {
			return false
		}
	}
	return true
}

// Allows reports whether a use may begin at t (WIN-06, WIN-07).
func (s Set) Allows(u Use, t time.Time) bool {
	if len(s.broken) > 0 {
		return false
	}
	closing := s.closing(t)
	return len(closing) == 0 || all(closing, func(w *compiled) bool { return u == Manual && w.ManualSync || u == Heal && w.SelfHeal })
}

// Continues reports whether an operation that began while it was allowed may
// continue at t (WIN-08, WIN-09).
func (s Set) Continues(u Use, t time.Time) bool {
	if len(s.broken) > 0 {
		return false
	}
	return s.Allows(u, t) || all(s.closing(t), func(w *compiled) bool { return w.SyncOverrun })
}

// mostSteps limits the search for a change among windows that open and close
// without an effect.
const mostSteps = 2000

// change is the first moment after t at which the result of is changes.
func (s Set) change(t time.Time, is func(time.Time) bool) (time.Time, bool) {
	if len(s.broken) > 0 {
		return time.Time{}, false
	}
	now, limit := is(t), t.Add(daysAhead*24*time.Hour)
	for range mostSteps {
		var next time.Time
		for i := range s.windows {
			if b, ok := s.windows[i].boundary(t); ok && (next.IsZero() || b.Before(next)) {
				next = b
			}
		}
		if next.IsZero() || next.After(limit) {
			return time.Time{}, false
		}
		if t = next; is(t) != now {
			return t, true
		}
	}
	return time.Time{}, false
}

// NextChange is the next moment after t at which a use becomes allowed or
// denied; ok is false if none is found.
func (s Set) NextChange(u Use, t time.Time) (at time.Time, ok bool) {
	return s.change(t, func(t time.Time) bool { return s.Allows(u, t) })
}

// Opening is when a use may begin: t itself, or the next moment that allows it;
// ok is false if none is found.
func (s Set) Opening(u Use, t time.Time) (at time.Time, ok bool) {
	if s.Allows(u, t) {
		return t, true
	}
	return s.NextChange(u, t)
}

// Next is the next moment after t at which any result of a Set changes; ok is
// false if none is found.
func (s Set) Next(t time.Time) (at time.Time, ok bool) {
	answers := func(t time.Time) [5]bool {
		return [...]bool{s.Allows(Automated, t), s.Allows(Manual, t), s.Allows(Heal, t), s.Continues(Automated, t), s.Continues(Manual, t)}
	}
	now := answers(t)
	return s.change(t, func(t time.Time) bool { return answers(t) == now })
}

// Extend moves the deadline of an operation by the time for which windows make
// it wait after from, which does not count. ok is false if no end of the wait
// is found.
func (s Set) Extend(u Use, from, deadline time.Time) (at time.Time, ok bool) {
	left := deadline.Sub(from)
	goes := func(t time.Time) bool { return s.Continues(u, t) }
	for t := from; ; {
		runs := goes(t)
		next, found := s.change(t, goes)
		switch {
		case runs && (!found || left <= next.Sub(t)):
			return t.Add(left), true
		case !found:
			return time.Time{}, false
		case runs:
			left -= next.Sub(t)
		}
		t = next
	}
}

// Runs is how long a running operation may continue between two moments.
func (s Set) Runs(u Use, from, to time.Time) (sum time.Duration) {
	goes := func(t time.Time) bool { return s.Continues(u, t) }
	for t := from; t.Before(to); {
		runs := goes(t)
		next, found := s.change(t, goes)
		if !found || next.After(to) {
			next = to
		}
		if runs {
			sum += next.Sub(t)
		}
		t = next
	}
	return sum
}

// stamp formats a time for messages.
const stamp = "2006-01-02 15:04 MST"

// Why says why a use is not allowed at t and when it will be; empty if it is
// allowed.
func (s Set) Why(u Use, t time.Time) string {
	if s.Allows(u, t) {
		return ""
	}
	if len(s.broken) > 0 {
		return s.broken[0]
	}
	closing := s.closing(t)
	names := make([]string, len(closing))
	for i, w := range closing {
		names[i] = w.Title()
	}
	text := "closed by the "
	if closing[0].Kind == Allow {
		text = "outside of the "
	}
	text += strings.Join(names, " and the ")
	at, ok := s.NextChange(u, t)
	if !ok {
		return text + "; no opening is in sight"
	}
	return text + "; next opening " + at.In(closing[0].zone).Format(stamp)
}

// A State is that of one window at some moment.
type State struct {
	Window
	Active bool
	Opens  *time.Time // the next opening, also of an open window
	Closes *time.Time // of an open window; nil: not within a year
	Error  string     // why it cannot be read
}

// States returns the state of each window at t.
func States(windows []Window, t time.Time) []State {
	out := make([]State, len(windows))
	for i, w := range windows {
		out[i].Window = w
		c, err := compile(w)
		if err != nil {
			out[i].Error = err.Error()
			continue
		}
		out[i].Active = c.active(t)
		from := t
		if end, ok := c.until(t); ok {
			out[i].Closes, from = &end, end.Add(-time.Nanosecond)
		} else if out[i].Active {
			continue // it stays open
		}
		if at, ok := c.next(from); ok {
			out[i].Opens = &at
		}
	}
	return out
}
