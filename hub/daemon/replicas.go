package daemon

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/hub/replicas"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// newReplicaID names one process: its operator's name for it, and what no
// other process of that name had.
func newReplicaID(name string) string {
	b := make([]byte, 4)
	rand.Read(b) // never fails
	return name + "." + hex.EncodeToString(b)
}

func (p *parts) lease() time.Duration { return time.Duration(p.cfg.Lease) }

// attachmentLease is how long an agent's attachment counts without a renewal.
// Agents that beat slowly are not taken for gone.
func (p *parts) attachmentLease() time.Duration {
	return max(2*p.lease(), 3*time.Duration(p.cfg.Heartbeat))
}

// addReplicas makes this process known to the other replicas of the hub. One
// that is alone keeps its sign of life all the same: another may come.
func (p *parts) addReplicas(ctx context.Context) error {
	system := p.db.System()
	var err error
	if p.authority, err = fleet.OpenAuthority(ctx, system, p.clock, hostsOf(p.cfg.AgentHosts)); err != nil {
		return err
	}
	cfg := replicas.Config{
		Self: hub.Replica{ID: p.replica, Name: p.cfg.Replica}, Store: system, Agents: attached{p}, Heard: p.heard,
		Lease: p.lease(), Log: p.log, Clock: p.clock,
	}
	var ln net.Listener
	if p.cfg.Listen.Internal != "" {
		cfg.Self.Address = p.cfg.Advertise
		root, err := x509.ParseCertificate(p.authority.Root())
		if err != nil {
			return fmt.Errorf("read the private authority: %w", err)
		}
		certificate, err := p.authority.Replica(replicas.URI(p.replica))
		if err != nil {
			return err
		}
		cfg.Server, cfg.Client = replicas.TLS(root, certificate)
		if ln, err = listen(ctx, p.cfg.Listen.Internal); err != nil {
			return err
		}
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	p.replicas = replicas.New(cfg)
	p.queue.among, p.queue.closed = p.replicas.Among, p.stopping.Load
	p.add("replicas", p.replicas.Run)
	if ln != nil {
		p.add("internal port", func(ctx context.Context) error { return p.replicas.Serve(ctx, ln) })
	}
	return nil
}

// heard passes hints of other replicas on to the parts of this one.
func (p *parts) heard(h replicas.Notice) {
	for _, c := range h.Clusters {
		p.streams.WakeHere(c)
	}
	for _, t := range h.Tenants {
		p.feed.Notify(t)
	}
	p.queue.notify(h.Work...)
	if h.Revoked {
		p.fleet.Recheck()
	}
	for _, t := range h.Credentials {
		p.forgetCallers(t)
	}
}

// changed hints that a tenant's feed has grown, here and elsewhere.
func (p *parts) changed(tenant hub.TenantID) {
	p.feed.Notify(tenant)
	p.replicas.Changed(tenant)
}

// revoked hints that the revocations have changed, here and elsewhere.
func (p *parts) revoked() {
	p.fleet.Recheck()
	p.replicas.Revoked()
}

// credentials hints that accounts, sessions or tokens of a tenant have changed,
// here and elsewhere.
func (p *parts) credentials(tenant hub.TenantID) {
	p.forgetCallers(tenant)
	p.replicas.Credentials(tenant)
}

// forgetCallers drops what this replica has found out about callers of a tenant.
func (p *parts) forgetCallers(tenant hub.TenantID) {
	if s := p.identity.Load(); s != nil {
		s.ForgetTenant(tenant)
	}
}

// due hints that work may be due. Work with a home may be another replica's.
func (p *parts) due(kind string) {
	p.queue.notify(kind)
	for _, k := range shared {
		if k == kind {
			p.replicas.Due(kind)
		}
	}
}

// leave prepares the end: nobody new comes in, and those who are here go to
// other replicas, if there are any. What is under way comes to its end later,
// when the parts stop.
func (p *parts) leave(ctx context.Context) {
	p.stopping.Store(true)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second+time.Duration(p.cfg.Drain))
	defer cancel()
	// This asks anew who is there, too.
	if err := p.replicas.Drain(ctx); err != nil {
		p.log.WarnContext(ctx, "the other replicas find out late that this one stops", logkey.Error, err)
	}
	if !p.replicas.Others() {
		return // waiting would help nobody
	}
	p.log.InfoContext(ctx, "the hub stops; agents and clients go to other replicas", logkey.Wait, time.Duration(p.cfg.Drain))
	p.fleet.Drain(time.Duration(p.cfg.Drain) / 2)
	_ = lifecycle.Sleep(ctx, p.clock, time.Duration(p.cfg.Drain)) // only the end of ctx
}
