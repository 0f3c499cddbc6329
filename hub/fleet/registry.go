package fleet

import (
	"fmt"
	"slices"
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	mostStale    = 8    // replaced processes of one agent that are remembered
	mostOfAgent  = 8    // connections of one agent, on both lanes
	mostUnproven = 4096 // connections without a good certificate
)

// registry is the connections of this replica.
type registry struct {
	mu       sync.Mutex
	conns    map[*tunnel.Session]*conn
	agents   map[string][]*conn // by agent id; "" for those that proved nothing
	clusters map[hub.ClusterID]*attachment
}

// attachment is where the one attachment of a cluster's agent stands.
type attachment struct {
	current *conn
	stale   []string // epochs of processes that a newer one has replaced
}

func newRegistry() *registry {
	return &registry{conns: map[*tunnel.Session]*conn{}, agents: map[string][]*conn{}, clusters: map[hub.ClusterID]*attachment{}}
}

// add registers a connection, unless there are too many like it.
func (r *registry) add(c *conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, most := c.peer.AgentID, mostOfAgent
	if id == "" {
		most = mostUnproven
	}
	if len(r.agents[id]) >= most {
		return fmt.Errorf("agent %q has %d connections already", id, most)
	}
	r.agents[id] = append(r.agents[id], c)
	r.conns[c.session] = c
	return nil
}

func (r *registry) find(s *tunnel.Session) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns[s]
}

func (r *registry) all() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*conn, 0, len(r.conns))
	for _, c := range r.conns {
		out = append(out, c)
	}
	return out
}

// remove unregisters a connection and returns those that end with it: the bulk
// connections of an attachment.
func (r *registry) remove(c *conn) []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c.session)
	id := c.peer.AgentID
	rest := slices.DeleteFunc(r.agents[id], func(o *conn) bool { return o == c })
	r.agents[id] = rest
	if len(rest) == 0 {
		delete(r.agents, id)
	}
	p := r.clusters[c.cluster()]
	if p == nil || p.current != c {
		return nil
	}
	delete(r.clusters, c.cluster())
	var bulk []*conn
	for _, o := range rest {
		if o.session.Lane().Protocol == tunnel.BulkProtocol {
			bulk = append(bulk, o)
		}
	}
	return bulk
}

// mayAttach refuses a process that a newer one of the same agent has
// replaced, for as long as that one is here: two that replace each other in
// turn would never come to rest.
func (r *registry) mayAttach(cluster hub.ClusterID, epoch string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.clusters[cluster]; p != nil && p.current != nil && slices.Contains(p.stale, epoch) {
		return errReplaced()
	}
	return nil
}

// attach makes c the attachment of its cluster and returns the one that it
// replaces, if any. It is false if c has ended since.
func (r *registry) attach(c *conn) (old *conn, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns[c.session] != c {
		return nil, false
	}
	p := r.clusters[c.cluster()]
	if p == nil {
		p = &attachment{}
		r.clusters[c.cluster()] = p
	}
	old = p.current
	p.current = c
	c.attached.Store(true)
	if old != nil && old.epoch != c.epoch {
		p.stale = append(p.stale, old.epoch)
		p.stale = p.stale[max(0, len(p.stale)-mostStale):]
	}
	return old, true
}

// current returns the attachment of a cluster.
func (r *registry) current(cluster hub.ClusterID) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.clusters[cluster]; p != nil {
		return p.current
	}
	return nil
}

func errReplaced() error {
	return fault.With(
		fault.New(fault.Conflict, "another process with the same agent identity attached after this one"),
		"", "let only one agent run in a cluster; if its Secret was copied to another cluster, enrol that one with a join token of its own")
}

func errSecondConnection() error {
	return fault.New(fault.Conflict, "the same agent opened a newer connection")
}
