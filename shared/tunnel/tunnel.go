// Package tunnel implements the link: one TLS 1.3 connection that the agent
// opens, on TCP or inside a WebSocket, becomes a Session, on which both sides
// open streams and serve gRPC. It authenticates the other side and does not
// authorize: hub/fleet and agent/link do. Those two call it, and the hub's
// daemon for Split. A stream that cannot be written to within a minute ends its
// session, so nothing waits for ever for a silent peer.
package tunnel

import "time"

// Names that the two sides agree on in the TLS handshake (ALPN).
const (
	ControlProtocol = "link/1"
	BulkProtocol    = "link-bulk/1"
)

// Features that the two sides name in Hello. A feature is used only if the
// other side has named it.
const (
	FeatureProbe       = "probe"            // a hub that knows HelloRequest.probe and EnrollRequest.probe
	FeatureUnsupported = "unsupported-rows" // Ack.unsupported is sent and read
)

const (
	chunk         = 16 << 10         // most bytes of one write, so that a large message never delays a small one for long
	streamLinger  = 30 * time.Second // how long a half-closed stream may stay
	backlog       = 16               // streams that wait to be accepted
	maxCalls      = 128              // calls that a peer may have open on one session
	maxHeaderList = 16 << 10         // bytes of headers of one call
	minWindow     = 256 << 10        // the smallest window of yamux
	greeting      = 20 * time.Second // timeout of an HTTP/2 preface
	smallBuffer   = 4 << 10          // for what is read before a session begins
)

// A Lane is one kind of connection of an attachment, with the settings that
// its traffic needs.
type Lane struct {
	Name        string // for logs
	Protocol    string // in the handshake
	Window      uint32 // window of one stream, in bytes
	CallWindow  int32  // the same for one call
	ConnWindow  int32  // the same for all calls of one stream
	MaxMessage  int    // bytes of one accepted message
	MaxStreams  int    // streams that the peer may have open
	WriteBuffer int    // bytes that gRPC buffers before a write
	// Stall is how long a write may wait for the other side; a longer one
	// ends the session.
	Stall time.Duration
}

// Control is the lane of small messages that must not wait: Hello, heartbeats,
// desired state, reports, single reads.
func Control() Lane {
	return Lane{
		Name: "control", Protocol: ControlProtocol,
		Window: minWindow, CallWindow: 256 << 10, ConnWindow: 1 << 20,
		MaxMessage: 1 << 20, MaxStreams: 8, WriteBuffer: 4 << 10, Stall: time.Minute,
	}
}

// Bulk is the lane of large transfers. It is open only while one runs.
func Bulk() Lane {
	return Lane{
		Name: "bulk", Protocol: BulkProtocol,
		Window: 1 << 20, CallWindow: 1 << 20, ConnWindow: 4 << 20,
		MaxMessage: 4 << 20, MaxStreams: 3, WriteBuffer: chunk, Stall: time.Minute,
	}
}

// LaneOf returns the lane that a handshake agreed on.
func LaneOf(protocol string) (Lane, bool) {
	switch protocol {
	case ControlProtocol:
		return Control(), true
	case BulkProtocol:
		return Bulk(), true
	}
	return Lane{}, false
}
