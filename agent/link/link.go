// Package link is the agent's end of the link. It dials the hub, authenticates,
// maintains one session as long as the process runs, and transfers desired
// state in and reports out. It does not interpret what it transfers and sends
// nothing to the cluster. agent/daemon runs one Client. A report is stored
// until the hub has acknowledged it. A batch is acknowledged only after it was
// stored.
package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// Config is what a Client needs. Fields without a default are required.
type Config struct {
	Vault    Vault
	Cluster  Cluster
	Desired  Desired
	Reports  Reports
	Sessions Sessions
	// Load is read before each heartbeat.
	Load func() Load
	// Epoch is random and created at each start of the process; reports contain
	// it, too.
	Epoch string
	Log   *slog.Logger

	// Instance names the agent's state directory; empty: not known.
	Instance string
	// Revoked returns the revocations that the hub has sent, for a restored
	// hub; nil: none are known.
	Revoked func() []*linkv1.Revoked

	// Serve adds the services that the hub may call.
	Serve func(grpc.ServiceRegistrar)
	// Unary runs around every call of the hub.
	Unary []grpc.UnaryServerInterceptor
	// Caught converts a panic in the handler of a stream to an error; nil: the
	// panic continues.
	Caught func(ctx context.Context, method string, value any) error
	// Version is the agent's.
	Version string
	// Upgrades says that the hub may upgrade the agent.
	Upgrades bool
	// Features are the names of optional features that this agent supports.
	Features []string
	// Proxy describes the proxies between the agent and the hub.
	Proxy tunnel.ProxyConfig
	// Dial opens connections; nil: TCP.
	Dial tunnel.Dialer
	// Clock is time; nil: the real one.
	Clock lifecycle.Clock
	// Watchdog ends Run after this time without a round trip: a new process may
	// succeed. Zero: 10 min; negative: never.
	Watchdog time.Duration
	// Silence is how long the hub may send nothing; zero: 30 s.
	Silence time.Duration
	// Random spreads waits, in [0, 1); nil: random numbers.
	Random func() float64
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Vault": c.Vault == nil, "Cluster": c.Cluster == nil, "Desired": c.Desired == nil, "Reports": c.Reports == nil,
		"Sessions": c.Sessions == nil, "Load": c.Load == nil, "Epoch": c.Epoch == "", "Log": c.Log == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("link: %s is not set", name))
		}
	}
	if c.Silence < 0 {
		errs = append(errs, errors.New("link: silence is negative"))
	}
	return errors.Join(errs...)
}

const (
	firstWait   = 250 * time.Millisecond // short, because a restarted hub is back soon
	mostWait    = time.Minute
	refusedWait = 30 * time.Second // ± half; for an agent that the hub has refused
	healthy     = time.Minute      // a session of this length resets the back-off
)

// A Client maintains the agent's session with its hub.
type Client struct {
	cfg         Config
	ops         *tunnel.Server
	outbox      *outbox
	bulk        *bulk
	proxyMemory tunnel.ProxyMemory // about the networks on the way to the hub

	lingering sync.WaitGroup // sessions that were replaced by a newer one

	mu     sync.Mutex
	id     Identity
	next   int // index of the address to dial
	live   *attachment
	opened chan struct{} // closed when live is set; replaced when it is cleared
	state  State
	offset time.Duration // the hub's time minus ours
	trip   time.Time     // when the hub last answered anything
}

// State is how the link stands.
type State struct {
	Connected bool
	Since     time.Time     // of this state
	Address   string        // of the hub, while connected
	Carrier   string        // of the session, while connected: tunnel.CarrierTLS or tunnel.CarrierWebSocket
	RoundTrip time.Duration // of the newest heartbeat
	Problem   error         // why there is no session; nil while there is
}

// New makes a client for an agent that is enrolled.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = lifecycle.System{}
	}
	if cfg.Silence == 0 {
		cfg.Silence = 30 * time.Second
	}
	if cfg.Watchdog == 0 {
		cfg.Watchdog = 10 * time.Minute
	}
	c := &Client{cfg: cfg, outbox: newOutbox(), opened: make(chan struct{})}
	c.bulk = newBulk(c)
	c.state = State{Since: cfg.Clock.Now(), Problem: fault.New(fault.Offline, "the agent has not connected yet")}
	c.ops = tunnel.NewServer(tunnel.ServerConfig{Lane: tunnel.Control(), Unary: cfg.Unary, Caught: cfg.Caught, Log: cfg.Log})
	if cfg.Serve != nil {
		cfg.Serve(c.ops)
	}
	return c, nil
}

// Run stays attached until ctx ends, then returns nil. It returns earlier only
// if there is no identity to attach with, or if the watchdog ends it.
func (c *Client) Run(ctx context.Context) error {
	id, err := c.cfg.Vault.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the agent's identity: %w", err)
	}
	if _, err := id.Certificate(); err != nil {
		return err
	}
	c.setIdentity(id)
	g := lifecycle.NewGroup(ctx)
	g.Go(c.ops.Serve)
	g.Go(c.bulk.run)
	g.Go(c.stay)
	g.Go(c.watchdog)
	return g.Wait()
}

// stay attaches again after each session.
func (c *Client) stay(ctx context.Context) error {
	defer c.lingering.Wait()
	wait := lifecycle.Backoff{First: firstWait, Max: mostWait, Rand: c.cfg.Random}
	for ctx.Err() == nil {
		began := c.cfg.Clock.Now()
		opened, err := c.attach(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if opened && c.cfg.Clock.Now().Sub(began) >= healthy {
			wait.Reset()
		}
		if errors.Is(err, errRenewed) {
			continue
		}
		d := c.pause(&wait, err)
		c.cfg.Log.WarnContext(ctx, "not connected to the hub", logkey.Error, err, logkey.Wait, d)
		if lifecycle.Sleep(ctx, c.cfg.Clock, d) != nil {
			return nil
		}
	}
	return nil
}

// pause is how long to wait after an attempt or a session ended with err. A
// refused agent waits longer: a person has to act, or another process has to
// end.
func (c *Client) pause(wait *lifecycle.Backoff, err error) time.Duration {
	d := wait.Next()
	if f, ok := fault.As(err); ok && f.RetryAfter > 0 {
		// The hub assigns each agent another time; a margin keeps agents from
		// arriving before it.
		return lifecycle.Spread(f.RetryAfter+f.RetryAfter/8, 1.0/9, c.random())
	}
	switch fault.KindOf(err) {
	case fault.Conflict, fault.Denied, fault.Unknown:
		return lifecycle.Spread(refusedWait, 0.5, c.random())
	case fault.Internal, fault.Invalid, fault.Missing, fault.Exceeded, fault.Offline:
	}
	return d
}

// Control returns a connection to the hub on the control lane, which is good
// until the session ends. It waits for a session.
func (c *Client) Control(ctx context.Context) (grpc.ClientConnInterface, error) {
	a, err := c.wait(ctx)
	if err != nil {
		return nil, err
	}
	return a.conn, nil
}

// State returns how the link stands.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// HubNow is the agent's estimate of the hub's time, for leases and expiry.
func (c *Client) HubNow() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.Clock.Now().Add(c.offset)
}

// Identity is who the agent is, with the newest certificate.
func (c *Client) Identity() Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

func (c *Client) setIdentity(id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
}

// leaf is the current certificate.
func (c *Client) leaf() (*x509.Certificate, error) {
	cert, err := c.Identity().Certificate()
	if err != nil {
		return nil, err
	}
	return cert.Leaf, nil
}

func (c *Client) random() float64 {
	if c.cfg.Random != nil {
		return c.cfg.Random()
	}
	return randomFloat()
}
