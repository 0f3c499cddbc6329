package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Parts of yamux's frames that the gate does not need.
const (
	typeWindow = 1
	typeAway   = 3

	flagSYN = 1 // opens a stream
	flagACK = 2 // handles an accepted stream
	flagFIN = 4 // the sender sends nothing more
	flagRST = 8 // the stream is dropped

	mostKnown  = 64      // streams of one session, including half-closed ones
	mostCredit = 1 << 30 // limit of the send window that a peer may grant, in bytes
)

var (
	errReset = errors.New("the other side dropped the stream")
	errAway  = errors.New("the other side accepts no more streams")
)

// serverMux implements yamux with one goroutine, which reads, and with little
// memory besides the unread data of streams: a hub has a session for each
// agent, and nearly all are idle. Writers write themselves, together with the
// frame's header. The reading goroutine never writes, so two sides that both
// write cannot block each other.
type serverMux struct {
	conn  net.Conn
	lane  Lane
	blame func(error) // receives the reason for the end of the session, if users should see it
	done  chan struct{}
	head  [frameHead]byte // of the frame that is read
	first uint32          // number of the next stream that this side opens; guarded by mu

	write sync.Mutex // locked while a frame is sent

	mu      sync.Mutex
	err     error // why it ended; nil: it has not
	away    bool  // the other side accepts no more streams
	streams map[uint32]*serverStream
	arrived []*serverStream // not accepted yet
	more    sync.Cond       // notifies of changes of arrived, err or take
	deliver func(net.Conn)  // receives new streams instead of Accept
	ended   func(error)     // is called by the reader when it ends
	over    bool            // it is
}

// newServerMux starts reading.
func newServerMux(conn net.Conn, lane Lane, dialled bool, blame func(error)) *serverMux {
	m := &serverMux{conn: conn, lane: lane, blame: blame, done: make(chan struct{}), first: 2, streams: map[uint32]*serverStream{}}
	if dialled {
		m.first = 1
	}
	m.more.L = &m.mu
	go m.read()
	return m
}

// Done is closed when the connection has ended.
func (m *serverMux) Done() <-chan struct{} { return m.done }

// Streams is how many are open.
func (m *serverMux) Streams() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams)
}

// Close ends the connection and all streams. It does not wait for the reader.
func (m *serverMux) Close() error {
	m.end(net.ErrClosed)
	return nil
}

// end wakes all waiting goroutines.
func (m *serverMux) end(err error) {
	m.mu.Lock()
	first := m.err == nil
	if first {
		m.err = err
	}
	m.mu.Unlock()
	if !first {
		return
	}
	close(m.done)
	_ = m.conn.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.streams {
		s.stopLinger()
		s.moved.Broadcast()
	}
	m.more.Broadcast()
}

// Open opens a stream. It does not wait until the other side accepts it.
func (m *serverMux) Open() (net.Conn, error) {
	m.mu.Lock()
	if err := m.mayOpen(); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	s := m.add(m.first)
	m.first += 2
	extra := s.extend()
	m.mu.Unlock()
	if err := m.send(typeWindow, flagSYN, s.id, extra, nil); err != nil {
		return nil, err
	}
	return s, nil
}

func (m *serverMux) mayOpen() error {
	switch {
	case m.err != nil:
		return m.err
	case m.away, m.first >= 1<<31:
		return errAway
	case len(m.streams) >= mostKnown:
		return fault.New(fault.Exceeded, "%d streams are open on the session already", len(m.streams))
	}
	return nil
}

func (m *serverMux) add(id uint32) *serverStream {
	s := &serverStream{m: m, id: id, recv: minWindow, credit: minWindow}
	s.moved.L = &m.mu
	m.streams[id] = s
	return s
}

// Accept waits for a stream that the other side opened, and confirms it.
func (m *serverMux) Accept() (net.Conn, error) {
	s, err := m.acceptStream()
	if err == nil {
		err = s.confirm()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (m *serverMux) acceptStream() (*serverStream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.arrived) == 0 {
		if m.err != nil {
			return nil, m.err
		}
		m.more.Wait()
	}
	s := m.arrived[0]
	m.arrived = m.arrived[1:]
	return s, nil
}

// Deliver passes the streams that the other side opens to take, from now on and
// on the reading goroutine, so Accept needs no goroutine; ended is called
// likewise when no more come. The other side learns that a stream is accepted
// by the first read or write.
func (m *serverMux) Deliver(take func(net.Conn), ended func(error)) {
	m.mu.Lock()
	waiting := m.arrived
	m.arrived, m.deliver, m.ended = nil, take, ended
	over, err := m.over, m.err
	m.mu.Unlock()
	for _, s := range waiting {
		take(s)
	}
	if over {
		ended(err)
	}
}

// send writes one frame. A frame that cannot be written in time ends the
// session: it is unknown how much of it was sent.
func (m *serverMux) send(kind byte, flags uint16, id, length uint32, body []byte) error {
	buf := frameBuffer()
	defer frames.Put(buf)
	b := append((*buf)[:0], 0, kind)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint32(b, length)
	b = append(b, body...)
	err := m.put(b)
	if err == nil {
		return nil
	}
	var t net.Error
	if errors.As(err, &t) && t.Timeout() {
		m.blame(errStalled(m.lane, err))
	}
	m.end(err)
	return err
}

func (m *serverMux) put(b []byte) error {
	m.write.Lock()
	defer m.write.Unlock()
	if err := m.conn.SetWriteDeadline(time.Now().Add(m.lane.Stall)); err != nil {
		return err
	}
	_, err := m.conn.Write(b)
	if err == nil { // TLS may have to write on its own
		_ = m.conn.SetWriteDeadline(time.Time{}) // what was written is written, even if the connection has just ended
	}
	return err
}

// read reads frames until the connection ends.
func (m *serverMux) read() {
	err := m.frame()
	for err == nil {
		err = m.frame()
	}
	if f, ok := fault.As(err); ok {
		m.blame(f)
	}
	m.end(err)
	m.mu.Lock()
	m.over = true
	ended, err := m.ended, m.err
	m.mu.Unlock()
	if ended != nil {
		ended(err)
	}
}

// frame reads one frame.
func (m *serverMux) frame() error {
	if _, err := io.ReadFull(m.conn, m.head[:]); err != nil {
		return err
	}
	kind, flags := m.head[1], binary.BigEndian.Uint16(m.head[2:])
	id, length := binary.BigEndian.Uint32(m.head[4:]), binary.BigEndian.Uint32(m.head[8:])
	switch {
	case m.head[0] != 0 || kind > typeAway:
		return errNonsense("a frame of version %d and type %d", m.head[0], kind)
	case kind == typePing:
		return errPing()
	case kind == typeAway:
		if length != 0 {
			return errNonsense("a go-away frame with code %d", length)
		}
		m.mu.Lock()
		m.away = true
		m.mu.Unlock()
		return nil
	}
	s, err := m.find(id, flags)
	if err != nil {
		return err
	}
	if kind == typeData {
		if err := m.body(s, length); err != nil {
			return err
		}
	}
	if s == nil {
		return nil // it was dropped; the other side does not know that yet
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if kind == typeWindow {
		if s.credit += int64(length); s.credit > mostCredit {
			return errNonsense("a window of %d bytes", s.credit)
		}
	}
	s.closing(flags)
	s.moved.Broadcast()
	return nil
}

// find returns the stream of a frame, and opens it if the frame says so.
func (m *serverMux) find(id uint32, flags uint16) (*serverStream, error) {
	m.mu.Lock()
	s := m.streams[id]
	if flags&flagSYN == 0 {
		m.mu.Unlock()
		return s, nil
	}
	known, mine := len(m.streams), id%2 == m.first%2
	if s != nil || id == 0 || mine || known >= mostKnown {
		m.mu.Unlock()
		if known >= mostKnown {
			return nil, fault.New(fault.Exceeded, "more than %d streams were opened on the session", mostKnown)
		}
		return nil, errNonsense("stream %d opened twice, or by the wrong side", id)
	}
	s = m.add(id)
	s.ackDue = true
	take := m.deliver
	if take == nil {
		m.arrived = append(m.arrived, s)
		m.more.Signal()
	}
	m.mu.Unlock()
	if take != nil {
		take(s)
	}
	return s, nil
}

// body reads the data of a frame, in small parts, so that a peer that announces
// much and sends little uses no memory.
func (m *serverMux) body(s *serverStream, length uint32) error {
	if s != nil {
		m.mu.Lock()
		enough := length <= s.recv
		s.recv -= min(s.recv, length)
		m.mu.Unlock()
		if !enough {
			return errNonsense("%d bytes more than stream %d may have", length, s.id)
		}
	}
	for length > 0 {
		piece := make([]byte, min(length, chunk))
		if _, err := io.ReadFull(m.conn, piece); err != nil {
			return err
		}
		length -= uint32(len(piece))
		if s != nil {
			s.buffer(piece)
		}
	}
	return nil
}

func errNonsense(format string, args ...any) error {
	return fault.New(fault.Invalid, "the other side of the link breaks the protocol: %s", fmt.Sprintf(format, args...))
}

func errStalled(lane Lane, err error) error {
	return fault.Wrap(fault.Offline, err, "the other side of the link read no data for %s", lane.Stall)
}

// frames has buffers for one frame each.
var frames sync.Pool //nolint:gochecknoglobals // a pool serves all sessions of a process

func frameBuffer() *[]byte {
	if b, ok := frames.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, frameHead+chunk)
	return &b
}
