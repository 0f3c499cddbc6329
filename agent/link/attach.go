package link

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const watch = time.Second // interval between checks of a session

// An attachment is one session after Hello.
type attachment struct {
	session *tunnel.Session
	conn    grpc.ClientConnInterface
	hello   *linkv1.HelloResponse
	address string

	drain  chan time.Duration // capacity 1: the hub asks to attach again within that time
	moving atomic.Bool        // that is just being done
}

// attach maintains one session from dialling to its end, and reports whether it
// completed Hello.
func (c *Client) attach(ctx context.Context) (opened bool, err error) {
	a, err := c.open(ctx)
	if err != nil {
		c.closed(err)
		return false, err
	}
	for next := a; next != nil; {
		a = next
		next, err = c.reside(ctx, a)
	}
	if err == nil {
		err = fault.New(fault.Offline, "the session ended")
	}
	a.session.Close(err)
	c.closed(err)
	c.cfg.Sessions.Closed(err)
	return true, err
}

// open dials and sends Hello.
func (c *Client) open(ctx context.Context) (*attachment, error) {
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	session, err := c.dial(ctx, address, tunnel.Control())
	if err != nil {
		c.tryNext()
		return nil, err
	}
	a, err := c.greet(ctx, session, address)
	if err != nil {
		session.Close(err)
		c.tryNext()
		return nil, err
	}
	return a, nil
}

func (c *Client) greet(ctx context.Context, session *tunnel.Session, address string) (*attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	facts, err := c.cfg.Cluster.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's facts: %w", err)
	}
	conn, err := session.Conn()
	if err != nil {
		return nil, err
	}
	served := fitting(facts.APIVersions)
	if n := len(facts.APIVersions) - len(served); n > 0 {
		c.cfg.Log.WarnContext(ctx, "the cluster serves more kinds than a hub stores; to charts the others appear as not served", logkey.LeftOut, n)
	}
	sent := c.cfg.Clock.Now()
	var revoked []*linkv1.Revoked
	if c.cfg.Revoked != nil {
		revoked = c.cfg.Revoked()
	}
	hello, err := linkv1.NewSessionClient(conn).Hello(ctx, &linkv1.HelloRequest{
		Instance: c.cfg.Instance, Leader: c.cfg.Load().Leader, Revoked: revoked,
		AgentVersion: c.cfg.Version, AgentId: c.Identity().AgentID, Epoch: c.cfg.Epoch, Features: c.cfg.Features,
		Fingerprint: facts.Fingerprint, KubeVersion: facts.KubeVersion, ApiVersions: served, Readyz: facts.Readyz,
		Cursor: c.cfg.Desired.Cursor(), SentUnixNano: sent.UnixNano(), Upgrades: c.cfg.Upgrades,
	})
	if err != nil {
		c.refused(err)
		return nil, fault.With(err, "hub at "+address, "")
	}
	c.heard(sent, hello.GetNowUnixNano())
	if err := c.cfg.Sessions.Opened(ctx, hello); err != nil {
		return nil, fmt.Errorf("open the session: %w", err)
	}
	return &attachment{session: session, conn: conn, hello: hello, address: address, drain: make(chan time.Duration, 1)}, nil
}

// serve runs all parts of a session, until one of them ends. served ends when
// the hub can make no more calls.
func (c *Client) serve(ctx context.Context, a *attachment, served <-chan error) error {
	c.attached(ctx, a)
	g := lifecycle.NewGroup(ctx)
	g.Go(func(ctx context.Context) error { return c.watch(ctx, a) })
	g.Go(func(ctx context.Context) error {
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	g.Go(func(ctx context.Context) error { return c.heartbeat(ctx, a) })
	g.Go(func(ctx context.Context) error { return c.follow(ctx, a) })
	g.Go(func(ctx context.Context) error { return c.report(ctx, a) })
	g.Go(func(ctx context.Context) error { return c.renew(ctx, a) })
	return g.Wait()
}

// watch ends a session that is dead or silent. Any received byte counts as
// alive.
func (c *Client) watch(ctx context.Context, a *attachment) error {
	silence := max(c.cfg.Silence, 3*interval(a.hello))
	for {
		tick, stop := c.cfg.Clock.After(watch)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-a.session.Done():
			stop()
			return ended(a.session.Err())
		case <-tick:
		}
		if quiet := c.cfg.Clock.Now().Sub(a.session.LastByte()); quiet > silence {
			return fault.New(fault.Offline, "nothing was received from the hub for %s", quiet.Round(time.Second))
		}
	}
}

// ended is the sentence about the end of a session.
func ended(why error) error {
	if _, ok := fault.As(why); ok {
		return why
	}
	return fault.Wrap(fault.Offline, why, "the connection to the hub ended")
}

func (c *Client) dial(ctx context.Context, address string, lane tunnel.Lane) (*tunnel.Session, error) {
	id := c.Identity()
	cert, err := id.Certificate()
	if err != nil {
		return nil, err
	}
	pins, err := id.PinnedKeys()
	if err != nil {
		return nil, err
	}
	return tunnel.Dial(ctx, address, tunnel.DialConfig{
		Lane: lane, Pins: pins, Certificate: cert, Proxy: c.cfg.Proxy, Memory: &c.proxyMemory, Dial: c.cfg.Dial, Log: c.cfg.Log, Clock: c.cfg.Clock,
	})
}

// address is the one to dial now.
func (c *Client) address() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.id.Addresses) == 0 {
		return "", fault.With(fault.New(fault.Invalid, "it knows no address of its hub"), "agent", "enrol again with a new join token")
	}
	return c.id.Addresses[c.next%len(c.id.Addresses)], nil
}

// tryNext makes the next attempt go to the next address.
func (c *Client) tryNext() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
}

func (c *Client) attached(ctx context.Context, a *attachment) {
	c.mu.Lock()
	moved := c.live != nil
	c.live = a
	c.state = State{Connected: true, Since: c.cfg.Clock.Now(), Address: a.address, Carrier: a.session.Carrier(), RoundTrip: c.state.RoundTrip}
	if !moved {
		close(c.opened)
	}
	c.mu.Unlock()
	c.cfg.Log.InfoContext(ctx, "connected to the hub", logkey.Address, a.address, logkey.Carrier, a.session.Carrier(), logkey.Session, a.hello.GetSessionId(), logkey.Version, a.hello.GetHubVersion())
}

func (c *Client) closed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		c.live = nil
		c.opened = make(chan struct{})
	}
	since := c.cfg.Clock.Now()
	if !c.state.Connected {
		since = c.state.Since
	}
	c.state = State{Since: since, Problem: err, RoundTrip: c.state.RoundTrip}
}

// wait returns the attachment, once there is one.
func (c *Client) wait(ctx context.Context) (*attachment, error) {
	for {
		c.mu.Lock()
		a, opened := c.live, c.opened
		c.mu.Unlock()
		if a != nil {
			return a, nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// heard updates the hub's time and the round trip from a reply.
func (c *Client) heard(sent time.Time, hub int64) {
	now := c.cfg.Clock.Now()
	trip := now.Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.RoundTrip, c.trip = trip, now
	if hub != 0 {
		c.offset = time.Unix(0, hub).Add(trip / 2).Sub(now)
	}
}

// interval is the time between heartbeats that the hub requests, within limits;
// 10 s if it requests none.
func interval(hello *linkv1.HelloResponse) time.Duration {
	if hello.GetHeartbeatSeconds() == 0 {
		return 10 * time.Second
	}
	s := time.Duration(hello.GetHeartbeatSeconds()) * time.Second
	return min(max(s, time.Second), 5*time.Minute)
}

func randomFloat() float64 { return rand.Float64() }
