package dispatch_test

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

// annotate changes the application as a person does.
func (w *world) annotate(key, value string) {
	w.T.Helper()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		a := w.App
		a.Annotations = map[string]string{key: value}
		_, err := tx.UpdateApplication(ctx, a, 0)
		return err
	})
	w.Reload()
}

func TestSkipReconcile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	skip := func() {
		t.Helper()
		if err := w.Dispatcher.Skipped(t.Context(), w.Tenant, []hub.ApplicationID{w.App.ID}); err != nil {
			t.Fatal(err)
		}
		w.Reload()
	}
	if p := w.State().GetPolicy(); !p.GetSelfHeal() || !p.GetAutomated() {
		t.Fatalf("policy %v", p)
	}
	w.annotate("argocd.argoproj.io/skip-reconcile", "true")
	skip()
	t.Run("APP-24 the agent does not heal, and its objects stay", func(t *testing.T) {
		s := w.State()
		if s.GetPolicy().GetSelfHeal() || s.GetPolicy().GetAutomated() || s.GetTarget().GetRevision() != "r1" || len(s.GetTombstones()) != 0 {
			t.Errorf("state %v", s)
		}
		if !strings.Contains(w.App.Status.Hold, "skip-reconcile") {
			t.Errorf("hold %q", w.App.Status.Hold)
		}
	})
	t.Run("APP-24 it is reported once", func(t *testing.T) {
		rows := len(w.Rows())
		if skip(); len(w.Rows()) != rows {
			t.Errorf("%d rows more", len(w.Rows())-rows)
		}
	})
	t.Run("APP-24 a snapshot from before is not deployed", func(t *testing.T) {
		w.Render("r2", "a", "b")
		if w.State().GetTarget().GetRevision() != "r1" {
			t.Errorf("target %v", w.State().GetTarget())
		}
	})
	t.Run("APP-24 a sync and a deletion with objects are refused", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{}); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "skip-reconcile") {
			t.Errorf("sync: %v", err)
		}
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{Cascade: true}, jane)
			return err
		})
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("delete: %v", err)
		}
	})
	t.Run("APP-24 after its removal everything continues", func(t *testing.T) {
		w.annotate("argocd.argoproj.io/skip-reconcile", "false")
		w.Render("r2", "a", "b")
		s := w.State()
		if !s.GetPolicy().GetSelfHeal() || s.GetTarget().GetRevision() != "r2" || w.App.Status.Hold != "" {
			t.Errorf("state %v, hold %q", s, w.App.Status.Hold)
		}
	})
	w.End(hub.Succeeded, "")
	t.Run("APP-24 the annotation of a cluster does it for all on it", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			c, err := tx.ClusterByID(ctx, w.App.Cluster)
			if err != nil {
				return err
			}
			c.Annotations = map[string]string{"argocd.argoproj.io/skip-reconcile": "true"}
			_, err = tx.UpdateCluster(ctx, c, 0)
			return err
		})
		skip()
		if w.State().GetPolicy().GetSelfHeal() || !strings.Contains(w.App.Status.Hold, "of cluster") {
			t.Errorf("state %v, hold %q", w.State(), w.App.Status.Hold)
		}
	})
}

func TestPresentSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.Replace(automated, `,"syncPolicy":{"automated":{"prune":true,"selfHeal":true}}`, "", 1))
	t.Run("APP-14 an operation on a new application waits for its first manifests", func(t *testing.T) {
		op, err := w.sync(hub.SyncRequest{Present: true})
		if err != nil || op.Snapshot != "" || op.Options.Override == nil || !op.Options.Override.Fresh {
			t.Fatalf("%+v: %v", op, err)
		}
		if w.App.Awaited() == nil {
			t.Error("nothing waits")
		}
		r := dispatchtest.Rendered(w.App, "r1", "a")
		r.Operation = op.ID
		if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{r}); err != nil {
			t.Fatal(err)
		}
		if now := w.newest(); now.ID != op.ID || now.Revision != "r1" || now.Snapshot == "" {
			t.Errorf("operation %+v", now)
		}
	})
	t.Run("APP-14 what it applies is the target as well, so that no later decision voids it", func(t *testing.T) {
		op := w.newest()
		w.Reload()
		if w.App.Status.Target != op.Snapshot || w.App.Status.Revision != "r1" || op.Options.Override != nil || w.App.Generation != op.Fence {
			t.Errorf("status %+v, operation %+v", w.App.Status, op)
		}
		w.refreshTarget("r1", op.Snapshot)
		w.Reload()
		if now := w.newest(); now.ID != op.ID || w.App.Generation != op.Fence || w.App.Status.PlannedGeneration != w.App.Generation {
			t.Errorf("generation %d, planned %d, operation %+v", w.App.Generation, w.App.Status.PlannedGeneration, now)
		}
	})
	t.Run("APP-14 a second one is refused while one is set", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{Present: true}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	w.End(hub.Succeeded, "")
	w.Render("r1", "a")
	t.Run("APP-14 with existing manifests it begins at once", func(t *testing.T) {
		op, err := w.sync(hub.SyncRequest{Present: true})
		if err != nil || op.Snapshot == "" || op.Options.Override != nil {
			t.Errorf("%+v: %v", op, err)
		}
	})
}

func TestInClusterSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	enable := func(value *string) {
		t.Helper()
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			c, err := tx.ClusterByID(ctx, w.App.Cluster)
			if err != nil {
				return err
			}
			c.Name = hub.InClusterName
			if _, err := tx.UpdateCluster(ctx, c, 0); err != nil {
				return err
			}
			s := []hub.Setting{{Map: hub.SettingsMap, Key: hub.InClusterKey}}
			if err := tx.LockSettings(ctx); err != nil {
				return err
			}
			if value == nil {
				return tx.ChangeSettings(ctx, nil, s)
			}
			s[0].Value = *value
			return tx.ChangeSettings(ctx, s, nil)
		})
	}
	skip := func() {
		t.Helper()
		if err := w.Dispatcher.Skipped(t.Context(), w.Tenant, []hub.ApplicationID{w.App.ID}); err != nil {
			t.Fatal(err)
		}
		w.Reload()
	}
	on, off := "true", "false"
	t.Run("APP-05 switched on it changes nothing", func(t *testing.T) {
		enable(&on)
		rows := len(w.Rows())
		if skip(); len(w.Rows()) != rows || w.App.Status.Hold != "" {
			t.Errorf("%d rows more, hold %q", len(w.Rows())-rows, w.App.Status.Hold)
		}
	})
	t.Run("APP-05 while disabled the agent does not heal, and its objects stay", func(t *testing.T) {
		enable(&off)
		skip()
		s := w.State()
		if s.GetPolicy().GetSelfHeal() || s.GetPolicy().GetAutomated() || s.GetTarget().GetRevision() != "r1" || len(s.GetTombstones()) != 0 {
			t.Errorf("state %v", s)
		}
		if !strings.Contains(w.App.Status.Hold, hub.InClusterKey) {
			t.Errorf("hold %q", w.App.Status.Hold)
		}
	})
	t.Run("APP-05 a sync and a deletion with objects are refused, with what to do", func(t *testing.T) {
		_, err := w.sync(hub.SyncRequest{})
		if fault.KindOf(err) != fault.Conflict || !strings.Contains(fault.Sentence(err), hub.InClusterKey) || !strings.Contains(fault.Sentence(err), "set to true") {
			t.Errorf("sync: %v", err)
		}
		err = w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{Cascade: true}, jane)
			return err
		})
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("delete: %v", err)
		}
	})
	t.Run("APP-05 a snapshot from before is not deployed", func(t *testing.T) {
		w.Render("r2", "a", "b")
		if w.State().GetTarget().GetRevision() != "r1" {
			t.Errorf("target %v", w.State().GetTarget())
		}
	})
	t.Run("APP-05 once it is enabled again everything continues", func(t *testing.T) {
		enable(nil)
		w.Render("r2", "a", "b")
		s := w.State()
		if !s.GetPolicy().GetSelfHeal() || s.GetTarget().GetRevision() != "r2" || w.App.Status.Hold != "" {
			t.Errorf("state %v, hold %q", s, w.App.Status.Hold)
		}
	})
}
