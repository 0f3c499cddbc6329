package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestMain(m *testing.M) { runtest.Main(m) }

var errBroken = errors.New("broken")

// diary notes what parts do, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// part notes its start and its stop, and is ready at once.
func (d *diary) part(name string) lifecycle.Part {
	ready := make(chan struct{})
	return lifecycle.Part{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		d.note("start " + name)
		close(ready)
		<-ctx.Done()
		d.note("stop " + name)
		return nil
	}}
}

func TestRun(t *testing.T) {
	t.Run("parts start in order and stop in reverse", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- lifecycle.Run(ctx, d.part("a"), d.part("b"), d.part("c")) }()
			synctest.Wait()
			cancel()
			if err := <-done; err != nil {
				t.Fatalf("Run() = %v", err)
			}
			want := []string{"start a", "start b", "start c", "stop c", "stop b", "stop a"}
			if got := d.all(); !slices.Equal(got, want) {
				t.Errorf("parts did %q, want %q", got, want)
			}
		})
	})
	t.Run("a part that fails stops the others and is named", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			err := lifecycle.Run(t.Context(), d.part("a"), lifecycle.Part{Name: "b", Run: func(context.Context) error { return errBroken }})
			if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "b: ") {
				t.Errorf("Run() = %v, want the error of b", err)
			}
			if got, want := d.all(), []string{"start a", "stop a"}; !slices.Equal(got, want) {
				t.Errorf("parts did %q, want %q", got, want)
			}
		})
	})
	t.Run("a part that is never ready and fails starts nothing after it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			err := lifecycle.Run(t.Context(),
				lifecycle.Part{Name: "a", Ready: make(chan struct{}), Run: func(context.Context) error { return errBroken }}, d.part("b"))
			if !errors.Is(err, errBroken) || len(d.all()) != 0 {
				t.Errorf("Run() = %v after %q, want the error of a alone", err, d.all())
			}
		})
	})
	t.Run("a part that ends by itself stops all, unless it has Once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			quick := lifecycle.Part{Name: "quick", Run: func(context.Context) error { return nil }}
			if err := lifecycle.Run(t.Context(), d.part("a"), quick); !errors.Is(err, lifecycle.ErrStopped) {
				t.Errorf("Run() = %v, want ErrStopped", err)
			}
			quick.Once = true
			if err := lifecycle.Run(t.Context(), quick, quick); err != nil {
				t.Errorf("Run() of parts that may end = %v, want nil", err)
			}
		})
	})
	t.Run("INV-10 a part that does not stop is named and abandoned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			release := make(chan struct{})
			stuck := lifecycle.Part{Name: "stuck", Grace: time.Second, Run: func(context.Context) error { <-release; return nil }}
			done := make(chan error)
			go func() { done <- lifecycle.Run(ctx, stuck) }()
			synctest.Wait()
			cancel()
			if err := <-done; err == nil || !strings.Contains(err.Error(), "stuck: did not stop within 1s") {
				t.Errorf("Run() = %v, want the part that is stuck", err)
			}
			close(release)
		})
	})
}

func TestGroup(t *testing.T) {
	t.Run("the first to return ends the others, and its error is returned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := lifecycle.NewGroup(t.Context())
			g.Go(func(ctx context.Context) error { <-ctx.Done(); return errors.New("later") })
			g.Go(func(context.Context) error { return errBroken })
			if err := g.Wait(); !errors.Is(err, errBroken) {
				t.Errorf("Wait() = %v, want %v", err, errBroken)
			}
		})
	})
	t.Run("a group that was asked to stop returns no error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			g := lifecycle.NewGroup(ctx)
			g.Go(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			cancel()
			if err := g.Wait(); err != nil {
				t.Errorf("Wait() = %v, want nil", err)
			}
		})
	})
	t.Run("a cancellation from elsewhere is an error", func(t *testing.T) {
		g := lifecycle.NewGroup(t.Context())
		g.Go(func(context.Context) error { return context.Canceled })
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait() = %v, want the cancellation that the function met", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	most := func() float64 { return 0.999999 }
	b := lifecycle.Backoff{First: 250 * time.Millisecond, Max: 2 * time.Second, Rand: most}
	want := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second}
	check := func() {
		t.Helper()
		for i, w := range want {
			if got := b.Next(); got > w || got < w-time.Millisecond {
				t.Errorf("wait %d is %s, want just under %s", i, got, w)
			}
		}
	}
	check()
	b.Reset()
	check()
	for range 100 {
		if got := b.Next(); got > 2*time.Second {
			t.Fatalf("a late wait is %s", got)
		}
	}
	b = lifecycle.Backoff{Rand: func() float64 { return 0 }}
	if got := b.Next(); got != 0 {
		t.Errorf("full jitter starts at 0, got %s", got)
	}
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls int
		var waits []time.Duration
		b := lifecycle.Backoff{First: time.Second, Max: time.Minute, Rand: func() float64 { return 0.5 }}
		err := lifecycle.Loop(ctx, lifecycle.System{}, b, func(_ error, d time.Duration) { waits = append(waits, d) }, func(context.Context) error {
			calls++
			switch calls {
			case 3:
				return nil
			case 5:
				cancel()
			}
			return errBroken
		})
		want := []time.Duration{time.Second / 2, time.Second, time.Second / 2}
		if err != nil || !slices.Equal(waits, want) {
			t.Errorf("Loop() = %v after waits %v, want %v: a success starts the waits anew", err, waits, want)
		}
	})
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		var calls, failures int
		err := lifecycle.Every(ctx, lifecycle.System{}, 10*time.Second, 0, func(error) { failures++ }, func(context.Context) error {
			calls++
			return errBroken
		})
		if err != nil || calls != 4 || failures != 4 {
			t.Errorf("Every() = %v after %d calls and %d failures, want 4 each", err, calls, failures)
		}
	})
}

func TestSpread(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 8 * time.Second, 0.5: 10 * time.Second, 1: 12 * time.Second} {
		if got := lifecycle.Spread(10*time.Second, 0.2, random); got != want {
			t.Errorf("Spread(%v) = %s, want %s", random, got, want)
		}
	}
}
