package apply

import (
	"context"
	"slices"
	"strconv"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/tracking"
)

// Engine.objects is the table of who owns what in the cluster: one application
// for each key. Whoever comes first claims it. Another one that lists the same
// object is refused and waits in Engine.contenders; it gets the object, which
// is not deleted for it, as soon as the holder does not want it any more.

// sharedWarning is the type of a condition (TRK-07).
const sharedWarning = "SharedResourceWarning"

// manyNotes is how many notes of one type are written out.
const manyNotes = 10

// contend puts an application in line for an object that another one holds.
func (e *Engine) contend(a *app, key manifest.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Contains(e.contenders[key], a) {
		e.contenders[key] = append(e.contenders[key], a)
	}
}

// withdraw takes an application out of every line.
func (e *Engine) withdraw(a *app) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, line := range e.contenders {
		if line = slices.DeleteFunc(line, func(c *app) bool { return c == a }); len(line) == 0 {
			delete(e.contenders, key)
		} else {
			e.contenders[key] = line
		}
	}
}

// inLine gives the applications that wait for an object.
func (e *Engine) inLine(key manifest.Key) []*app {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return slices.Clone(e.contenders[key])
}

// offer has those who wait for an object ask for it again.
func (e *Engine) offer(key manifest.Key) {
	for _, c := range e.inLine(key) {
		e.do(func(ctx context.Context) { c.stateChanged(ctx) })
	}
}

// wantedElsewhere names another application that lists an object: one that
// waits for it, or one whose newest state was not taken up yet. No lock of an
// application may be held.
func (e *Engine) wantedElsewhere(ctx context.Context, a *app, key manifest.Key) *app {
	if line := e.inLine(key); len(line) > 0 {
		return line[0]
	}
	for _, b := range e.all() {
		if b != a && b.unread() && b.lists(ctx, key) {
			return b
		}
	}
	// Who took a state up just now stepped out of line for that moment.
	if line := e.inLine(key); len(line) > 0 {
		return line[0]
	}
	return nil
}

// unread says whether the newest state waits to be taken up, or is being.
func (a *app) unread() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return (a.fresh || a.taking || a.untaken) && !a.closed
}

// lists says whether the newest state names an object. What cannot be read is
// taken for a yes: the object is only kept.
func (a *app) lists(ctx context.Context, key manifest.Key) bool {
	row, ok := a.e.Inventory.App(a.id)
	if !ok {
		return false
	}
	for _, ref := range []*linkv1.SnapshotRef{row.State.GetTarget(), row.State.GetAccepted()} {
		s, err := a.e.resolve(ctx, ref, row.State.GetNamespace())
		if err != nil || s.get(key) != nil {
			return true
		}
	}
	return false
}

// cede hands an object over to those who wait for it. It stays in the cluster
// as it is. The caller holds mu.
func (a *app) cede(x *object) {
	if x.record != nil {
		a.e.Inventory.Disown(a.id, x.key)
		x.record, x.doomed = nil, false
	}
	a.closeStone(x.key)
	a.drop(x)
}

// unwanted hands over what the application does not list any more and another
// one waits for. The caller holds mu.
func (a *app) unwanted() {
	for _, key := range a.keys() {
		x := a.objects[key]
		if x.target == nil && x.accepted == nil && x.hook == "" && x.inflight == 0 && a.running == nil && len(a.e.inLine(key)) > 0 {
			a.e.Log.Info("object handed over", logkey.Application, a.id, logkey.Object, key.String()) //nolint:sloglint // no context reaches here
			a.cede(x)
		}
	}
}

// askAgain claims once more what a busy holder could not yield just now.
func (a *app) askAgain() {
	const wait = 500 * time.Millisecond
	a.e.later(wait, func(ctx context.Context) { a.stateChanged(ctx) })
}

// name is how tracking ids name the application. After a restart live objects
// may be seen before its state is resolved; the inventory has it by then. The
// caller holds mu.
func (a *app) name() string {
	state := a.state
	if state == nil {
		if row, ok := a.e.Inventory.App(a.id); ok {
			state = row.State
		}
	}
	return state.GetAppNamespace() + "_" + state.GetName()
}

// installation is the tenant's name for itself among several in one cluster;
// mostly empty.
func (a *app) installation() string { return a.e.custom().InstallationID }

// foreign gives the mark of somebody else on a live object; nil if there is
// none. A tenant that it names is another one. The caller holds mu.
func (a *app) foreign(o *manifest.Object) *tracking.Mark {
	if inHub(manifest.KeyOf(o)) {
		return nil // the hub itself knows whose it is
	}
	tenant := a.e.custom().Tenant
	for _, m := range tracking.Of(o, a.e.custom().InstanceLabel) {
		if m.Tenant == tenant || tenant == "" {
			m.Tenant = ""
		}
		if m.Tenant != "" {
			return &m
		}
		if m.System != tracking.Own || m.App != a.name() || (m.Installation != "" && m.Installation != a.installation()) {
			return &m
		}
	}
	return nil
}

// stranger is foreign for an object of ours that was judged: the id that this
// installation had when it was applied is no other installation's.
func (x *object) stranger(o *manifest.Object) *tracking.Mark {
	a := x.app
	m := a.foreign(o)
	if m == nil || m.Tenant != "" || m.System != tracking.Own || m.App != a.name() || x.record == nil {
		return m
	}
	if x.record.Owned.UID == string(o.GetUID()) && x.verdict.Void == "" && x.verdict.Equal {
		return nil
	}
	return m
}

// marked says whether a live object names tenant and installation as an apply
// would now. The caller holds mu.
func (x *object) marked() bool {
	return x.key.Kind == "CustomResourceDefinition" || x.live.tenanted && x.live.from == x.app.installation()
}

// taken says whether another tenant has taken an object of ours over: nobody
// fights about it. The caller holds mu.
func (x *object) taken() bool {
	return x.live.found && x.live.foreign != nil && x.live.foreign.Tenant != ""
}

// surrendered refuses to write what another tenant has taken over. The caller
// holds mu.
func (x *object) surrendered(options []string) error {
	if x.record == nil || !x.taken() || hasOption(options, adoptOption, "true") {
		return nil
	}
	return belongs(*x.live.foreign, x.key)
}

// belongs refuses an object for its mark.
func belongs(m tracking.Mark, key manifest.Key) error {
	return fault.With(fault.New(fault.Conflict, "it belongs to %s", m.Title()), key.Describe(),
		"remove it there, or set the sync option Adopt=true to take it over")
}

// sharedNotes gives what a person should know of objects that others have, too. The
// caller holds mu.
func (a *app) sharedNotes() []*linkv1.Note {
	var texts []string
	for key, holder := range a.conflicts {
		texts = append(texts, key.Describe()+" is managed by application "+holder+" too, which keeps it")
	}
	for key, x := range a.objects {
		m := x.live.foreign
		switch {
		case m == nil || x.hook != "" || x.target == nil && x.record == nil:
		case x.record != nil:
			texts = append(texts, key.Describe()+" is tracked by "+m.Title()+" too")
		case m.Tenant != "":
			texts = append(texts, key.Describe()+" belongs to "+m.Title())
		case m.System != tracking.Own || m.Installation != a.installation():
			texts = append(texts, key.Describe()+" is tracked by "+m.Title()+"; the next sync adopts it")
		}
	}
	return notes(sharedWarning, texts)
}

// notes gives the conditions that have a type of their own. The caller holds mu.
func (a *app) notes() []*linkv1.Note {
	out := a.sharedNotes()
	if a.orphanNote != "" {
		out = append(out, &linkv1.Note{Type: orphanedWarning, Message: a.orphanNote})
	}
	return out
}

// notes writes texts out in a stable order, and of many only how many more
// there are.
func notes(kind string, texts []string) []*linkv1.Note {
	slices.Sort(texts)
	var out []*linkv1.Note
	for i, text := range texts {
		if i == manyNotes {
			out = append(out, &linkv1.Note{Type: kind, Message: "and " + plural(len(texts)-manyNotes, "object") + " more"})
			break
		}
		out = append(out, &linkv1.Note{Type: kind, Message: text})
	}
	return out
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
