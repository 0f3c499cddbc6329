package tunnel

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// ErrClosed is the reason of a session that ended without one.
var ErrClosed = errors.New("the connection ended")

// A Session is one connection of the link with its streams. Its creator closes
// it; until then both sides may open streams.
type Session struct {
	mux     Mux
	wire    *wire
	lane    Lane
	carrier string
	peer    Peer
	refusal error // why there is no peer; nil if there is one
	log     *slog.Logger
	idle    time.Duration

	inbound atomic.Int32 // streams that the other side has open
	calls   atomic.Int32 // calls of the other side that run

	mu     sync.Mutex
	closed bool
	reason error
	client *grpc.ClientConn
	live   *grpc.ClientConn // of the service Live
	remote *grpc.ClientConn // of the service Remote
}

// SessionConfig configures a session on a connection.
type SessionConfig struct {
	Lane    Lane
	Dialled bool // this side opened the connection
	// Carrier is what the connection runs over; empty: CarrierTLS.
	Carrier string
	// Peer is the authenticated other side; Refusal is why there is none.
	Peer    Peer
	Refusal error
	Log     *slog.Logger
	Clock   lifecycle.Clock
	// Idle is after how long without a call Conn closes its stream; zero means
	// never.
	Idle time.Duration
}

// NewSession starts the multiplexer on a connection whose handshake is done.
func NewSession(conn net.Conn, cfg SessionConfig) (*Session, error) {
	w := newWire(conn, cfg.Clock)
	s := &Session{
		wire: w, lane: cfg.Lane, carrier: cmp.Or(cfg.Carrier, CarrierTLS), peer: cfg.Peer, refusal: cfg.Refusal,
		log: cfg.Log, idle: cfg.Idle,
	}
	if !cfg.Dialled {
		s.mux = newServerMux(w, cfg.Lane, false, s.blame)
		return s, nil
	}
	var err error
	s.mux, err = newYamux(w, cfg.Lane, cfg.Log)
	return s, err
}

// blame notes why the session is about to end, unless that is known.
func (s *Session) blame(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = reason
	}
}

// Peer is the authenticated other side; false if there is none.
func (s *Session) Peer() (Peer, bool) { return s.peer, s.refusal == nil && s.peer != Peer{} }

// Refusal is why Peer is false, as a fault that the other side may read.
func (s *Session) Refusal() error {
	if s.refusal == nil {
		return fault.New(fault.Unknown, "no client certificate was presented")
	}
	return s.refusal
}

// Lane is what the session is for.
func (s *Session) Lane() Lane { return s.lane }

// Carrier is what the session runs over: CarrierTLS or CarrierWebSocket.
func (s *Session) Carrier() string { return s.carrier }

// Address is the address of the other side.
func (s *Session) Address() string { return s.wire.RemoteAddr().String() }

// LastByte is when a byte was received last.
func (s *Session) LastByte() time.Time { return time.Unix(0, s.wire.last.Load()) }

// Bytes is how much was received and sent.
func (s *Session) Bytes() (received, sent int64) { return s.wire.in.Load(), s.wire.out.Load() }

// Streams is how many streams are open in both directions.
func (s *Session) Streams() int { return s.mux.Streams() }

// Done is closed when the connection has ended. The owner still calls Close.
func (s *Session) Done() <-chan struct{} { return s.mux.Done() }

// Err is why the session ended; nil while it lives.
func (s *Session) Err() error {
	select {
	case <-s.mux.Done():
	default:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != nil {
		return s.reason
	}
	return ErrClosed
}

// Close ends the session at once. The first reason is stored for Err.
func (s *Session) Close(reason error) {
	s.mu.Lock()
	if s.reason == nil {
		s.reason = reason
	}
	first := !s.closed
	s.closed = true
	clients := [...]*grpc.ClientConn{s.client, s.live, s.remote}
	s.mu.Unlock()
	if !first {
		return
	}
	_ = s.mux.Close() // its only error is that it was closed before
	for _, c := range clients {
		if c != nil {
			_ = c.Close()
		}
	}
}

// Open opens a raw stream to the other side.
func (s *Session) Open() (net.Conn, error) {
	c, err := s.mux.Open()
	if err != nil {
		return nil, fault.Wrap(fault.Offline, err, "the other side of the link is not connected")
	}
	return &stream{Conn: c, session: s}, nil
}

// Accept waits for a stream of the other side. A peer with more streams open
// than its lane allows loses its session.
func (s *Session) Accept() (net.Conn, error) {
	c, err := s.mux.Accept()
	if err != nil {
		return nil, err
	}
	return s.admit(c)
}

// deliver passes the streams of the other side to take as they arrive, and
// calls ended once when no more can come. Both run where the session is read,
// so Accept needs no goroutine. It is false if the session does not support
// that.
func (s *Session) deliver(take func(net.Conn), ended func(error)) bool {
	m, ok := s.mux.(*serverMux)
	if !ok {
		return false
	}
	m.Deliver(func(c net.Conn) {
		if c, err := s.admit(c); err == nil {
			take(c)
		}
	}, func(err error) { ended(cmp.Or(s.Err(), err)) })
	return true
}

// admit counts a stream of the other side.
func (s *Session) admit(c net.Conn) (net.Conn, error) {
	if int(s.inbound.Add(1)) > s.lane.MaxStreams {
		err := fault.New(fault.Exceeded, "more than %d streams were opened on the %s lane", s.lane.MaxStreams, s.lane.Name)
		s.Close(err)
		return nil, err
	}
	return &stream{Conn: c, session: s, release: func() { s.inbound.Add(-1) }}, nil
}

// wire is the connection below the multiplexer. It counts bytes and records the
// time of the last one.
type wire struct {
	net.Conn
	clock   lifecycle.Clock
	last    atomic.Int64 // Unix nanoseconds
	in, out atomic.Int64
}

func newWire(conn net.Conn, clock lifecycle.Clock) *wire {
	w := &wire{Conn: conn, clock: clock}
	w.last.Store(clock.Now().UnixNano())
	return w
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.last.Store(w.clock.Now().UnixNano())
		w.in.Add(int64(n))
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.out.Add(int64(n))
	return n, err
}

// Close closes the connection below TLS: a TLS close notification may wait for
// seconds if the other side no longer reads, and nothing depends on it.
func (w *wire) Close() error {
	if t, ok := w.Conn.(*tls.Conn); ok {
		return t.NetConn().Close() // TCP, or a WebSocket, which does the same
	}
	return w.Conn.Close()
}

// stream is one stream of a session: small writes, each with a deadline.
type stream struct {
	net.Conn
	session *Session
	once    sync.Once
	release func() // nil for streams that this side opened
}

// Read returns what was received. An idle stream has no read buffer: most are
// idle nearly always.
func (c *stream) Read(b []byte) (int, error) {
	if s, ok := c.Conn.(bufferTrimmer); ok {
		s.TrimBuffers()
	}
	return c.Conn.Read(b)
}

// A bufferTrimmer is a stream that can release its memory while it has no data.
type bufferTrimmer interface{ TrimBuffers() }

// Write sends in chunks. A chunk that cannot be sent in time ends the session:
// the other side has an incomplete stream then.
func (c *stream) Write(b []byte) (int, error) {
	var sent int
	for sent < len(b) {
		part := b[sent:min(len(b), sent+chunk)]
		if err := c.SetWriteDeadline(time.Now().Add(c.session.lane.Stall)); err != nil {
			return sent, err
		}
		n, err := c.Conn.Write(part)
		sent += n
		if err == nil {
			continue
		}
		var t net.Error
		if errors.As(err, &t) && t.Timeout() {
			c.session.Close(errStalled(c.session.lane, err))
		}
		return sent, err
	}
	return sent, nil
}

// Close ends the stream.
func (c *stream) Close() error {
	c.once.Do(func() {
		if c.release != nil {
			c.release()
		}
	})
	return c.Conn.Close()
}
