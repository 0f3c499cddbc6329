package pacing

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a writes
		is := func(why string, want ...hub.TenantID) {
			t.Helper()
			got := a.arriving()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", why, got, want)
			}
		}
		is("nobody applies anything")
		first := a.begin("acme")
		second := a.begin("acme")
		globex := a.begin("globex")
		first()
		is("of two requests of a tenant one is left", "acme", "globex")
		globex()
		is("a request that ended holds nothing up", "acme")
		time.Sleep(arriveFor)
		is("a request that lasts holds nothing up any more")
		second()
		is("its end is no mistake then")
	})
}

func TestSeries(t *testing.T) {
	// A test asks for what a bubble of virtual time makes of requests that come
	// at moments, each with the number of what follows from it.
	type hold struct {
		a     writes
		began time.Time
		done  []time.Duration // when what followed was begun
		let   int
	}
	start := func() *hold {
		h := &hold{began: time.Now()}
		h.a.released = func() { h.let++ }
		return h
	}
	lasting := func(h *hold, tenant hub.TenantID, d time.Duration) {
		through := h.a.alone(tenant)
		time.Sleep(d)
		through(func() { h.done = append(h.done, time.Since(h.began)) })
	}
	ask := func(h *hold, tenant hub.TenantID) { lasting(h, tenant, 0) }
	t.Run("a request that comes alone is followed at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := start()
			for range 3 {
				ask(h, "acme")
				time.Sleep(seriesApart + time.Millisecond)
			}
			if len(h.done) != 3 || h.done[1] != seriesApart+time.Millisecond || h.let != 0 || len(h.a.following()) != 0 {
				t.Errorf("begun at %v, let go %d times, held %v", h.done, h.let, h.a.following())
			}
		})
	})
	t.Run("work of successive requests begins after the last one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := start()
			for range 10 {
				ask(h, "acme")
				time.Sleep(10 * time.Millisecond)
			}
			ask(h, "globex")
			if len(h.done) != 2 || !slices.Equal(h.a.following(), []hub.TenantID{"acme"}) {
				t.Fatalf("begun at %v, held %v: the first of each tenant is to be begun and no other", h.done, h.a.following())
			}
			waited := time.Now()
			await(t.Context(), h.a.done("globex"))
			if d := time.Since(waited); d != 0 {
				t.Errorf("another tenant waits %s", d)
			}
			await(t.Context(), h.a.done("acme"))
			synctest.Wait()
			if at := time.Since(h.began); at != 90*time.Millisecond+seriesApart || len(h.done) != 11 || h.let != 1 || len(h.a.following()) != 0 {
				t.Errorf("let go after %s, %d times; begun: %d; held %v", at, h.let, len(h.done), h.a.following())
			}
		})
	})
	t.Run("a slow request belongs to its series, and a refused one too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := start()
			ask(h, "acme")
			for range 3 {
				lasting(h, "acme", 3*seriesApart)
			}
			h.a.alone("acme")(nil)
			if len(h.done) != 1 || len(h.a.following()) != 1 {
				t.Errorf("begun at %v, held %v", h.done, h.a.following())
			}
			time.Sleep(seriesApart)
			synctest.Wait()
			if len(h.done) != 4 || h.let != 1 || len(h.a.following()) != 0 || len(h.a.series) != 0 {
				t.Errorf("begun at %v, let go %d times, held %v", h.done, h.let, h.a.following())
			}
		})
	})
	t.Run("a single refused request delays nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := start()
			h.a.alone("acme")(nil)
			ask(h, "globex")
			time.Sleep(2 * seriesApart)
			ask(h, "acme")
			if len(h.done) != 2 || len(h.a.following()) != 0 {
				t.Errorf("begun at %v, held %v", h.done, h.a.following())
			}
		})
	})
	t.Run("requests that do not end delay nothing for longer than two seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := start()
			open := 0
			for range 650 {
				ask(h, "acme")
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				if len(h.a.following()) == 0 {
					open++
				}
			}
			if h.let != 3 || open < 3*9 || open > 3*11+1 {
				t.Errorf("let go %d times, open at %d of 650 moments", h.let, open)
			}
			time.Sleep(seriesApart)
			synctest.Wait()
			if len(h.done) != 650 || len(h.a.series) != 0 {
				t.Errorf("%d of 650 were followed; %d series left", len(h.done), len(h.a.series))
			}
		})
	})
}
