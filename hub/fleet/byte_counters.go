package fleet

import (
	"sync"

	"github.com/capstan-cd/capstan/shared/tunnel"
)

// LaneBytes is the connections of one lane to this replica.
type LaneBytes struct {
	Lane           string
	Sessions       int
	Streams        int
	Received, Sent int64   // bytes since the start, ended connections included
	Silence        float64 // seconds since the last byte of the most silent one
	Backlog        int64   // records that agents wait to report
}

// byteCounters adds up the bytes of ended connections.
type byteCounters struct {
	mu    sync.Mutex
	ended map[string][2]int64
}

func (t *byteCounters) add(s *tunnel.Session) {
	in, out := s.Bytes()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = map[string][2]int64{}
	}
	was := t.ended[s.Lane().Name]
	t.ended[s.Lane().Name] = [2]int64{was[0] + in, was[1] + out}
}

// ByteCounts says how the connections of this replica stand, by lane.
func (s *Server) ByteCounts() []LaneBytes {
	out := []LaneBytes{{Lane: tunnel.Control().Name}, {Lane: tunnel.Bulk().Name}}
	live := s.agents.all()
	s.bytes.mu.Lock()
	for i := range out {
		out[i].Received, out[i].Sent = s.bytes.ended[out[i].Lane][0], s.bytes.ended[out[i].Lane][1]
	}
	s.bytes.mu.Unlock()
	now := s.cfg.Clock.Now()
	for _, c := range live {
		f := &out[0]
		if c.session.Lane().Name == out[1].Lane {
			f = &out[1]
		}
		in, sent := c.session.Bytes()
		f.Sessions++
		f.Streams += c.session.Streams()
		f.Received += in
		f.Sent += sent
		f.Silence = max(f.Silence, now.Sub(c.session.LastByte()).Seconds())
		f.Backlog += int64(c.reported.backlog.Load())
	}
	return out
}
