package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

// compare reports that the cluster equals the target of the moment.
func (w *world) compare(status hub.SyncStatus) {
	w.T.Helper()
	a := w.Reload()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.PutObservation(ctx, w.Cluster.ID, hub.Observation{Epoch: "c" + string(hub.NewID[hub.OperationID]()), Seq: 1, Applications: []hub.ApplicationObservation{{
			Application: a.ID, Target: a.Status.Target, Generation: a.Generation, Sync: status, Health: hub.Healthy, ComparedAt: time.Now(),
		}}})
		return err
	})
	w.Reload()
}

// attach lets the cluster's agent come, so that what is known of it is current.
func (w *world) attach() {
	w.T.Helper()
	const session = "present"
	at := hub.Attachment{Tenant: w.Tenant, Cluster: w.Cluster.ID, Session: session, Replica: "r", Epoch: session, Instance: "one", Leader: true, At: time.Now()}
	if err := w.DB.System().Connected(w.T.Context(), at); err != nil {
		w.T.Fatal(err)
	}
	lost, err := w.DB.System().RenewAttachments(w.T.Context(), []hub.Heartbeat{{Tenant: w.Tenant, Cluster: w.Cluster.ID, Session: session, At: time.Now()}})
	if err != nil || len(lost) > 0 {
		w.T.Fatalf("the agent is not there: %v, %v", lost, err)
	}
}

// lists reports whether a list that asks for a sync status has the application,
// and whether counts and metrics say the same.
func (w *world) lists(t *testing.T, status hub.SyncStatus) bool {
	t.Helper()
	filter := hub.ApplicationFilter{All: true, Sync: []hub.SyncStatus{status}}
	found := false
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		apps, err := tx.Applications(ctx, filter)
		if err != nil {
			return err
		}
		found = len(apps) == 1
		counts, err := tx.CountApplications(ctx, hub.ApplicationFilter{All: true})
		if err != nil {
			return err
		}
		if (len(counts) == 1 && counts[0].Sync == status) != found {
			t.Errorf("counts say %+v", counts)
		}
		figures, err := tx.ApplicationFigures(ctx, 10)
		if err == nil && (len(figures) == 1 && figures[0].Sync == string(status)) != found {
			t.Errorf("metrics say %+v", figures)
		}
		return err
	})
	return found
}

func (w *world) resume() error {
	w.T.Helper()
	err := w.DB.InTenant(w.T.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
		return dispatch.Resume(ctx, storeports.Dispatch(tx), w.App.ID)
	})
	w.Reload()
	return err
}

// paused is a world of two revisions that was rolled back from the second.
func paused(t *testing.T, spec string) *world {
	w := newWorld(t, spec)
	w.attach()
	for _, revision := range []string{"r1", "r2"} {
		w.Render(revision, "a")
		if spec == manual {
			if _, err := w.sync(hub.SyncRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		w.End(hub.Succeeded, "")
		w.compare(hub.Synced)
	}
	w.rollback(1)
	w.End(hub.Succeeded, "")
	w.compare(hub.Synced)
	return w
}

func TestPaused(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"with automation": automated, "without automation": manual} {
		t.Run("ROLL-02 CMPR-01 "+name+" an application is OutOfSync after a rollback, and its objects are compared with what was gone back to", func(t *testing.T) {
			t.Parallel()
			w := paused(t, spec)
			if w.App.Status.Sync != hub.OutOfSync || !w.lists(t, hub.OutOfSync) || w.lists(t, hub.Synced) {
				t.Errorf("sync %s", w.App.Status.Sync)
			}
			if s := w.State(); s.GetTarget().GetRevision() != "r1" || s.GetAccepted().GetRevision() != "r1" {
				t.Errorf("the agent enforces %v", s)
			}
			p := w.App.Pin
			if p == nil || p.History != 1 || p.Skipped != "r2" || p.By != "jane" || p.Reason != "broken" || p.At.IsZero() {
				t.Fatalf("pin %+v", p)
			}
			if got := p.Sentence("r1"); !strings.HasPrefix(got, "paused at r1 since ") || !strings.HasSuffix(got, ", rolled back by jane because broken") {
				t.Errorf("it says %q", got)
			}
			if !strings.HasPrefix(w.App.Status.Hold, p.Sentence("r1")) {
				t.Errorf("automation says %q", w.App.Status.Hold)
			}
		})
		t.Run("ROLL-03 "+name+" resuming ends the pause", func(t *testing.T) {
			t.Parallel()
			w := paused(t, spec)
			if err := w.resume(); err != nil {
				t.Fatal(err)
			}
			if w.App.Pin != nil || w.App.Status.Hold != "" || w.State().GetTarget().GetRevision() != "r2" || w.State().GetAccepted().GetRevision() != "r1" {
				t.Errorf("pin %+v, hold %q, state %v", w.App.Pin, w.App.Status.Hold, w.State())
			}
			w.refreshTarget("r2", w.App.Status.Target) // the refresh that it asks for
			deploys := w.State().GetAccepted().GetRevision() == "r2"
			if deploys != (spec == automated) {
				t.Errorf("the newest is deployed: %v", deploys)
			}
			if !deploys && !w.lists(t, hub.OutOfSync) {
				t.Error("what is not deployed is not OutOfSync")
			}
			if err := w.resume(); err != nil {
				t.Errorf("once more: %v", err)
			}
		})
	}
	t.Run("ROLL-02 after a rollback to what Git renders the application is Synced", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.RenderEach("r3", []dispatchtest.Revised{{Name: "a", Revision: "r1"}}) // a revert: the objects of r1
		w.compare(hub.Synced)
		if w.App.Pin == nil || w.App.Status.Sync != hub.Synced || !w.lists(t, hub.Synced) {
			t.Errorf("pin %+v, sync %s", w.App.Pin, w.App.Status.Sync)
		}
		if _, revision, _ := w.App.Pin.Git(); revision != "r3" {
			t.Errorf("Git is at %s", revision)
		}
		w.refreshTarget("r2", w.App.Pin.Bad)
		if w.App.Pin == nil || w.App.Status.Sync != hub.OutOfSync {
			t.Errorf("pin %+v, sync %s: the bad revision came again", w.App.Pin, w.App.Status.Sync)
		}
	})
	t.Run("ROLL-03 a newer revision with other inputs that renders the same objects is skipped as well", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.RenderEach("r3", []dispatchtest.Revised{{Name: "a", Revision: "r2"}})
		if w.App.Pin == nil || w.State().GetAccepted().GetRevision() != "r1" {
			t.Fatalf("pin %+v, accepted %v", w.App.Pin, w.State().GetAccepted())
		}
		w.compare(hub.Synced)
		if w.App.Status.Sync != hub.OutOfSync {
			t.Errorf("sync %s", w.App.Status.Sync)
		}
		w.Render("r4", "a")
		if w.App.Pin != nil || w.State().GetAccepted().GetRevision() != "r4" {
			t.Errorf("pin %+v, accepted %v", w.App.Pin, w.State().GetAccepted())
		}
	})
	t.Run("SYNC-01 a sync of a paused application applies the newest of Git, not what was rolled back from", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.RenderEach("r3", []dispatchtest.Revised{{Name: "a", Revision: "r1"}})
		newest, _, _ := w.App.Pin.Git()
		op, err := w.sync(hub.SyncRequest{})
		if err != nil || op.Snapshot != newest || w.App.Pin != nil || w.App.Status.Revision != "r3" {
			t.Errorf("operation %+v, error %v, pin %v, revision %s", op, err, w.App.Pin, w.App.Status.Revision)
		}
	})
	t.Run("SYNC-03 a sync of a part leaves the application paused", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		op, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: []string{":ConfigMap:a"}}})
		if err != nil {
			t.Fatal(err)
		}
		if s := w.State(); w.App.Pin == nil || s.GetTarget().GetRevision() != "r1" || s.GetAccepted().GetRevision() != "r1" || w.order().GetSnapshot().GetRevision() != "r2" {
			t.Errorf("pin %+v, state %v, order %v of operation %s", w.App.Pin, s, w.order(), op.ID)
		}
	})
	t.Run("SYNC-07 resuming is refused while an operation is in progress", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.Render("r1", "a")
		w.End(hub.Succeeded, "")
		w.Render("r2", "a")
		w.End(hub.Succeeded, "")
		w.rollback(1)
		if err := w.resume(); fault.KindOf(err) != fault.Conflict || w.App.Pin == nil {
			t.Errorf("error %v, pin %v", err, w.App.Pin)
		}
	})
	t.Run("ROLL-02 hooks are skipped if the operation has that option", func(t *testing.T) {
		t.Parallel()
		w := paused(t, manual)
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Rollback(ctx, storeports.Dispatch(tx), w.App.ID, 2, "", hub.OperationOptions{SkipHooks: true}, jane)
			return err
		})
		if !w.order().GetOptions().GetSkipHooks() {
			t.Errorf("order %v", w.order())
		}
	})
	t.Run("INV-14 a pause that an older release stored is OutOfSync, and resumes", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.forgetNewest()
		if w.App.Status.Sync != hub.OutOfSync {
			t.Errorf("sync %s", w.App.Status.Sync)
		}
		bad := w.App.Pin.Bad
		if err := w.resume(); err != nil || w.App.Status.Target != bad || w.App.Status.Revision != "r2" {
			t.Errorf("error %v, status %+v", err, w.App.Status)
		}
	})
}

// forgetNewest makes the pin what a release wrote that did not note what Git
// renders meanwhile.
func (w *world) forgetNewest() {
	w.T.Helper()
	a := w.Reload()
	pin := *a.Pin
	pin.Newest, pin.Revision, pin.Revisions, pin.SkippedRevisions, pin.History = "", "", nil, nil, 0
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		return tx.SetTargets(ctx, []hub.TargetChange{{
			Application: a.ID, Target: a.Status.Target, Accepted: a.Status.Accepted, Revision: a.Status.Revision, Revisions: a.Status.Revisions,
			Hold: a.Status.Hold, Generation: a.Generation, Pin: &pin,
		}})
	})
	w.Reload()
}
