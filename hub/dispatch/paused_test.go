package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

// compare reports that the cluster equals the target of the moment.
func (w *world) compare(status hub.SyncStatus) {
	w.t.Helper()
	a := w.reload()
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.PutObservation(ctx, w.cluster.ID, hub.Observation{Epoch: "c" + string(hub.NewID[hub.OperationID]()), Seq: 1, Applications: []hub.ApplicationObservation{{
			Application: a.ID, Target: a.Status.Target, Generation: a.Generation, Sync: status, Health: hub.Healthy, ComparedAt: time.Now(),
		}}})
		return err
	})
	w.reload()
}

// attach lets the cluster's agent come, so that what is known of it is current.
func (w *world) attach() {
	w.t.Helper()
	const session = "present"
	at := hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: session, Replica: "r", Epoch: session, Instance: "one", Leader: true, At: time.Now()}
	if err := w.db.System().Connected(w.t.Context(), at); err != nil {
		w.t.Fatal(err)
	}
	lost, err := w.db.System().RenewAttachments(w.t.Context(), []hub.Heartbeat{{Tenant: w.tenant, Cluster: w.cluster.ID, Session: session, At: time.Now()}})
	if err != nil || len(lost) > 0 {
		w.t.Fatalf("the agent is not there: %v, %v", lost, err)
	}
}

// lists reports whether a list that asks for a sync status has the application,
// and whether counts and metrics say the same.
func (w *world) lists(t *testing.T, status hub.SyncStatus) bool {
	t.Helper()
	filter := hub.ApplicationFilter{All: true, Sync: []hub.SyncStatus{status}}
	found := false
	w.in(func(ctx context.Context, tx *store.Tenant) error {
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
	w.t.Helper()
	err := w.db.InTenant(w.t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		return dispatch.Resume(ctx, tx, w.app.ID)
	})
	w.reload()
	return err
}

// paused is a world of two revisions that was rolled back from the second.
func paused(t *testing.T, spec string) *world {
	w := newWorld(t, spec)
	w.attach()
	for _, revision := range []string{"r1", "r2"} {
		w.render(revision, "a")
		if spec == manual {
			if _, err := w.sync(hub.SyncRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		w.end(hub.Succeeded, "")
		w.compare(hub.Synced)
	}
	w.rollback(1)
	w.end(hub.Succeeded, "")
	w.compare(hub.Synced)
	return w
}

func TestPaused(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"with automation": automated, "without automation": manual} {
		t.Run("ROLL-02 CMPR-01 "+name+" an application is OutOfSync after a rollback, and its objects are compared with what was gone back to", func(t *testing.T) {
			t.Parallel()
			w := paused(t, spec)
			if w.app.Status.Sync != hub.OutOfSync || !w.lists(t, hub.OutOfSync) || w.lists(t, hub.Synced) {
				t.Errorf("sync %s", w.app.Status.Sync)
			}
			if s := w.state(); s.GetTarget().GetRevision() != "r1" || s.GetAccepted().GetRevision() != "r1" {
				t.Errorf("the agent enforces %v", s)
			}
			p := w.app.Pin
			if p == nil || p.History != 1 || p.Skipped != "r2" || p.By != "jane" || p.Reason != "broken" || p.At.IsZero() {
				t.Fatalf("pin %+v", p)
			}
			if got := p.Sentence("r1"); !strings.HasPrefix(got, "paused at r1 since ") || !strings.HasSuffix(got, ", rolled back by jane because broken") {
				t.Errorf("it says %q", got)
			}
			if !strings.HasPrefix(w.app.Status.Hold, p.Sentence("r1")) {
				t.Errorf("automation says %q", w.app.Status.Hold)
			}
		})
		t.Run("ROLL-03 "+name+" resuming ends the pause", func(t *testing.T) {
			t.Parallel()
			w := paused(t, spec)
			if err := w.resume(); err != nil {
				t.Fatal(err)
			}
			if w.app.Pin != nil || w.app.Status.Hold != "" || w.state().GetTarget().GetRevision() != "r2" || w.state().GetAccepted().GetRevision() != "r1" {
				t.Errorf("pin %+v, hold %q, state %v", w.app.Pin, w.app.Status.Hold, w.state())
			}
			w.refreshTarget("r2", w.app.Status.Target) // the refresh that it asks for
			deploys := w.state().GetAccepted().GetRevision() == "r2"
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
		w.renderEach("r3", []revised{{"a", "r1"}}) // a revert: the objects of r1
		w.compare(hub.Synced)
		if w.app.Pin == nil || w.app.Status.Sync != hub.Synced || !w.lists(t, hub.Synced) {
			t.Errorf("pin %+v, sync %s", w.app.Pin, w.app.Status.Sync)
		}
		if _, revision, _ := w.app.Pin.Git(); revision != "r3" {
			t.Errorf("Git is at %s", revision)
		}
		w.refreshTarget("r2", w.app.Pin.Bad)
		if w.app.Pin == nil || w.app.Status.Sync != hub.OutOfSync {
			t.Errorf("pin %+v, sync %s: the bad revision came again", w.app.Pin, w.app.Status.Sync)
		}
	})
	t.Run("ROLL-03 a newer revision with other inputs that renders the same objects is skipped as well", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.renderEach("r3", []revised{{"a", "r2"}})
		if w.app.Pin == nil || w.state().GetAccepted().GetRevision() != "r1" {
			t.Fatalf("pin %+v, accepted %v", w.app.Pin, w.state().GetAccepted())
		}
		w.compare(hub.Synced)
		if w.app.Status.Sync != hub.OutOfSync {
			t.Errorf("sync %s", w.app.Status.Sync)
		}
		w.render("r4", "a")
		if w.app.Pin != nil || w.state().GetAccepted().GetRevision() != "r4" {
			t.Errorf("pin %+v, accepted %v", w.app.Pin, w.state().GetAccepted())
		}
	})
	t.Run("SYNC-01 a sync of a paused application applies the newest of Git, not what was rolled back from", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.renderEach("r3", []revised{{"a", "r1"}})
		newest, _, _ := w.app.Pin.Git()
		op, err := w.sync(hub.SyncRequest{})
		if err != nil || op.Snapshot != newest || w.app.Pin != nil || w.app.Status.Revision != "r3" {
			t.Errorf("operation %+v, error %v, pin %v, revision %s", op, err, w.app.Pin, w.app.Status.Revision)
		}
	})
	t.Run("SYNC-03 a sync of a part leaves the application paused", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		op, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: []string{":ConfigMap:a"}}})
		if err != nil {
			t.Fatal(err)
		}
		if s := w.state(); w.app.Pin == nil || s.GetTarget().GetRevision() != "r1" || s.GetAccepted().GetRevision() != "r1" || w.order().GetSnapshot().GetRevision() != "r2" {
			t.Errorf("pin %+v, state %v, order %v of operation %s", w.app.Pin, s, w.order(), op.ID)
		}
	})
	t.Run("SYNC-07 resuming is refused while an operation is in progress", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.render("r1", "a")
		w.end(hub.Succeeded, "")
		w.render("r2", "a")
		w.end(hub.Succeeded, "")
		w.rollback(1)
		if err := w.resume(); fault.KindOf(err) != fault.Conflict || w.app.Pin == nil {
			t.Errorf("error %v, pin %v", err, w.app.Pin)
		}
	})
	t.Run("ROLL-02 hooks are left out where the operation says so", func(t *testing.T) {
		t.Parallel()
		w := paused(t, manual)
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Rollback(ctx, tx, w.app.ID, 2, "", hub.OperationOptions{SkipHooks: true}, jane)
			return err
		})
		if !w.order().GetOptions().GetSkipHooks() {
			t.Errorf("order %v", w.order())
		}
	})
	t.Run("INV-14 a pause that an older release noted is OutOfSync, and resumes", func(t *testing.T) {
		t.Parallel()
		w := paused(t, automated)
		w.forgetNewest()
		if w.app.Status.Sync != hub.OutOfSync {
			t.Errorf("sync %s", w.app.Status.Sync)
		}
		bad := w.app.Pin.Bad
		if err := w.resume(); err != nil || w.app.Status.Target != bad || w.app.Status.Revision != "r2" {
			t.Errorf("error %v, status %+v", err, w.app.Status)
		}
	})
}

// forgetNewest makes the pin what a release wrote that did not note what Git
// renders meanwhile.
func (w *world) forgetNewest() {
	w.t.Helper()
	a := w.reload()
	pin := *a.Pin
	pin.Newest, pin.Revision, pin.Revisions, pin.SkippedRevisions, pin.History = "", "", nil, nil, 0
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		return tx.SetTargets(ctx, []hub.TargetChange{{
			Application: a.ID, Target: a.Status.Target, Accepted: a.Status.Accepted, Revision: a.Status.Revision, Revisions: a.Status.Revisions,
			Hold: a.Status.Hold, Generation: a.Generation, Pin: &pin,
		}})
	})
	w.reload()
}
