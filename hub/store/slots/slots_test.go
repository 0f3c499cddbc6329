package slots

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// queue starts callers in order and notes the order in which they are served.
type queue struct {
	*Slots
	mu     sync.Mutex
	served []string
	frees  map[string]func()
}

func (q *queue) ask(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		go func() {
			release, err := q.Acquire(t.Context(), hub.TenantID(name[:1]))
			if err != nil {
				return
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			q.served = append(q.served, name)
			q.frees[name] = release
		}()
		synctest.Wait()
	}
}

func (q *queue) free(names ...string) {
	for _, name := range names {
		q.mu.Lock()
		release := q.frees[name]
		delete(q.frees, name)
		q.mu.Unlock()
		release()
		synctest.Wait()
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size int
		do   func(t *testing.T, q *queue)
		want []string
	}{
		"B25 the last free slot is left to tenants that have none": {4, func(t *testing.T, q *queue) {
			q.ask(t, "b0")
			q.free("b0")
			q.ask(t, "a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1")
		}, []string{"b0", "a1", "a2", "a3", "b1"}},
		"B25 whoever has fewest is next": {4, func(t *testing.T, q *queue) {
			q.ask(t, "a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2", "b3", "c1")
			q.free("a1", "a2", "a3")
		}, []string{"a1", "a2", "a3", "a4", "b1", "c1"}},
		"of equals, whoever came or was served longest ago is next": {1, func(t *testing.T, q *queue) {
			q.ask(t, "a1", "a2", "a3", "b1", "b2", "c1")
			q.free("a1", "a2", "b1", "c1", "a3")
		}, []string{"a1", "a2", "b1", "c1", "a3", "b2"}},
		"a tenant alone has all": {4, func(t *testing.T, q *queue) {
			q.ask(t, "a1", "a2", "a3", "a4", "a5")
			q.free("a3")
		}, []string{"a1", "a2", "a3", "a4", "a5"}},
		"of three slots none is reserved": {3, func(t *testing.T, q *queue) {
			q.ask(t, "b0")
			q.free("b0")
			q.ask(t, "a1", "a2", "a3", "a4")
		}, []string{"b0", "a1", "a2", "a3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := &queue{Slots: New(c.size), frees: map[string]func(){}}
				c.do(t, q)
				if !slices.Equal(q.served, c.want) {
					t.Errorf("served are %v, want %v", q.served, c.want)
				}
			})
		})
	}
}

func TestOneWaitsForOneOfOthers(t *testing.T) {
	t.Parallel()
	t.Run("B25 INV-7 behind a thousand transactions of one tenant, each of another one is the next", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			const size, quiet = 4, 50
			s := New(size)
			if release, err := s.Acquire(t.Context(), "quiet"); err != nil {
				t.Fatal(err)
			} else {
				release()
			}
			ctx, stop := context.WithCancel(t.Context())
			var loud sync.WaitGroup
			for range 1000 {
				loud.Go(func() {
					for ctx.Err() == nil {
						release, err := s.Acquire(ctx, "loud")
						if err != nil {
							return
						}
						time.Sleep(time.Second)
						release()
					}
				})
			}
			synctest.Wait()
			began := time.Now()
			for range quiet {
				release, err := s.Acquire(t.Context(), "quiet")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
				release()
			}
			if took := time.Since(began); took != quiet*time.Millisecond {
				t.Errorf("%d transactions of the quiet tenant took %s of the test's clock", quiet, took)
			}
			stop()
			loud.Wait()
		})
	})
}

func TestCallersThatGiveUp(t *testing.T) {
	t.Parallel()
	s := New(2)
	first, err := s.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Acquire(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Acquire(ctx, "c"); err == nil {
		t.Error("a caller that has ended gets a slot")
	}
	first()
	second()
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(50))*time.Microsecond)
				if release, err := s.Acquire(ctx, hub.TenantID(fmt.Sprint(r.IntN(5)))); err == nil {
					release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if s.used != 0 || len(s.tenants) != 0 {
		t.Errorf("%d slots of %d tenants are in use by nobody", s.used, len(s.tenants))
	}
}
