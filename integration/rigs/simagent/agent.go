package simagent

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/agent/link"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// version is what simulated agents say they are.
const version = "v0.1.0"

// Settings are what a benchmark may change of an agent before it is started.
type Settings struct {
	Epoch      string                      // of its reports
	Through    string                      // where to dial instead of the hub; empty: the hub
	Heartbeats uint32                      // seconds between heartbeats; 0: what the hub says
	Greeting   func(*linkv1.HelloResponse) // called with each answer to Hello; nil: nothing
	Reports    link.Reports                // what to report; nil: what the agent has applied
}

// An Agent has the agent's own link code and, instead of a cluster, memory: it
// stores the chain and the leaves of its log, checks both, and reports that
// everything is applied at once.
type Agent struct {
	Name string
	Settings

	fleet   *Fleet
	local   net.Addr      // each enrols from an address of its own
	ready   chan struct{} // capacity 1: there is a report to send
	session session
	traffic traffic

	mu       sync.Mutex // guards what follows
	identity *link.Identity
	client   *link.Client
	conn     net.Conn
	wrong    error // the hub sent what does not follow
	desired  desired
	outbox   outbox
}

// A session is how far an agent is with the hub.
type session struct {
	opened    atomic.Int64 // sessions, ever
	connected atomic.Bool
	confirmed atomic.Uint64 // seq of the newest barrier that was answered in this session
	at        atomic.Int64  // when that was
}

// A traffic counts what went between an agent and the hub.
type traffic struct {
	dials    atomic.Int64 // connections tried, ever
	in, sent atomic.Int64 // bytes on the wire, TLS included
}

func newAgent(f *Fleet, n int) *Agent {
	a := &Agent{
		Name: fmt.Sprintf("sim-%05d", n), Settings: Settings{Epoch: fmt.Sprintf("epoch-%05d", n)}, fleet: f,
		local: &net.TCPAddr{IP: net.IPv4(127, 1, byte(n/200), byte(n%200+1))}, ready: make(chan struct{}, 1),
		outbox: newOutbox(),
	}
	a.desired.init()
	return a
}

// Load and Save are the Vault.
func (a *Agent) Load(context.Context) (link.Identity, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.identity == nil {
		return link.Identity{}, fault.New(fault.Missing, "nothing was saved")
	}
	return *a.identity, nil
}

func (a *Agent) Save(_ context.Context, id link.Identity) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identity = &id
	return nil
}

// Facts are those of a small cluster.
func (a *Agent) Facts(context.Context) (link.Facts, error) {
	return link.Facts{Fingerprint: "uid-of-" + a.Name, KubeVersion: "v1.35.4", APIVersions: a.fleet.apis, Readyz: "ok"}, nil
}

// dial counts bytes, and remembers the connection so that it can be cut.
func (a *Agent) dial(ctx context.Context, network, address string) (net.Conn, error) {
	a.traffic.dials.Add(1)
	if a.Through != "" {
		address = a.Through
	}
	c, err := (&net.Dialer{LocalAddr: a.local}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.conn = c
	a.mu.Unlock()
	return &countedConn{Conn: c, traffic: &a.traffic}, nil
}

type countedConn struct {
	net.Conn
	traffic *traffic
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.in.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n))
	return n, err
}

// Cut ends the connection as a failing network does.
func (a *Agent) Cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
		_ = t.Close()
	}
}

func (a *Agent) enrol(ctx context.Context, token string) error {
	_, err := link.Enroll(ctx, token, link.EnrolConfig{Vault: a, Cluster: a, Log: a.fleet.log, Dial: a.dial, Version: version})
	return err
}

// run keeps the agent attached until ctx ends.
func (a *Agent) run(ctx context.Context) error {
	var reports link.Reports = a
	if a.Reports != nil {
		reports = a.Reports
	}
	c, err := link.New(link.Config{
		Vault: a, Cluster: a, Desired: a, Reports: reports, Sessions: a, Load: func() link.Load { return link.Load{Leader: true} },
		Epoch: a.Epoch, Instance: "state-of-" + a.Name, Log: a.fleet.log, Version: version, Dial: a.dial, Watchdog: -1,
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.client = c
	a.mu.Unlock()
	return c.Run(ctx)
}

// Opened, Revoked and Closed are the Sessions.
func (a *Agent) Opened(_ context.Context, h *linkv1.HelloResponse) error {
	if a.Heartbeats > 0 {
		h.HeartbeatSeconds = a.Heartbeats
	}
	if a.Greeting != nil {
		a.Greeting(h)
	}
	a.session.confirmed.Store(0)
	a.session.opened.Add(1)
	a.session.connected.Store(true)
	return nil
}

func (a *Agent) Revoked([]*linkv1.Revoked) {}

func (a *Agent) Closed(error) {
	a.session.connected.Store(false)
	a.session.confirmed.Store(0)
}

// Client is the agent's end of the link; nil before the agent is started.
func (a *Agent) Client() *link.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client
}

// Attached reports whether the log was followed to its end in this session.
func (a *Agent) Attached() bool { return a.session.at.Load() > 0 && a.same() }

// ConfirmedAt is when the agent was last asked for its root hash.
func (a *Agent) ConfirmedAt() time.Time { return time.Unix(0, a.session.at.Load()) }

// Sessions is how many sessions the agent has had.
func (a *Agent) Sessions() int64 { return a.session.opened.Load() }

// Dials is how many connections the agent has tried.
func (a *Agent) Dials() int64 { return a.traffic.dials.Load() }

// Traffic is how many bytes the agent received and sent, TLS included.
func (a *Agent) Traffic() (in, out int64) { return a.traffic.in.Load(), a.traffic.sent.Load() }

func (a *Agent) same() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.confirmed()
}

// confirmed reports whether the hub knows in this session that the agent holds
// all of its log; a.mu is held.
func (a *Agent) confirmed() bool {
	return a.session.connected.Load() && a.session.confirmed.Load() == a.desired.cursor.GetSeq()
}

// Settled reports whether nothing waits to be sent or stored.
func (a *Agent) Settled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session.confirmed.Load() > 0 && a.confirmed() && a.outbox.acked == a.outbox.made && len(a.desired.missing()) == 0
}

// Err is the first thing that the hub sent and should not have.
func (a *Agent) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wrong
}
