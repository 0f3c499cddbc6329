package batch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/capstan-cd/capstan/hub/batch"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestBatcher(t *testing.T) {
	t.Parallel()
	t.Run("calls during a batch share the next one, and each gets its own answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var sizes []int
			hold := make(chan struct{})
			g := batch.New(func(_ context.Context, owner string, of []int) ([]string, error) {
				mu.Lock()
				sizes = append(sizes, len(of))
				mu.Unlock()
				<-hold
				out := make([]string, len(of))
				for i, q := range of {
					out[i] = owner + string(rune('a'+q))
				}
				return out, nil
			})
			var all sync.WaitGroup
			ask := func(q int) {
				all.Go(func() {
					got, err := g.Do(t.Context(), "t", q)
					if want := "t" + string(rune('a'+q)); err != nil || got != want {
						t.Errorf("Ask(%d) = %q, %v", q, got, err)
					}
				})
				synctest.Wait()
			}
			for q := range 20 {
				ask(q)
			}
			close(hold)
			all.Wait()
			slices.Sort(sizes)
			if !slices.Equal(sizes, []int{1, 1, 18}) {
				t.Errorf("batches of %v questions", sizes)
			}
		})
	})
	t.Run("a call while a batch waits joins it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var sizes []int
			hold := make(chan struct{})
			g := batch.New(func(_ context.Context, _ string, of []int) ([]int, error) {
				mu.Lock()
				defer mu.Unlock()
				sizes = append(sizes, len(of))
				return of, nil
			}).After(func(context.Context) { <-hold })
			var all sync.WaitGroup
			for q := range 20 {
				all.Go(func() {
					if got, err := g.Do(t.Context(), "t", q); err != nil || got != q {
						t.Errorf("Ask(%d) = %d, %v", q, got, err)
					}
				})
			}
			synctest.Wait()
			close(hold)
			all.Wait()
			if !slices.Equal(sizes, []int{20}) {
				t.Errorf("batches of %v questions", sizes)
			}
		})
	})
	t.Run("a failed question does not affect another one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			bad := errors.New("bad")
			hold := make(chan struct{})
			g := batch.New(func(_ context.Context, _ string, of []int) ([]int, error) {
				<-hold
				if slices.Contains(of, 7) {
					return nil, bad
				}
				return of, nil
			})
			var all sync.WaitGroup
			for q := range 12 {
				all.Go(func() {
					got, err := g.Do(t.Context(), "t", q)
					if q == 7 && !errors.Is(err, bad) || q != 7 && (err != nil || got != q) {
						t.Errorf("Ask(%d) = %d, %v", q, got, err)
					}
				})
			}
			synctest.Wait()
			close(hold)
			all.Wait()
		})
	})
	t.Run("FT-H8 INV-13 a question whose answer panics fails only its caller", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			hold := make(chan struct{})
			g := batch.New(func(_ context.Context, _ string, of []int) ([]int, error) {
				<-hold
				if slices.Contains(of, 7) {
					panic("seven")
				}
				return of, nil
			})
			var all sync.WaitGroup
			for q := range 12 {
				all.Go(func() {
					defer func() {
						if v := recover(); (v != nil) != (q == 7) {
							t.Errorf("Ask(%d) panicked with %v", q, v)
						}
					}()
					if got, err := g.Do(t.Context(), "t", q); err != nil || got != q {
						t.Errorf("Ask(%d) = %d, %v", q, got, err)
					}
				})
			}
			synctest.Wait()
			close(hold)
			all.Wait()
		})
	})
	t.Run("FT-D6 an unreachable database is not tried again for each of them", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			asked := 0
			hold := make(chan struct{})
			g := batch.New(func(context.Context, string, []int) ([]int, error) {
				<-hold
				mu.Lock()
				defer mu.Unlock()
				asked++
				return nil, fault.New(fault.Offline, "away")
			})
			var all sync.WaitGroup
			for q := range 12 {
				all.Go(func() {
					if _, err := g.Do(t.Context(), "t", q); fault.KindOf(err) != fault.Offline {
						t.Errorf("Ask(%d): %v", q, err)
					}
				})
			}
			synctest.Wait()
			close(hold)
			all.Wait()
			if asked > 3 { // the two first batches, and what came meanwhile
				t.Errorf("asked %d times", asked)
			}
		})
	})
	t.Run("owners do not wait for each other, and a caller may cancel", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			hold := make(chan struct{})
			g := batch.New(func(_ context.Context, owner string, of []int) ([]int, error) {
				if owner == "slow" {
					<-hold
				}
				return of, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for q := range 4 {
				all.Go(func() {
					if _, err := g.Do(ctx, "slow", q); !errors.Is(err, context.Canceled) {
						t.Errorf("Ask() = %v", err)
					}
				})
			}
			synctest.Wait()
			if got, err := g.Do(t.Context(), "quick", 3); err != nil || got != 3 {
				t.Errorf("Ask() = %d, %v", got, err)
			}
			cancel()
			all.Wait()
			close(hold)
		})
	})
}
