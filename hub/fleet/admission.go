package fleet

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// How many agents a hub process admits. The burst admits a small fleet at once;
// a large one reconnects at the steady rate, each agent at the time that it was
// given. Tenants share both.
const (
	admitPerSecond = 100
	admitBurst     = 600
)

// How often the agent of one cluster may say Hello. An agent that is well
// says it once a connection and pauses between two.
const (
	clusterPerSecond = 1
	clusterBurst     = 10
	mostClusters     = 4096 // stored before idle ones are searched
)

const (
	mostRefused  = 3               // Hellos of one session that are refused before it ends
	refusedPause = 5 * time.Second // that its agent is asked to wait
)

// An admission decides which agents may attach now. The first bucket is each
// cluster's own, and what it refuses costs nobody else anything: neither a
// token of the tenant or the hub, nor another agent's time.
type admission struct {
	all *fairLimit // by tenant

	mu       sync.Mutex
	clusters map[hub.ClusterID]*caller
	tidied   time.Time
}

// A caller is what is remembered of a cluster whose agent said Hello.
type caller struct {
	bucket   *rate.Limiter
	promised time.Time // when it may retry
}

func newAdmission(perSecond float64, burst int) *admission {
	return &admission{all: newFairLimit(perSecond, burst), clusters: map[hub.ClusterID]*caller{}}
}

// take lets one in, or says when to come again.
func (a *admission) take(tenant hub.TenantID, cluster hub.ClusterID, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.cluster(cluster, now)
	if !c.bucket.AllowN(now, 1) {
		return &fault.Error{
			Kind: fault.Exceeded, Cause: "the agent of this cluster connects too often", Fix: "let only one agent run in a cluster; it comes again by itself",
			RetryAfter: max(time.Second, c.promised.Sub(now)),
		}
	}
	promised := c.promised.After(now)
	wait, ok := a.all.take(string(tenant), promised, now)
	switch {
	case ok:
		c.promised = time.Time{}
		return nil
	case promised: // it came before its time and keeps it
		wait = max(time.Second, c.promised.Sub(now))
	default:
		c.promised = now.Add(wait)
	}
	return &fault.Error{
		Kind: fault.Exceeded, Cause: "too many agents connect at once", Fix: "the agent comes again by itself", RetryAfter: wait,
	}
}

func (a *admission) cluster(id hub.ClusterID, now time.Time) *caller {
	if c := a.clusters[id]; c != nil {
		return c
	}
	if len(a.clusters) >= mostClusters && now.Sub(a.tidied) >= 10*time.Second {
		a.tidied = now
		for other, c := range a.clusters {
			if c.bucket.TokensAt(now) >= clusterBurst && !c.promised.After(now) { // as good as new
				delete(a.clusters, other)
			}
		}
	}
	// Their number is that of the clusters with a good certificate.
	c := &caller{bucket: rate.NewLimiter(clusterPerSecond, clusterBurst)}
	a.clusters[id] = c
	return c
}
