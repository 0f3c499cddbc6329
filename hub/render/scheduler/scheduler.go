package scheduler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	loop "github.com/capstan-cd/capstan/shared/lifecycle"
)

// How slots are shared. There are two sorts. Every render begins in one of
// Workers ordinary slots. Config.Processes adds slots for renders that last
// longer than brief while another tenant waits. So a tenant waits for another's
// slow render at most for brief, unless several tenants are slow for the first
// time at once. A tenant whose render exceeded a limit begins in the long slots
// for a while, which all such tenants share. While no other tenant waits, one
// render of such a tenant may use an ordinary slot, if another one stays free.
// One render at a time does not wait for an ordinary slot, but begins in a long
// one: that of a tenant that used little lately, while all ordinary slots are
// with tenants that used much.
const (
	brief = 2 * time.Second
	// penaltyTime is how long a tenant whose worker was killed gets one worker
	// at a time. Repeated attempts of a bad template then leave slots to
	// others.
	penaltyTime = 5 * time.Minute
	// signEvery is how often a waiting render sends a heartbeat.
	signEvery = 15 * time.Second
	// halfLife is that of what a tenant has used.
	halfLife = time.Minute
)

// A slotLease is one render that has a slot.
type slotLease struct {
	tenant hub.TenantID
	app    string
	passes bool // it passes a long render of its own tenant
	began  time.Time
	long   bool // it has one of the places for long renders
	slow   bool // it began there, because its tenant passed a limit
	ahead  bool // it began there, ahead of tenants that used much
	worker *process
	timer  *time.Timer // ends what is brief
}

func (s *slotLease) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// A usage is how long a tenant had workers lately: old use counts for less.
type usage struct {
	amount time.Duration
	at     time.Time
}

func (u usage) now(now time.Time) time.Duration {
	return time.Duration(float64(u.amount) * math.Exp2(-float64(now.Sub(u.at))/float64(halfLife)))
}

// acquire waits for the tenant's turn.
func (p *Pool) acquire(ctx context.Context, tenant hub.TenantID) (grant, error) {
	return p.acquireFor(ctx, tenant, "")
}

// acquireFor waits for the turn of an application of the tenant.
func (p *Pool) acquireFor(ctx context.Context, tenant hub.TenantID, app string) (grant, error) {
	t := &ticket{tenant: tenant, app: app, granted: make(chan grant, 1)}
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
	g, err := p.await(ctx, t)
	if err != nil {
		p.leave(t)
	}
	return g, err
}

// await waits for a ticket's turn. That may last long while others render,
// which have watchdogs of their own.
func (p *Pool) await(ctx context.Context, t *ticket) (grant, error) {
	sign := time.NewTicker(signEvery)
	defer sign.Stop()
	for {
		select {
		case g := <-t.granted:
			return g, nil
		case <-ctx.Done():
			return grant{}, fmt.Errorf("wait for a renderer: %w", ctx.Err())
		case <-p.quit:
			return grant{}, errStopping
		case <-sign.C:
			if running, _, _ := p.Stats(); running > 0 {
				loop.Beat(ctx)
			}
		}
	}
}

// discard releases the slot after a defect, and ends the worker.
func (p *Pool) discard(g grant) {
	p.mu.Lock()
	w := g.worker
	p.mu.Unlock()
	if w == nil {
		w = g.use
	}
	if w != nil {
		w.kill()
	}
	p.release(g, nil, nil)
}

// leave withdraws a ticket; if it was granted meanwhile, the grant goes to the
// next one.
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
	case g := <-t.granted:
		for _, w := range g.evict {
			w.kill()
		}
		p.release(g, g.use, nil)
	default:
	}
}

// hand sets the worker of a slot lease.
func (p *Pool) hand(s *slotLease, w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.worker = w; s.long && !s.ahead {
		w.stepBack()
	}
}

// release releases the slot, and the worker if it can be used again.
func (p *Pool) release(g grant, w *process, err error) {
	now := time.Now()
	var end *process
	p.mu.Lock()
	p.leavePlace(g.slotLease, now)
	if w == nil && fault.KindOf(err) == fault.Exceeded {
		p.slow[g.tenant] = now.Add(penaltyTime)
		if g.app != "" {
			p.heavy[rendered{g.tenant, g.app}] = now.Add(penaltyTime)
		}
	} else if err == nil {
		delete(p.heavy, rendered{g.tenant, g.app})
	}
	if w != nil {
		if p.closed || w.deprioritized || w.renders >= maxRenders || anonymous(w.cmd.Process.Pid) > p.cfg.Limits.Memory/2 {
			end = w
		} else {
			w.idle, w.spent = now, 0
			p.idle = append(p.idle, w)
		}
	}
	p.schedule(now)
	p.mu.Unlock()
	if end != nil {
		end.kill()
	}
}

func (p *Pool) leavePlace(s *slotLease, now time.Time) {
	s.stop()
	delete(p.running, s)
	if s.long {
		p.long--
	} else {
		p.shortRunning--
	}
	if p.busy[s.tenant]--; p.busy[s.tenant] == 0 {
		delete(p.busy, s.tenant)
	}
	p.used[s.tenant] = usage{p.used[s.tenant].now(now) + now.Sub(s.began), now}
	if now.Sub(p.forgot) < halfLife {
		return
	}
	p.forgot = now
	for a, until := range p.heavy {
		if now.After(until) {
			delete(p.heavy, a)
		}
	}
	for tenant, u := range p.used {
		if u.now(now) < brief/8 {
			delete(p.used, tenant)
		}
	}
}

// schedule grants free places until nobody may start. The caller holds mu.
func (p *Pool) schedule(now time.Time) {
	for !p.closed && len(p.turns) > 0 {
		p.promote(now)
		c, ok := p.choose(now)
		if !ok {
			return
		}
		next := p.dequeue(c.turn, c.at)
		next.granted <- p.begin(next, c, now)
	}
}

// A choice is which ticket starts next.
type choice struct {
	turn, at int  // its tenant's place in turns, and its own in the tenant's queue
	passes   bool // it passes a long render of its own tenant
	ahead    bool // it begins ahead of tenants that used much
}

// choose returns which ticket starts next. Tenants that had least lately come
// first; of equals, those who wait longest. It returns false if nobody may
// start. The caller holds mu.
func (p *Pool) choose(now time.Time) (choice, bool) {
	turn := -1
	var least int64
	for i, t := range p.turns {
		if !p.mayStart(t, now) {
			continue
		}
		if d := p.debt(t, now); turn < 0 || d < least {
			turn, least = i, d
		}
	}
	if turn >= 0 {
		return choice{turn: turn}, true
	}
	if turn = p.startsAhead(now); turn >= 0 {
		return choice{turn: turn, ahead: true}, true
	}
	if at := p.passing(now); at >= 0 {
		return choice{at: at, passes: true}, true
	}
	return choice{}, false
}

// startsAhead returns the place in turns of a tenant that used little lately,
// while all ordinary slots are with tenants that used much; below 0: there is
// none. It is one render at a time. The caller holds mu.
func (p *Pool) startsAhead(now time.Time) int {
	if p.long >= p.longPlaces() || p.shortRunning < p.cfg.Workers || p.count(func(s *slotLease) bool { return s.ahead }) > 0 {
		return -1
	}
	if p.count(func(s *slotLease) bool { return !s.long && p.debt(s.tenant, now) == 0 }) > 0 {
		return -1
	}
	return slices.IndexFunc(p.turns, func(t hub.TenantID) bool {
		return p.busy[t] == 0 && !p.isSlow(t, now) && p.debt(t, now) == 0
	})
}

// dequeue removes a ticket from its tenant's queue. A tenant that has others
// waits behind all tenants from now on. The caller holds mu.
func (p *Pool) dequeue(turn, at int) *ticket {
	tenant := p.turns[turn]
	p.turns = slices.Delete(p.turns, turn, turn+1)
	queue := p.waiting[tenant]
	next := queue[at]
	if queue = slices.Delete(queue, at, at+1); len(queue) > 0 {
		p.waiting[tenant] = queue
		p.turns = append(p.turns, tenant)
	} else {
		delete(p.waiting, tenant)
	}
	return next
}

// passing returns the index of a render that may overtake the long renders of
// its tenant; below 0: there is none. The index is that in the queue of the
// only waiting tenant. It is one at a time, of an application that has exceeded
// no limit lately, and leaves an ordinary slot free for others. The caller
// holds mu.
func (p *Pool) passing(now time.Time) int {
	if len(p.turns) != 1 || p.shortRunning+1 >= p.cfg.Workers {
		return -1
	}
	tenant := p.turns[0]
	if p.busy[tenant] == 0 || p.count(func(s *slotLease) bool { return s.passes && s.tenant == tenant }) > 0 {
		return -1
	}
	return slices.IndexFunc(p.waiting[tenant], func(t *ticket) bool {
		until, heavy := p.heavy[rendered{tenant, t.app}]
		return t.app != "" && (!heavy || now.After(until))
	})
}

// begin assigns a slot to a ticket that may start.
func (p *Pool) begin(t *ticket, c choice, now time.Time) grant {
	tenant := t.tenant
	s := &slotLease{tenant: tenant, app: t.app, passes: c.passes, ahead: c.ahead, began: now}
	s.slow = p.isSlow(tenant, now) && p.longPlaces() > 0 && !c.passes
	if s.slow || s.ahead {
		s.long = true
		p.long++
	} else {
		p.shortRunning++
		s.timer = time.AfterFunc(brief, p.promoteLong)
	}
	p.running[s] = struct{}{}
	p.busy[tenant]++
	g := p.assignWorker(tenant)
	g.slotLease = s
	return g
}

// promoteLong is what a timer does when a render is no longer brief.
func (p *Pool) promoteLong() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedule(time.Now())
}

// longPlaces is how many renders may be long.
func (p *Pool) longPlaces() int { return p.cfg.Processes - p.cfg.Workers }

// promote assigns slots for long renders to those that are not brief, while
// another tenant waits. The caller holds mu.
func (p *Pool) promote(now time.Time) {
	for p.long < p.longPlaces() {
		var next *slotLease
		for s := range p.running {
			if !s.long && now.Sub(s.began) >= brief && p.othersWait(s.tenant) && (next == nil || s.began.Before(next.began)) {
				next = s
			}
		}
		if next == nil {
			return
		}
		next.long = true
		p.shortRunning--
		p.long++
		if next.worker != nil {
			next.worker.stepBack()
		}
	}
}

func (p *Pool) othersWait(tenant hub.TenantID) bool {
	return slices.ContainsFunc(p.turns, func(t hub.TenantID) bool { return t != tenant })
}

// debt is how many brief renders' time a tenant has used lately, with what it
// is using now. Less than one makes no difference.
func (p *Pool) debt(tenant hub.TenantID, now time.Time) int64 {
	sum := p.used[tenant].now(now)
	for s := range p.running {
		if s.tenant == tenant {
			sum += now.Sub(s.began)
		}
	}
	return int64(sum / brief)
}

// mayStart reports whether a tenant may have one more worker now.
func (p *Pool) mayStart(tenant hub.TenantID, now time.Time) bool {
	if p.isSlow(tenant, now) {
		if places := p.longPlaces(); places > 0 {
			return p.busy[tenant] == 0 && p.long < places && p.count(func(s *slotLease) bool { return s.slow }) < max(1, places/2)
		}
		return p.busy[tenant] == 0 && p.shortRunning < p.cfg.Workers
	}
	return p.shortRunning < p.cfg.Workers && p.busy[tenant] < p.cfg.Workers &&
		p.count(func(s *slotLease) bool { return s.long && !s.slow && s.tenant == tenant }) == 0
}

func (p *Pool) count(which func(*slotLease) bool) int {
	n := 0
	for s := range p.running {
		if which(s) {
			n++
		}
	}
	return n
}

// isSlow reports whether a tenant passed a limit lately.
func (p *Pool) isSlow(tenant hub.TenantID, now time.Time) bool {
	until, slow := p.slow[tenant]
	if slow && now.After(until) {
		delete(p.slow, tenant)
		return false
	}
	return slow
}

// assignWorker finds a worker for a render that was just counted, or evicts
// one.
func (p *Pool) assignWorker(tenant hub.TenantID) grant {
	// Prefer the most recently used one: its caches are warm.
	for i := len(p.idle) - 1; i >= 0; i-- {
		if w := p.idle[i]; w.tenant == tenant {
			p.idle = slices.Delete(p.idle, i, i+1)
			return grant{use: w}
		}
	}
	var g grant
	for len(p.idle) > 0 && p.shortRunning+p.long+len(p.idle) > p.cfg.Processes {
		g.evict = append(g.evict, p.idle[0])
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	return g
}
