package replicas

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	tenantKey  = "capstan-tenant"
	clusterKey = "capstan-cluster"

	checkEvery = 200 * time.Millisecond // while a call waits for its agent
	// appear is how long a call waits for an agent, if its caller does not
	// give up earlier: one whose replica has gone comes back within it.
	appear = 5 * time.Second
	// atHome is how long after its last sign an agent is waited for.
	atHome = 2 * time.Minute
)

// Conn returns a client to the agent of a cluster, wherever it is attached. It
// waits a little for one that has just been there. The error is fault.Offline
// if it does not appear.
func (r *Replicas) Conn(ctx context.Context, c hub.Cluster) (grpc.ClientConnInterface, error) {
	now := r.cfg.Clock.Now()
	route := &route{r: r, tenant: c.Tenant, cluster: c.ID, until: now, tried: map[string]bool{}}
	if c.LastSeen != nil && now.Sub(*c.LastSeen) < atHome {
		route.until = now.Add(appear)
	}
	if _, err := route.find(ctx); err != nil {
		return nil, err
	}
	return route, nil
}

func away() error { return tunnel.NotHere("the agent is attached to no replica of the hub") }

// A route is the way to one agent. A call that did not get there goes another
// way, if there is one: where the agent is may change at any time. One
// goroutine uses it.
type route struct {
	r       *Replicas
	tenant  hub.TenantID
	cluster hub.ClusterID
	until   time.Time       // no longer is the agent waited for
	tried   map[string]bool // replicas that do not hold it, or are gone
}

// A target is where a call goes.
type target struct {
	conn   grpc.ClientConnInterface
	remote string // id of the replica; empty: this one
}

// find waits until the agent is somewhere.
func (t *route) find(ctx context.Context) (target, error) {
	for first := true; ; first = false {
		if to, ok := t.resolve(ctx, !first); ok {
			return to, nil
		}
		if t.over() || lifecycle.Sleep(ctx, t.r.cfg.Clock, checkEvery) != nil {
			return target{}, away()
		}
	}
}

func (t *route) over() bool { return !t.r.cfg.Clock.Now().Before(t.until) }

// resolve says where the agent is at this moment. sure asks the database even
// if the memory has an answer.
func (t *route) resolve(ctx context.Context, sure bool) (target, bool) {
	conn, tenant, session, here := t.r.cfg.Agents.Holds(t.cluster)
	here = here && tenant == t.tenant
	known, ok := t.r.homeOf(t.cluster)
	if here && (!ok || known.Session == session || known.Replica == t.r.cfg.Self.ID) {
		return target{conn: conn}, true
	}
	if !ok || sure || here || t.tried[known.Replica] {
		var err error
		if known, err = t.readHome(ctx); err != nil {
			return target{conn: conn}, here // what is at hand is better than nothing
		}
	}
	if here && known.Session == session {
		return target{conn: conn}, true
	}
	to, there := t.r.reach(known.Replica)
	if known.Tenant != t.tenant || !there || t.tried[known.Replica] && !sure {
		return target{conn: conn}, here
	}
	return target{conn: hop{to, t.tenant, t.cluster}, remote: known.Replica}, true
}

// readHome reads a placement from the database and caches it.
func (t *route) readHome(ctx context.Context) (hub.AgentHome, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	p, err := t.r.cfg.Store.Attachment(ctx, t.tenant, t.cluster)
	if err != nil {
		return p, err
	}
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.storeHome(p)
	return p, nil
}

func (r *Replicas) homeOf(cluster hub.ClusterID) (hub.AgentHome, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.places[cluster]
	return p, ok
}

// reach returns the way to a replica. One that is not known may have just
// started.
func (r *Replicas) reach(id string) (grpc.ClientConnInterface, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.others[id]; o != nil && o.conn != nil {
		return o.conn, true
	}
	if id != r.cfg.Self.ID {
		select {
		case r.poke <- struct{}{}:
		default: // somebody asked already
		}
	}
	return nil, false
}

// retry reports whether a call should go another way, and pauses before it does.
func (t *route) retry(ctx context.Context, to target, method string, err error) bool {
	if to.remote == "" || err == nil || ctx.Err() != nil {
		return false
	}
	if !tunnel.IsNotHere(err) && (method == linkv1.Acts_RunAction_FullMethodName || !tunnel.Unreached(err)) {
		return false
	}
	t.tried[to.remote] = true
	return !t.over() && lifecycle.Sleep(ctx, t.r.cfg.Clock, checkEvery/4) == nil
}

// Invoke makes a call. Agents' calls may be repeated: they read, or request
// what is done at most once. An action may not: the agent could have restarted
// in between. Its caller asks for the result.
func (t *route) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	for {
		to, err := t.find(ctx)
		if err != nil {
			return err
		}
		err = to.conn.Invoke(ctx, method, args, reply, opts...)
		if !t.retry(ctx, to, method, err) {
			return tunnel.Fault(err)
		}
	}
}

// NewStream opens a stream. It is rerouted only until the agent's replica has
// accepted it.
func (t *route) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	for {
		to, err := t.find(ctx)
		if err != nil {
			return nil, err
		}
		s, err := to.conn.NewStream(ctx, desc, method, opts...)
		if err == nil && to.remote != "" {
			_, err = s.Header()
		}
		if err == nil {
			return s, nil
		}
		if !t.retry(ctx, to, method, err) {
			return nil, tunnel.Fault(err)
		}
	}
}

// A hop is a client to an agent of another replica.
type hop struct {
	to      grpc.ClientConnInterface
	tenant  hub.TenantID
	cluster hub.ClusterID
}

func (h hop) name(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, tenantKey, string(h.tenant), clusterKey, string(h.cluster))
}

// Invoke makes a call through the other replica.
func (h hop) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return h.to.Invoke(h.name(ctx), method, args, reply, opts...)
}

// NewStream opens a stream through the other replica.
func (h hop) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return h.to.NewStream(h.name(ctx), desc, method, opts...)
}
