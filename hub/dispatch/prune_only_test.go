package dispatch_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
)

// unpruned is an automated application that deletes nothing by itself.
var unpruned = strings.Replace(automated, `"prune":true,`, "", 1)

// deployed is an application that has deployed "web" and "old", and is Synced.
func deployed(t *testing.T, spec string) *world {
	w := newWorld(t, spec)
	w.Render("r1", "web", "old")
	w.End(hub.Succeeded, "")
	w.compare(hub.Synced)
	return w
}

func TestOnlyPruningIsLeft(t *testing.T) {
	t.Parallel()
	since := func(revision string, names ...string) (out []dispatchtest.Revised) {
		for _, n := range names {
			out = append(out, dispatchtest.Revised{Name: n, Revision: revision})
		}
		return out
	}
	t.Run("AUTO-03 INV-3 without prune nothing is started, and the object asks to be pruned", func(t *testing.T) {
		t.Parallel()
		w := deployed(t, unpruned)
		before := w.newest()
		w.RenderEach("r2", since("r1", "web"))
		if got := w.newest(); got.ID != before.ID {
			t.Errorf("operation %s for %s was started", got.ID, got.Revision)
		}
		a := w.Reload()
		if a.Status.Revision != "r2" || a.Status.Accepted != a.Status.Target || a.Status.Hold != "" {
			t.Errorf("status %+v", a.Status)
		}
		if got := w.State().GetTombstones(); len(got) != 1 || got[0].GetName() != "old" {
			t.Errorf("tombstones %v", got)
		}
		if n := len(w.desired().History); n != 1 {
			t.Errorf("%d entries of the history", n)
		}
	})
	t.Run("AUTO-03 SYNC-11 a person may prune it all the same", func(t *testing.T) {
		t.Parallel()
		w := deployed(t, unpruned)
		w.RenderEach("r2", since("r1", "web"))
		op, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Prune: true}})
		if err != nil || op.Revision != "r2" || !op.Options.Prune {
			t.Errorf("%+v, %v", op, err)
		}
	})
	for name, c := range map[string]struct {
		spec    string
		status  hub.SyncStatus
		objects []dispatchtest.Revised
	}{
		"AUTO-03 with prune it is synced":                       {automated, hub.Synced, since("r1", "web")},
		"AUTO-03 where another object is changed, too":          {unpruned, hub.Synced, since("r2", "web")},
		"AUTO-03 where another object comes, too":               {unpruned, hub.Synced, since("r1", "web", "new")},
		"AUTO-03 where something has drifted from what is left": {unpruned, hub.OutOfSync, since("r1", "web")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := deployed(t, c.spec)
			w.compare(c.status)
			w.RenderEach("r2", c.objects)
			if op := w.newest(); op.Revision != "r2" || !op.Initiator.Automated {
				t.Errorf("newest operation %+v", op)
			}
		})
	}
}

func TestErrorConditionStopsAutomation(t *testing.T) {
	t.Parallel()
	w := deployed(t, automated)
	before := w.newest()
	fail := func(condition, message string) {
		t.Helper()
		f := hub.RefreshFailure{Application: w.App.ID, Generation: w.Reload().Generation, Condition: condition, Message: message}
		if err := w.Dispatcher.Failed(t.Context(), w.Tenant, []hub.RefreshFailure{f}); err != nil {
			t.Fatal(err)
		}
	}
	for _, condition := range []string{hub.ComparisonError, hub.InvalidSpecError} {
		t.Run("AUTO-02 an application with "+condition+" is not synced: target and what is enforced stay", func(t *testing.T) {
			was := w.Reload()
			fail(condition, "apps/shop: there is no such folder")
			w.Drain(hub.WorkRetry)
			if got := w.newest(); got.ID != before.ID {
				t.Errorf("operation %s was started", got.ID)
			}
			if a := w.Reload(); a.Status.Target != was.Status.Target || a.Status.Accepted != was.Status.Accepted || a.Generation != was.Generation {
				t.Errorf("status %+v", a.Status)
			}
			w.condition("shop", "no such folder")
		})
	}
	t.Run("AUTO-02 once the error is over, automation continues", func(t *testing.T) {
		w.Render("r2", "web")
		if got := w.newest(); got.Revision != "r2" {
			t.Errorf("newest operation %+v", got)
		}
	})
}
