package apply

import (
	"slices"
	"strconv"

	"github.com/capstan-cd/capstan/agent/tracking"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// sharedWarning is the type of a condition (TRK-07).
const sharedWarning = "SharedResourceWarning"

// manyNotes is how many notes of one type are reported one by one.
const manyNotes = 10

// unread reports whether the newest state waits to be processed, or is being
// processed.
func (a *app) unread() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return (a.newState || a.taking || a.unresolved) && !a.closed
}

// name is the application's name in tracking ids. After a restart live objects
// may be seen before its state is resolved; the inventory has the name by then.
// The caller holds mu.
func (a *app) name() string {
	state := a.state
	if state == nil {
		if row, ok := a.e.Inventory.App(a.id); ok {
			state = row.State
		}
	}
	return state.GetAppNamespace() + "_" + state.GetName()
}

// installation is the tenant's installation id, if several share a cluster;
// usually empty.
func (a *app) installation() string { return a.e.tenantSettings().InstallationID }

// foreign returns the mark of another owner on a live object; nil if there is
// none. A mark with a tenant is that of another tenant. The caller holds mu.
func (a *app) foreign(o *manifest.Object) *tracking.Mark {
	if inHub(manifest.KeyOf(o)) {
		return nil // the hub itself knows its owner
	}
	tenant, ours := a.e.tenantSettings().Tenant, false
	for _, m := range tracking.Of(o, a.e.tenantSettings().InstanceLabel) {
		if ours && a.mirrors(o, m) {
			continue
		}
		if m.Tenant == tenant || tenant == "" {
			m.Tenant = ""
		}
		if m.Tenant != "" {
			return &m
		}
		if m.System != tracking.Own || m.App != a.name() || (m.Installation != "" && m.Installation != a.installation()) {
			return &m
		}
		ours = true
	}
	return nil
}

// stranger is foreign for an observed object of ours. The installation id with
// which we applied it is not that of another installation.
func (x *object) stranger(o *manifest.Object) *tracking.Mark {
	a := x.app
	m := a.foreign(o)
	if m != nil && x.adopted() && m.System == tracking.Own && m.Tenant == "" && m.App == x.record.From {
		return nil // the application that released it; the first write removes its mark
	}
	if m == nil || m.Tenant != "" || m.System != tracking.Own || m.App != a.name() || x.record == nil {
		return m
	}
	if x.record.Owned.UID == string(o.GetUID()) && x.comparison.Void == "" && x.comparison.Equal {
		return nil
	}
	return m
}

// marked reports whether a live object has the tenant and installation marks
// that an apply would write now. The caller holds mu.
func (x *object) marked() bool {
	if x.record != nil && x.record.Marks != x.app.marksNow(x.key) {
		return false
	}
	return x.key.Kind == "CustomResourceDefinition" || x.live.tenanted && x.live.from == x.app.installation()
}

// isTaken reports whether another tenant has adopted an object of ours; it is
// then not reverted. The caller holds mu.
func (x *object) isTaken() bool {
	return x.live.found && x.live.foreign != nil && x.live.foreign.Tenant != ""
}

// surrendered refuses to write what another tenant has adopted. The caller
// holds mu.
func (x *object) surrendered(options []string) error {
	if x.record == nil || !x.isTaken() || hasOption(options, adoptOption, "true") {
		return nil
	}
	return belongs(*x.live.foreign, x.key)
}

// belongs refuses an object because of its mark.
func belongs(m tracking.Mark, key manifest.Key) error {
	return fault.With(fault.New(fault.Conflict, "it belongs to %s", m.Title()), key.Describe(),
		"remove it there, or set the sync option Adopt=true to take it over")
}

// sharedNotes returns the warnings about objects that other applications have,
// too. The caller holds mu.
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

// notes returns the conditions that have a type of their own. The caller holds
// mu.
func (a *app) notes() []*linkv1.Note {
	out := a.sharedNotes()
	if a.orphanNote != "" {
		out = append(out, &linkv1.Note{Type: orphanedWarning, Message: a.orphanNote})
	}
	return out
}

// notes converts texts to notes in a stable order; beyond manyNotes it adds
// only their number.
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
