package link_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between agents and hub. It forwards bytes until it is told to
// cut, or to swallow them.
type proxy struct {
	ln net.Listener

	mu      sync.Mutex
	changed *sync.Cond
	target  string
	budgets []int // bytes that the next connections may carry; then they are unlimited
	conns   map[*pipe]bool
	dials   int
	hole    bool // swallow everything
	live    sync.WaitGroup
}

type pipe struct {
	p        *proxy
	in, out  net.Conn
	mu       sync.Mutex
	left     int // -1: unlimited
	finished bool
}

func newProxy(t testing.TB, target string, budgets ...int) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, budgets: budgets, conns: map[*pipe]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.live.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) stop() {
	_ = p.ln.Close()
	p.cut()
	p.live.Wait()
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.dials++
		target, left := p.target, -1
		if len(p.budgets) > 0 {
			left, p.budgets = p.budgets[0], p.budgets[1:]
		}
		p.changed.Broadcast()
		p.mu.Unlock()
		out, err := net.Dial("tcp", target)
		if err != nil {
			_ = in.Close()
			continue
		}
		c := &pipe{p: p, in: in, out: out, left: left}
		p.mu.Lock()
		p.conns[c] = true
		p.mu.Unlock()
		p.live.Go(func() { c.copy(out, in) })
		p.live.Go(func() { c.copy(in, out) })
	}
}

// cut ends all connections at once.
func (p *proxy) cut() {
	p.mu.Lock()
	var all []*pipe
	for c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.end()
	}
}

// swallow drops every byte from now on and keeps connections open, also those
// that one side has closed, or stops to do so.
func (p *proxy) swallow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = on
}

func (p *proxy) retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// awaitDials waits until that many connections were made.
func (p *proxy) awaitDials(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.dials < n {
		p.changed.Wait()
	}
}

func (p *proxy) dialled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

func (c *pipe) copy(to io.Writer, from io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		c.p.mu.Lock()
		hole := c.p.hole
		c.p.mu.Unlock()
		if n > 0 && !hole {
			m := c.spend(n)
			if _, err := to.Write(b[:m]); err != nil || m < n {
				c.end()
				return
			}
		}
		if err != nil {
			if !hole { // else the other side does not hear of it
				c.end()
			}
			return
		}
	}
}

// spend takes bytes from the budget and says how many may pass.
func (c *pipe) spend(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 {
		return n
	}
	n = min(n, c.left)
	c.left -= n
	return n
}

func (c *pipe) end() {
	c.mu.Lock()
	done := c.finished
	c.finished = true
	c.mu.Unlock()
	if done {
		return
	}
	_ = c.in.Close()
	_ = c.out.Close()
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.changed.Broadcast()
	c.p.mu.Unlock()
}

// open is how many connections are open.
func (p *proxy) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// awaitOpen waits until that many are left.
func (p *proxy) awaitOpen(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.conns) != n {
		p.changed.Wait()
	}
}
