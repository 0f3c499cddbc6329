package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	replicaLife = 24 * time.Hour // of a replica's certificate, renewed at half
	// sessionLife is how long an agent stays on one connection, plus or minus a
	// third, so that agents are distributed over replicas again after one was
	// stopped.
	sessionLife  = 2 * time.Hour
	sessionShare = 0.3
	moveWithin   = time.Minute // for an agent that is asked to connect again
	// lingering is how long a session may stay open after its agent has
	// attached again: running calls complete on it.
	lingering = 15 * time.Second
)

// Replica returns a certificate for one process of the hub, by which others
// know it. Its key is made now and never leaves the memory. The function may
// be called at each handshake.
func (a *Authority) Replica(name *url.URL) (func() (*tls.Certificate, error), error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the replica's key: %w", err)
	}
	var mu sync.Mutex
	var held *tls.Certificate
	return func() (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if held != nil && a.clock.Now().Before(held.Leaf.NotAfter.Add(-replicaLife/2)) {
			return held, nil
		}
		c, err := a.replica(name, key)
		if err == nil {
			held = c
		}
		return c, err
	}, nil
}

func (a *Authority) replica(name *url.URL, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := a.clock.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Capstan hub replica"},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(replicaLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:                  []*url.URL{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, key.Public(), a.rootKey)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for a replica: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for a replica: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Holds is Conn with the agent's identity and the session by which it is
// attached.
func (s *Server) Holds(cluster hub.ClusterID) (conn grpc.ClientConnInterface, tenant hub.TenantID, session string, ok bool) {
	c := s.agents.current(cluster)
	if c == nil || c.ending() != nil {
		return nil, "", "", false
	}
	cc, err := c.session.Conn()
	return cc, c.tenant(), c.id, err == nil
}

// yield ends the session that a newer one of the same agent has replaced.
func (c *conn) yield(reason error) {
	if c.asked.Load() {
		time.AfterFunc(lingering, func() { c.part(reason) })
		return
	}
	c.part(reason)
}

// supersede ends sessions that another one has replaced at another replica: the
// agent's own next one, if it was asked to go there, or another process.
func (s *Server) supersede(ctx context.Context, of []*conn, lost []string) {
	if len(lost) > 0 {
		// A revoked agent, or one whose cluster was removed, was replaced too,
		// and receives that reason instead.
		if err := s.revoke(ctx); err != nil {
			s.cfg.Log.WarnContext(ctx, "revocations were not read", logkey.Error, err)
		}
	}
	for _, c := range of {
		switch {
		case !slices.Contains(lost, c.id), s.revoked.check(c.peer) != nil:
		case c.asked.Load():
			c.yield(errSecondConnection())
		default:
			s.cfg.Log.WarnContext(ctx, "another replica has a newer session of this agent", logkey.Tenant, c.tenant(), logkey.Cluster, c.cluster(), logkey.Session, c.id)
			c.part(errReplaced())
		}
	}
}

// Recheck asks for the revocations now and not at the next turn.
func (s *Server) Recheck() {
	select {
	case s.recheck <- struct{}{}:
	default: // it is about to
	}
}

// revocations reads new ones at each interval, and when it is notified.
func (s *Server) revocations(ctx context.Context) error {
	failed := s.warn(ctx, "revocations were not read")
	ctx, done := lifecycle.Watch(ctx, "revocations", time.Minute)
	defer done()
	for ctx.Err() == nil {
		lifecycle.Beat(ctx)
		if err := s.revoke(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		tick, stop := s.cfg.Clock.After(s.cfg.Revocation)
		select {
		case <-ctx.Done():
		case <-tick:
		case <-s.recheck:
		}
		stop()
	}
	return nil
}

// Drain lets no more agents attach and asks those that are here to attach
// elsewhere, each at a moment of its own within that time. It does not wait.
func (s *Server) Drain(within time.Duration) {
	s.draining.Store(true)
	for _, c := range s.agents.all() {
		if c.attached.Load() {
			c.move(within)
		}
	}
}

func errDraining() error {
	return fault.With(fault.New(fault.Offline, "this replica of the hub is about to stop"), "", "connect again; another one answers")
}

// move asks the agent to attach again, once. One that reads nothing does not
// delay the caller.
func (c *conn) move(within time.Duration) {
	if !c.asked.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(0, func() {
		sent, _ := c.beats.send(&linkv1.BeatReply{Drain: true, DrainWithinMillis: uint32(within.Milliseconds())})
		if !sent {
			c.asked.Store(false) // it is just arriving; the next check asks again
		}
	})
}

// shouldReattach reports whether an agent should attach again, and how soon.
func (s *Server) shouldReattach(c *conn, now time.Time) (within time.Duration, yes bool) {
	if s.draining.Load() {
		return time.Second, c.attached.Load()
	}
	return moveWithin, c.expired(now)
}

// expired reports whether the session has lasted as long as it shall.
func (c *conn) expired(now time.Time) bool {
	return c.attached.Load() && now.Sub(c.opened) > c.life
}

func lifeOf() time.Duration { return lifecycle.Spread(sessionLife, sessionShare, mathrand.Float64()) }
