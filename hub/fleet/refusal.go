package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// What an agent that has a certificate may fail at, in the words of
// hub.Refusal.Stage. Those of an enrolment are beside it.
const (
	stageVersion     = "version" // also of an enrolment
	stageCertificate = "certificate"
	stageSuspended   = "suspended"
	stageReplaced    = "replaced"
	stageFingerprint = "fingerprint"
)

const (
	refusalPause = 10 * time.Second // between two notes about one cluster
	mostRefusals = 4096             // clusters whose last note is remembered
)

// refused marks an error with what the agent failed at.
type refused struct {
	error
	stage string
}

func (r refused) Unwrap() error { return r.error }

// refusals keeps an agent that comes again and again from writing each time.
type refusals struct {
	mu   sync.Mutex
	last map[hub.ClusterID]time.Time
}

// due reports whether a refusal should be noted now.
func (r *refusals) due(cluster hub.ClusterID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.last[cluster]; ok && now.Sub(last) < refusalPause {
		return false
	}
	if r.last == nil || len(r.last) >= mostRefusals {
		r.last = map[hub.ClusterID]time.Time{}
	}
	r.last[cluster] = now
	return true
}

// refuse notes with the cluster why its agent was not let in. The peer is
// that of a good certificate, so no stranger makes the hub write.
func (s *Server) refuse(ctx context.Context, p tunnel.Peer, address, agentVersion, stage string, why error) {
	now := s.cfg.Clock.Now()
	s.cfg.Log.WarnContext(ctx, "agent refused", logkey.Tenant, p.Tenant, logkey.Cluster, p.Cluster, logkey.Agent, p.AgentID,
		logkey.Address, address, logkey.Stage, stage, logkey.Version, agentVersion, logkey.Error, why)
	if !s.refusals.due(hub.ClusterID(p.Cluster), now) {
		return
	}
	err := s.cfg.Refusals.Refused(ctx, hub.TenantID(p.Tenant), hub.ClusterID(p.Cluster), hub.Refusal{
		At: now, Address: address, Stage: stage, Message: fault.Sentence(why), AgentVersion: agentVersion,
	})
	if err != nil && fault.KindOf(err) != fault.Missing {
		s.cfg.Log.ErrorContext(ctx, "a refusal was not recorded", logkey.Cluster, p.Cluster, logkey.Error, err)
	}
}
