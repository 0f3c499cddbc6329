package scheduler

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// turnsOf puts tickets into a pool with one slot, and returns the order in
// which they are granted. No worker is started.
func turnsOf(t *testing.T, p *Pool, order []hub.TenantID, results map[hub.TenantID]error) []hub.TenantID {
	t.Helper()
	first, err := p.acquire(t.Context(), "running")
	if err != nil || first.use != nil {
		t.Fatalf("first grant %+v, %v", first, err)
	}
	var tickets []*ticket
	p.mu.Lock()
	for _, tenant := range order {
		tk := &ticket{tenant: tenant, granted: make(chan grant, 1)}
		if len(p.waiting[tenant]) == 0 {
			p.turns = append(p.turns, tenant)
		}
		p.waiting[tenant] = append(p.waiting[tenant], tk)
		tickets = append(tickets, tk)
	}
	p.mu.Unlock()
	p.release(first, nil, nil)
	var got []hub.TenantID
	for range order {
		var granted *ticket
		for i, tk := range tickets {
			if tk != nil && len(tk.granted) == 1 {
				if granted != nil {
					t.Fatal("two tickets are granted at once")
				}
				granted, tickets[i] = tk, nil
			}
		}
		if granted == nil {
			t.Fatalf("nobody's turn after %v", got)
		}
		got = append(got, granted.tenant)
		p.release(<-granted.granted, nil, results[granted.tenant])
	}
	return got
}

func testPool(t *testing.T, workers int) *Pool {
	t.Helper()
	p, err := NewPool(render.Config{Log: slog.New(slog.DiscardHandler), Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	a, b, c := hub.TenantID("a"), hub.TenantID("b"), hub.TenantID("c")
	got := turnsOf(t, testPool(t, 1), []hub.TenantID{a, a, a, a, b, c, b}, nil)
	want := "a b c a b a a"
	var text []string
	for _, g := range got {
		text = append(text, string(g))
	}
	if strings.Join(text, " ") != want {
		t.Errorf("FT-G9 turns %v, want %s", text, want)
	}
}

func TestRendersAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("REPO-06 as many renders run at once as the operator has set, and no more", func(t *testing.T) {
		t.Parallel()
		const workers = 3
		p, err := NewPool(render.Config{Log: slog.New(slog.DiscardHandler), Workers: workers, Processes: workers})
		if err != nil {
			t.Fatal(err)
		}
		var grants []grant
		for i := range workers {
			g, err := p.acquire(t.Context(), hub.TenantID(rune('a'+i)))
			if err != nil {
				t.Fatal(err)
			}
			grants = append(grants, g)
		}
		got := make(chan grant)
		go func() {
			g, err := p.acquire(t.Context(), "z")
			if err != nil {
				t.Error(err)
			}
			got <- g
		}()
		for waits := 0; waits == 0; _, waits, _ = p.Stats() {
			runtime.Gosched()
		}
		if running, waiting, _ := p.Stats(); running != workers || waiting != 1 {
			t.Errorf("%d run and %d wait, want %d and one", running, waiting, workers)
		}
		p.release(grants[0], nil, nil)
		p.release(<-got, nil, nil)
	})
}

func TestATenantThatPassesLimitsGetsOnePlace(t *testing.T) {
	t.Parallel()
	p := testPool(t, 3)
	now := time.Now()
	bad, err := p.acquire(t.Context(), "bad")
	if err != nil {
		t.Fatal(err)
	}
	p.release(bad, nil, fault.New(fault.Exceeded, "too slow"))
	if _, err := p.acquire(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	if p.mayStart("bad", now) {
		t.Error("FT-G9 a tenant that just passed a limit gets a second place")
	}
	if !p.mayStart("good", now) {
		t.Error("another tenant gets no place")
	}
	if !p.mayStart("bad", now.Add(2*penaltyTime)) {
		t.Error("it is never forgiven")
	}
}

func TestAWithdrawnTicketBlocksNoOther(t *testing.T) {
	t.Parallel()
	p := testPool(t, 1)
	first, err := p.acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	tk := &ticket{tenant: "b", granted: make(chan grant, 1)}
	p.mu.Lock()
	p.waiting["b"], p.turns = []*ticket{tk}, []hub.TenantID{"b"}
	p.mu.Unlock()
	p.release(first, nil, nil) // grants b, who is about to leave
	p.leave(tk)
	if p.shortRunning != 0 || len(p.turns) != 0 || len(p.waiting) != 0 || len(p.busy) != 0 {
		t.Errorf("working %d, turns %v, waiting %v, busy %v; want nothing", p.shortRunning, p.turns, p.waiting, p.busy)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]render.Config{
		"no log":            {},
		"workers":           {Log: log, Workers: -1},
		"processes":         {Log: log, Workers: 4, Processes: 2},
		"a sandbox of jute": {Log: log, Sandbox: "jute"},
		"too little memory": {Log: log, Limits: render.Limits{Memory: 1}},
		"a negative limit":  {Log: log, Limits: render.Limits{Objects: -1}},
		"idle":              {Log: log, Idle: -1},
	} {
		if _, err := NewPool(c); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: error %v, want one of kind %q", name, err, fault.Invalid)
		}
	}
	err := render.Config{Workers: -1, Sandbox: "jute"}.Validate()
	for _, says := range []string{"log is missing", "workers is -1", "jute"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v does not say %q", err, says)
		}
	}
}

func TestRequestsThatCannotBeRendered(t *testing.T) {
	t.Parallel()
	p := testPool(t, 1)
	for name, c := range map[string]struct {
		req  render.Request
		kind fault.Kind
	}{
		"no source":     {render.Request{}, fault.Invalid},
		"no tree":       {render.Request{Sources: []hub.Source{{Path: "a"}}, Trees: []hub.Tree{nil}}, fault.Internal},
		"fewer trees":   {render.Request{Sources: []hub.Source{{Path: "a"}}}, fault.Internal},
		"no chart":      {render.Request{Sources: []hub.Source{{Chart: "x"}}, Trees: []hub.Tree{nil}}, fault.Internal},
		"no artifact":   {render.Request{Sources: []hub.Source{{RepoURL: "oci://x/y"}}, Trees: []hub.Tree{nil}}, fault.Internal},
		"chart, path":   {render.Request{Sources: []hub.Source{{Chart: "x", Path: "y"}}, Trees: []hub.Tree{nil}}, fault.Invalid},
		"a ref twice":   {render.Request{Sources: []hub.Source{{Ref: "x", Chart: ""}, {Ref: "x"}}, Trees: []hub.Tree{fakeTree{}, fakeTree{}}}, fault.Invalid},
		"chart and ref": {render.Request{Sources: []hub.Source{{Chart: "x", Ref: "y"}}, Trees: []hub.Tree{nil}}, fault.Invalid},
	} {
		if _, err := p.Render(t.Context(), c.req); fault.KindOf(err) != c.kind {
			t.Errorf("%s: error %v, want one of kind %q", name, err, c.kind)
		}
	}
}

type fakeTree struct{ hub.Tree }

func TestStderrForTheLogHoldsNoValues(t *testing.T) {
	t.Parallel()
	w := &tail{}
	_, _ = w.Write([]byte("panic: the password is hunter2\n\ngoroutine 1 [running]:\nfatal error: all goroutines are asleep\nhunter2\n"))
	for range 100 {
		_, _ = w.Write([]byte(strings.Repeat("x", 1000)))
	}
	if s := w.safe(); strings.Contains(s, "hunter2") || !strings.Contains(s, "fatal error: all goroutines are asleep") {
		t.Errorf("log text %q", s)
	}
	if n := len(w.String()); n > 8<<10 {
		t.Errorf("%d bytes are kept", n)
	}
}

func TestErrorClassesOverTheWire(t *testing.T) {
	t.Parallel()
	in := fault.With(fault.New(fault.Exceeded, "too large"), "a.yaml", "make it small")
	if out := render.Fail(in).Err(); fault.Sentence(out) != fault.Sentence(in) || fault.KindOf(out) != fault.Exceeded {
		t.Errorf("%v became %v", in, out)
	}
	if f := render.Fail(errors.New("ours")); f.Kind != fault.Internal {
		t.Errorf("kind %q", f.Kind)
	}
}

// began sets the start of a lease to some time ago.
func began(p *Pool, g grant, ago time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.began = time.Now().Add(-ago)
}

// asks adds a ticket to a pool.
func asks(p *Pool, tenant hub.TenantID) *ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	tk := &ticket{tenant: tenant, granted: make(chan grant, 1)}
	if len(p.waiting[tenant]) == 0 {
		p.turns = append(p.turns, tenant)
	}
	p.waiting[tenant] = append(p.waiting[tenant], tk)
	p.schedule(time.Now())
	return tk
}

func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	take := func(t *testing.T, p *Pool, tenant hub.TenantID) grant {
		t.Helper()
		tk := asks(p, tenant)
		select {
		case g := <-tk.granted:
			return g
		default:
			t.Fatalf("tenant %s gets no place", tenant)
			return grant{}
		}
	}
	waits := func(t *testing.T, p *Pool, tenant hub.TenantID) *ticket {
		t.Helper()
		tk := asks(p, tenant)
		if len(tk.granted) != 0 {
			t.Fatalf("tenant %s gets a place", tenant)
		}
		return tk
	}
	slow := fault.New(fault.Exceeded, "too slow")
	t.Run("FT-G9 long renders yield their slots as soon as another tenant waits", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 2)
		a, b := take(t, p, "bad"), take(t, p, "bad")
		began(p, a, time.Hour)
		began(p, b, time.Hour)
		waits(t, p, "bad") // without others it has the slots of a tenant, and no more
		take(t, p, "good")
		take(t, p, "good")
		waits(t, p, "good")
	})
	t.Run("FT-G9 a brief render is not hurried", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 1)
		g := take(t, p, "a")
		tk := waits(t, p, "b")
		p.release(g, nil, nil)
		if len(tk.granted) != 1 {
			t.Error("the place was not handed on")
		}
	})
	t.Run("FT-G9 INV-13 tenants that exceed limits repeatedly leave all ordinary slots free", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 2)
		bad := []hub.TenantID{"bad1", "bad2", "bad3", "bad4"}
		for _, tenant := range bad {
			p.release(take(t, p, tenant), nil, slow)
		}
		var granted int
		for range 10 {
			for _, tenant := range bad {
				granted += len(asks(p, tenant).granted)
			}
		}
		if granted != 1 {
			t.Errorf("%d of their renders run at once, want 1", granted)
		}
		take(t, p, "good")
		take(t, p, "other")
	})
	t.Run("INV-7 a short render overtakes a long one of its own tenant, and leaves a slot to others", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 2)
		asksFor := func(app string) *ticket {
			p.mu.Lock()
			defer p.mu.Unlock()
			tk := &ticket{tenant: "bad", app: app, granted: make(chan grant, 1)}
			if len(p.waiting["bad"]) == 0 {
				p.turns = append(p.turns, "bad")
			}
			p.waiting["bad"] = append(p.waiting["bad"], tk)
			p.schedule(time.Now())
			return tk
		}
		p.release(<-asksFor("bomb").granted, nil, slow)
		p.release(<-asksFor("bomb2").granted, nil, slow)
		bomb := asksFor("bomb")
		if len(bomb.granted) != 1 {
			t.Fatal("the long render gets no place")
		}
		again := asksFor("bomb2")
		short := asksFor("web")
		next := asksFor("api")
		if len(again.granted) != 0 || len(short.granted) != 1 || len(next.granted) != 0 {
			t.Fatalf("places: another long one %d, a short one %d, the next %d; want the short one alone", len(again.granted), len(short.granted), len(next.granted))
		}
		good := take(t, p, "good")
		p.release(<-short.granted, nil, nil)
		if len(next.granted) != 0 {
			t.Error("a second one passes although no place would stay free")
		}
		p.release(good, nil, nil)
		if len(next.granted) != 1 || len(again.granted) != 0 {
			t.Error("the next short render does not pass")
		}
		p.release(<-next.granted, nil, nil)
		p.release(<-bomb.granted, nil, slow)
		if len(again.granted) != 1 {
			t.Error("the other long render is not begun when the first has ended")
		}
		p.release(<-again.granted, nil, nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.long != 0 || p.shortRunning != 0 || len(p.running) != 0 || len(p.waiting) != 0 || len(p.heavy) != 1 {
			t.Errorf("INV-9 long %d, working %d, running %d, waiting %d, heavy %d", p.long, p.shortRunning, len(p.running), len(p.waiting), len(p.heavy))
		}
	})
	t.Run("INV-7 nothing overtakes while another tenant waits", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 2)
		p.mu.Lock()
		p.slow["bad"], p.slow["bad2"] = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
		p.mu.Unlock()
		take(t, p, "bad")
		waits(t, p, "bad2")
		p.mu.Lock()
		tk := &ticket{tenant: "bad", app: "web", granted: make(chan grant, 1)}
		p.waiting["bad"], p.turns = []*ticket{tk}, append(p.turns, "bad")
		p.schedule(time.Now())
		p.mu.Unlock()
		if len(tk.granted) != 0 {
			t.Error("it passes while another tenant waits")
		}
	})
	t.Run("INV-7 the tenant that used less comes first", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 1)
		running := take(t, p, "greedy")
		again := waits(t, p, "greedy")
		modest := waits(t, p, "modest")
		began(p, running, 30*time.Second)
		p.mu.Lock()
		p.long = p.longPlaces() // nothing can become long
		p.mu.Unlock()
		p.release(running, nil, nil)
		if len(modest.granted) != 1 || len(again.granted) != 0 {
			t.Error("the tenant that had half a minute comes before the one that had nothing")
		}
	})
	t.Run("B25 INV-7 a tenant that used little does not wait for those that used much, one render at a time", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 2)
		first, second := take(t, p, "loud"), take(t, p, "loud")
		again := waits(t, p, "loud")
		waits(t, p, "quiet") // nobody has used much yet
		p.mu.Lock()
		delete(p.waiting, "quiet")
		p.turns = []hub.TenantID{"loud"}
		p.used["loud"] = usage{time.Minute, time.Now()}
		p.mu.Unlock()
		ahead := take(t, p, "quiet")
		other := waits(t, p, "other") // it is one at a time
		waits(t, p, "quiet")
		p.release(ahead, nil, nil)
		if len(other.granted) != 1 || len(again.granted) != 0 {
			t.Error("the place of the one that has ended does not go to the next tenant that used little")
		}
		p.release(first, nil, nil)
		p.release(second, nil, nil)
		if len(again.granted) != 1 {
			t.Error("the ordinary slots are not used")
		}
	})
	t.Run("B25 nobody begins ahead of tenants that used as little", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 2)
		take(t, p, "loud")
		take(t, p, "other")
		p.mu.Lock()
		p.used["loud"] = usage{time.Minute, time.Now()}
		p.mu.Unlock()
		waits(t, p, "quiet")
	})
	t.Run("INV-7 old use does not count", func(t *testing.T) {
		t.Parallel()
		u := usage{time.Minute, time.Unix(0, 0)}
		if got := u.now(time.Unix(60, 0)); got != 30*time.Second {
			t.Errorf("after its half-life a minute counts as %s", got)
		}
		if got := u.now(time.Unix(3600, 0)); got > time.Millisecond {
			t.Errorf("after an hour it counts as %s", got)
		}
	})
	t.Run("INV-9 after all are done nothing is counted", func(t *testing.T) {
		t.Parallel()
		p := testPool(t, 2)
		for i, tenant := range []hub.TenantID{"a", "b", "a", "c"} {
			g := take(t, p, tenant)
			if i == 2 {
				began(p, g, time.Hour)
				asks(p, "x")
			}
			p.release(g, nil, nil)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.long != 0 || p.shortRunning != 1 || len(p.running) != 1 || len(p.waiting) != 0 {
			t.Errorf("long %d, working %d, running %d, waiting %d", p.long, p.shortRunning, len(p.running), len(p.waiting))
		}
	})
}
