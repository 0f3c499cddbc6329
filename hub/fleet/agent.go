package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// drainTime is how long a session that the hub ends may stay open, so that the
// agent receives the reason. An agent ends it as soon as it has.
const drainTime = 2 * time.Second

// conn is one connection of an agent, on either lane.
type conn struct {
	session *tunnel.Session
	peer    tunnel.Peer // zero while nothing was proved
	until   time.Time   // end of the certificate
	opened  time.Time
	life    time.Duration

	hello           hello
	attached        atomic.Bool  // Hello went well
	id, epoch       string       // of the attachment; set before attached
	features        []string     // that the agent knows; set before attached
	written         time.Time    // last byte reported to the attachments; the loop's own
	revocationsSent atomic.Int64 // version of the revocations that were sent to the agent
	asked           atomic.Bool  // to attach again

	reported reported
	beats    beatStream

	mu     sync.Mutex
	reason error // why the hub ends it; nil: it does not
}

// hello is the state of the connection's Hellos.
type hello struct {
	running atomic.Bool
	refused atomic.Int32
}

// reported is what the agent said last about its work, in Hello or in a
// heartbeat.
type reported struct {
	backlog    atomic.Uint32
	seq        atomic.Uint64
	lag        atomic.Uint32 // ms
	leader     atomic.Bool
	incomplete atomic.Bool // the hub does not have everything yet
}

// begin is the state after a Hello: no heartbeat has said anything.
func (r *reported) begin(leader bool) {
	r.leader.Store(leader)
	r.incomplete.Store(true)
}

func (r *reported) store(b *linkv1.Beat) {
	r.backlog.Store(b.GetReportBacklog())
	r.seq.Store(b.GetAppliedSeq())
	r.lag.Store(b.GetLagMs())
	r.leader.Store(b.GetLeader())
	r.incomplete.Store(b.GetIncomplete())
}

// heartbeat is what the store learns of it.
func (r *reported) heartbeat() hub.Heartbeat {
	return hub.Heartbeat{
		Backlog: r.backlog.Load(), Seq: r.seq.Load(), Lag: time.Duration(r.lag.Load()) * time.Millisecond,
		Leader: r.leader.Load(), Incomplete: r.incomplete.Load(),
	}
}

// A beatStream is the heartbeat of the connection.
type beatStream struct {
	open atomic.Bool

	// mu is locked while something is sent, which can take long if the peer
	// reads nothing.
	mu     sync.Mutex
	stream grpc.BidiStreamingServer[linkv1.Beat, linkv1.BeatReply] // nil: no heartbeat
}

// set stores the stream; nil removes it.
func (b *beatStream) set(s grpc.BidiStreamingServer[linkv1.Beat, linkv1.BeatReply]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stream = s
}

// send reports false if there is no heartbeat.
func (b *beatStream) send(r *linkv1.BeatReply) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream == nil {
		return false, nil
	}
	return true, b.stream.Send(r)
}

func (c *conn) cluster() hub.ClusterID { return hub.ClusterID(c.peer.Cluster) }
func (c *conn) tenant() hub.TenantID   { return hub.TenantID(c.peer.Tenant) }

// ending returns why the hub ends the connection, or nil.
func (c *conn) ending() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// part ends a connection: the reason is sent to the agent if it listens, calls
// are refused from now on, and the connection closes a moment later. It does
// not wait.
func (c *conn) part(reason error) {
	c.mu.Lock()
	first := c.reason == nil
	if first {
		c.reason = reason
	}
	c.mu.Unlock()
	if !first {
		return
	}
	// A peer that reads nothing may block the drain notice, and the close
	// unblocks it; neither delays the caller.
	time.AfterFunc(drainTime, func() { c.session.Close(reason) })
	time.AfterFunc(0, func() { c.sendReason(reason) })
}

func (c *conn) sendReason(reason error) {
	f, ok := fault.As(reason)
	if !ok {
		return
	}
	_, _ = c.beats.send(&linkv1.BeatReply{Closing: &linkv1.Closing{Kind: string(f.Kind), Cause: f.Cause, Fix: f.Fix}})
}

// send answers a beat, unless the connection is being ended.
func (c *conn) send(r *linkv1.BeatReply) error {
	if err := c.ending(); err != nil {
		return err
	}
	_, err := c.beats.send(r)
	return err
}
