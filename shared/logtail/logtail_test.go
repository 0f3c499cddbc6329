package logtail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/shared/logtail"
)

// log is a log in memory that may be written while it is read.
type log struct {
	mu      sync.Mutex
	lines   []logtail.Line
	changed chan struct{}
	ended   bool
	opened  int // streams that followed it
	reads   int // of what was there
	read    int // lines that were emitted
}

func newLog(n int) *log {
	l := &log{changed: make(chan struct{})}
	l.write(n)
	return l
}

func (l *log) write(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		i := len(l.lines) + 1
		l.lines = append(l.lines, logtail.Line{Nano: int64(i), Text: fmt.Appendf(nil, "line %d", i)})
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) Read(ctx context.Context, follow bool, o logtail.Options, emit logtail.Emit) error {
	l.mu.Lock()
	if follow {
		l.opened++
	} else {
		l.reads++
	}
	at := 0
	for at < len(l.lines) && l.lines[at].Nano < o.Since {
		at++
	}
	if o.Tail != nil {
		at = max(at, len(l.lines)-*o.Tail)
	}
	for {
		for at < len(l.lines) {
			line := l.lines[at]
			l.mu.Unlock()
			if err := emit([]logtail.Line{line}); err != nil {
				return err
			}
			l.mu.Lock()
			l.read++
			at++
		}
		if !follow || l.ended {
			l.mu.Unlock()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		l.mu.Lock()
	}
}

// heard collects what a reader has got.
type heard struct {
	mu      sync.Mutex
	lines   []int64
	skipped uint64
	grown   chan struct{}
}

func newHeard() *heard { return &heard{grown: make(chan struct{})} }

func (h *heard) emit(lines []logtail.Line) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range lines {
		h.lines = append(h.lines, l.Nano)
		h.skipped += l.Skipped
	}
	close(h.grown)
	h.grown = make(chan struct{})
	return nil
}

// until waits for a line.
func (h *heard) until(t *testing.T, nano int64) {
	t.Helper()
	for {
		h.mu.Lock()
		done, grown := slices.Contains(h.lines, nano), h.grown
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-grown:
		case <-t.Context().Done():
			t.Fatalf("line %d did not come", nano)
		}
	}
}

func series(from, to int64) (out []int64) {
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

func tail(n int) *int { return &n }

// follow reads in the background; the function waits for the end.
func follow(t *testing.T, s *logtail.Sharer[string], l logtail.Source, o logtail.Options, emit logtail.Emit) (wait func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Follow(t.Context(), "web", l, o, emit) }()
	return func() error { return <-ended }
}

const room = 64 << 10

func TestSharer(t *testing.T) {
	t.Parallel()
	start := func(n, bytes int) (*log, *logtail.Sharer[string]) { return newLog(n), logtail.New[string](bytes) }
	t.Run("API-11 500 readers share one stream, and each gets every line", func(t *testing.T) {
		t.Parallel()
		l, s := start(20, room)
		all := make([]*heard, 500)
		var waits []func() error
		for i := range all {
			all[i] = newHeard()
			waits = append(waits, follow(t, s, l, logtail.Options{Tail: tail(10)}, all[i].emit))
		}
		for _, h := range all {
			h.until(t, 20)
		}
		l.write(5)
		for _, h := range all {
			h.until(t, 25)
		}
		l.end()
		for i, wait := range waits {
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			if want := series(11, 25); !slices.Equal(all[i].lines, want) {
				t.Fatalf("reader %d got %v, want %v", i, all[i].lines, want)
			}
		}
		if l.opened != 1 || l.reads != 0 || s.Open() != 0 {
			t.Errorf("%d streams, %d further reads, %d left open", l.opened, l.reads, s.Open())
		}
	})
	t.Run("API-11 a reader that wants earlier lines reads those alone", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			o    logtail.Options
			from int64
			own  int
		}{
			"all":                        {logtail.Options{}, 1, 1},
			"more than are there":        {logtail.Options{Tail: tail(30)}, 71, 1},
			"as many":                    {logtail.Options{Tail: tail(10)}, 91, 0},
			"fewer":                      {logtail.Options{Tail: tail(3)}, 98, 0},
			"none":                       {logtail.Options{Tail: tail(0)}, 101, 0},
			"since a time before":        {logtail.Options{Since: 50}, 50, 1},
			"since a time within":        {logtail.Options{Since: 95}, 95, 0},
			"the last ones since a time": {logtail.Options{Since: 50, Tail: tail(4)}, 97, 0},
		} {
			l, s := start(100, room)
			first, second := newHeard(), newHeard()
			one := follow(t, s, l, logtail.Options{Tail: tail(10)}, first.emit)
			first.until(t, 100)
			ready := make(chan struct{})
			var once sync.Once
			two := follow(t, s, l, c.o, func(lines []logtail.Line) error {
				once.Do(func() { close(ready) })
				return second.emit(lines)
			})
			if c.from <= 100 {
				<-ready
				second.until(t, 100)
			}
			for joined := false; !joined; { // a reader of nothing has joined when the log has another line for it
				l.write(1)
				l.mu.Lock()
				n := int64(len(l.lines))
				l.mu.Unlock()
				first.until(t, n)
				second.mu.Lock()
				joined = len(second.lines) > 0
				second.mu.Unlock()
			}
			l.end()
			if err := errors.Join(one(), two()); err != nil {
				t.Fatal(err)
			}
			from := c.from
			if c.from > 100 { // it joined at some time
				from = second.lines[0]
			}
			if want := series(from, int64(len(l.lines))); !slices.Equal(second.lines, want) {
				t.Errorf("%s: got %v, want %v", name, second.lines, want)
			}
			if l.reads != c.own || l.opened != 1 {
				t.Errorf("%s: %d reads of its own, want %d; %d streams", name, l.reads, c.own, l.opened)
			}
		}
	})
	t.Run("API-11 a single slow reader stops the source, and misses nothing", func(t *testing.T) {
		t.Parallel()
		l, s := start(1000, 10*60)
		h := newHeard()
		gate := make(chan struct{})
		wait := follow(t, s, l, logtail.Options{}, func(lines []logtail.Line) error {
			gate <- struct{}{}
			return h.emit(lines)
		})
		<-gate // the first lines are with the reader; 10 lines fit into the buffer, as many are on their way
		l.mu.Lock()
		read := l.read
		l.mu.Unlock()
		if read > 100 {
			t.Errorf("%d lines were read for a reader that takes none", read)
		}
		go func() {
			for range gate {
			}
		}()
		l.end()
		err := wait()
		close(gate)
		if err != nil || !slices.Equal(h.lines, series(1, 1000)) || h.skipped != 0 {
			t.Errorf("%d lines, %d skipped, error %v", len(h.lines), h.skipped, err)
		}
	})
	t.Run("API-11 a slow reader among others delays nobody, and learns how much it has missed", func(t *testing.T) {
		t.Parallel()
		l, s := start(0, 10*60)
		slow, fast := newHeard(), newHeard()
		hold, entered := make(chan struct{}), make(chan struct{}, 1)
		waitSlow := follow(t, s, l, logtail.Options{}, func(lines []logtail.Line) error {
			select {
			case entered <- struct{}{}:
			default:
			}
			<-hold
			return slow.emit(lines)
		})
		l.write(1)
		<-entered
		waitFast := follow(t, s, l, logtail.Options{}, fast.emit)
		fast.until(t, 1)
		for range 20 { // never more at once than the buffer has room for
			l.write(5)
			fast.until(t, int64(len(l.lines)))
		}
		close(hold)
		slow.until(t, 101)
		l.end()
		if err := errors.Join(waitFast(), waitSlow()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(fast.lines, series(1, 101)) || fast.skipped != 0 {
			t.Errorf("the fast one got %d lines, and missed %d", len(fast.lines), fast.skipped)
		}
		if slow.skipped == 0 || len(slow.lines)+int(slow.skipped) != 101 {
			t.Errorf("the slow one got %d lines, and missed %d", len(slow.lines), slow.skipped)
		}
	})
	t.Run("API-11 an error of the source reaches every reader", func(t *testing.T) {
		t.Parallel()
		s := logtail.New[string](room)
		if err := s.Follow(t.Context(), "web", broken{}, logtail.Options{}, newHeard().emit); err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("error %v", err)
		}
		if s.Open() != 0 {
			t.Error("it is still open")
		}
	})
}

type broken struct{}

func (broken) Read(context.Context, bool, logtail.Options, func([]logtail.Line) error) error {
	return errors.New("the container is gone")
}
