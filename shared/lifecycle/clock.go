package lifecycle

import (
	"context"
	"time"
)

// A Clock tells a part the time. The daemons use System; tests use one that
// they advance.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives once d has passed, and a function
	// that releases it early. The channel may be left unread.
	After(d time.Duration) (<-chan time.Time, func())
}

// System is the real clock.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// After waits in real time.
func (System) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Sleep waits for d or for the end of ctx, whose error it then returns. It
// counts as progress of a monitored loop.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	Expect(ctx, d)
	ch, stop := c.After(d)
	defer stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ch:
		Beat(ctx)
		return nil
	}
}
