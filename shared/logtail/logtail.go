// Package logtail shares one followed log of a container among any number of
// readers. Hub and agent use it, so that many readers cost one stream of the
// link and one of the kubelet.
//
// The newest lines are held in a buffer of bounded size. The log is read as
// fast as its fastest reader reads: a single reader loses nothing, however slow
// it is, and a slow one among others is told how many lines it has missed.
package logtail

import (
	"context"
	"sync"
)

// A Line is one line of a log, without the line feed.
type Line struct {
	Nano    int64 // Unix nanoseconds when it was written; 0: not known
	Text    []byte
	Partial bool   // it continues in the next one
	Skipped uint64 // lines that are missing before it: the reader was too slow
}

// overhead is what a line costs beside its text.
const overhead = 56

// Size is what a line costs in memory, in bytes.
func (l Line) Size() int { return len(l.Text) + overhead }

// Options say which lines a reader wants first.
type Options struct {
	Tail  *int  // only the last ones; nil: all
	Since int64 // only those from then on, in Unix nanoseconds; 0: all
}

// Emit passes lines on. It may block, which stops whoever calls it.
type Emit = func([]Line) error

// A Source reads one log.
type Source interface {
	// Read emits lines, oldest first, and returns at the end of the log. With
	// follow that is when its container ends.
	Read(ctx context.Context, follow bool, o Options, emit Emit) error
}

// A Sharer shares logs that are followed, by key. Many goroutines may use it.
type Sharer[K comparable] struct {
	bytes int

	mu   sync.Mutex
	logs map[K]*followed
}

// New makes a sharer whose buffers have at most so many bytes for each log.
func New[K comparable](bytes int) *Sharer[K] {
	return &Sharer[K]{bytes: bytes, logs: map[K]*followed{}}
}

// Open is how many logs are followed now.
func (s *Sharer[K]) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.logs)
}

// Follow emits the lines of a log until it ends, emit fails or ctx ends. Logs of
// equal keys are the same.
func (s *Sharer[K]) Follow(ctx context.Context, key K, from Source, o Options, emit Emit) error {
	f, r := s.join(ctx, key, from, o)
	defer s.leave(key, f, r)
	if r.late {
		if err := from.Read(ctx, false, o, r.history(emit)); err != nil {
			return err
		}
	}
	for {
		lines, err := f.next(ctx, r)
		if err != nil || lines == nil {
			return err
		}
		if err := emit(lines); err != nil {
			return err
		}
	}
}

// join adds a reader to a log, which it opens if nobody follows it.
func (s *Sharer[K]) join(ctx context.Context, key K, from Source, o Options) (*followed, *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.logs[key]
	if f != nil {
		if r, ok := f.join(o); ok {
			return f, r
		}
	}
	// The log outlives the reader that opened it, but not the values of its call.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f = newFollowed(s.bytes, o, stop)
	s.logs[key] = f
	r, _ := f.join(o)
	go func() { // ends with its readers, who wait for it by its buffer
		f.end(from.Read(running, true, o, func(lines []Line) error { return f.put(running, lines) }))
	}()
	return f, r
}

// leave removes a reader; the last one ends the log.
func (s *Sharer[K]) leave(key K, f *followed, r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.leave(r) > 0 {
		return
	}
	f.stop()
	if s.logs[key] == f {
		delete(s.logs, key)
	}
}

// A reader is where one of the readers is in a log.
type reader struct {
	at      uint64 // number of the next line
	late    bool   // it wants lines from before the buffer
	after   int64  // lines up to this time were among those
	skipped uint64
}

// history emits lines from before the buffer.
func (r *reader) history(emit Emit) Emit {
	return func(lines []Line) error {
		if n := len(lines); n > 0 {
			r.after = max(r.after, lines[n-1].Nano)
		}
		return emit(lines)
	}
}

// followed is one log that is followed, with its newest lines.
type followed struct {
	limit  int
	opened Options
	stop   context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when there are lines, or no more
	full    chan struct{} // closed when a reader has moved; nil: nobody waits for that
	lines   []Line
	first   uint64 // number of the first of the lines
	size    int
	readers map[*reader]struct{}
	ended   bool
	err     error
}

func newFollowed(limit int, o Options, stop context.CancelFunc) *followed {
	return &followed{limit: limit, opened: o, stop: stop, changed: make(chan struct{}), readers: map[*reader]struct{}{}}
}

// signal wakes the readers; mu is held.
func (f *followed) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// moved wakes the writer; mu is held.
func (f *followed) moved() {
	if f.full != nil {
		close(f.full)
		f.full = nil
	}
}

// join adds a reader; false: the log has ended.
func (f *followed) join(o Options) (*reader, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil, false
	}
	at, found := f.place(o)
	r := &reader{at: at, late: !found}
	f.readers[r] = struct{}{}
	return r, true
}

// place finds the first line that a reader wants. False: others may be before
// the buffer; mu is held.
func (f *followed) place(o Options) (at uint64, found bool) {
	next := f.first + uint64(len(f.lines))
	for at = f.first; at < next && o.Since > 0 && f.lines[at-f.first].Nano < o.Since; at++ {
	}
	if o.Tail != nil && next-at >= uint64(*o.Tail) {
		return next - uint64(*o.Tail), true
	}
	if at > f.first && f.lines[0].Nano > 0 { // the buffer reaches further back
		return at, true
	}
	return at, f.first == 0 && f.opened.includes(o)
}

// includes reports whether a log that was opened with these options has all
// lines that others want.
func (o Options) includes(want Options) bool {
	if o.Since > want.Since {
		return false
	}
	return o.Tail == nil || want.Tail != nil && *want.Tail <= *o.Tail
}

func (f *followed) leave(r *reader) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
	f.moved()
	return len(f.readers)
}

// end notes that no more lines come.
func (f *followed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.err = true, err
	f.signal()
}

// put adds lines. It waits while the buffer is full of lines that no reader has
// read.
func (f *followed) put(ctx context.Context, lines []Line) error {
	for _, l := range lines {
		if err := f.putOne(ctx, l); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.signal()
	f.mu.Unlock()
	return nil
}

func (f *followed) putOne(ctx context.Context, l Line) error {
	f.mu.Lock()
	for len(f.lines) > 0 && f.size+l.Size() > f.limit {
		if f.fastest() > f.first {
			f.size -= f.lines[0].Size()
			f.lines[0] = Line{}
			f.lines = f.lines[1:]
			f.first++
			continue
		}
		f.signal()
		full := make(chan struct{})
		f.full = full
		f.mu.Unlock()
		select {
		case <-full:
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock()
	}
	f.lines = append(f.lines, l)
	f.size += l.Size()
	f.mu.Unlock()
	return nil
}

// fastest is the furthest place of a reader; mu is held.
func (f *followed) fastest() uint64 {
	var at uint64
	for r := range f.readers {
		at = max(at, r.at)
	}
	return at
}

// mostLines is how many lines are passed on at once.
const mostLines = 512

// next waits for lines; nil without an error: the log has ended.
func (f *followed) next(ctx context.Context, r *reader) (lines []Line, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if lines = f.take(r); len(lines) > 0 {
			return lines, nil
		}
		if f.ended {
			return nil, f.err
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		f.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// take returns what a reader has not read; mu is held.
func (f *followed) take(r *reader) (lines []Line) {
	if r.at < f.first {
		r.skipped += f.first - r.at
		r.at = f.first
	}
	wasAt := r.at
	for int(r.at-f.first) < len(f.lines) && len(lines) < mostLines {
		l := f.lines[r.at-f.first]
		r.at++
		if r.after == 0 || l.Nano == 0 || l.Nano > r.after {
			lines = append(lines, l)
		}
	}
	if r.at != wasAt {
		f.moved()
	}
	if len(lines) > 0 {
		lines[0].Skipped += r.skipped
		r.skipped = 0
	}
	return lines
}
