package syncwindow

import (
	"slices"
	"sort"
	"time"
)

const (
	daysAhead = 9 * 366 // 29 February may be eight years away
	farthest  = 400 * 24 * time.Hour
	mostJumps = 12000 // consecutive hits without a gap
)

// A date is a day of a calendar.
type date struct {
	year       int
	month, day int
}

func dateOf(t time.Time) date {
	y, m, d := t.Date()
	return date{y, int(m), d}
}

func (d date) plus(n int) date {
	return dateOf(time.Date(d.year, time.Month(d.month), d.day+n, 12, 0, 0, 0, time.UTC))
}

func (d date) weekday() int {
	return int(time.Date(d.year, time.Month(d.month), d.day, 12, 0, 0, 0, time.UTC).Weekday())
}

// wall returns the instants at which the clocks of a zone show a time. There
// are two in the hour that a clock change repeats. A time that a clock change
// skips becomes the moment of the change.
func wall(d date, hour, minute, second int, loc *time.Location) []time.Time {
	t := time.Date(d.year, time.Month(d.month), d.day, hour, minute, second, 0, loc)
	asked := time.Date(d.year, time.Month(d.month), d.day, hour, minute, second, 0, time.UTC).Unix()
	shown := func(u time.Time) int64 {
		_, offset := u.Zone()
		return u.Unix() + int64(offset)
	}
	begin, end := t.ZoneBounds()
	switch got := shown(t); {
	case got > asked:
		return []time.Time{begin}
	case got < asked:
		return []time.Time{end}
	}
	out := []time.Time{t}
	if !begin.IsZero() {
		_, before := begin.Add(-time.Second).Zone()
		if u := time.Unix(asked-int64(before), 0).In(loc); u.Before(begin) {
			out = []time.Time{u, t}
		}
	}
	if !end.IsZero() {
		_, after := end.Zone()
		if u := time.Unix(asked-int64(after), 0).In(loc); !u.Before(end) {
			out = append(out, u)
		}
	}
	return out
}

// A walk finds the starts of one window and caches the days it has computed.
type walk struct {
	c    *compiled
	days map[date][]time.Time
}

func (c *compiled) walk() *walk { return &walk{c: c, days: map[date][]time.Time{}} }

// hits returns the hits of one day in order. In the hour that is repeated, a
// schedule for a certain hour has only the first hit, one for every hour both.
func (w *walk) hits(d date) []time.Time {
	if known, ok := w.days[d]; ok {
		return known
	}
	var out []time.Time
	s := w.c.cron
	if s.on(d.month, d.day, d.weekday()) {
		for _, hour := range numbers(s.hour) {
			for _, minute := range numbers(s.minute) {
				at := wall(d, hour, minute, 0, w.c.zone)
				if !s.anyHour {
					at = at[:1]
				}
				out = append(out, at...)
			}
		}
		slices.SortFunc(out, time.Time.Compare)
	}
	w.days[d] = out
	return out
}

// numbers returns the members of a set, in order.
func numbers(set uint64) []int {
	var out []int
	for n := range 64 {
		if set&(1<<n) != 0 {
			out = append(out, n)
		}
	}
	return out
}

// before returns the last start at or before t, searching back over some days.
func (w *walk) before(t time.Time, back int) (time.Time, bool) {
	d := dateOf(t.In(w.c.zone)).plus(1) // a zone's clock may go back over midnight
	for range back + 2 {
		hits := w.hits(d)
		if n := sort.Search(len(hits), func(i int) bool { return hits[i].After(t) }); n > 0 {
			return hits[n-1], true
		}
		d = d.plus(-1)
	}
	return time.Time{}, false
}

// after returns the first hit after t.
func (w *walk) after(t time.Time) (time.Time, bool) {
	d := dateOf(t.In(w.c.zone)).plus(-1)
	for range daysAhead {
		hits := w.hits(d)
		if n := sort.Search(len(hits), func(i int) bool { return hits[i].After(t) }); n < len(hits) {
			return hits[n], true
		}
		d = d.plus(1)
	}
	return time.Time{}, false
}

// end is when a window that opened at a hit closes. Its duration is measured by
// the clock of its zone: from 22:00, eight hours end at 06:00 in every night.
func (c *compiled) end(hit time.Time) time.Time {
	plain := hit.Add(c.duration)
	_, a := hit.In(c.zone).Zone()
	if _, until := hit.In(c.zone).ZoneBounds(); until.IsZero() || !plain.After(until) {
		return plain
	}
	shown := time.Unix(hit.Unix()+int64(a), 0).UTC().Add(c.duration)
	h, m, s := shown.Clock()
	ends := wall(dateOf(shown), h, m, s, c.zone)
	if at := ends[0]; at.After(hit) {
		return at
	}
	return ends[len(ends)-1]
}

// back is how many days ago an open window may have opened.
func (c *compiled) back() int { return int(c.duration/(24*time.Hour)) + 2 }

// active reports whether a window is open at t, since its last hit.
func (c *compiled) active(t time.Time) bool {
	_, open := c.walk().open(t)
	return open
}

func (w *walk) open(t time.Time) (until time.Time, open bool) {
	hit, found := w.before(t, w.c.back())
	if !found {
		return time.Time{}, false
	}
	until = w.c.end(hit)
	return until, until.After(t)
}

// until is when a window that is open at t closes: hits before its end keep it
// open. ok is false if it is not open, or stays open for a year.
func (c *compiled) until(t time.Time) (end time.Time, ok bool) {
	w := c.walk()
	end, open := w.open(t)
	if !open {
		return time.Time{}, false
	}
	for range mostJumps {
		if end.Sub(t) > farthest {
			return time.Time{}, false
		}
		later, open := w.open(end)
		if !open {
			return end, true
		}
		end = later
	}
	return time.Time{}, false
}

// next is when a window opens next after t.
func (c *compiled) next(t time.Time) (time.Time, bool) { return c.walk().after(t) }

// boundary is the next moment after t at which a window opens or closes.
func (c *compiled) boundary(t time.Time) (time.Time, bool) {
	if c.active(t) {
		return c.until(t)
	}
	return c.next(t)
}
