package fleet

import (
	"context"
	"crypto/hmac"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// revoked are the revocations that this replica knows. Nobody is admitted
// before they were loaded once.
type revoked struct {
	set   atomic.Pointer[revokedSet]
	known chan struct{} // closed once set was loaded
	once  sync.Once     // closes known
}

func newRevoked() *revoked { return &revoked{known: make(chan struct{})} }

// await waits until the revocations are known, so that an agent that comes
// while the hub starts need not come again.
func (r *revoked) await(ctx context.Context) {
	if r.set.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	select {
	case <-r.known:
	case <-ctx.Done():
	}
}

type revokedSet struct {
	version  int64
	agents   map[string]bool
	serials  map[string]bool
	clusters map[hub.ClusterID]bool // in quarantine
	tenants  map[hub.TenantID][]hub.Revocation
}

// refresh loads the set if its version moved, and says whether it did.
func (r *revoked) refresh(ctx context.Context, from Revocations, now func() time.Time) (bool, error) {
	version, err := from.RevocationVersion(ctx)
	if err != nil {
		return false, fmt.Errorf("ask for the revocation version: %w", err)
	}
	if old := r.set.Load(); old != nil && old.version == version {
		return false, nil
	}
	// What is revoked between the two questions is in the set, and makes
	// the version move again.
	all, err := from.Revocations(ctx, now())
	if err != nil {
		return false, fmt.Errorf("load revocations: %w", err)
	}
	r.set.Store(newRevokedSet(version, all))
	r.once.Do(func() { close(r.known) })
	return true, nil
}

func newRevokedSet(version int64, all []hub.Revocation) *revokedSet {
	s := &revokedSet{
		version: version, agents: map[string]bool{}, serials: map[string]bool{},
		clusters: map[hub.ClusterID]bool{}, tenants: map[hub.TenantID][]hub.Revocation{},
	}
	for _, v := range all {
		switch {
		case v.Serial != "":
			s.serials[v.Serial] = true
		case v.AgentID != "":
			s.agents[v.AgentID] = true
			s.tenants[v.Tenant] = append(s.tenants[v.Tenant], v)
		case v.Cluster != "":
			s.clusters[v.Cluster] = true
		}
	}
	return s
}

// check returns the reason why a peer is not admitted, or nil.
func (r *revoked) check(p tunnel.Peer) error {
	s := r.set.Load()
	if s == nil {
		return fault.New(fault.Offline, "the hub is starting and does not know its revocations yet")
	}
	if s.clusters[hub.ClusterID(p.Cluster)] {
		return errQuarantined()
	}
	if s.serials[p.Serial] || s.agents[p.AgentID] {
		return fault.With(fault.New(fault.Denied, "this agent was revoked"), "", "enrol again with a new join token")
	}
	return nil
}

// errQuarantined is said to both clusters of one identity.
func errQuarantined() error {
	return fault.With(fault.New(fault.Denied, "this identity is used from another Kubernetes cluster too, so both are refused; was one cloned or restored from a backup?"),
		"", "an admin must say which one keeps it: capstan cluster keep")
}

// maxRevocationsSent bounds the revocations that are sent to an agent, newest
// last.
const maxRevocationsSent = 256

// pendingRevocations returns the revocations of a tenant, signed, that an agent shall keep
// for a hub that forgets them, and the version that they are of.
func (s *Server) pendingRevocations(tenant hub.TenantID) ([]*linkv1.Revoked, int64) {
	set := s.revoked.set.Load()
	if set == nil {
		return nil, 0
	}
	of := set.tenants[tenant]
	of = of[max(0, len(of)-maxRevocationsSent):]
	out := make([]*linkv1.Revoked, len(of))
	for i, r := range of {
		out[i] = &linkv1.Revoked{AgentId: r.AgentID, UntilUnix: r.Until.Unix(), Proof: s.cfg.Authority.sign(tenant, r.AgentID, r.Until.Unix())}
	}
	return out, set.version
}

// restoreRevocations restores the revocations that an agent has and this hub
// has lost. Those without this hub's signature are ignored: an agent cannot
// block another one.
func (s *Server) restoreRevocations(ctx context.Context, tenant hub.TenantID, listed []*linkv1.Revoked) error {
	set := s.revoked.set.Load()
	if set == nil || len(listed) == 0 {
		return nil
	}
	var lost []hub.Revocation
	now := s.cfg.Clock.Now()
	for _, r := range listed[max(0, len(listed)-maxRevocationsSent):] {
		until := time.Unix(r.GetUntilUnix(), 0)
		if set.agents[r.GetAgentId()] || !until.After(now) || !hmac.Equal(r.GetProof(), s.cfg.Authority.sign(tenant, r.GetAgentId(), r.GetUntilUnix())) {
			continue
		}
		lost = append(lost, hub.Revocation{Tenant: tenant, AgentID: r.GetAgentId(), Until: until})
	}
	if len(lost) == 0 {
		return nil
	}
	s.cfg.Log.WarnContext(ctx, "an agent knows revocations that this hub has forgotten; they hold again", logkey.Tenant, tenant, logkey.Count, len(lost))
	if err := s.cfg.Revocations.MergeRevocations(ctx, tenant, lost); err != nil {
		return fmt.Errorf("merge %d revocations: %w", len(lost), err)
	}
	return s.revoke(ctx)
}
