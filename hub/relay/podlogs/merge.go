package podlogs

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logtail"
)

const (
	// mergeTimeout is how long a line that has come waits for earlier ones of other
	// containers, while logs are followed.
	mergeTimeout = 100 * time.Millisecond
	// rediscover is how often pods are checked for that have started or restarted.
	rediscover = 2 * time.Second
	// silence is after which time an emission without entries follows.
	silence = 2 * time.Second
	// mostEntries bounds one emission.
	mostEntries = 512
)

// A merge reads several logs and emits their lines by time. One goroutine uses
// it and its streams; those that read send what they have.
type merge struct {
	s     *Service
	r     Request
	emit  func([]Entry) error
	ready chan arrival

	running sync.WaitGroup
	streams map[hub.LogTarget]*stream
	first   bool // pods are checked for the first time
	failed  error
	heard   time.Time // of the last emission
}

// An arrival is a batch of a stream, or its end.
type arrival struct {
	of    *stream
	batch []logtail.Line // none: it has ended
	err   error          // why
}

// A stream is the log of one container.
type stream struct {
	target
	taken   chan struct{} // the batch has been emitted
	batch   []logtail.Line
	err     error
	ended   bool
	past    bool      // its lines are later than what was asked for
	last    int64     // time of the last line, in Unix nanoseconds
	waiting time.Time // since when it has no batch
}

func newMerge(s *Service, r Request, emit func([]Entry) error) *merge {
	return &merge{s: s, r: r, emit: emit, ready: make(chan arrival), streams: map[hub.LogTarget]*stream{}, first: true, heard: s.clock.Now()}
}

// wait returns when no stream runs. Its context must have ended.
func (m *merge) wait() { m.running.Wait() }

// discover begins to read containers that are new, or have begun anew.
func (m *merge) discover(ctx context.Context) error {
	targets, err := m.s.targets(ctx, m.r)
	switch kind := fault.KindOf(err); {
	case err == nil, !m.first && kind == fault.Missing: // the pod, or its owner, is gone
	case m.first, kind == fault.Exceeded, kind == fault.Denied:
		return err
	default: // the agent is away for a moment
		return nil
	}
	present := map[hub.LogTarget]bool{}
	for _, t := range targets {
		present[t.LogTarget] = true
		switch was := m.streams[t.LogTarget]; {
		case was == nil:
			m.begin(ctx, t, m.options(0))
		case was.ended && (was.instance() != t.instance() || fault.KindOf(was.err) == fault.Offline) && !m.r.Previous:
			m.begin(ctx, t, m.options(was.last))
		case was.ended:
			was.target = t
		}
	}
	for id, st := range m.streams {
		if st.ended && !present[id] {
			delete(m.streams, id)
		}
	}
	m.first = false
	return nil
}

// options are the lines that are read of a container: those that were asked for,
// and of one that goes on what came after its last line.
func (m *merge) options(last int64) logtail.Options {
	switch {
	case last > 0:
		return logtail.Options{Since: last + 1}
	case !m.first:
		return logtail.Options{}
	}
	o := logtail.Options{Tail: m.r.Tail}
	if !m.r.Since.IsZero() {
		o.Since = m.r.Since.UnixNano()
	}
	return o
}

// begin reads a container in the background.
func (m *merge) begin(ctx context.Context, t target, o logtail.Options) {
	st := &stream{target: t, taken: make(chan struct{}, 1), last: max(0, o.Since-1), waiting: m.s.clock.Now()}
	m.streams[t.LogTarget] = st
	from := source{m.s, m.r, t}
	m.running.Go(func() {
		deliver := func(lines []logtail.Line) error { return m.deliver(ctx, st, lines) }
		var err error
		if m.r.Follow && !m.r.Previous && !t.pod.Gone {
			err = m.s.shared.Follow(ctx, shared{m.r.Cluster.ID, m.r.Application, t.LogTarget}, from, o, deliver)
		} else {
			err = from.Read(ctx, false, o, deliver)
		}
		select {
		case m.ready <- arrival{of: st, err: err}:
		case <-ctx.Done():
		}
	})
}

// deliver hands a batch over, and waits until it has been emitted.
func (m *merge) deliver(ctx context.Context, st *stream, lines []logtail.Line) error {
	if len(lines) == 0 {
		return nil
	}
	select {
	case m.ready <- arrival{of: st, batch: lines}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-st.taken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run emits until all streams have ended, and with follow longer.
func (m *merge) run(ctx context.Context) error {
	checked := m.s.clock.Now()
	for ctx.Err() == nil {
		now := m.s.clock.Now()
		if m.r.Follow && now.Sub(checked) >= rediscover {
			if err := m.discover(ctx); err != nil {
				return err
			}
			checked = now
		}
		if m.over() {
			return m.failed
		}
		if head, until, ok := m.next(now); ok {
			if err := m.pass(head, until); err != nil {
				return err
			}
			if err := m.collect(); err != nil {
				return err
			}
			continue
		}
		if now.Sub(m.heard) >= silence {
			if err := m.send(nil); err != nil {
				return err
			}
		}
		if err := m.await(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// over reports whether no more lines will come.
func (m *merge) over() bool {
	for _, st := range m.streams {
		if !st.past && (!st.ended || m.r.Follow && !m.r.Previous && !st.over()) {
			return false
		}
	}
	grows := m.r.Of.Kind != "Pod" && (m.r.Until.IsZero() || m.r.Until.After(m.s.clock.Now())) // an owner may make other pods
	return !m.r.Follow || !grows || m.r.Previous
}

// next picks the stream with the earliest line, and the time up to which its
// lines come before those of others. False: an earlier one may still come.
func (m *merge) next(now time.Time) (head *stream, until int64, ok bool) {
	until = 1<<63 - 1
	for _, st := range m.streams {
		switch {
		case st.past:
		case len(st.batch) == 0 && !st.ended && (!m.r.Follow || now.Sub(st.waiting) < mergeTimeout):
			return nil, 0, false
		case len(st.batch) == 0:
		case head == nil:
			head = st
		case st.batch[0].Nano < head.batch[0].Nano:
			head, until = st, min(until, head.batch[0].Nano)
		default:
			until = min(until, st.batch[0].Nano)
		}
	}
	return head, until, head != nil
}

// pass emits lines of a stream up to a time.
func (m *merge) pass(st *stream, until int64) error {
	var out []Entry
	n := 0
	for _, l := range st.batch {
		if n > 0 && l.Nano > until || len(out) == mostEntries {
			break
		}
		n++
		if e, ok := m.entry(st, l); ok {
			out = append(out, e)
		}
	}
	st.batch = st.batch[n:]
	if len(st.batch) == 0 {
		st.waiting = m.s.clock.Now()
		st.taken <- struct{}{} // it waits for that
	}
	if len(out) == 0 {
		return nil
	}
	return m.send(out)
}

// entry is a line that was asked for.
func (m *merge) entry(st *stream, l logtail.Line) (Entry, bool) {
	st.last = max(st.last, l.Nano)
	e := Entry{
		Namespace: st.Namespace, Pod: st.Pod, Container: st.Container,
		Text: strings.ToValidUTF8(string(l.Text), "\uFFFD"), Partial: l.Partial, Skipped: l.Skipped,
	}
	if l.Nano > 0 {
		e.Time = time.Unix(0, l.Nano)
	}
	switch until := m.r.Until; {
	case !until.IsZero() && e.Time.After(until):
		st.past = true
		return e, false
	case !m.r.Filter.Passes(e.Text):
		return e, false
	}
	return e, true
}

func (m *merge) send(entries []Entry) error {
	m.heard = m.s.clock.Now()
	return m.emit(entries)
}

// collect takes what is there without waiting.
func (m *merge) collect() error {
	for {
		select {
		case a := <-m.ready:
			if err := m.arrived(a); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// await waits for a stream, or until something is due.
func (m *merge) await(ctx context.Context) error {
	due := silence
	if slices.ContainsFunc(m.all(), func(st *stream) bool { return len(st.batch) > 0 }) && m.r.Follow {
		due = mergeTimeout
	}
	tick, stop := m.s.clock.After(due)
	defer stop()
	select {
	case a := <-m.ready:
		if err := m.arrived(a); err != nil {
			return err
		}
	case <-tick:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (m *merge) all() []*stream {
	out := make([]*stream, 0, len(m.streams))
	for _, st := range m.streams {
		out = append(out, st)
	}
	return out
}

// arrived notes a batch, or the end of a stream.
func (m *merge) arrived(a arrival) error {
	st := a.of
	if len(a.batch) > 0 {
		st.batch = a.batch
		return nil
	}
	st.ended, st.err = true, a.err
	switch {
	case st.err == nil:
		return nil
	case fault.KindOf(st.err) == fault.Denied:
		return st.err
	case len(m.streams) == 1 && !m.r.Follow:
		m.failed = st.err
		return nil
	}
	return m.send([]Entry{{Namespace: st.Namespace, Pod: st.Pod, Container: st.Container, Notice: fault.Sentence(st.err)}})
}
