// Package faultproxy has proxies that stand between two real parts, record
// what passes and inject faults: Wire for any TCP connection, SQLWire for the
// statements of a hub, Ledger for an agent's requests to its API server. A
// proxy changes nothing unless a test tells it to.
package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Direction is one or both ways through a Wire.
type Direction int

// The directions, from the side that dialled.
const (
	Neither Direction = 0
	Up      Direction = 1 // from who dialled to who listens
	Down    Direction = 2 // back
	Both    Direction = Up | Down
)

// NetworkFaults is what a Wire does to bytes. The zero value lets them pass.
type NetworkFaults struct {
	Swallow Direction     // read and dropped, while connections stay open
	Delay   time.Duration // of every piece
	Jitter  time.Duration // at most this much more, at random: TCP hides loss and order behind it
	Rate    int           // bytes a second for each connection and direction; 0: no limit
	Line    int           // bytes a second for all connections together, in each direction; 0: no limit
	Corrupt int           // one bit is flipped in every so many bytes; 0: none
	Refuse  bool          // new connections are reset at once
}

// A Wire stands between two parts that speak TCP and fails as networks do.
// Its methods may be called at any time, by several goroutines.
type Wire struct {
	ln   net.Listener
	live sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	target  string
	faults  NetworkFaults
	conns   map[*wireConn]bool
	budgets []int // bytes that the next connections may carry before they are reset
	dials   int
	closed  bool
	lines   [2]sync.Mutex // held while a piece is on the line that all share, up and down
}

type wireConn struct {
	w       *Wire
	in, out *net.TCPConn
	once    sync.Once
	left    int // -1: no limit; guarded by w.mu
}

// NewWire starts a wire to a TCP address. The caller must Stop it.
func NewWire(target string) (*Wire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a wire to %s: %w", target, err)
	}
	w := &Wire{ln: ln, target: target, conns: map[*wireConn]bool{}}
	w.changed = sync.NewCond(&w.mu)
	w.live.Go(w.accept)
	return w, nil
}

// Addr is where to dial.
func (w *Wire) Addr() string { return w.ln.Addr().String() }

// Stop resets everything and returns when nothing is left.
func (w *Wire) Stop() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.ln.Close()
	w.Cut()
	w.live.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Set changes the network faults of open and new connections.
func (w *Wire) Set(x NetworkFaults) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = x
}

// Retarget sends new connections elsewhere.
func (w *Wire) Retarget(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = target
}

// Budget resets each of the next connections after so many bytes, both ways
// together.
func (w *Wire) Budget(bytes ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budgets = append(w.budgets, bytes...)
}

// Cut resets all connections (RST), and says how many there were.
func (w *Wire) Cut() int {
	w.mu.Lock()
	var all []*wireConn
	for s := range w.conns {
		all = append(all, s)
	}
	w.mu.Unlock()
	for _, s := range all {
		s.reset()
	}
	return len(all)
}

// Dials is how many connections were made; Open is how many are open.
func (w *Wire) Dials() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

// Open is how many connections are open.
func (w *Wire) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// AwaitDials waits until so many connections were made in all.
func (w *Wire) AwaitDials(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.dials < n && !w.closed {
		w.changed.Wait()
	}
}

func (w *Wire) accept() {
	for {
		conn, err := w.ln.Accept()
		if err != nil {
			w.mu.Lock()
			w.changed.Broadcast()
			w.mu.Unlock()
			return
		}
		in := conn.(*net.TCPConn)
		w.mu.Lock()
		w.dials++
		w.changed.Broadcast()
		target, refuse, left := w.target, w.faults.Refuse, -1
		if len(w.budgets) > 0 {
			left, w.budgets = w.budgets[0], w.budgets[1:]
		}
		w.mu.Unlock()
		if refuse {
			drop(in)
			continue
		}
		w.live.Go(func() { w.carry(in, target, left) })
	}
}

func (w *Wire) carry(in *net.TCPConn, target string, left int) {
	conn, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		drop(in)
		return
	}
	s := &wireConn{w: w, in: in, out: conn.(*net.TCPConn), left: left}
	w.mu.Lock()
	w.conns[s] = true
	gone := w.closed
	w.mu.Unlock()
	if gone {
		s.reset()
	}
	var both sync.WaitGroup
	both.Go(func() { s.copy(s.out, s.in, Up) })
	both.Go(func() { s.copy(s.in, s.out, Down) })
	both.Wait()
	s.reset()
}

// copy passes bytes one way. The end of one side is passed on, as TCP does,
// unless the wire swallows it: the other side then sees a half-open peer.
func (s *wireConn) copy(to, from *net.TCPConn, way Direction) {
	piece := make([]byte, 16<<10)
	carried := 0
	for {
		n, err := from.Read(piece)
		x, may := s.spend(n)
		swallow := x.Swallow&way != 0
		if n > 0 && !swallow {
			s.w.line(x, way, n)
			x.spoil(piece[:n], carried)
			carried += n
			if _, err := to.Write(piece[:may]); err != nil {
				s.reset()
				return
			}
		}
		if may == n && err == nil {
			continue
		}
		if may < n || !errors.Is(err, io.EOF) {
			s.reset()
		} else if !swallow {
			_ = to.CloseWrite()
		}
		return
	}
}

// spoil delays a piece, and flips a bit of it if its turn has come after the
// bytes carried before it.
func (x NetworkFaults) spoil(piece []byte, carried int) {
	n := len(piece)
	if wait := x.wait(n); wait > 0 {
		time.Sleep(wait)
	}
	if x.Corrupt > 0 && carried/x.Corrupt != (carried+n)/x.Corrupt {
		piece[rand.IntN(n)] ^= 1 << rand.IntN(8)
	}
}

// line waits for the turn of a piece on the line that all connections share,
// and for as long as it is on it.
func (w *Wire) line(x NetworkFaults, way Direction, n int) {
	if x.Line == 0 {
		return
	}
	turn := &w.lines[way/2]
	turn.Lock()
	defer turn.Unlock()
	time.Sleep(time.Duration(n) * time.Second / time.Duration(x.Line))
}

func (x NetworkFaults) wait(n int) time.Duration {
	d := x.Delay
	if x.Jitter > 0 {
		d += rand.N(x.Jitter)
	}
	if x.Rate > 0 {
		d += time.Duration(n) * time.Second / time.Duration(x.Rate)
	}
	return d
}

// spend takes bytes from the budget and says how many may pass.
func (s *wireConn) spend(n int) (NetworkFaults, int) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.left < 0 {
		return s.w.faults, n
	}
	may := min(n, s.left)
	s.left -= may
	return s.w.faults, may
}

func (s *wireConn) reset() {
	s.once.Do(func() {
		drop(s.in)
		drop(s.out)
		s.w.mu.Lock()
		delete(s.w.conns, s)
		s.w.changed.Broadcast()
		s.w.mu.Unlock()
	})
}

// drop closes a connection with a reset.
func drop(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
