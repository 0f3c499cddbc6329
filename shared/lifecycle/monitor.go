package lifecycle

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Monitor knows whether the loops of a process make progress, and counts
// recovered panics. It is part of a context: loops under With are monitored.
// Without it Watch, Beat and Safely do nothing, so that a panic in a test is
// not hidden.
type Monitor struct {
	clock  Clock
	caught func(ctx context.Context, p *PanicError)

	mu     sync.Mutex
	loops  map[*loop]struct{}
	panics map[string]int64
}

// NewMonitor makes a monitor. caught receives each panic that Safely has
// recovered; it may be nil.
func NewMonitor(clock Clock, caught func(ctx context.Context, p *PanicError)) *Monitor {
	return &Monitor{clock: clock, caught: caught, loops: map[*loop]struct{}{}, panics: map[string]int64{}}
}

type monitorKey struct{}

type loopKey struct{}

// With returns a context below which m monitors loops.
func (m *Monitor) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, monitorKey{}, m)
}

func monitorOf(ctx context.Context) *Monitor {
	m, _ := ctx.Value(monitorKey{}).(*Monitor)
	return m
}

// A loop is one monitored loop.
type loop struct {
	m        *Monitor
	name     string
	limit    time.Duration
	parent   *loop
	due      time.Time // deadline of the next progress; zero: idle
	reported bool      // it was reported as stuck
}

// Watch monitors the loop under the context that it returns: it must report
// progress by Beat, Expect or Rest within each limit. The function ends the
// monitoring.
func Watch(ctx context.Context, name string, limit time.Duration) (context.Context, func()) {
	m := monitorOf(ctx)
	if m == nil {
		return ctx, func() {}
	}
	parent, _ := ctx.Value(loopKey{}).(*loop)
	l := &loop{m: m, name: name, limit: limit, parent: parent}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.due = m.clock.Now().Add(limit)
	m.loops[l] = struct{}{}
	return context.WithValue(ctx, loopKey{}, l), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.loops, l)
	}
}

// Beat reports progress of the loop that ctx belongs to, and of its parents.
func Beat(ctx context.Context) {
	signal(ctx, func(l *loop, now time.Time) { l.due, l.reported = now.Add(l.limit), false })
}

// Expect is a Beat before something that may take up to d by itself, such as
// a request with a deadline.
func Expect(ctx context.Context, d time.Duration) {
	signal(ctx, func(l *loop, now time.Time) { l.due, l.reported = now.Add(max(l.limit, d+l.limit/2)), false })
}

// Rest reports that the loop has nothing to do until its next Beat. Its parents
// stay monitored.
func Rest(ctx context.Context) {
	if l, _ := ctx.Value(loopKey{}).(*loop); l != nil {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		l.due, l.reported = time.Time{}, false
	}
}

func signal(ctx context.Context, set func(*loop, time.Time)) {
	l, _ := ctx.Value(loopKey{}).(*loop)
	if l == nil {
		return
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	for now := l.m.clock.Now(); l != nil; l = l.parent {
		set(l, now)
	}
}

// Excuse restarts the limit of every loop. It is for dependencies that are
// known to be unreachable, where a restart would not help.
func (m *Monitor) Excuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	for l := range m.loops {
		if l.reported = false; !l.due.IsZero() {
			l.due = now.Add(l.limit)
		}
	}
}

// Stuck returns the names of the loops that Guard has found overdue and that
// have made no progress since.
func (m *Monitor) Stuck() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for l := range m.loops {
		if l.reported {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Loops is how many loops are watched.
func (m *Monitor) Loops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.loops)
}

func (m *Monitor) overdue(report bool) (names []string, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	for l := range m.loops {
		if l.due.IsZero() || !now.After(l.due) {
			continue
		}
		names = append(names, l.name)
		if report && !l.reported {
			l.reported, changed = true, true
		}
	}
	slices.Sort(names)
	return slices.Compact(names), changed
}

// Guard checks the loops until ctx ends, then returns nil. Each time a loop
// becomes stuck, it calls stuck with the names of all stuck loops and the
// stacks of all goroutines. away reports that a dependency of the loops is
// known to be unreachable, which excuses them.
func (m *Monitor) Guard(ctx context.Context, every time.Duration, away func(context.Context) bool, stuck func(names []string, stacks string)) error {
	return Every(ctx, m.clock, every, 0, nil, func(ctx context.Context) error {
		if names, _ := m.overdue(false); len(names) == 0 {
			return nil
		}
		if away != nil && away(ctx) {
			m.Excuse()
			return nil
		}
		if names, changed := m.overdue(true); changed {
			stuck(names, stacks())
		}
		return nil
	})
}

// maxStacks bounds a dump of all goroutines.
const maxStacks = 4 << 20

func stacks() string {
	for size := 64 << 10; ; size *= 2 {
		b := make([]byte, min(size, maxStacks))
		if n := runtime.Stack(b, true); n < len(b) || len(b) == maxStacks {
			return string(b[:n])
		}
	}
}

// A PanicError is a recovered panic.
type PanicError struct {
	Where string // where it was recovered
	Value string // the value of the panic
	Stack string
}

// Error says what happened, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("defect in %s: %s", e.Where, e.Value) }

// Safely runs fn. Under a Monitor a panic in it becomes an error and is
// counted, so that one bad item cannot end the process; the caller retries the
// item later. Without a Monitor the panic continues.
func Safely(ctx context.Context, where string, fn func(ctx context.Context) error) (err error) {
	m := monitorOf(ctx)
	if m == nil {
		return fn(ctx)
	}
	defer func() {
		if v := recover(); v != nil {
			err = m.Caught(ctx, where, v)
		}
	}()
	return fn(ctx)
}

// Caught counts a panic that the caller has recovered.
func (m *Monitor) Caught(ctx context.Context, where string, value any) *PanicError {
	p := &PanicError{Where: where, Value: strings.ToValidUTF8(fmt.Sprint(value), "?"), Stack: string(debug.Stack())}
	m.mu.Lock()
	m.panics[where]++
	m.mu.Unlock()
	if m.caught != nil {
		m.caught(ctx, p)
	}
	return p
}

// Panics returns the number of recovered panics by place.
func (m *Monitor) Panics() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]int64, len(m.panics))
	for k, v := range m.panics {
		out[k] = v
	}
	return out
}
