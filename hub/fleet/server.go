package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	sweep        = time.Second      // interval between checks of connections
	unprovenLife = 20 * time.Second // for a connection that has not said Hello
	bulkIdle     = 2 * time.Minute  // the agent closes it after one
	opsIdle      = 2 * time.Minute  // after which an idle client to an agent closes its stream
	bookkeeping  = 5 * time.Second  // for a write that outlives its connection
	leaving      = 10 * time.Second // for all such writes when the hub stops
	connection   = "agent connection"
)

// A Server has the connections of agents to this replica.
type Server struct {
	cfg     Config
	agents  *registry
	revoked *revoked
	bytes   byteCounters
	recheck chan struct{} // capacity 1
	session *session
	control *tunnel.Server
	bulk    *tunnel.Server

	draining  atomic.Bool
	admission *admission
	refusals  refusals
}

// New makes a server with the services of this package and those that the
// configuration adds.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, agents: newRegistry(), recheck: make(chan struct{}, 1), admission: newAdmission(cfg.Admit, cfg.AdmitBurst), revoked: newRevoked()}
	s.session = newSession(s)
	s.control, s.bulk = s.lane(tunnel.Control()), s.lane(tunnel.Bulk())
	linkv1.RegisterSessionServer(s.control, s.session)
	linkv1.RegisterIdentityServer(s.control, &identity{s: s, limit: newEnrolLimit()})
	if cfg.Control != nil {
		cfg.Control(s.control)
	}
	if cfg.Bulk != nil {
		cfg.Bulk(s.control)
		cfg.Bulk(s.bulk)
	}
	return s, nil
}

func (s *Server) lane(l tunnel.Lane) *tunnel.Server {
	return tunnel.NewServer(tunnel.ServerConfig{
		Lane: l, Log: s.cfg.Log,
		Unary:  append(slices.Clone(s.cfg.Unary), s.guardUnary),
		Stream: append(slices.Clone(s.cfg.Stream), s.guardStream),
		Caught: s.cfg.Caught,
	})
}

// Serve serves the agents of the listener, whose connections are *tls.Conn
// after the handshake, as tunnel.Splitter returns them. It runs until ctx ends,
// then ends all sessions and returns nil.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	g := lifecycle.NewGroup(ctx)
	g.Go(s.control.Serve)
	g.Go(s.bulk.Serve)
	g.Go(func(ctx context.Context) error { return s.accept(ctx, ln) })
	g.Go(s.revocations)
	g.Go(func(ctx context.Context) error {
		return lifecycle.Every(ctx, s.cfg.Clock, s.cfg.Batch, 0, s.warn(ctx, "presence was not written"), s.renewAttachments)
	})
	g.Go(func(ctx context.Context) error {
		return lifecycle.Every(ctx, s.cfg.Clock, sweep, 0, nil, s.sweep)
	})
	return g.Wait()
}

func (s *Server) warn(ctx context.Context, what string) func(error) {
	return func(err error) { s.cfg.Log.WarnContext(ctx, what, logkey.Error, err) } //nolint:sloglint // a constant of the caller
}

// Conn is a client to the services of a cluster's agent; false if the agent
// is not attached to this replica.
func (s *Server) Conn(cluster hub.ClusterID) (grpc.ClientConnInterface, bool) {
	c := s.agents.current(cluster)
	if c == nil || c.ending() != nil {
		return nil, false
	}
	cc, err := c.session.Conn()
	return cc, err == nil
}

// Attached reports whether a cluster's agent is attached to this replica.
func (s *Server) Attached(cluster hub.ClusterID) bool { return s.agents.current(cluster) != nil }

// Supports reports whether a cluster's agent, which is attached to this replica,
// said in Hello that it knows a feature.
func (s *Server) Supports(cluster hub.ClusterID, feature string) bool {
	c := s.agents.current(cluster)
	return c != nil && slices.Contains(c.features, feature)
}

// Len is the number of connections of this replica.
func (s *Server) Len() int { return len(s.agents.all()) }

// Cut ends a cluster's session at once. The agent may reconnect; only a
// revocation blocks it.
func (s *Server) Cut(cluster hub.ClusterID, reason error) {
	if c := s.agents.current(cluster); c != nil {
		c.part(reason)
	}
}

// Part ends the sessions of tenants. Their agents may reconnect; Hello decides.
func (s *Server) Part(of func(hub.TenantID) bool, reason error) {
	for _, c := range s.agents.all() {
		if _, proved := c.session.Peer(); proved && of(c.tenant()) {
			c.part(reason)
		}
	}
}

// accept accepts connections until ctx ends, and returns once all have ended.
func (s *Server) accept(ctx context.Context, ln net.Listener) error {
	var live sync.WaitGroup
	release := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer release()
	for {
		raw, err := ln.Accept()
		if err != nil {
			break
		}
		live.Go(func() { s.meet(ctx, raw, &live) })
	}
	_ = ln.Close()
	err := ctx.Err()
	if err == nil {
		err = errors.New("the link's listener was closed")
	}
	// Attach ends all sessions with ctx; without it they end here.
	for _, c := range s.agents.all() {
		c.session.Close(errStopping())
	}
	live.Wait()
	return err
}

// meet registers a connection and serves it.
func (s *Server) meet(ctx context.Context, raw net.Conn, live *sync.WaitGroup) {
	_ = lifecycle.Safely(ctx, connection, func(ctx context.Context) error {
		if c := s.welcome(ctx, raw); c != nil {
			live.Add(1)
			s.serve(ctx, c, live.Done)
		}
		return nil
	})
}

// welcome makes a connection of the registry; nil if it was refused.
func (s *Server) welcome(ctx context.Context, raw net.Conn) *conn {
	c, err := s.open(raw)
	if err != nil {
		s.cfg.Log.DebugContext(ctx, "connection refused", logkey.Address, raw.RemoteAddr().String(), logkey.Error, err)
		_ = raw.Close()
		return nil
	}
	if err := s.agents.add(c); err != nil {
		s.cfg.Log.WarnContext(ctx, "connection refused", logkey.Tenant, c.tenant(), logkey.Cluster, c.cluster(), logkey.Address, c.session.Address(), logkey.Error, err)
		c.session.Close(err)
		return nil
	}
	return c
}

// serve lets one connection be served, and calls done once it has ended.
func (s *Server) serve(ctx context.Context, c *conn, done func()) {
	server := s.control
	if c.session.Lane().Protocol == tunnel.BulkProtocol {
		server = s.bulk
	}
	server.Adopt(ctx, c.session, func(err error) {
		defer done()
		_ = lifecycle.Safely(ctx, connection, func(ctx context.Context) error {
			c.session.Close(err)
			s.onDisconnect(ctx, c, err)
			return nil
		})
	})
}

// open makes a session of a connection. One without a valid certificate is
// accepted as well: it may enrol, and gets the reason why it may nothing else.
func (s *Server) open(raw net.Conn) (*conn, error) {
	t, ok := raw.(*tls.Conn)
	if !ok {
		return nil, errors.New("the connection is not TLS")
	}
	state := t.ConnectionState()
	lane, ok := tunnel.LaneOf(state.NegotiatedProtocol)
	if !ok {
		return nil, fmt.Errorf("protocol %q is not the link's", state.NegotiatedProtocol)
	}
	peer, until, refusal := s.cfg.Authority.identify(state.PeerCertificates)
	if refusal != nil {
		peer = tunnel.Peer{}
	}
	session, err := tunnel.NewSession(raw, tunnel.SessionConfig{
		Lane: lane, Peer: peer, Refusal: refusal, Log: s.cfg.Log, Clock: s.cfg.Clock, Idle: opsIdle,
	})
	if err != nil {
		return nil, err
	}
	return &conn{session: session, peer: peer, until: until, opened: s.cfg.Clock.Now(), life: lifeOf()}, nil
}

// onDisconnect updates the registry and counters for an ended connection.
func (s *Server) onDisconnect(ctx context.Context, c *conn, why error) {
	s.bytes.add(c.session)
	wait := bookkeeping
	if ctx.Err() != nil {
		wait, why = leaving, errStopping()
	}
	for _, b := range s.agents.remove(c) {
		b.session.Close(fault.New(fault.Offline, "the agent's main connection ended"))
	}
	if !c.attached.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	defer s.session.lock(c.cluster())()
	if reason := c.ending(); reason != nil {
		why = reason
	}
	s.cfg.Log.InfoContext(ctx, "agent disconnected", logkey.Tenant, c.tenant(), logkey.Cluster, c.cluster(), logkey.Agent, c.peer.AgentID,
		logkey.Session, c.id, logkey.Reason, fmt.Sprint(why))
	s.forget(ctx, c)
}

// forget reports that an attachment has ended.
func (s *Server) forget(ctx context.Context, c *conn) {
	if err := s.cfg.Presence.Disconnected(ctx, c.tenant(), c.cluster(), c.id); err != nil {
		s.cfg.Log.WarnContext(ctx, "a disconnect was not recorded; it will show by its age", logkey.Cluster, c.cluster(), logkey.Error, err)
	}
}

func errStopping() error { return fault.New(fault.Offline, "the hub is stopping") }
