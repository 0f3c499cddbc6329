package wave_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A thing is one live object of the model.
type thing struct {
	content  string // "desired" once applied
	instance string // of a hook
	ours     bool   // made or managed by us
	since    time.Time
	deleting bool
	goneAt   time.Time
	behave   behaviour
}

// A behaviour says how an object does after it was made.
type behaviour struct {
	takes    time.Duration // until it reaches end; -1: for ever
	end      string        // health then; "": Healthy, "none": no rule
	refuse   error         // Apply answers so
	deletion time.Duration // how long its deletion takes
	vanish   bool          // it goes away by itself right after it was made
}

// A world is a model of a cluster under virtual time. It logs every change.
type world struct {
	mu         sync.Mutex
	things     map[manifest.Key]*thing
	behaviours map[string]behaviour // by item id; prunes and old hooks by key
	log        []event
	calls      map[string]int
	preflight  func([]wave.Item) []wave.Check
	saved      *wave.Progress
	saves      int
	released   map[manifest.Key]bool
	failSave   error
	failState  func() error
	asked      []string // items of Apply calls, by id
	total      int      // calls of any kind
	crash      func(n int) (before, after bool)
}

// An event is one change of the model.
type event struct {
	what string // create, apply, delete
	item wave.Item
	at   time.Time
	prev string // content or health before
}

func newWorld() *world {
	return &world{
		things: map[manifest.Key]*thing{}, behaviours: map[string]behaviour{}, calls: map[string]int{}, released: map[manifest.Key]bool{},
		crash: func(int) (bool, bool) { return false, false },
	}
}

// A session is the world as one incarnation of the machine sees it. After a
// crash it does nothing any more.
type session struct {
	*world
	kill func()
	dead bool
}

var errCrashed = errors.New("crashed")

// do runs one call with the crashes that the test wants around it.
func (s *session) do(name string, call func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errCrashed
	}
	s.calls[name]++
	s.total++
	before, after := s.crash(s.total)
	if !before {
		call()
	}
	if before || after {
		s.dead = true
		s.kill()
		return errCrashed
	}
	return nil
}

func (s *session) Apply(_ context.Context, it wave.Item) (out wave.Outcome, err error) {
	if e := s.do("Apply", func() { s.asked = append(s.asked, it.ID()); out, err = s.apply(it) }); e != nil {
		return wave.Outcome{}, e
	}
	return out, err
}

func (w *world) apply(it wave.Item) (wave.Outcome, error) {
	w.settle()
	b := w.behaviours[it.ID()]
	if b.refuse != nil {
		return wave.Outcome{}, b.refuse
	}
	old := w.things[it.Key]
	if it.Hook {
		if old != nil && old.instance == it.Instance {
			return wave.Outcome{Message: "there already"}, nil
		}
		if old == nil {
			w.log = append(w.log, event{"create", it, time.Now(), ""})
			w.things[it.Key] = &thing{content: "desired", instance: it.Instance, ours: true, since: time.Now(), behave: b}
			if b.vanish {
				delete(w.things, it.Key)
			}
		}
		return wave.Outcome{Changed: old == nil, Message: "created"}, nil
	}
	if old != nil && old.content == "desired" && !old.deleting {
		return wave.Outcome{Message: "unchanged"}, nil
	}
	if old != nil && old.deleting {
		return wave.Outcome{}, fault.New(fault.Conflict, "it is being deleted")
	}
	w.log = append(w.log, event{"apply", it, time.Now(), ""})
	w.things[it.Key] = &thing{content: "desired", ours: true, since: time.Now(), behave: b}
	if b.vanish {
		delete(w.things, it.Key)
	}
	return wave.Outcome{Changed: true, Message: "configured"}, nil
}

func (s *session) Delete(_ context.Context, it wave.Item) (out wave.Outcome, err error) {
	if e := s.do("Delete", func() { out, err = s.remove(it) }); e != nil {
		return wave.Outcome{}, e
	}
	return out, err
}

func (w *world) remove(it wave.Item) (wave.Outcome, error) {
	w.settle()
	if b := w.behaviours["delete "+it.Key.String()]; b.refuse != nil {
		return wave.Outcome{}, b.refuse
	}
	t := w.things[it.Key]
	switch {
	case t == nil:
		return wave.Outcome{Gone: true, Message: "gone already"}, nil
	case !t.ours:
		return wave.Outcome{Kept: true, Message: "not ours"}, nil
	case !t.deleting:
		w.log = append(w.log, event{"delete", it, time.Now(), t.health()})
		t.deleting, t.goneAt = true, time.Now().Add(t.behave.deletion)
	}
	w.settle()
	return wave.Outcome{Changed: true, Gone: w.things[it.Key] == nil, Message: "pruned"}, nil
}

// settle takes away what has been deleted for long enough.
func (w *world) settle() {
	for k, t := range w.things {
		if t.deleting && !time.Now().Before(t.goneAt) {
			delete(w.things, k)
		}
	}
}

func (t *thing) health() string {
	if t.behave.end == "none" {
		return ""
	}
	if t.behave.takes < 0 || time.Since(t.since) < t.behave.takes {
		return "Progressing"
	}
	if t.behave.end == "" {
		return "Healthy"
	}
	return t.behave.end
}

func (s *session) State(_ context.Context, it wave.Item) (st wave.State, err error) {
	if e := s.do("State", func() { st = s.state(it) }); e != nil {
		return wave.State{}, e
	}
	if s.failState != nil {
		err = s.failState()
	}
	return st, err
}

func (w *world) state(it wave.Item) wave.State {
	w.settle()
	t := w.things[it.Key]
	if t == nil {
		return wave.State{}
	}
	return wave.State{
		Found: true, Deleting: t.deleting, Ours: it.Hook && t.instance == it.Instance && t.instance != "",
		Health: t.health(), Message: "it is " + t.health(),
	}
}

func (s *session) Release(_ context.Context, it wave.Item) error {
	return s.do("Release", func() { s.released[it.Key] = true })
}

func (s *session) Changed() <-chan struct{} { return nil }

// tester is a session that can also try things out.
type tester struct{ *session }

func (t tester) Preflight(_ context.Context, items []wave.Item) (checks []wave.Check) {
	if t.do("Preflight", func() { checks = t.preflight(items) }) != nil {
		return nil
	}
	return checks
}

// ledger is the model's durable memory.
type ledger struct{ *session }

func (l ledger) Load() (wave.Progress, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.saved == nil {
		return wave.Progress{}, false
	}
	return *l.saved, true
}

func (l ledger) Save(_ context.Context, p wave.Progress) error {
	err := l.do("Save", func() {
		l.saves++
		if l.failSave == nil {
			l.saved = &p
		}
	})
	if err == nil {
		err = l.failSave
	}
	return err
}

// run runs a plan in a world once, until it ends or crashes.
func (w *world) run(ctx context.Context, plan wave.Plan, config wave.Config, started ...func(*wave.Machine)) wave.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{world: w, kill: cancel}
	var target wave.Target = s
	if w.preflight != nil {
		target = tester{s}
	}
	if config.Poll == 0 {
		config.Poll = time.Second
	}
	m := wave.New(plan, target, ledger{s}, config)
	for _, f := range started {
		f(m)
	}
	return m.Run(ctx)
}

// is makes the object of an item live, as an earlier operation left it.
func (w *world) is(o wave.Object, change func(*thing)) {
	t := &thing{content: "old", ours: true, since: time.Now().Add(-time.Hour)}
	if change != nil {
		change(t)
	}
	w.things[o.Key] = t
}

func (w *world) done() []string {
	var out []string
	for _, e := range w.log {
		out = append(out, fmt.Sprintf("%s %s/%s", e.what, e.item.Key.Kind, e.item.Key.Name))
	}
	return out
}
