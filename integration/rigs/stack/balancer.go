package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// A Backend is one place that a balancer passes connections to.
type Backend struct {
	Address string // host:port
	Health  string // URL that answers 200 while it wants new connections
}

// balancerCheck is how often backends are asked.
const balancerCheck = 100 * time.Millisecond

// A Balancer passes TCP connections to backends in turn. It knows nothing of
// what flows through them. One that refuses a connection has been sent
// nothing, so the next one is tried.
type Balancer struct {
	Address string // host:port

	ctx    context.Context
	cancel context.CancelFunc
	ln     net.Listener
	wait   sync.WaitGroup

	mu       sync.Mutex
	backends []Backend
	healthy  map[string]bool
	turn     int
	open     map[net.Conn]bool
}

// StartBalancer starts one on a port of its own. It has no backends yet:
// their configuration may need its address.
func StartBalancer() (*Balancer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a balancer: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Balancer{Address: ln.Addr().String(), ctx: ctx, ln: ln, cancel: cancel, healthy: map[string]bool{}, open: map[net.Conn]bool{}}
	b.wait.Go(b.accept)
	return b, nil
}

// Add adds a backend.
func (b *Balancer) Add(backend Backend) {
	b.mu.Lock()
	b.backends = append(b.backends, backend)
	b.mu.Unlock()
	b.wait.Go(func() { b.watch(b.ctx, backend) })
}

// watch asks a backend whether it wants connections.
func (b *Balancer) watch(ctx context.Context, backend Backend) {
	for ctx.Err() == nil {
		limit, cancel := context.WithTimeout(ctx, time.Second)
		err := poll.OK(limit, backend.Health)
		cancel()
		b.mu.Lock()
		b.healthy[backend.Address] = err == nil
		b.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(balancerCheck):
		}
	}
}

// Healthy waits until a backend wants connections.
func (b *Balancer) Healthy(ctx context.Context, address string) error {
	return poll.Until(ctx, func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.healthy[address] {
			return fmt.Errorf("the balancer passes nothing to %s", address)
		}
		return nil
	})
}

func (b *Balancer) accept() {
	for {
		c, err := b.ln.Accept()
		if err != nil {
			return
		}
		b.wait.Go(func() { b.pass(c) })
	}
}

// pick gives the backends in the order in which they are tried.
func (b *Balancer) pick() []Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	var good, rest []Backend
	for i := range b.backends {
		backend := b.backends[(i+b.turn)%len(b.backends)]
		if b.healthy[backend.Address] {
			good = append(good, backend)
		} else {
			rest = append(rest, backend)
		}
	}
	return append(good, rest...)
}

func (b *Balancer) pass(client net.Conn) {
	defer b.track(client)()
	for _, backend := range b.pick() {
		server, err := net.DialTimeout("tcp", backend.Address, time.Second)
		if err != nil {
			continue
		}
		defer b.track(server)()
		ended := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1]) // either end may go at any time
				_ = pair[0].(*net.TCPConn).CloseWrite()
				ended <- struct{}{}
			}()
		}
		<-ended
		<-ended
		return
	}
}

// track remembers a connection until it is closed.
func (b *Balancer) track(c net.Conn) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[c] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, c)
		_ = c.Close()
	}
}

// Stop ends all connections.
func (b *Balancer) Stop() error {
	b.cancel()
	err := b.ln.Close()
	b.mu.Lock()
	for c := range b.open {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.wait.Wait()
	return err
}
