// Package lifecycle runs the long-lived parts of a process: it starts them in
// order, stops them in reverse, waits for every goroutine that it started, and
// provides the clock and the back-off of loops. It does not know what the parts
// do. The daemons and every loop of a stage call it. When a function of this
// package returns, nothing that it started runs any more, except parts named in
// its error.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Part is one long-lived piece of a process.
type Part struct {
	// Name appears in errors.
	Name string
	// Run works until its context ends, then returns nil. An earlier return,
	// even without an error, stops all parts, unless Once is set.
	Run func(ctx context.Context) error
	// Ready, if set, is closed by the part once later parts may start.
	Ready <-chan struct{}
	// Once means that a return without an error does not stop the others.
	Once bool
	// Grace is how long the part may take to stop; zero means 30 s.
	Grace time.Duration
}

// ErrStopped is the cause when a part ended without being asked to.
var ErrStopped = errors.New("stopped by itself")

// Run starts the parts in order, each after the previous one is ready. It
// returns when ctx ends, a part fails or all have ended, after all parts have
// stopped, last one first. It returns nil for an orderly stop. A part that does
// not stop within its grace period is named in the error and abandoned.
func Run(ctx context.Context, parts ...Part) error {
	ended := make(chan struct{}, len(parts)) // one token for each part: sends never block
	var started []*running
	var first error
	for _, p := range parts {
		r := start(ctx, p, ended)
		started = append(started, r)
		if first = r.ready(ctx, ended, started); first != nil || ctx.Err() != nil {
			break
		}
	}
	for first == nil && ctx.Err() == nil && !over(started) {
		select {
		case <-ctx.Done():
		case <-ended:
			first = failure(started)
		}
	}
	return errors.Join(first, stop(started))
}

// running is a part that was started.
type running struct {
	Part
	cancel context.CancelFunc
	done   chan struct{} // closed when the part has returned
	err    error         // valid once done is closed
}

func start(ctx context.Context, p Part, ended chan<- struct{}) *running {
	// The part ends only by its own cancel, so that parts stop in reverse order
	// and not all at once.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{Part: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer cancel()
		r.err = p.safely(own)
		close(r.done)
		ended <- struct{}{}
	}()
	return r
}

// safely runs a part. After a panic it starts the part again with growing
// delays, so that a defect in one part does not end the process.
func (p Part) safely(ctx context.Context) error {
	back := Backoff{}
	for {
		err := Safely(ctx, p.Name, p.Run)
		var defect *PanicError
		if !errors.As(err, &defect) || ctx.Err() != nil {
			return err
		}
		if Sleep(ctx, System{}, max(back.Next(), firstRestart)) != nil {
			return nil
		}
	}
}

// firstRestart is the shortest wait before a part runs again after a panic.
const firstRestart = 100 * time.Millisecond

// ready waits until the next part may start.
func (r *running) ready(ctx context.Context, ended <-chan struct{}, started []*running) error {
	if r.Ready == nil {
		return nil
	}
	for {
		select {
		case <-r.Ready:
			return nil
		case <-ctx.Done():
			return nil
		case <-ended:
			if err := failure(started); err != nil {
				return err
			}
		}
	}
}

// failure returns the error of the first part that ended unexpectedly.
func failure(parts []*running) error {
	for _, r := range parts {
		select {
		case <-r.done:
		default:
			continue
		}
		if r.err != nil {
			return fmt.Errorf("%s: %w", r.Name, r.err)
		}
		if !r.Once {
			return fmt.Errorf("%s: %w", r.Name, ErrStopped)
		}
	}
	return nil
}

// over reports whether every part has returned.
func over(parts []*running) bool {
	for _, r := range parts {
		select {
		case <-r.done:
		default:
			return false
		}
	}
	return true
}

// stop ends the parts, last one first, and waits for each.
func stop(parts []*running) error {
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		r := parts[i]
		var ended bool
		select {
		case <-r.done:
			ended = true // its error, if any, was the reason to stop
		default:
		}
		r.cancel()
		if ended {
			continue
		}
		if err := r.wait(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *running) wait() error {
	grace := r.Grace
	if grace == 0 {
		grace = 30 * time.Second
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-r.done:
	case <-t.C:
		return fmt.Errorf("%s: did not stop within %s", r.Name, grace)
	}
	if r.err != nil && !errors.Is(r.err, context.Canceled) {
		return fmt.Errorf("stop %s: %w", r.Name, r.err)
	}
	return nil
}
