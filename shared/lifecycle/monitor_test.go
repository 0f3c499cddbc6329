package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestMonitor(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	type stuck struct {
		names  []string
		stacks string
	}
	setup := func(t *testing.T, away func(context.Context) bool) (*runtest.Clock, *lifecycle.Monitor, context.Context, chan stuck) {
		clock := runtest.NewClock(begin)
		m := lifecycle.NewMonitor(clock, nil)
		found := make(chan stuck, 16)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- m.Guard(ctx, 5*time.Second, away, func(names []string, stacks string) { found <- stuck{names, stacks} })
		}()
		t.Cleanup(func() { cancel(); <-done })
		clock.Wait(1)
		return clock, m, m.With(ctx), found
	}
	advance := func(c *runtest.Clock, d time.Duration) {
		for ; d > 0; d -= 5 * time.Second {
			c.Wait(1)
			c.Advance(5 * time.Second)
		}
		c.Wait(1)
	}
	t.Run("FT-H7 a loop that makes no progress is found within two minutes, with stacks, and once", func(t *testing.T) {
		t.Parallel()
		clock, m, ctx, found := setup(t, nil)
		loop, end := lifecycle.Watch(ctx, "reconcile", 90*time.Second)
		defer end()
		other, endOther := lifecycle.Watch(ctx, "other", 90*time.Second)
		defer endOther()
		advance(clock, 85*time.Second)
		lifecycle.Beat(other)
		if got := m.Stuck(); len(got) != 0 {
			t.Fatalf("stuck too early: %v", got)
		}
		advance(clock, 30*time.Second) // 115 s in all
		select {
		case s := <-found:
			if len(s.names) != 1 || s.names[0] != "reconcile" || !strings.Contains(s.stacks, "TestMonitor") {
				t.Errorf("%v\n%.200s", s.names, s.stacks)
			}
		default:
			t.Fatal("nothing was found")
		}
		advance(clock, 30*time.Second)
		if len(found) != 0 {
			t.Error("the same loop was told twice")
		}
		lifecycle.Beat(loop)
		if got := m.Stuck(); len(got) != 0 {
			t.Errorf("a loop that goes on again is still stuck: %v", got)
		}
	})
	t.Run("FT-H7 rest, expected waits and waits for a known outage are not stuck", func(t *testing.T) {
		t.Parallel()
		var away atomic.Bool
		clock, m, ctx, found := setup(t, func(context.Context) bool { return away.Load() })
		resting, end := lifecycle.Watch(ctx, "resting", time.Minute)
		defer end()
		lifecycle.Rest(resting)
		fetching, end := lifecycle.Watch(ctx, "fetching", time.Minute)
		defer end()
		lifecycle.Expect(fetching, 10*time.Minute)
		advance(clock, 9*time.Minute)
		if len(found) != 0 {
			t.Fatalf("found %v", <-found)
		}
		lifecycle.Beat(fetching)
		away.Store(true)
		advance(clock, 10*time.Minute)
		if len(found) != 0 || len(m.Stuck()) != 0 {
			t.Fatal("the database was away, and loops were called stuck")
		}
		away.Store(false)
		advance(clock, 70*time.Second)
		if s := <-found; s.names[0] != "fetching" {
			t.Errorf("%v", s.names)
		}
	})
	t.Run("FT-H8 a child's progress counts for its parent", func(t *testing.T) {
		t.Parallel()
		clock, m, ctx, _ := setup(t, nil)
		parent, end := lifecycle.Watch(ctx, "parent", time.Minute)
		defer end()
		child, end := lifecycle.Watch(parent, "child", time.Minute)
		defer end()
		for range 4 {
			advance(clock, 45*time.Second)
			lifecycle.Beat(child)
		}
		if got := m.Stuck(); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
}

func TestSafely(t *testing.T) {
	t.Parallel()
	t.Run("FT-H8 SEC-I4 a panic in one item becomes an error and is counted", func(t *testing.T) {
		t.Parallel()
		var reported *lifecycle.PanicError
		m := lifecycle.NewMonitor(lifecycle.System{}, func(_ context.Context, p *lifecycle.PanicError) { reported = p })
		err := lifecycle.Safely(m.With(t.Context()), "render", func(context.Context) error { var x []int; _ = x[3]; return nil })
		var defect *lifecycle.PanicError
		if !errors.As(err, &defect) || defect.Where != "render" || !strings.Contains(defect.Value, "index out of range") || !strings.Contains(defect.Stack, "TestSafely") {
			t.Fatalf("%v", err)
		}
		if reported != defect || m.Panics()["render"] != 1 {
			t.Errorf("told %v, counted %v", reported, m.Panics())
		}
	})
	t.Run("FT-H8 a part starts again after a panic and ends nothing else", func(t *testing.T) {
		t.Parallel()
		m := lifecycle.NewMonitor(lifecycle.System{}, nil)
		ctx, cancel := context.WithCancel(m.With(t.Context()))
		var starts atomic.Int32
		others := make(chan struct{})
		err := lifecycle.Run(ctx,
			lifecycle.Part{Name: "steady", Run: func(ctx context.Context) error { <-ctx.Done(); close(others); return nil }},
			lifecycle.Part{Name: "broken", Run: func(ctx context.Context) error {
				if starts.Add(1) < 3 {
					panic("no")
				}
				select {
				case <-others:
					t.Error("the other part was stopped")
				default:
				}
				cancel()
				<-ctx.Done()
				return nil
			}})
		if err != nil || starts.Load() != 3 || m.Panics()["broken"] != 2 {
			t.Errorf("%v, %d starts, %v", err, starts.Load(), m.Panics())
		}
	})
	t.Run("FT-H8 a panic in a group ends the group with an error", func(t *testing.T) {
		t.Parallel()
		g := lifecycle.NewGroup(lifecycle.NewMonitor(lifecycle.System{}, nil).With(t.Context()))
		g.Go(func(ctx context.Context) error { <-ctx.Done(); return nil })
		g.Go(func(context.Context) error { panic("no") })
		if err := g.Wait(); err == nil {
			t.Error("no error")
		}
	})
	t.Run("without a monitor a panic continues", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if recover() == nil {
				t.Error("it was swallowed")
			}
		}()
		_ = lifecycle.Safely(t.Context(), "x", func(context.Context) error { panic("no") })
	})
}
