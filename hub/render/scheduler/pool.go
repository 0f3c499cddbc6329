// Package scheduler runs renders in worker processes: it shares the workers
// among tenants, starts and ends the processes, watches what they use of the
// machine, and checks what they answer. It knows no application and no work
// queue: the stage of hub/render hands it requests through render.Renderer. The
// daemon runs one Pool per replica. A worker serves one tenant for its life, and
// one that did not answer in order is never used again.
package scheduler

import (
	"context"
	"errors"
	"github.com/capstan-cd/capstan/shared/logkey"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
	loop "github.com/capstan-cd/capstan/shared/lifecycle"
)

// A Pool renders in worker processes. A worker serves only one tenant. Waiting
// tenants are served in turn, so that the thousand applications of one do not
// delay the single application of another. A long render yields its slot to
// those of others. It is safe for use by many goroutines.
type Pool struct {
	cfg render.Config

	mu           sync.Mutex
	waiting      map[hub.TenantID][]*ticket
	turns        []hub.TenantID // tenants that wait, next first
	busy         map[hub.TenantID]int
	running      map[*slotLease]struct{}
	shortRunning int        // slots that are not long: at most Workers
	long         int        // slots that are long: what Processes leaves
	idle         []*process // longest idle first
	slow         map[hub.TenantID]time.Time
	heavy        map[rendered]time.Time // applications whose render passed a limit lately, and until when that counts
	used         map[hub.TenantID]usage
	forgot       time.Time // when old use was last dropped
	closed       bool
	quit         chan struct{}
	caged        string // what the last worker reported about its sandbox
	ended        int64  // workers that were lost or had to be ended in a render
}

// A ticket is one render that waits for its turn.
type ticket struct {
	tenant  hub.TenantID
	app     string     // empty: not known
	granted chan grant // capacity 1: a grant never waits for its taker
}

// A rendered is an application as the pool knows it.
type rendered struct {
	tenant hub.TenantID
	app    string
}

// A grant is the right to one worker.
type grant struct {
	*slotLease
	use   *process   // an idle worker of the tenant; nil: start one
	evict []*process // idle workers that must end
}

// NewPool checks the configuration. No worker is started before it is needed;
// Run ends idle ones.
func NewPool(cfg render.Config) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Pool{
		cfg: cfg.WithDefaults(), waiting: map[hub.TenantID][]*ticket{}, busy: map[hub.TenantID]int{},
		running: map[*slotLease]struct{}{}, slow: map[hub.TenantID]time.Time{}, heavy: map[rendered]time.Time{}, used: map[hub.TenantID]usage{}, quit: make(chan struct{}),
	}, nil
}

// Run ends workers that were idle for too long, and those that do not rest
// while they are idle. When ctx ends it ends all of them and returns nil;
// renders that are under way fail.
func (p *Pool) Run(ctx context.Context) error {
	every := time.NewTicker(min(max(p.cfg.Idle/4, time.Millisecond), 2*time.Second))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			p.Close()
			return nil
		case now := <-every.C:
			for _, old := range p.takeIdle(func(w *process) bool { return now.Sub(w.idle) >= p.cfg.Idle || w.stirs(p.cfg.Limits.Memory) }) {
				old.kill()
			}
		}
	}
}

// Close ends all workers and refuses further renders. It may be called twice.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.quit)
	}
	for s := range p.running {
		s.stop()
	}
	p.mu.Unlock()
	for _, w := range p.takeIdle(func(*process) bool { return true }) {
		w.kill()
	}
}

// takeIdle removes idle workers from the pool for the caller to end.
func (p *Pool) takeIdle(which func(*process) bool) []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*process
	p.idle = slices.DeleteFunc(p.idle, func(w *process) bool {
		if which(w) {
			out = append(out, w)
			return true
		}
		return false
	})
	return out
}

// Status starts a worker if none ever ran. It returns the sandbox of renderers,
// or why nothing can be rendered.
func (p *Pool) Status(ctx context.Context) (string, error) {
	p.mu.Lock()
	caged := p.caged
	p.mu.Unlock()
	if caged != "" {
		return caged, nil
	}
	w, err := start(ctx, p.cfg, p.quit, "")
	if err != nil {
		return "", err
	}
	defer w.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caged = w.hello.Sandbox
	return p.caged, nil
}

// Workers is the number of worker processes alive, idle ones too.
func (p *Pool) Workers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shortRunning + p.long + len(p.idle)
}

// Stats returns how many renders run and how many wait for a worker. The third
// result is the number of workers that were lost or killed in a render since
// the start.
func (p *Pool) Stats() (running, waiting int, ended int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, queue := range p.waiting {
		waiting += len(queue)
	}
	return len(p.running), waiting, p.ended
}

// Render renders one application. It waits for its tenant's turn. An error of
// kind Invalid or Exceeded is about the source and has a sentence for users;
// any other is about the hub.
func (p *Pool) Render(ctx context.Context, req render.Request) (render.Result, error) {
	if err := req.Check(); err != nil {
		return render.Result{}, err
	}
	began := time.Now()
	g, err := p.acquireFor(ctx, req.Tenant, req.Application)
	if p.cfg.Waited != nil {
		p.cfg.Waited(time.Since(began))
	}
	if err != nil {
		return render.Result{}, err
	}
	for _, w := range g.evict {
		w.kill()
	}
	ended := false
	defer func() {
		if !ended { // by a defect: what was half done with the worker is not known
			p.discard(g)
		}
	}()
	res, w, err := p.run(ctx, g, req)
	ended = true
	p.release(g, w, err)
	return res, err
}

var errStopping = fault.New(fault.Offline, "the hub is stopping")

// run renders on a given worker or on a new one, and returns the worker if it
// can be used again. A worker that ended while it was idle is replaced once.
func (p *Pool) run(ctx context.Context, g grant, req render.Request) (render.Result, *process, error) {
	w := g.use
	for {
		reused := w != nil
		if !reused {
			var err error
			if w, err = start(ctx, p.cfg, p.quit, req.Tenant); err != nil {
				return render.Result{}, nil, err
			}
			p.mu.Lock()
			p.caged = w.hello.Sandbox
			p.mu.Unlock()
		}
		p.hand(g.slotLease, w)
		loop.Expect(ctx, p.cfg.Limits.Timeout)
		res, keep, err := w.render(ctx, req, p.cfg.Limits)
		if keep {
			return res, w, err
		}
		if !reused || !errors.Is(err, errLost) {
			p.mu.Lock()
			p.ended++
			p.mu.Unlock()
			p.cfg.Log.WarnContext(ctx, "renderer ended", logkey.Tenant, req.Tenant, logkey.Application, req.Application, logkey.State, w.state, logkey.Error, err)
			return res, nil, err
		}
		w = nil
	}
}
