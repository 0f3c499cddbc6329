package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// memory is a change log whose cursors are numbers.
type memory struct {
	mu      sync.Mutex
	n       map[hub.TenantID]int
	oldest  int // cursors below are forgotten
	failing bool
	reads   int
}

func (m *memory) add(tenant hub.TenantID, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n[tenant] += n
}

func (m *memory) set(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *memory) Changes(_ context.Context, tenant hub.TenantID, after string, limit int) ([]hub.Change, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	at, err := strconv.Atoi(after)
	switch {
	case err != nil:
		return nil, "", fault.New(fault.Invalid, "no cursor")
	case m.failing:
		return nil, "", errors.New("away")
	case at < m.oldest:
		return nil, "", fault.New(fault.Missing, "too old")
	}
	var out []hub.Change
	for at < m.n[tenant] && len(out) < limit {
		at++
		out = append(out, hub.Change{Cursor: strconv.Itoa(at), Kind: "application", ID: fmt.Sprint(at)})
	}
	return out, strconv.Itoa(at), nil
}

func (m *memory) Cursor(_ context.Context, tenant hub.TenantID) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strconv.Itoa(m.n[tenant]), nil
}

// quick is the real clock with waits cut short.
type quick struct{ lifecycle.System }

func (q quick) After(d time.Duration) (<-chan time.Time, func()) {
	return q.System.After(min(d, time.Millisecond))
}

func start(t *testing.T, m *memory) *Feed {
	t.Helper()
	f := New(m, quick{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// collect reads until n changes have come, and checks their order.
func collect(t *testing.T, r *Reader, from, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a failure would wait for ever
	defer cancel()
	for got := 0; got < n; {
		changes, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d changes: %v", got, n, err)
		}
		for _, c := range changes {
			if got++; c.ID != strconv.Itoa(from+got) {
				t.Fatalf("change %d is %s, want %d", got, c.ID, from+got)
			}
		}
	}
}

func read(t *testing.T, f *Feed, tenant hub.TenantID, after string) *Reader {
	t.Helper()
	r, err := f.Read(context.Background(), tenant, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestFeed(t *testing.T) {
	t.Run("a reader gets every change once and in order, with hints and without", func(t *testing.T) {
		m := &memory{n: map[hub.TenantID]int{"a": 3}}
		f := start(t, m)
		r := read(t, f, "a", "")
		m.add("a", 5)
		collect(t, r, 3, 5)
		m.add("a", 5)
		f.Notify("a")
		collect(t, r, 8, 5)
	})
	t.Run("a reader continues where it stopped, however long ago", func(t *testing.T) {
		m := &memory{n: map[hub.TenantID]int{"a": 3 * ring}}
		f := start(t, m)
		late := read(t, f, "a", "1")
		collect(t, late, 1, 3*ring-1)
		early := read(t, f, "a", "")
		m.add("a", 2*ring) // more than is kept in memory
		collect(t, early, 3*ring, 2*ring)
		collect(t, late, 3*ring, 2*ring)
	})
	t.Run("a cursor that is too old, or invalid, is refused as such", func(t *testing.T) {
		m := &memory{n: map[hub.TenantID]int{"a": 10}, oldest: 5}
		f := start(t, m)
		if _, err := f.Read(context.Background(), "a", "2"); fault.KindOf(err) != fault.Missing {
			t.Errorf("an old cursor gives %v", err)
		}
		if _, err := f.Read(context.Background(), "a", "x"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("no cursor gives %v", err)
		}
	})
	t.Run("a reader whose cursor was collected gets an error", func(t *testing.T) {
		m := &memory{n: map[hub.TenantID]int{"a": 1}}
		f := start(t, m)
		slow := read(t, f, "a", "")
		fast := read(t, f, "a", "")
		m.add("a", 2*ring)
		collect(t, fast, 1, 2*ring)
		m.set(func(m *memory) { m.oldest = ring })
		if _, err := slow.Next(context.Background()); fault.KindOf(err) != fault.Missing {
			t.Errorf("Next() = %v, want that the log was cut", err)
		}
	})
	t.Run("a log that is unreachable for a while costs a delay", func(t *testing.T) {
		m := &memory{n: map[hub.TenantID]int{"a": 0}}
		f := start(t, m)
		r := read(t, f, "a", "")
		m.set(func(m *memory) { m.failing = true })
		m.add("a", 3)
		waiting, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if _, err := r.Next(waiting); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Next() = %v while the log is away", err)
		}
		m.set(func(m *memory) { m.failing = false })
		collect(t, r, 0, 3)
	})
	t.Run("tenants get no events of one another", func(t *testing.T) {
		m := &memory{n: map[hub.TenantID]int{}}
		f := start(t, m)
		a, b := read(t, f, "a", ""), read(t, f, "b", "")
		m.add("b", 1)
		collect(t, b, 0, 1)
		waiting, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if changes, err := a.Next(waiting); err == nil {
			t.Errorf("a hears %v", changes)
		}
	})
	t.Run("a source without subscribers costs nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{n: map[hub.TenantID]int{}}
			f := start(t, m)
			r := read(t, f, "a", "")
			r.Close()
			r.Close()
			time.Sleep(time.Minute) // of the bubble's time
			f.mu.Lock()
			followed := len(f.tenants)
			f.mu.Unlock()
			before := m.reads
			time.Sleep(time.Hour)
			if followed != 0 || m.reads != before {
				t.Errorf("%d tenants are followed, and %d reads were made in an hour", followed, m.reads-before)
			}
			again := read(t, f, "a", "")
			m.add("a", 1)
			collect(t, again, 0, 1)
		})
	})
	t.Run("many readers and many writers at the same time", func(t *testing.T) {
		m := &memory{n: map[hub.TenantID]int{}}
		f := start(t, m)
		var readers, writers sync.WaitGroup
		for range 20 {
			r := read(t, f, "a", "0")
			readers.Go(func() { collect(t, r, 0, 1000) })
		}
		for range 10 {
			writers.Go(func() {
				for range 100 {
					m.add("a", 1)
					f.Notify("a")
				}
			})
		}
		writers.Wait()
		readers.Wait()
	})
}
