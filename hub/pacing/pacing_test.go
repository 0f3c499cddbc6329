package pacing

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

func TestWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do     func(p *Pacer)
		tenant hub.TenantID
		limit  time.Duration
		want   time.Duration
	}{
		"nothing is done":                       {func(*Pacer) {}, "acme", time.Minute, 0},
		"a change of many applications":         {func(p *Pacer) { p.Refreshing(burstSize) }, "acme", time.Minute, burstHolds},
		"a series of writes of the tenant":      {series2, "acme", time.Minute, seriesApart},
		"a series of writes of another tenant":  {series2, "globex", time.Minute, 0},
		"a series of writes, for all tenants":   {series2, "", time.Minute, 0},
		"both":                                  {func(p *Pacer) { series2(p); p.Refreshing(burstSize) }, "acme", time.Minute, burstHolds},
		"a caller that is told to end":          {func(p *Pacer) { p.Refreshing(burstSize) }, "acme", time.Millisecond, time.Millisecond},
		"a caller that has ended before":        {func(p *Pacer) { p.Refreshing(burstSize) }, "acme", 0, 0},
		"a change that all clusters have":       {func(p *Pacer) { p.Refreshing(burstSize); p.Sent(1); p.Refreshing(-burstSize); p.Sent(-1) }, "acme", time.Minute, burstTail},
		"a request with many applications does": {func(p *Pacer) { p.Arriving("acme") }, "acme", time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := New(nil)
				c.do(p)
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				began := time.Now()
				p.Wait(ctx, c.tenant)
				if got := time.Since(began); got != c.want {
					t.Errorf("waited %s, want %s", got, c.want)
				}
				time.Sleep(2 * burstHolds) // timers end with the bubble
			})
		})
	}
}

// series2 is two writes of one tenant, one after the other.
func series2(p *Pacer) {
	for range 2 {
		p.Alone("acme")(func() {})
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		released := 0
		p := New(func() { released++ })
		series2(p)
		end := p.Arriving("globex")
		p.Arriving("acme")()
		if got, want := p.Held(Feedback), []hub.TenantID{"acme"}; !slices.Equal(got, want) {
			t.Errorf("feedback of %v waits, want %v", got, want)
		}
		if got, want := p.Held(Refresh), []hub.TenantID{"acme", "globex"}; !slices.Equal(got, want) {
			t.Errorf("refreshes of %v wait, want %v", got, want)
		}
		end()
		time.Sleep(seriesApart)
		synctest.Wait()
		if got := p.Held(Refresh); len(got) != 0 || released != 1 {
			t.Errorf("refreshes of %v wait, released %d times", got, released)
		}
	})
}
