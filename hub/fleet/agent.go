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

	attached atomic.Bool  // Hello went well
	greeted  atomic.Bool  // a Hello is under way
	refused  atomic.Int32 // Hellos that were refused
	beating  atomic.Bool  // a heartbeat stream is open
	asked    atomic.Bool  // to attach again
	life     time.Duration
	backlog  atomic.Uint32
	seq      atomic.Uint64
	lag      atomic.Uint32 // ms
	leader   atomic.Bool
	// incomplete is set until a heartbeat says that the hub has everything.
	incomplete      atomic.Bool
	revocationsSent atomic.Int64 // version of the revocations that were sent to the agent
	written         time.Time    // last byte reported to the attachments; the loop's own

	id, epoch string   // of the attachment; set before attached
	features  []string // that the agent knows; set before attached

	mu     sync.Mutex
	reason error // why the hub ends it; nil: it does not

	// sending is locked while something is sent, which can take long if the
	// peer reads nothing; so mu is another lock.
	sending sync.Mutex
	beat    grpc.BidiStreamingServer[linkv1.Beat, linkv1.BeatReply] // nil: no heartbeat
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
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.beat == nil {
		return
	}
	_ = c.beat.Send(&linkv1.BeatReply{Closing: &linkv1.Closing{Kind: string(f.Kind), Cause: f.Cause, Fix: f.Fix}})
}

// send answers a beat, unless the connection is being ended.
func (c *conn) send(r *linkv1.BeatReply) error {
	if err := c.ending(); err != nil {
		return err
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.beat.Send(r)
}

// listen stores the stream for the drain notice; nil removes it.
func (c *conn) listen(s grpc.BidiStreamingServer[linkv1.Beat, linkv1.BeatReply]) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.beat = s
}
