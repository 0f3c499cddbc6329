package fleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// revoked is what this replica knows of revocations. Nobody is let in before
// it was loaded once.
type revoked struct {
	set atomic.Pointer[revokedSet]
}

type revokedSet struct {
	version int64
	agents  map[string]bool
	serials map[string]bool
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
	return true, nil
}

func newRevokedSet(version int64, all []hub.Revocation) *revokedSet {
	s := &revokedSet{version: version, agents: map[string]bool{}, serials: map[string]bool{}}
	for _, v := range all {
		switch {
		case v.Serial != "":
			s.serials[v.Serial] = true
		case v.AgentID != "":
			s.agents[v.AgentID] = true
		}
	}
	return s
}

// check gives the reason why a peer is not let in, or nil.
func (r *revoked) check(p tunnel.Peer) error {
	s := r.set.Load()
	if s == nil {
		return fault.New(fault.Offline, "the hub is starting and does not know its revocations yet")
	}
	if s.serials[p.Serial] || s.agents[p.AgentID] {
		return fault.With(fault.New(fault.Denied, "this agent was revoked"), "", "enrol again with a new join token")
	}
	return nil
}
