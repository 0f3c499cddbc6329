package link

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	mostDrain  = 10 * time.Minute // limit for the time that a hub may request
	moveWait   = 5 * time.Second  // longest pause between two tries to attach elsewhere
	moveGreet  = 5 * time.Second  // for a Hello that is under way when the old session ends
	lingerTime = 10 * time.Second // for calls of the hub that run on the old session
)

// reside maintains an attachment until it ends, or until the hub asked to
// attach again and that succeeded: then it returns the new attachment. The old
// one ends after that, so the agent stays attached.
func (c *Client) reside(ctx context.Context, a *attachment) (*attachment, error) {
	staying, leave := context.WithCancel(ctx)
	defer leave()
	serving, stop := context.WithCancel(ctx)
	served, kept, moved := make(chan error, 1), make(chan error, 1), make(chan *attachment, 1)
	go func() { served <- ended(c.ops.Attach(serving, a.session)) }()
	go func() { kept <- c.serve(staying, a, served) }()
	moving, stay := context.WithCancel(ctx)
	defer stay()
	go func() { moved <- c.move(moving, a) }()

	var next *attachment
	var err error
	select {
	case next = <-moved:
		if next != nil {
			leave()
		}
		err = <-kept
	case err = <-kept:
		next = c.lastMove(a, moved, stay)
	}
	if next == nil {
		stop()
		return nil, err
	}
	c.cfg.Log.InfoContext(ctx, "attached again, as the hub asked", logkey.Session, next.hello.GetSessionId(), logkey.Replica, next.hello.GetReplicaId())
	c.lingering.Go(func() {
		_ = lifecycle.Sleep(serving, c.cfg.Clock, lingerTime)
		stop()
		a.session.Close(errMoved())
	})
	return next, nil
}

// lastMove returns the attachment that is being created when the old one ends:
// the hub may have ended the old one because of it.
func (c *Client) lastMove(a *attachment, moved <-chan *attachment, stay context.CancelFunc) *attachment {
	if !a.moving.Load() {
		stay()
		return <-moved
	}
	timer := time.AfterFunc(moveGreet, stay)
	defer timer.Stop()
	return <-moved
}

// move waits until the hub asks to attach again, then for a random delay, and
// attaches. It returns nil if ctx ends before.
func (c *Client) move(ctx context.Context, a *attachment) *attachment {
	var within time.Duration
	select {
	case within = <-a.drain:
	case <-ctx.Done():
		return nil
	}
	pause := time.Duration(float64(min(within, mostDrain)) * c.random())
	wait := lifecycle.Backoff{First: firstWait, Max: moveWait, Rand: c.cfg.Random}
	for lifecycle.Sleep(ctx, c.cfg.Clock, pause) == nil {
		a.moving.Store(true)
		next, err := c.open(ctx)
		if err == nil {
			return next
		}
		a.moving.Store(false)
		pause = max(wait.Next(), firstWait/5)
		c.cfg.Log.DebugContext(ctx, "not attached again yet", logkey.Error, err, logkey.Wait, pause)
	}
	return nil
}

func errMoved() error { return fault.New(fault.Offline, "the agent has attached again") }
