package lifecycle

import (
	"context"
	"sync"
)

// A Group runs functions concurrently. The first that returns, with or without
// an error, ends the context of the others.
type Group struct {
	parent context.Context //nolint:containedctx // the group owns a context below this one
	ctx    context.Context //nolint:containedctx // the same
	cancel context.CancelFunc
	wait   sync.WaitGroup
	once   sync.Once
	err    error // of the function that returned first
}

// NewGroup makes a group whose functions get a context below ctx.
func NewGroup(ctx context.Context) *Group {
	own, cancel := context.WithCancel(ctx)
	return &Group{parent: ctx, ctx: own, cancel: cancel}
}

// Go starts fn. A function of the group may call it too. A defect in fn ends
// the group with an error, if a Monitor is there to count it.
func (g *Group) Go(fn func(ctx context.Context) error) {
	g.wait.Go(func() {
		err := Safely(g.ctx, "a group", fn)
		g.once.Do(func() {
			if g.parent.Err() == nil { // otherwise it was asked to stop
				g.err = err
			}
		})
		g.cancel()
	})
}

// Wait waits for all functions and returns the error of the one that returned
// first; nil if it had none, or if the parent context ended before it.
func (g *Group) Wait() error {
	g.wait.Wait()
	g.cancel()
	return g.err
}
