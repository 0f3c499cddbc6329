package link

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// watchSteps is the number of steps in which the watchdog waits.
const watchSteps = 20

// watchdog ends the client if the hub has not responded for too long, for any
// reason: this process may be stuck. Time during which the process did not run,
// as on a suspended machine, does not count.
func (c *Client) watchdog(ctx context.Context) error {
	if c.cfg.Watchdog < 0 {
		<-ctx.Done()
		return nil
	}
	step := c.cfg.Watchdog / watchSteps
	c.answered()
	for {
		before := c.cfg.Clock.Now()
		if lifecycle.Sleep(ctx, c.cfg.Clock, step) != nil {
			return nil
		}
		now := c.cfg.Clock.Now()
		if now.Sub(before) > 3*step {
			c.answered() // the next steps report it
		}
		c.mu.Lock()
		silent, problem := now.Sub(c.trip), c.state.Problem
		c.mu.Unlock()
		if silent >= c.cfg.Watchdog {
			err := fault.Wrap(fault.Offline, problem, "the hub has not replied for %s, so the agent exits to be restarted; workloads are not affected", silent.Round(time.Second))
			c.cfg.Log.ErrorContext(ctx, "watchdog", logkey.Error, err)
			return err
		}
	}
}

// answered records a round trip.
func (c *Client) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trip = c.cfg.Clock.Now()
}

// refused records a round trip if an error is the hub's own response: a refused
// agent is not stuck.
func (c *Client) refused(err error) {
	switch fault.KindOf(err) {
	case fault.Denied, fault.Unknown, fault.Conflict, fault.Exceeded, fault.Invalid:
		c.answered()
	case fault.Internal, fault.Missing, fault.Offline:
	}
}

// Supports reports whether the hub of the open session named a feature in Hello.
func (c *Client) Supports(feature string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return false
	}
	for _, f := range c.live.hello.GetFeatures() {
		if f == feature {
			return true
		}
	}
	return false
}
