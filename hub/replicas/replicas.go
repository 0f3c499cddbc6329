// Package replicas connects the processes of one hub: it knows which are
// running and which of them has the agent of a cluster, routes calls there, and
// sends notifications of changes. It stores nothing itself and decides nothing
// about tenants; it never routes a call that another replica has routed. The
// daemon runs one Replicas, also if there is only one hub.
//
// Rows of the database are authoritative. A lost notification, or an outdated
// cache, costs only time: a call goes to where the agent is, or ends with an
// error that may be retried.
package replicas

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// Store is where replicas meet.
type Store interface {
	// Beat says that a replica is alive for another while and gives all that
	// are.
	Beat(ctx context.Context, r hub.Replica, life time.Duration) ([]hub.Replica, error)
	// Leave says that a replica has stopped.
	Leave(ctx context.Context, id string) error
	// Attachment says where the agent of a cluster is attached. The error is
	// fault.Offline if it is nowhere.
	Attachment(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (hub.AgentHome, error)
	// Attachments returns what changed after a fence, in order.
	Attachments(ctx context.Context, after int64) ([]hub.AgentHome, error)
}

// Agents are those that are attached to this replica.
type Agents interface {
	// Holds returns the client to the agent of a cluster and the session that
	// it is attached with.
	Holds(cluster hub.ClusterID) (conn grpc.ClientConnInterface, tenant hub.TenantID, session string, ok bool)
}

// Config is what a Replicas needs. Fields without a default are required.
type Config struct {
	Self   hub.Replica
	Store  Store
	Agents Agents
	// Heard is called with the hints of other replicas. It must not block.
	Heard func(Notice)
	// Server and Client prove replicas to each other; nil: this one has no
	// internal port and reaches no other.
	Server, Client *tls.Config
	// Lease is how long a replica may be silent before it counts as gone;
	// default 15 s.
	Lease time.Duration
	Log   *slog.Logger
	Clock lifecycle.Clock
}

// A Replicas is what one process knows of the others. Many goroutines may use
// it.
type Replicas struct {
	cfg  Config
	poke chan struct{} // capacity 1: look at the database now

	mu       sync.Mutex
	draining bool
	beaten   time.Time         // when the database last said who is there
	others   map[string]*other // replicas but this one, by id
	places   map[hub.ClusterID]hub.AgentHome
	fence    int64     // newest of the places
	whole    time.Time // when all places were read
}

// another replica of the hub.
type other struct {
	hub.Replica
	conn *grpc.ClientConn // nil: it cannot be reached
	box  *outbox
	stop context.CancelFunc
}

const (
	followEvery = 2 * time.Second // attachments, while there are other replicas
	wholeEvery  = time.Minute     // all of them, in case one became visible late
)

// New makes the view of one replica; Run keeps it up to date.
func New(cfg Config) *Replicas {
	if cfg.Lease == 0 {
		cfg.Lease = 15 * time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = lifecycle.System{}
	}
	return &Replicas{cfg: cfg, poke: make(chan struct{}, 1), others: map[string]*other{}, places: map[hub.ClusterID]hub.AgentHome{}}
}

// Run keeps the view up to date until ctx ends; then it deregisters and returns
// nil.
func (r *Replicas) Run(ctx context.Context) error {
	g := lifecycle.NewGroup(ctx)
	g.Go(func(ctx context.Context) error { return r.sendHeartbeats(ctx) })
	g.Go(func(ctx context.Context) error {
		failed := func(err error) {
			r.cfg.Log.WarnContext(ctx, "attachments of agents were not read", logkey.Error, err)
		}
		return lifecycle.Every(ctx, r.cfg.Clock, followEvery, 0.2, failed, r.follow)
	})
	err := g.Wait()
	r.forgetAll()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if left := r.cfg.Store.Leave(end, r.cfg.Self.ID); left != nil {
		r.cfg.Log.WarnContext(end, "the others find out by its silence that this replica has stopped", logkey.Error, left)
	}
	return err
}

// sendHeartbeats says again and again that this replica lives.
func (r *Replicas) sendHeartbeats(ctx context.Context) error {
	ctx, done := lifecycle.Watch(ctx, "sign of life", time.Minute+r.cfg.Lease)
	defer done()
	for {
		lifecycle.Beat(ctx)
		if err := r.beat(ctx, ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.WarnContext(ctx, "this replica could not say that it lives", logkey.Error, err)
		}
		tick, stop := r.cfg.Clock.After(r.cfg.Lease / 5)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-tick:
		case <-r.poke:
			// Waiting calls may ask often.
			if lifecycle.Sleep(ctx, r.cfg.Clock, min(r.cfg.Lease/20, 200*time.Millisecond)) != nil {
				stop()
				return nil
			}
		}
		stop()
	}
}

// beat renews this replica's row. Connections to other replicas live in life.
func (r *Replicas) beat(ctx, life context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease/3)
	defer cancel()
	self := r.cfg.Self
	self.Draining = r.Draining()
	all, err := r.cfg.Store.Beat(ctx, self, r.cfg.Lease)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beaten = r.cfg.Clock.Now()
	seen := map[string]bool{}
	for _, m := range all {
		if m.ID == self.ID {
			continue
		}
		seen[m.ID] = true
		if o := r.others[m.ID]; o != nil {
			o.Draining = m.Draining
			continue
		}
		r.others[m.ID] = r.meet(life, m)
		r.cfg.Log.InfoContext(ctx, "another replica is there", logkey.Other, m.ID, logkey.Address, m.Address)
	}
	for id, o := range r.others {
		if !seen[id] {
			r.part(o)
			r.cfg.Log.InfoContext(ctx, "another replica is gone", logkey.Other, id)
		}
	}
	return nil
}

// meet makes what is needed to reach a replica. It dials nothing yet.
func (r *Replicas) meet(life context.Context, m hub.Replica) *other {
	o := &other{Replica: m, stop: func() {}}
	if r.cfg.Client == nil || m.Address == "" {
		return o
	}
	conn, err := tunnel.DialPeers(m.Address, clientFor(r.cfg.Client, m.ID))
	if err != nil {
		r.cfg.Log.WarnContext(life, "another replica has an address that cannot be dialled", logkey.Other, m.ID, logkey.Address, m.Address, logkey.Error, err)
		return o
	}
	o.conn, o.box = conn, newOutbox()
	own, stop := context.WithCancel(life)
	o.stop = stop
	go o.box.run(own, r.cfg.Clock, conn)
	return o
}

// part forgets a replica; calls that run over it end.
func (r *Replicas) part(o *other) {
	delete(r.others, o.ID)
	o.stop()
	if o.conn != nil {
		_ = o.conn.Close()
		<-o.box.ended
	}
}

func (r *Replicas) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		r.part(o)
	}
}

// Among returns the ids of the replicas that share out work, in order; nothing
// if this one is alone or does not know.
func (r *Replicas) Among() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Clock.Now().Sub(r.beaten) > r.cfg.Lease {
		return nil
	}
	var out []string
	for id, o := range r.others {
		if !o.Draining {
			out = append(out, id)
		}
	}
	if len(out) == 0 {
		return nil
	}
	if !r.draining {
		out = append(out, r.cfg.Self.ID)
	}
	slices.Sort(out)
	return out
}

// Others reports whether another replica is there that could take over.
func (r *Replicas) Others() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		if !o.Draining {
			return true
		}
	}
	return false
}

// Draining reports whether this replica is about to stop.
func (r *Replicas) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// Drain tells the others that this replica accepts no new work.
func (r *Replicas) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	return r.beat(ctx, context.WithoutCancel(ctx))
}

// follow reads where agents are attached, while there are other replicas.
func (r *Replicas) follow(ctx context.Context) error {
	r.mu.Lock()
	alone, after, now := len(r.others) == 0, r.fence, r.cfg.Clock.Now()
	all := now.Sub(r.whole) > wholeEvery
	newest := r.fence
	for _, p := range r.places {
		newest = max(newest, p.Fence)
	}
	r.mu.Unlock()
	if alone {
		return nil
	}
	if all {
		after = 0
	}
	places, err := r.cfg.Store.Attachments(ctx, after)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if all {
		r.whole = now
		// What a call has read since is not among those that were read here.
		maps.DeleteFunc(r.places, func(_ hub.ClusterID, p hub.AgentHome) bool { return p.Fence <= newest })
	}
	for _, p := range places {
		r.storeHome(p)
		r.fence = max(r.fence, p.Fence)
	}
	return nil
}

// storeHome stores a placement unless a newer one is known. The lock is held.
func (r *Replicas) storeHome(p hub.AgentHome) {
	if known, ok := r.places[p.Cluster]; ok && known.Fence > p.Fence {
		return
	}
	if p.Session == "" {
		delete(r.places, p.Cluster)
		return
	}
	r.places[p.Cluster] = p
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	if c.Self.ID == "" || c.Store == nil || c.Agents == nil || c.Heard == nil || c.Log == nil {
		errs = append(errs, errors.New("replicas: Self.ID, Store, Agents, Heard and Log are needed"))
	}
	if (c.Server == nil) != (c.Client == nil) {
		errs = append(errs, errors.New("replicas: Server and Client belong together"))
	}
	if c.Lease < 0 {
		errs = append(errs, errors.New("replicas: the lease is negative"))
	}
	return errors.Join(errs...)
}
