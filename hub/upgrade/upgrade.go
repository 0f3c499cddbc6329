// Package upgrade makes agents replace their own image on users' requests. It
// has no access to clusters and checks no rights: the catalog has accepted the
// request, and the agent's owner decides whether it is followed. The daemon
// runs one Stage per replica. The request is in the cluster's row and a work
// item says that it is open. Each check calls the agent, which both requests
// the upgrade and reads its state, so any replica can continue.
package upgrade

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// Work is where open orders wait. Its keys are clusters.
type Work interface {
	Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error)
	Done(ctx context.Context, items []hub.WorkItem) error
	Later(ctx context.Context, items []hub.WorkItem, due time.Time) error
}

// Store stores the requests.
type Store interface {
	// Cluster returns a cluster with its newest order. The error is
	// fault.Missing if it is gone.
	Cluster(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (hub.Cluster, error)
	// PutUpgrade says how an open order stands. One that is over, or that a
	// newer one has replaced, stays as it is.
	PutUpgrade(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, u hub.Upgrade) error
}

// Agents knows the way to an agent, to whichever replica it is attached.
type Agents interface {
	Conn(ctx context.Context, cluster hub.Cluster) (grpc.ClientConnInterface, error)
}

const (
	claimed      = 32               // orders at once
	checkEvery   = 2 * time.Second  // while an order is open
	checkTimeout = 20 * time.Second // timeout of one check
	loopLimit    = 90 * time.Second
	// grace is how much longer than its time an order stays open without a
	// word from the agent.
	grace = 10 * time.Minute

	mostText = 2048
)

// A Stage asks agents about open orders.
type Stage struct {
	work   Work
	store  Store
	agents Agents
	clock  lifecycle.Clock
	log    *slog.Logger
}

// New makes a stage.
func New(work Work, store Store, agents Agents, clock lifecycle.Clock, log *slog.Logger) *Stage {
	return &Stage{work: work, store: store, agents: agents, clock: clock, log: log}
}

// Run checks open requests until ctx ends.
func (s *Stage) Run(ctx context.Context) error {
	ctx, done := lifecycle.Watch(ctx, hub.WorkUpgrade, loopLimit)
	defer done()
	for ctx.Err() == nil {
		items, err := s.work.Claim(ctx, hub.WorkUpgrade, claimed)
		if err != nil {
			if ctx.Err() == nil {
				s.log.ErrorContext(ctx, "work cannot be claimed", logkey.Kind, hub.WorkUpgrade, logkey.Error, err)
				_ = lifecycle.Sleep(ctx, s.clock, time.Second)
			}
			continue
		}
		g := lifecycle.NewGroup(ctx)
		for _, item := range items {
			g.Go(func(ctx context.Context) error { s.one(ctx, item); return nil })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// one checks a request and releases its work item, also while the replica
// stops.
func (s *Stage) one(ctx context.Context, item hub.WorkItem) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	var over bool
	err := lifecycle.Safely(ctx, item.Kind, func(ctx context.Context) (err error) {
		over, err = s.check(ctx, item.Tenant, hub.ClusterID(item.Key))
		return err
	})
	if err != nil {
		s.log.WarnContext(ctx, "upgrade not checked, will retry", logkey.Tenant, item.Tenant, logkey.Cluster, item.Key, logkey.Error, err)
	}
	back, end := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer end()
	if over {
		err = s.work.Done(back, []hub.WorkItem{item})
	} else {
		err = s.work.Later(back, []hub.WorkItem{item}, s.clock.Now().Add(checkEvery))
	}
	if err != nil {
		s.log.WarnContext(ctx, "work not given back; its lease will run out", logkey.Kind, item.Kind, logkey.Error, err)
	}
}

// check calls the agent of a cluster once. over: the upgrade has ended.
func (s *Stage) check(ctx context.Context, tenant hub.TenantID, id hub.ClusterID) (over bool, err error) {
	cluster, err := s.store.Cluster(ctx, tenant, id)
	if fault.KindOf(err) == fault.Missing {
		return true, nil
	}
	if err != nil || cluster.Upgrade == nil || cluster.Upgrade.Over() {
		return err == nil, err
	}
	old := *cluster.Upgrade
	now := late(old, s.clock.Now())
	if !now.Over() && cluster.Connected {
		if now, err = s.requestState(ctx, cluster, old); err != nil {
			return false, err
		}
	}
	if now == old {
		return false, nil
	}
	if err := s.store.PutUpgrade(ctx, tenant, id, now); err != nil {
		return false, err
	}
	if now.Phase != old.Phase {
		s.log.InfoContext(ctx, "upgrade of an agent", logkey.Tenant, tenant, logkey.Cluster, id, logkey.Phase, now.Phase, logkey.Image, now.Image, logkey.Message, now.Message)
	}
	return now.Over(), nil
}

// late ends a request that was not carried out in time.
func late(u hub.Upgrade, now time.Time) hub.Upgrade {
	switch {
	case u.Phase == hub.UpgradePending && now.After(u.ExpiresAt):
		return u.End(hub.UpgradeFailed, "the agent was not connected before the order expired; nothing was changed", now)
	case u.Phase == hub.UpgradeRunning && now.After(u.ExpiresAt.Add(u.Deadline+grace)):
		return u.End(hub.UpgradeFailed, "the agent has not reported its end; check the annotation capstan.dev/upgrade of its Deployment in the cluster", now)
	}
	return u
}

// requestState returns the order as the agent says that it stands. The error is one that
// passes.
func (s *Stage) requestState(ctx context.Context, cluster hub.Cluster, u hub.Upgrade) (hub.Upgrade, error) {
	conn, err := s.agents.Conn(ctx, cluster)
	if fault.KindOf(err) == fault.Offline {
		return u, nil
	}
	if err != nil {
		return u, err
	}
	reply, err := linkv1.NewUpgradesClient(conn).Upgrade(ctx, &linkv1.UpgradeRequest{
		Id: u.ID, Image: u.Image, OrderedUnixNano: u.OrderedAt.UnixNano(), BeginBeforeUnix: u.ExpiresAt.Unix(), DeadlineSeconds: uint32(u.Deadline.Seconds()),
	})
	if err != nil {
		return s.refused(u, err)
	}
	u.From, u.Message = plain(reply.GetFrom()), plain(reply.GetMessage())
	switch phase := reply.GetPhase(); phase {
	case hub.UpgradeRunning:
		u.Phase = phase
	case hub.UpgradeSucceeded, hub.UpgradeRolledBack, hub.UpgradeFailed:
		at := s.clock.Now()
		if n := reply.GetEndedUnixNano(); n > u.OrderedAt.UnixNano() && n < at.UnixNano() {
			at = time.Unix(0, n)
		}
		u = u.End(phase, u.Message, at)
	default:
		return u, fault.New(fault.Internal, "the agent of cluster %q says that upgrade %s is %.50q", cluster.Name, u.ID, phase)
	}
	return u, nil
}

// refused distinguishes a refusal, which is final, from an unreachable agent.
// The latter is usual: the agent is being replaced.
func (s *Stage) refused(u hub.Upgrade, err error) (hub.Upgrade, error) {
	if status.Code(err) == codes.Unimplemented {
		return u.End(hub.UpgradeFailed, "the agent is too old to be upgraded from the hub: upgrade it with its chart", s.clock.Now()), nil
	}
	f, classified := fault.As(err)
	if !classified || tunnel.IsNotHere(err) {
		return u, nil
	}
	switch f.Kind {
	case fault.Denied, fault.Invalid, fault.Conflict, fault.Missing, fault.Exceeded:
		why := fault.Sentence(err)
		if f.Fix != "" && !strings.Contains(why, f.Fix) {
			why += " (" + f.Fix + ")"
		}
		return u.End(hub.UpgradeFailed, plain("the agent refused it: "+why), s.clock.Now()), nil
	case fault.Offline, fault.Internal, fault.Unknown:
	}
	return u, nil
}

// plain makes a foreign text fit for a row and a screen.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if r := []rune(text); len(r) > mostText {
		text = string(r[:mostText])
	}
	return strings.TrimSpace(text)
}
