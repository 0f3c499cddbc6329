package tunnel

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// serverStream is one stream of a serverMux. All but id and m is guarded by the
// multiplexer's mu.
type serverStream struct {
	m  *serverMux
	id uint32

	writing sync.Mutex // locked by a Write, so that two do not interleave
	moved   sync.Cond  // anything below has changed

	ackDue   bool   // the other side opened it, and was not sent the confirmation yet
	data     []byte // unread
	at       int    // of data is read
	recv     uint32 // bytes that the other side may still send
	credit   int64  // bytes that this side may still send
	finished bool   // the other side sends no more
	reset    bool   // the other side has dropped it
	closed   bool   // closed by this side
	linger   *time.Timer
	readBy   time.Time
	writeBy  time.Time
}

// flags returns the flags of the next frame.
func (s *serverStream) flags() uint16 {
	if s.ackDue {
		s.ackDue = false
		return flagACK
	}
	return 0
}

// extend returns by how much more the other side may send, if that is worth a
// frame: half a window.
func (s *serverStream) extend() uint32 {
	window := max(s.m.lane.Window, minWindow)
	room := window - min(window, uint32(len(s.data)-s.at))
	if extra := room - min(room, s.recv); extra >= window/2 {
		s.recv += extra
		return extra
	}
	return 0
}

// buffer stores data until it is read.
func (s *serverStream) buffer(piece []byte) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	switch {
	case s.closed: // nobody reads it
	case len(s.data) == 0:
		s.data, s.at = piece, 0
	default:
		if s.at > len(s.data)/2 {
			s.data, s.at = s.data[:copy(s.data, s.data[s.at:])], 0
		}
		s.data = append(s.data, piece...)
	}
	s.moved.Broadcast()
}

// closing processes the flags of a frame that end the stream.
func (s *serverStream) closing(flags uint16) {
	if flags&flagRST != 0 {
		s.reset = true
	}
	if flags&flagFIN != 0 {
		s.finished = true
	}
	if s.reset || s.finished && s.closed {
		s.stopLinger()
		delete(s.m.streams, s.id)
	}
}

func (s *serverStream) stopLinger() {
	if s.linger != nil {
		s.linger.Stop()
	}
}

// confirm confirms the stream to the side that opened it, unless it was, and
// sends the window.
func (s *serverStream) confirm() error {
	s.m.mu.Lock()
	f := s.flags()
	if f == 0 {
		s.m.mu.Unlock()
		return nil
	}
	extra := s.extend()
	s.m.mu.Unlock()
	return s.m.send(typeWindow, f, s.id, extra, nil)
}

// Read waits for data. Data that arrived before the end is read first.
func (s *serverStream) Read(b []byte) (int, error) {
	s.m.mu.Lock()
	for {
		if err := s.ready(); err != nil {
			s.m.mu.Unlock()
			return 0, err
		}
		if s.at < len(s.data) {
			break
		}
		if s.ackDue {
			s.m.mu.Unlock()
			if err := s.confirm(); err != nil {
				return 0, err
			}
			s.m.mu.Lock()
			continue
		}
		s.wait(s.readBy)
	}
	n := copy(b, s.data[s.at:])
	if s.at += n; s.at == len(s.data) {
		s.data, s.at = nil, 0
	}
	extra := uint32(0)
	if !s.finished && !s.reset && s.m.err == nil {
		extra = s.extend()
	}
	var f uint16
	if extra > 0 {
		f = s.flags()
	}
	s.m.mu.Unlock()
	if extra > 0 {
		_ = s.m.send(typeWindow, f, s.id, extra, nil) // what was read is valid nevertheless
	}
	return n, nil
}

// ready is the reason why nothing can be read any more.
func (s *serverStream) ready() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case late(s.readBy):
		return os.ErrDeadlineExceeded
	case s.at < len(s.data):
		return nil
	case s.reset:
		return errReset
	case s.finished:
		return io.EOF
	}
	if s.m.err != nil {
		return io.EOF // it ended with the session, for the same reason
	}
	return nil
}

// Write sends everything, or as much as possible before an end or the deadline.
func (s *serverStream) Write(b []byte) (sent int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for sent < len(b) {
		n, f, err := s.reserve(min(len(b)-sent, chunk))
		if err != nil {
			return sent, err
		}
		part := b[sent : sent+n]
		if err := s.m.send(typeData, f, s.id, uint32(n), part); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// reserve waits until some of want may be sent.
func (s *serverStream) reserve(want int) (n int, flags uint16, err error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, 0, net.ErrClosed
		case s.reset:
			return 0, 0, errReset
		case s.m.err != nil:
			return 0, 0, s.m.err
		case late(s.writeBy):
			return 0, 0, os.ErrDeadlineExceeded
		case s.credit > 0:
			n = int(min(int64(want), s.credit))
			s.credit -= int64(n)
			return n, s.flags(), nil
		}
		s.wait(s.writeBy)
	}
}

// wait waits for a change, at most until a deadline; zero: there is none.
func (s *serverStream) wait(by time.Time) {
	if !by.IsZero() {
		t := time.AfterFunc(time.Until(by), s.wake)
		defer t.Stop()
	}
	s.moved.Wait()
}

func (s *serverStream) wake() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.moved.Broadcast()
}

func late(by time.Time) bool { return !by.IsZero() && !time.Now().Before(by) }

// Close ends both directions on this side and notifies the other one. A stream
// that the other side does not end as well is dropped after a while.
func (s *serverStream) Close() error {
	s.m.mu.Lock()
	if s.closed || s.m.err != nil || s.reset {
		s.closed = true
		s.data, s.at = nil, 0
		s.moved.Broadcast()
		s.m.mu.Unlock()
		return nil
	}
	s.closed = true
	s.data, s.at = nil, 0
	f := s.flags() | flagFIN
	if s.closing(0); !s.finished {
		s.linger = time.AfterFunc(streamLinger, s.drop)
	}
	s.moved.Broadcast()
	s.m.mu.Unlock()
	return s.m.send(typeWindow, f, s.id, 0, nil)
}

// drop removes a stream that the other side has left half-open for too long.
func (s *serverStream) drop() {
	s.m.mu.Lock()
	there := s.m.err == nil && s.m.streams[s.id] == s
	if there {
		delete(s.m.streams, s.id)
	}
	s.m.mu.Unlock()
	if there {
		_ = s.m.send(typeWindow, flagRST, s.id, 0, nil) // the session ends if it cannot be sent
	}
}

// SetDeadline sets both deadlines.
func (s *serverStream) SetDeadline(t time.Time) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.readBy, s.writeBy = t, t
	s.moved.Broadcast()
	return nil
}

// SetReadDeadline makes reads fail from t on, also waiting ones.
func (s *serverStream) SetReadDeadline(t time.Time) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.readBy = t
	s.moved.Broadcast()
	return nil
}

// SetWriteDeadline makes writes fail from t on, also waiting ones.
func (s *serverStream) SetWriteDeadline(t time.Time) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.writeBy = t
	s.moved.Broadcast()
	return nil
}

// LocalAddr is that of the connection.
func (s *serverStream) LocalAddr() net.Addr { return s.m.conn.LocalAddr() }

// RemoteAddr is that of the connection.
func (s *serverStream) RemoteAddr() net.Addr { return s.m.conn.RemoteAddr() }
