package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// heartbeats stores when the newest heartbeat was sent.
type heartbeats struct {
	mu     sync.Mutex
	number uint64
	sent   time.Time
}

func (b *heartbeats) next(now time.Time) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number++
	b.sent = now
	return b.number
}

// of returns when the beat of that number was sent, if it is the newest.
func (b *heartbeats) of(number uint64) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent, b.number == number
}

// heartbeat sends a beat at once and then at each interval ± 20 %. It ends
// with the reason when the hub ends the session.
func (c *Client) heartbeat(ctx context.Context, a *attachment) error {
	g := lifecycle.NewGroup(ctx)
	g.Go(func(ctx context.Context) error {
		stream, err := linkv1.NewSessionClient(a.conn).Heartbeat(ctx)
		if err != nil {
			return fmt.Errorf("start the heartbeat: %w", err)
		}
		var b heartbeats
		g.Go(func(ctx context.Context) error { return c.beat(ctx, a, &b, stream) })
		return c.listen(a, stream, &b)
	})
	return g.Wait()
}

// incompletePause is the time between heartbeats until the hub has complete
// data: its data counts as old until a heartbeat says so.
const incompletePause = time.Second

func (c *Client) beat(ctx context.Context, a *attachment, b *heartbeats, stream grpc.BidiStreamingClient[linkv1.Beat, linkv1.BeatReply]) error {
	for {
		load, now := c.cfg.Load(), c.cfg.Clock.Now()
		err := stream.Send(&linkv1.Beat{
			Number: b.next(now), SentUnixNano: now.UnixNano(),
			ReportBacklog: load.Backlog, AppliedSeq: load.Seq, Leader: load.Leader, LagMs: uint32(min(load.Lag.Milliseconds(), 1<<31)),
			Incomplete:    load.Incomplete,
			RoundTripNano: c.State().RoundTrip.Nanoseconds(),
		})
		if err != nil && !errors.Is(err, io.EOF) { // EOF: the receiver returns the cause
			return fmt.Errorf("send a heartbeat: %w", err)
		}
		pause := interval(a.hello)
		if load.Incomplete {
			pause = min(pause, incompletePause)
		}
		if err := lifecycle.Sleep(ctx, c.cfg.Clock, lifecycle.Spread(pause, 0.2, c.random())); err != nil {
			return err
		}
	}
}

// listen processes the hub's replies until the hub ends the session.
func (c *Client) listen(a *attachment, stream grpc.BidiStreamingClient[linkv1.Beat, linkv1.BeatReply], b *heartbeats) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fault.New(fault.Offline, "the hub ended the heartbeat")
		}
		if err != nil {
			return err
		}
		if err := c.reply(a, r, b); err != nil {
			return err
		}
	}
}

// reply processes one reply to a heartbeat. An error is the reason for which
// the hub ends the session.
func (c *Client) reply(a *attachment, r *linkv1.BeatReply, b *heartbeats) error {
	if sent, ok := b.of(r.GetNumber()); ok {
		c.heard(sent, r.GetNowUnixNano())
	}
	if revoked := r.GetRevoked(); len(revoked) > 0 {
		c.cfg.Sessions.Revoked(revoked)
	}
	if end := r.GetClosing(); end != nil {
		return &fault.Error{Kind: fault.Kind(end.GetKind()), Object: "hub", Cause: "it ended the session: " + end.GetCause(), Fix: end.GetFix()}
	}
	if r.GetDrain() {
		select {
		case a.drain <- time.Duration(r.GetDrainWithinMillis()) * time.Millisecond:
		default: // an earlier reply has started the drain
		}
	}
	return nil
}
