package replicas

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	replicav1 "github.com/capstan-cd/capstan/proto/replica/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// A Notice is what one replica sends to another.
type Notice struct {
	Clusters []hub.ClusterID // their desired logs have grown
	Tenants  []hub.TenantID  // their feeds have grown
	Work     []string        // kinds of work that are due
	Revoked  bool            // the revocations have changed
	// Credentials are tenants of which accounts, sessions or tokens have changed.
	Credentials []hub.TenantID
}

const (
	settle        = 5 * time.Millisecond // so that a burst goes as one
	notifyTimeout = 2 * time.Second
	mostKept      = 10_000 // of each sort in a notice; the rest is dropped
)

// Wake notifies the replica that has a cluster's agent, or all if none is known
// to, that the cluster's desired log has grown.
func (r *Replicas) Wake(cluster hub.ClusterID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.others[r.places[cluster].Replica]; o != nil {
		o.enqueue(func(b *outbox) { note(&b.clusters, cluster) })
		return
	}
	r.broadcast(func(b *outbox) { note(&b.clusters, cluster) })
}

// Changed notifies all replicas that a tenant's feed has grown.
func (r *Replicas) Changed(tenant hub.TenantID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broadcast(func(b *outbox) { note(&b.tenants, tenant) })
}

// Due notifies all replicas that work of a kind is due.
func (r *Replicas) Due(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broadcast(func(b *outbox) { note(&b.work, kind) })
}

// Revoked notifies all replicas that the revocations have changed.
func (r *Replicas) Revoked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broadcast(func(b *outbox) { b.revoked = true })
}

// Credentials notifies all replicas that accounts, sessions or tokens of a
// tenant have changed.
func (r *Replicas) Credentials(tenant hub.TenantID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broadcast(func(b *outbox) { note(&b.credentials, tenant) })
}

func (r *Replicas) broadcast(put func(*outbox)) {
	for _, o := range r.others {
		o.enqueue(put)
	}
}

func (o *other) enqueue(put func(*outbox)) {
	if o.box == nil {
		return
	}
	o.box.mu.Lock()
	put(o.box)
	o.box.mu.Unlock()
	select {
	case o.box.ready <- struct{}{}:
	default: // it is awake
	}
}

// An outbox collects the notices for one replica, each once.
type outbox struct {
	ready chan struct{} // capacity 1
	ended chan struct{}

	mu       sync.Mutex
	clusters map[hub.ClusterID]bool
	tenants  map[hub.TenantID]bool
	work     map[string]bool
	revoked  bool

	credentials map[hub.TenantID]bool
}

func newOutbox() *outbox {
	return &outbox{ready: make(chan struct{}, 1), ended: make(chan struct{})}
}

func note[K comparable](set *map[K]bool, key K) {
	if *set == nil {
		*set = map[K]bool{}
	}
	if len(*set) < mostKept {
		(*set)[key] = true
	}
}

// run sends until ctx ends. What cannot be sent is dropped.
func (b *outbox) run(ctx context.Context, clock lifecycle.Clock, to grpc.ClientConnInterface) {
	defer close(b.ended)
	client := replicav1.NewReplicaClient(to)
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.ready:
		}
		if lifecycle.Sleep(ctx, clock, settle) != nil {
			return
		}
		req, some := b.drain()
		if !some {
			continue
		}
		limit, cancel := context.WithTimeout(ctx, notifyTimeout)
		_, err := client.Hint(limit, req)
		cancel()
		if err != nil && lifecycle.Sleep(ctx, clock, time.Second) != nil {
			return
		}
	}
}

// drain returns what has gathered, if anything has.
func (b *outbox) drain() (req *replicav1.HintRequest, some bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	req = &replicav1.HintRequest{
		Clusters: texts(b.clusters), Tenants: texts(b.tenants), Work: texts(b.work), Revoked: b.revoked,
		Credentials: texts(b.credentials),
	}
	some = b.revoked || len(b.clusters)+len(b.tenants)+len(b.work)+len(b.credentials) > 0
	b.clusters, b.tenants, b.work, b.revoked, b.credentials = nil, nil, nil, false, nil
	return req, some
}

func texts[K ~string](set map[K]bool) []string {
	out := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, string(k))
	}
	return out
}
