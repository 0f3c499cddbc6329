package ownership_test

import (
	"flag"
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
)

// The model is a hub, an agent with memory and disk, and a cluster. Its agent
// asks the state machine wherever the engine does, in the same order, and
// operations go step by step, so that everything can happen between two steps.

type set map[string]bool

type app struct {
	name      string
	automated bool
	permitted set // by its project
	// What the hub wants.
	target, accepted  set
	op                *operation // newest
	deleting, deleted bool
	// What the agent has in memory.
	leaving bool
	// What the agent has on disk.
	records  map[string]bool // whether the object is only adopted, by key
	refused  []string        // of the newest operation that failed
	operated string          // that operation
}

type operation struct {
	id        string
	kind      string // sync, delete
	snapshot  set
	todo      []string // keys to write, then keys to delete
	begun     bool
	written   string // key whose write was carried out and is not recorded yet
	over      bool
	failed    bool
	unblocked bool
}

type world struct {
	t       *rapid.T
	apps    []*app
	keys    []string
	memory  map[string]ownership.Object // the agent's
	cluster map[string]string           // application that live tracking names
	left    set                         // what a project forbade to delete
	ops     int
}

func (w *world) find(name string) *app {
	for _, a := range w.apps {
		if a.name == name && !a.deleted {
			return a
		}
	}
	return nil
}

func (w *world) interest(name, key string) ownership.Interest {
	a := w.find(name)
	if a == nil {
		return ownership.Interest{App: name, Leaving: true}
	}
	return ownership.Interest{App: name, Permitted: a.permitted[key], Listed: a.target[key] || a.accepted[key], Accepted: a.accepted[key] || a.automated && a.target[key], Leaving: a.leaving}
}

// order begins an operation; a newer one supersedes the one before.
func (w *world) order(a *app, kind string) {
	if a.op != nil && a.op.written != "" {
		w.record(a, a.op.written) // a write that is under way is waited for
	}
	w.ops++
	a.op = &operation{id: fmt.Sprintf("%s-%d", a.name, w.ops), kind: kind, snapshot: maps.Clone(a.target)}
}

func (w *world) render(a *app, keys set) {
	a.target = keys
	if a.automated {
		a.accepted = keys
		w.order(a, "sync")
	}
}

// renderOnly is render while automation waits, for another application or a window.
func (w *world) renderOnly(a *app, keys set) { a.target = keys }

func (w *world) sync(a *app) {
	a.accepted = a.target
	w.order(a, "sync")
}

func (w *world) delete(a *app) {
	a.deleting, a.target, a.accepted = true, set{}, set{}
	w.order(a, "delete")
}

// step does the next thing of an application's operation, and says whether
// there was any.
func (w *world) step(a *app) bool {
	op := a.op
	if a.deleted || op == nil || op.over {
		return false
	}
	switch {
	case !op.begun:
		w.begin(a, op)
	case op.written != "":
		w.record(a, op.written)
		op.written = ""
	case len(op.todo) > 0:
		key := op.todo[0]
		op.todo = op.todo[1:]
		if op.kind == "sync" && op.snapshot[key] {
			w.write(a, op, key)
		} else {
			w.prune(a, op, key)
		}
	default:
		w.end(a, op)
	}
	return true
}

// begin plans an operation: what live tracking says is the application's is
// recorded first, as after a write that a crash kept from being recorded.
func (w *world) begin(a *app, op *operation) {
	op.begun, a.leaving = true, op.kind == "delete"
	for _, key := range w.keys {
		if w.cluster[key] == a.name && w.memory[key].State == ownership.Free && !op.snapshot[key] {
			w.memory[key], _ = w.memory[key].Restore(a.name, false)
			a.records[key] = false
		}
	}
	for _, key := range w.keys {
		if op.snapshot[key] {
			op.todo = append(op.todo, key)
		}
	}
	for _, key := range w.keys {
		if _, ours := a.records[key]; ours && !op.snapshot[key] {
			op.todo = append(op.todo, key)
		}
	}
	a.refused, a.operated = nil, op.id
}

func (w *world) write(a *app, op *operation, key string) {
	o := w.memory[key]
	c := w.interest(a.name, key)
	if mark := w.cluster[key]; o.State == ownership.Free && mark != "" && mark != a.name {
		// It belongs to whom live tracking says, if that one still has to do with it.
		if b := w.find(mark); b != nil && (b.target[key] || b.accepted[key]) && b.permitted[key] {
			op.failed, a.refused = true, append(a.refused, key)
			return
		}
	}
	was := o.Owner
	next, decision := o.Acquire(c, w.interest(was, key))
	switch decision {
	case ownership.Denied:
		op.failed = true
		return
	case ownership.Conflict:
		op.failed, a.refused = true, append(a.refused, key)
		return
	case ownership.Granted:
	}
	w.memory[key] = next
	if was != "" && was != a.name {
		delete(w.find(was).records, key)
		a.records[key] = true
	}
	w.cluster[key], op.written = a.name, key
}

func (w *world) record(a *app, key string) {
	w.memory[key] = w.memory[key].Do(a.name, ownership.Applied)
	if w.memory[key].Owner == a.name {
		a.records[key] = false
	}
}

func (w *world) prune(a *app, op *operation, key string) {
	o := w.memory[key]
	if _, ours := a.records[key]; !ours || o.Owner != a.name {
		return
	}
	var claims []ownership.Interest
	for _, b := range w.apps {
		if !b.deleted {
			claims = append(claims, w.interest(b.name, key))
		}
	}
	if to, ok := ownership.Successor(a.name, claims); ok {
		w.memory[key] = o.Adopt(to)
		if w.memory[key].Owner != to.App {
			w.t.Fatalf("%s was not adopted by its successor", key)
		}
		delete(a.records, key)
		w.find(to.App).records[key] = true
		return
	}
	if !a.permitted[key] { // DEL-03
		if op.kind == "delete" {
			w.left[key] = true
		}
		return
	}
	w.memory[key] = o.Do(a.name, ownership.Delete)
	delete(w.cluster, key)
	delete(w.left, key)
	delete(a.records, key)
	w.memory[key] = w.memory[key].Do(a.name, ownership.Release)
}

func (w *world) end(a *app, op *operation) {
	op.over = true
	if op.kind != "delete" {
		return
	}
	a.deleted = true
	for key, o := range w.memory {
		w.memory[key] = o.Do(a.name, ownership.Release)
	}
	a.records = map[string]bool{}
}

// report tells the hub of operations whose causes to fail are gone, and the hub
// decides: automation tries again, nobody else does.
func (w *world) report() (again bool) {
	for _, a := range w.apps {
		op := a.op
		if a.deleted || a.deleting || op == nil || !op.over || !op.failed || len(a.refused) == 0 || a.operated != op.id {
			continue
		}
		op.unblocked = true
		for _, key := range a.refused {
			may := w.interest(a.name, key)
			may.Permitted = true
			o := w.memory[key]
			if mark := w.find(w.cluster[key]); o.State == ownership.Free && mark != nil && mark != a && (mark.target[key] || mark.accepted[key]) {
				op.unblocked = false // live tracking names it, as before
			}
			op.unblocked = op.unblocked && o.Unblocked(may, w.interest(o.Owner, key))
		}
		if op.unblocked && a.automated {
			w.sync(a)
			again = true
		}
	}
	return again
}

// restart loses the agent's memory: ownership is restored from records, and
// operations begin again.
func (w *world) restart() {
	w.memory = map[string]ownership.Object{}
	for _, a := range w.apps {
		for key, adopted := range a.records {
			next, ok := w.memory[key].Restore(a.name, adopted)
			if !ok {
				w.t.Fatalf("%s has two owners on disk: %s and %s", key, next.Owner, a.name)
			}
			w.memory[key] = next
		}
		a.leaving = false
		if a.op != nil && !a.op.over {
			again := *a.op
			again.begun, again.todo, again.written, again.failed = false, nil, "", false
			a.op = &again
		}
	}
}

// vanish deletes an object behind everybody's back: automation heals it, of
// others it is nobody's any more.
func (w *world) vanish(key string) {
	owner := w.find(w.memory[key].Owner)
	if owner == nil || owner.op == nil || !owner.op.over {
		return // who is at it writes it again
	}
	if owner.automated && owner.accepted[key] {
		return
	}
	delete(w.cluster, key)
	delete(w.left, key)
	delete(owner.records, key)
	w.memory[key] = w.memory[key].Do(owner.name, ownership.Release)
}

func (w *world) rest() {
	for round := 0; ; round++ {
		if round > 1000 {
			w.t.Fatal("the applications never come to rest")
		}
		busy := false
		for _, a := range w.apps {
			if a.automated && !a.deleted && !a.deleting && !maps.Equal(a.target, a.accepted) {
				w.sync(a)
				busy = true
			}
			for w.step(a) {
				busy = true
			}
		}
		if !w.report() && !busy {
			return
		}
	}
}

// check says what always holds, and with quiet what holds when all is at rest.
func (w *world) check(quiet bool) {
	for _, key := range w.keys {
		var owners []string
		for _, a := range w.apps {
			if _, ours := a.records[key]; ours {
				owners = append(owners, a.name)
			}
		}
		o := w.memory[key]
		switch {
		case len(owners) > 1:
			w.t.Fatalf("INV-3 %s has two owners: %v", key, owners)
		case len(owners) == 1 && o.Owner != owners[0]:
			w.t.Fatalf("%s is %s's on disk and %q's in memory", key, owners[0], o.Owner)
		case (o.Owner == "") != (o.State == ownership.Free):
			w.t.Fatalf("%s is %+v", key, o)
		}
		if !quiet {
			continue
		}
		if len(owners) == 0 && o.State != ownership.Free {
			w.t.Fatalf("INV-13 %s is held by %s, which never wrote it", key, o.Owner)
		}
		// Without a record it is whose live tracking says, until that one is deleted.
		if mark, live := w.cluster[key]; live && len(owners) == 0 && !w.left[key] && w.find(mark) == nil {
			w.t.Fatalf("%s is left behind by %s: it has no owner", key, mark)
		}
	}
	if !quiet {
		return
	}
	for _, a := range w.apps {
		if a.deleted || a.op == nil || !a.op.failed || !a.automated {
			continue
		}
		cause := false
		for key := range a.op.snapshot {
			o := w.memory[key]
			cause = cause || !a.permitted[key] || o.State != ownership.Free && o.Owner != a.name && w.interest(o.Owner, key).Listed
		}
		if !cause {
			w.t.Fatalf("AUTO-04 %s stays failed, refused %v, and nothing is in its way", a.name, a.refused)
		}
	}
}

// cases is how many random worlds are played.
const cases = "20000"

func TestOwnershipProperty(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", cases); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set("rapid.checks", f.DefValue) })
	}
	t.Run("TRK-07 SEC-D2 INV-13 an object has one owner, no unused state stays, and no application is blocked without a cause", func(t *testing.T) {
		rapid.Check(t, play)
	})
}

func play(t *rapid.T) {
	w := &world{t: t, keys: []string{"x", "y"}, memory: map[string]ownership.Object{}, cluster: map[string]string{}, left: set{}}
	for _, name := range []string{"a", "b", "c"} {
		w.apps = append(w.apps, &app{
			name: name, automated: rapid.Bool().Draw(t, name+" is automated"), permitted: some(t, w, name+" may"),
			target: set{}, accepted: set{}, records: map[string]bool{},
		})
	}
	for range rapid.IntRange(1, 25).Draw(t, "events") {
		a := w.apps[rapid.IntRange(0, len(w.apps)-1).Draw(t, "application")]
		does := rapid.SampledFrom([]string{"render", "render", "hold", "sync", "sync", "step", "step", "step", "step", "report", "rest", "delete", "restart", "rights", "vanish"}).Draw(t, "event")
		switch {
		case does == "report":
			w.report()
		case does == "rest":
			w.rest()
			w.check(true)
		case does == "restart":
			w.restart()
		case does == "vanish":
			w.vanish(rapid.SampledFrom(w.keys).Draw(t, "object"))
		case a.deleted:
		case does == "step":
			w.step(a)
		case a.deleting:
		case does == "render":
			w.render(a, some(t, w, "objects"))
		case does == "hold":
			w.renderOnly(a, some(t, w, "objects"))
		case does == "sync":
			w.sync(a)
		case does == "delete":
			w.delete(a)
		case does == "rights":
			a.permitted = some(t, w, "rights")
			if a.automated { // a change of the project is such a cause, too
				w.sync(a)
			}
		}
		w.check(false)
	}
	w.rest()
	w.check(true)
	for _, i := range rapid.Permutation([]int{0, 1, 2}).Draw(t, "order of deletion") {
		if a := w.apps[i]; !a.deleted && !a.deleting {
			w.delete(a)
		}
		for range rapid.IntRange(0, 3).Draw(t, "steps between") {
			w.step(w.apps[rapid.IntRange(0, len(w.apps)-1).Draw(t, "who goes on")])
		}
		if rapid.IntRange(0, 9).Draw(t, "kill") == 0 {
			w.restart()
		}
	}
	w.rest()
	for _, key := range w.keys {
		if _, live := w.cluster[key]; live && !w.left[key] {
			t.Fatalf("DEL-02 %s is left behind after every application was deleted", key)
		}
	}
}

func some(t *rapid.T, w *world, what string) set {
	out := set{}
	for _, key := range w.keys {
		if rapid.IntRange(0, 3).Draw(t, what+" "+key) > 0 {
			out[key] = true
		}
	}
	return out
}
