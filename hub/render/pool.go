package render

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// penance is how long a tenant whose worker had to be ended gets one worker at
// a time, so that a bad template tried again and again leaves room for others.
const penance = 5 * time.Minute

// A Pool renders in worker processes. A worker serves one tenant for its
// life. Tenants that wait take turns, so that nobody's thousand applications
// stand before another's one. It is safe for use by many goroutines.
type Pool struct {
	cfg Config

	mu      sync.Mutex
	waiting map[hub.TenantID][]*ticket
	turns   []hub.TenantID // tenants that wait, next first
	busy    map[hub.TenantID]int
	working int        // sum of busy
	idle    []*process // longest idle first
	slow    map[hub.TenantID]time.Time
	closed  bool
	quit    chan struct{}
	caged   string // what the last worker said about its sandbox
	ended   int64  // workers that were lost or had to be ended in a render
}

// A ticket is one render that waits for its turn.
type ticket struct {
	tenant hub.TenantID
	turn   chan grant // capacity 1: a grant never waits for its taker
}

// A grant is the right to one worker.
type grant struct {
	use   *process   // an idle worker of the tenant; nil: start one
	evict []*process // idle workers that have to make room
}

// NewPool checks the configuration. No worker is started before it is needed;
// Run ends idle ones.
func NewPool(cfg Config) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Pool{
		cfg: cfg.withDefaults(), waiting: map[hub.TenantID][]*ticket{}, busy: map[hub.TenantID]int{},
		slow: map[hub.TenantID]time.Time{}, quit: make(chan struct{}),
	}, nil
}

// Run ends workers that were idle for too long. When ctx ends it ends all of
// them and returns nil; renders that are under way fail.
func (p *Pool) Run(ctx context.Context) error {
	every := time.NewTicker(max(p.cfg.Idle/4, time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			p.Close()
			return nil
		case now := <-every.C:
			for _, old := range p.takeIdle(func(w *process) bool { return now.Sub(w.idle) >= p.cfg.Idle }) {
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

// Status starts a worker if none ever ran, and says what holds renderers, or
// why nothing can be rendered.
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
	return p.working + len(p.idle)
}

// Figures are the renders that run, those that wait for a worker, and the
// workers that were lost or had to be ended in a render since the start.
func (p *Pool) Figures() (working, waiting int, ended int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, queue := range p.waiting {
		waiting += len(queue)
	}
	return p.working, waiting, p.ended
}

// Render renders one application. It waits for its tenant's turn. An error of
// kind Invalid or Exceeded is about the source and has a sentence for people;
// any other is about the hub.
func (p *Pool) Render(ctx context.Context, req Request) (Result, error) {
	if err := req.check(); err != nil {
		return Result{}, err
	}
	g, err := p.acquire(ctx, req.Tenant)
	if err != nil {
		return Result{}, err
	}
	for _, w := range g.evict {
		w.kill()
	}
	res, w, err := p.run(ctx, g.use, req)
	p.release(req.Tenant, w, err)
	return res, err
}

var errStopping = fault.New(fault.Offline, "the hub is stopping")

// run renders on a given worker or on a new one, and gives back the worker if
// it can be used again. A worker that died while it was idle is replaced once.
func (p *Pool) run(ctx context.Context, w *process, req Request) (Result, *process, error) {
	for {
		reused := w != nil
		if !reused {
			var err error
			if w, err = start(ctx, p.cfg, p.quit, req.Tenant); err != nil {
				return Result{}, nil, err
			}
			p.mu.Lock()
			p.caged = w.hello.Sandbox
			p.mu.Unlock()
		}
		res, keep, err := w.render(ctx, req, p.cfg.Limits)
		if keep {
			return res, w, err
		}
		if !reused || !errors.Is(err, errLost) {
			p.mu.Lock()
			p.ended++
			p.mu.Unlock()
			p.cfg.Log.WarnContext(ctx, "renderer ended", "tenant", req.Tenant, "application", req.Application, "state", w.state, "error", err)
			return Result{}, nil, err
		}
		w = nil
	}
}

// acquire waits for the tenant's turn.
func (p *Pool) acquire(ctx context.Context, tenant hub.TenantID) (grant, error) {
	t := &ticket{tenant: tenant, turn: make(chan grant, 1)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return grant{}, errStopping
	}
	if len(p.waiting[tenant]) == 0 {
		p.turns = append(p.turns, tenant)
	}
	p.waiting[tenant] = append(p.waiting[tenant], t)
	p.schedule(time.Now())
	p.mu.Unlock()
	var why error
	select {
	case g := <-t.turn:
		return g, nil
	case <-ctx.Done():
		why = fmt.Errorf("wait for a renderer: %w", ctx.Err())
	case <-p.quit:
		why = errStopping
	}
	p.leave(t)
	return grant{}, why
}

// leave takes back a ticket; if it was granted meanwhile, the grant goes on.
func (p *Pool) leave(t *ticket) {
	p.mu.Lock()
	queue := slices.DeleteFunc(p.waiting[t.tenant], func(o *ticket) bool { return o == t })
	if len(queue) > 0 {
		p.waiting[t.tenant] = queue
	} else {
		delete(p.waiting, t.tenant)
		p.turns = slices.DeleteFunc(p.turns, func(o hub.TenantID) bool { return o == t.tenant })
	}
	p.mu.Unlock()
	select {
	case g := <-t.turn:
		for _, w := range g.evict {
			w.kill()
		}
		p.release(t.tenant, g.use, nil)
	default:
	}
}

// release gives back the right to a worker, and the worker if it is well.
func (p *Pool) release(tenant hub.TenantID, w *process, err error) {
	now := time.Now()
	var end *process
	p.mu.Lock()
	p.working--
	if p.busy[tenant]--; p.busy[tenant] == 0 {
		delete(p.busy, tenant)
	}
	if w == nil && fault.KindOf(err) == fault.Exceeded {
		p.slow[tenant] = now.Add(penance)
	}
	if w != nil {
		if p.closed || w.renders >= maxRenders || anonymous(w.cmd.Process.Pid) > p.cfg.Limits.Memory/2 {
			end = w
		} else {
			w.idle = now
			p.idle = append(p.idle, w)
		}
	}
	p.schedule(now)
	p.mu.Unlock()
	if end != nil {
		end.kill()
	}
}

// schedule grants free places to tenants in turn. The caller holds mu.
func (p *Pool) schedule(now time.Time) {
	for p.working < p.cfg.Workers && !p.closed {
		i := slices.IndexFunc(p.turns, func(t hub.TenantID) bool { return p.mayStart(t, now) })
		if i < 0 {
			return
		}
		tenant := p.turns[i]
		p.turns = slices.Delete(p.turns, i, i+1)
		queue := p.waiting[tenant]
		next := queue[0]
		if len(queue) > 1 {
			p.waiting[tenant] = queue[1:]
			p.turns = append(p.turns, tenant)
		} else {
			delete(p.waiting, tenant)
		}
		p.working++
		p.busy[tenant]++
		next.turn <- p.place(tenant)
	}
}

// mayStart says whether a tenant may have one more worker now.
func (p *Pool) mayStart(tenant hub.TenantID, now time.Time) bool {
	until, slow := p.slow[tenant]
	if slow && now.After(until) {
		delete(p.slow, tenant)
		slow = false
	}
	return !slow || p.busy[tenant] == 0
}

// place finds a worker for a render that was just counted, or room for one.
func (p *Pool) place(tenant hub.TenantID) grant {
	// The one that was idle for the shortest time is the warmest.
	for i := len(p.idle) - 1; i >= 0; i-- {
		if w := p.idle[i]; w.tenant == tenant {
			p.idle = slices.Delete(p.idle, i, i+1)
			return grant{use: w}
		}
	}
	var g grant
	for len(p.idle) > 0 && p.working+len(p.idle) > p.cfg.Processes {
		g.evict = append(g.evict, p.idle[0])
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	return g
}
