package link

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	bulkIdle       = time.Minute     // an unused bulk connection is closed after this
	bulkAvoid      = time.Minute     // after a failure, how long the control lane is used
	idleCheckEvery = 5 * time.Second // interval between checks for idleness
)

// bulk is the second connection of the agent. It is opened for large transfers
// and closed when idle. Without it everything works on the control lane, more
// slowly.
type bulk struct {
	c *Client

	mu      sync.Mutex
	session *tunnel.Session // nil: none is open
	of      *attachment     // that the session belongs to
	users   int
	used    time.Time // when the last user left
	avoid   time.Time // not before this
	stopped bool
}

func newBulk(c *Client) *bulk { return &bulk{c: c} }

// run closes the connection when it is idle, and at the end.
func (b *bulk) run(ctx context.Context) error {
	defer func() {
		b.mu.Lock()
		b.stopped = true
		b.mu.Unlock()
		b.drop(errors.New("the agent is stopping"))
	}()
	return lifecycle.Every(ctx, b.c.cfg.Clock, idleCheckEvery, 0, nil, func(context.Context) error {
		b.mu.Lock()
		idle := b.session != nil && b.users == 0 && b.c.cfg.Clock.Now().Sub(b.used) >= bulkIdle
		b.mu.Unlock()
		if idle {
			b.drop(errors.New("the bulk connection was idle"))
		}
		return nil
	})
}

// drop closes the connection, if there is one.
func (b *bulk) drop(why error) {
	b.mu.Lock()
	s := b.session
	b.session, b.of = nil, nil
	b.mu.Unlock()
	if s != nil {
		s.Close(why)
	}
}

// conn returns a client on the bulk connection of an attachment, which it opens
// if needed, and a function that ends the use with its outcome. It is false if
// the control lane has to be used.
func (b *bulk) conn(ctx context.Context, a *attachment) (grpc.ClientConnInterface, func(error), bool) {
	b.mu.Lock()
	defer b.mu.Unlock() // others wait for the goroutine that opens it
	if b.session != nil && (b.of != a || b.session.Err() != nil) {
		b.session.Close(errors.New("the bulk connection is out of date"))
		b.session = nil
	}
	if b.session == nil && !b.open(ctx, a) {
		return nil, nil, false
	}
	conn, err := b.session.Conn()
	if err != nil {
		return nil, nil, false
	}
	b.users++
	session := b.session
	return conn, func(err error) { b.done(session, a, err) }, true
}

// open dials, unless that failed a short time ago.
func (b *bulk) open(ctx context.Context, a *attachment) bool {
	now := b.c.cfg.Clock.Now()
	if b.stopped || now.Before(b.avoid) {
		return false
	}
	s, err := b.c.dial(ctx, a.address, tunnel.Bulk())
	if err != nil {
		b.avoid = now.Add(bulkAvoid)
		b.c.cfg.Log.WarnContext(ctx, "no bulk connection, the control lane is used", logkey.Error, err)
		return false
	}
	b.session, b.of, b.used = s, a, now
	return true
}

// done ends one use. A connection that failed is not used again, and not
// replaced at once if it failed alone.
func (b *bulk) done(s *tunnel.Session, of *attachment, err error) {
	b.mu.Lock()
	b.users--
	b.used = b.c.cfg.Clock.Now()
	broken := fault.KindOf(err) == fault.Offline && b.session == s
	if broken {
		b.session, b.of = nil, nil
		if of.session.Err() == nil {
			b.avoid = b.used.Add(bulkAvoid)
		}
	}
	b.mu.Unlock()
	if broken {
		s.Close(err)
	}
}
