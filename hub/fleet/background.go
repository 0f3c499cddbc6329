package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// revoke polls the revocation version and disconnects newly revoked agents.
func (s *Server) revoke(ctx context.Context) error {
	moved, err := s.revoked.refresh(ctx, s.cfg.Revocations, s.cfg.Clock.Now)
	if err != nil || !moved {
		return err
	}
	for _, c := range s.agents.all() {
		if _, ok := c.session.Peer(); !ok {
			continue
		}
		if err := s.revoked.check(c.peer); err != nil {
			s.cfg.Log.InfoContext(ctx, "session revoked", logkey.Tenant, c.tenant(), logkey.Cluster, c.cluster(), logkey.Agent, c.peer.AgentID)
			c.part(err)
		}
	}
	return nil
}

// renewAttachments writes in one batch who was alive since the last one. What could not
// be written stays due.
func (s *Server) renewAttachments(ctx context.Context) error {
	var batch []hub.Heartbeat
	var of []*conn
	for _, c := range s.agents.all() {
		at := c.session.LastByte()
		if !c.attached.Load() || !at.After(c.written) {
			continue
		}
		of = append(of, c)
		beat := c.reported.heartbeat()
		beat.Tenant, beat.Cluster, beat.Session, beat.At = c.tenant(), c.cluster(), c.id, at
		batch = append(batch, beat)
	}
	if len(batch) == 0 {
		return nil
	}
	lost, err := s.cfg.Presence.RenewAttachments(ctx, batch)
	if err != nil {
		return fmt.Errorf("write presence of %d agents: %w", len(batch), err)
	}
	s.supersede(ctx, of, lost)
	for i, c := range of {
		c.written = batch[i].At
	}
	return nil
}

// sweep ends connections that are silent, never proved themselves, or have
// outlived their certificate.
func (s *Server) sweep(context.Context) error {
	now := s.cfg.Clock.Now()
	for _, c := range s.agents.all() {
		silent := now.Sub(c.session.LastByte())
		switch bulk := c.session.Lane().Protocol == tunnel.BulkProtocol; {
		case bulk && silent > bulkIdle:
			c.session.Close(errors.New("the bulk connection was idle"))
		case !bulk && c.attached.Load() && silent > s.cfg.Silence:
			// A dead connection cannot deliver a drain notice.
			c.session.Close(fault.New(fault.Offline, "nothing was received for %s", silent.Round(time.Second)))
		case now.Sub(c.opened) > unprovenLife && (c.peer == tunnel.Peer{} || !bulk && !c.attached.Load()):
			c.session.Close(errors.New("no Hello in time"))
		case !c.until.IsZero() && !now.Before(c.until):
			c.part(errExpired())
		default:
			if within, yes := s.shouldReattach(c, now); yes {
				c.move(within)
			}
		}
	}
	return nil
}
