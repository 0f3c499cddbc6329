package dispatch_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
)

// A made is how a snapshot was rendered: revision, content of its one object,
// version of the renderers, hash of what was read.
type made struct{ revision, content, version, inputs string }

// make passes a render of the object "a" on.
func (w *world) make(m made) {
	w.T.Helper()
	r := w.RenderedOf(w.App.ID, m.content, "a")
	r.Revision, r.Revisions = m.revision, []string{m.revision}
	r.Snapshot.Revision, r.Snapshot.Revisions = r.Revision, r.Revisions
	r.Snapshot.Commit.Rendering = &hub.Rendering{Version: m.version, Params: "p", Inputs: m.inputs}
	w.Submit(r)
}

// upgraded is a world whose renderers make something else since an upgrade.
func upgraded(t *testing.T, spec string, next made) *world {
	t.Helper()
	w := newWorld(t, spec)
	w.attach()
	w.make(made{"r1", "one", "3 helm/1", "i1"})
	if spec == manual {
		if _, err := w.sync(hub.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	w.End(hub.Succeeded, "")
	w.compare(hub.Synced)
	w.make(next)
	return w
}

func TestRendererUpgrades(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"with automation": automated, "without automation": manual} {
		for why, next := range map[string]made{
			"at the same commit": {"r1", "two", "3 helm/2", "i2"}, "at another commit with equal files": {"r2", "two", "4 helm/2", "i1"},
		} {
			t.Run("FT-G11 "+name+", "+why+", what other renderers make is shown and not applied", func(t *testing.T) {
				t.Parallel()
				w := upgraded(t, spec, next)
				before := w.App.Status.Operation.ID
				p := w.App.Pin
				if p == nil || p.By != plan.RendererUpgrade || p.Renderers == nil || p.Renderers.Changed != 1 || !strings.HasSuffix(p.Renderers.From, "helm/1") {
					t.Fatalf("pin %+v", p)
				}
				if s := w.State(); s.GetTarget().GetRevision() != "r1" || s.GetAccepted().GetRevision() != "r1" || w.App.Status.Operation.ID != before {
					t.Errorf("the agent has %v", s)
				}
				if w.App.Status.Sync != hub.OutOfSync || !strings.Contains(w.App.Status.Hold, "the renderers changed from") {
					t.Errorf("sync %s, hold %q", w.App.Status.Sync, w.App.Status.Hold)
				}
				at := p.At
				next.version, next.content = "5 helm/3", "three" // the next upgrade comes before anybody has looked
				w.make(next)
				if p := w.App.Pin; p == nil || !p.At.Equal(at) || !strings.HasSuffix(p.Renderers.To, "helm/3") {
					t.Errorf("pin %+v", p)
				}
				if err := w.resume(); err != nil {
					t.Fatal(err)
				}
				w.refreshTarget(next.revision, w.App.Status.Target)
				if deploys := w.State().GetAccepted().GetRevision() == next.revision && w.App.Status.Operation.ID != before; w.App.Pin != nil || deploys != (spec == automated) {
					t.Errorf("pin %+v, deployed %v", w.App.Pin, deploys)
				}
			})
		}
	}
	for name, next := range map[string]made{
		"a commit that changes files":  {"r2", "two", "3 helm/2", "i2"},
		"the same renderers":           {"r1", "two", "3 helm/1", "i2"},
		"other renderers, same result": {"r1", "one", "3 helm/2", "i1"},
	} {
		t.Run("FT-G11 nothing is held for "+name, func(t *testing.T) {
			t.Parallel()
			if w := upgraded(t, automated, next); w.App.Pin != nil || w.App.Status.Hold != "" {
				t.Errorf("pin %+v, hold %q", w.App.Pin, w.App.Status.Hold)
			}
		})
	}
	for name, next := range map[string]made{
		"a commit that renders something else": {"r2", "three", "3 helm/2", "i3"}, "the upgrade that is taken back": {"r1", "one", "3 helm/1", "i1"},
	} {
		t.Run("FT-G11 the pause ends with "+name, func(t *testing.T) {
			t.Parallel()
			w := upgraded(t, automated, made{"r1", "two", "3 helm/2", "i2"})
			if w.App.Pin == nil {
				t.Fatal("it is not paused")
			}
			w.make(next)
			if w.App.Pin != nil || w.App.Status.Hold != "" || w.State().GetAccepted().GetRevision() != next.revision {
				t.Errorf("pin %+v, hold %q, state %v", w.App.Pin, w.App.Status.Hold, w.State())
			}
		})
	}
	t.Run("FT-G11 a rollback stays what it is", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.make(made{"r2", "two", "3 helm/2", "i2"})
		if p := w.App.Pin; p == nil || p.Renderers != nil || p.By != "jane" {
			t.Errorf("pin %+v", p)
		}
	})
}
