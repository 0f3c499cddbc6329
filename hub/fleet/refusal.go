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

// The stages at which an agent with a certificate may fail, as in
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

// refusals limits the writes of an agent that retries again and again.
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

// refuse records with the cluster why its agent was not admitted. The peer has
// a valid certificate, so an outsider causes no writes.
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
