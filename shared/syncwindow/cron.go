package syncwindow

import (
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A schedule is a cron expression of five fields, as sets of bits.
type schedule struct {
	minute, hour, day, month, weekday uint64
	anyDay, anyWeekday, anyHour       bool // written as * or ?
}

// A field is one of the five, with its permitted values.
type field struct {
	name     string
	min, max int
	words    []string // for min, min+1 …
}

var (
	minutes  = field{name: "minute", max: 59}
	hours    = field{name: "hour", max: 23}
	days     = field{name: "day of the month", min: 1, max: 31}
	months   = field{name: "month", min: 1, max: 12, words: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}}
	weekdays = field{name: "day of the week", max: 7, words: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}
)

const cronFix = "write five fields: minute, hour, day of the month, month, day of the week; for example 0 22 * * 1-5"

func cronFault(format string, args ...any) error {
	return fault.With(fault.New(fault.Invalid, format, args...), "", cronFix)
}

// macros are the names for common schedules.
func macro(s string) string {
	switch strings.ToLower(s) {
	case "@hourly":
		return "0 * * * *"
	case "@daily", "@midnight":
		return "0 0 * * *"
	case "@weekly":
		return "0 0 * * 0"
	case "@monthly":
		return "0 0 1 * *"
	case "@yearly", "@annually":
		return "0 0 1 1 *"
	}
	return s
}

// parse reads a schedule.
func parse(text string) (schedule, error) {
	var s schedule
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return s, fault.With(fault.New(fault.Invalid, "schedule %q names a time zone", short(text)), "", "set timeZone of the window")
	}
	fields := strings.Fields(macro(strings.TrimSpace(text)))
	if len(fields) != 5 {
		return s, cronFault("schedule %q has %d fields, not 5", short(text), len(fields))
	}
	var sets [5]uint64
	for i, f := range [...]field{minutes, hours, days, months, weekdays} {
		var err error
		if sets[i], err = f.parse(fields[i]); err != nil {
			return s, err
		}
	}
	s.minute, s.hour, s.day, s.month, s.weekday = sets[0], sets[1], sets[2], sets[3], sets[4]
	if s.weekday&(1<<7) != 0 { // both 0 and 7 are Sunday
		s.weekday = s.weekday&^(1<<7) | 1
	}
	s.anyDay, s.anyWeekday = whole(fields[2]), whole(fields[4])
	s.anyHour = strings.HasPrefix(fields[1], "*") || strings.HasPrefix(fields[1], "?")
	return s, nil
}

func whole(f string) bool { return f == "*" || f == "?" || f == "*/1" || f == "?/1" }

// parse reads a list such as 1-5,10,*/15.
func (f field) parse(text string) (uint64, error) {
	var set uint64
	for _, part := range strings.Split(text, ",") {
		bits, err := f.part(part)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	return set, nil
}

// part reads one entry of a list: a number, a range, or either with a step.
func (f field) part(text string) (uint64, error) {
	span, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		n, err := strconv.Atoi(stepText)
		if err != nil || n < 1 || len(stepText) > 4 {
			return 0, cronFault("the step of %q in the %s is no number above 0", short(text), f.name)
		}
		step = n
	}
	first, last, err := f.span(span, stepped)
	if err != nil {
		return 0, err
	}
	if first > last {
		return 0, cronFault("%q in the %s ends before it begins", short(text), f.name)
	}
	var set uint64
	for n := first; n <= last; n += step {
		set |= 1 << n
	}
	return set, nil
}

// span reads *, a number or a range. A number with a step means from there to
// the field's end.
func (f field) span(text string, stepped bool) (first, last int, err error) {
	first, last = f.min, f.max
	if f.max == 7 {
		last = 6
	}
	if text == "*" || text == "?" {
		return first, last, nil
	}
	from, to, ranged := strings.Cut(text, "-")
	if first, err = f.number(from); err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		last, err = f.number(to)
	case !stepped:
		last = first
	}
	return first, last, err
}

func (f field) number(text string) (int, error) {
	for i, w := range f.words {
		if strings.EqualFold(text, w) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || len(text) > 4 || n < f.min || n > f.max || text[0] == '+' {
		return 0, cronFault("%q is no %s (%d to %d)", short(text), f.name, f.min, f.max)
	}
	return n, nil
}

// on reports whether the schedule has hits on a day. As usual with cron, a day
// must match one of the two day fields if both are restricted.
func (s schedule) on(month, day, weekday int) bool {
	if s.month&(1<<month) == 0 {
		return false
	}
	byDay, byWeekday := s.day&(1<<day) != 0, s.weekday&(1<<weekday) != 0
	if s.anyDay || s.anyWeekday {
		return byDay && byWeekday
	}
	return byDay || byWeekday
}
