package dispatch_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// project changes the spec of the project default.
func (w *world) project(change func(spec map[string]any)) {
	w.T.Helper()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		p, err := tx.Project(ctx, "default")
		if err != nil {
			return err
		}
		var spec map[string]any
		if err := json.Unmarshal(p.Spec, &spec); err != nil {
			return err
		}
		change(spec)
		if p.Spec, err = json.Marshal(spec); err != nil {
			return err
		}
		_, err = tx.UpdateProject(ctx, p, 0)
		return err
	})
}

// windows gives the project an allow window for the application that is not
// open for months, or takes it away.
func (w *world) windows(closed bool) {
	w.T.Helper()
	w.project(func(spec map[string]any) {
		delete(spec, "syncWindows")
		if closed {
			month := time.Now().UTC().AddDate(0, 6, 0).Month()
			spec["syncWindows"] = []map[string]any{{
				"kind": "allow", "schedule": "0 0 1 " + month.String()[:3] + " *", "duration": "1h", "applications": []string{"shop"},
			}}
		}
	})
}

// seq is the number of the newest row.
func (w *world) seq() int64 {
	w.T.Helper()
	var head hub.LogHead
	w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
		_, head, err = tx.RowsAfter(ctx, w.Cluster.ID, 0, 1)
		return err
	})
	return head.Seq
}

func TestProjectIsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod"},"syncPolicy":{"automated":{},"retry":{"limit":0}}}`)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	t.Run("WIN-09 the cluster gets it without a new commit, and once", func(t *testing.T) {
		seq, generation := w.seq(), w.Reload().Generation
		w.windows(true)
		for range 2 {
			w.refreshTarget("r1", w.App.Status.Target)
		}
		if got := w.State().GetPolicy().GetWindows(); len(got) != 1 || w.seq() != seq+1 || w.App.Generation != generation+1 {
			t.Errorf("windows %v, row %d after %d, generation %d after %d", got, w.seq(), seq, w.App.Generation, generation)
		}
		if w.App.Status.PlannedProject != 2 {
			t.Errorf("planned for version %d of the project", w.App.Status.PlannedProject)
		}
	})
	t.Run("AUTO-04 a failed target is tried again once after a change of the project", func(t *testing.T) {
		w.windows(false)
		w.Render("r2", "a")
		w.End(hub.Failed, "not permitted")
		first := w.newest()
		w.refreshTarget("r2", w.App.Status.Target)
		if w.newest().ID != first.ID {
			t.Fatal("it was tried again without a change")
		}
		w.windows(false) // a write all the same
		w.refreshTarget("r2", w.App.Status.Target)
		second := w.newest()
		if second.ID == first.ID {
			t.Fatal("it was not tried again")
		}
		w.End(hub.Failed, "not permitted")
		w.refreshTarget("r2", w.App.Status.Target)
		if w.newest().ID != second.ID {
			t.Error("it was tried twice for one change")
		}
	})
	t.Run("AUTO-04 ... and after a change of the cluster", func(t *testing.T) {
		first := w.newest()
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			c, err := tx.ClusterByID(ctx, w.Cluster.ID)
			if err != nil {
				return err
			}
			_, err = tx.UpdateCluster(ctx, c, 0)
			return err
		})
		w.refreshTarget("r2", w.App.Status.Target)
		if w.newest().ID == first.ID {
			t.Error("it was not tried again")
		}
		w.End(hub.Succeeded, "")
	})
	t.Run("DEL-02 WIN-09 windows delay no deletion, nor its retry", func(t *testing.T) {
		w.windows(true)
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{Cascade: true}, jane)
			return err
		})
		w.End(hub.Failed, "refused")
		first := w.newest()
		if first.RetryAt == nil || time.Until(*first.RetryAt) > time.Minute {
			t.Fatalf("the next try is at %v", first.RetryAt)
		}
		w.retry(first.ID)
		if o := w.order(); o.GetAttempt() != 1 || o.GetKind() != linkv1.OperationKind_OPERATION_KIND_DELETE {
			t.Errorf("order %v", o)
		}
	})
}

// restrict gives the project a field that restricts and is not enforced, or
// takes it away.
func (w *world) restrict(on bool) {
	w.T.Helper()
	w.project(func(spec map[string]any) {
		delete(spec, "somethingNewer")
		if on {
			spec["somethingNewer"] = map[string]any{"deny": "all"}
		}
	})
}

func TestProjectGainsWhatIsNotEnforced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	first := w.Reload().Status.Accepted
	w.restrict(true)
	t.Run("what was rendered before the project gained the field is not deployed after", func(t *testing.T) {
		w.Render("r2", "a", "b")
		if got := w.Reload().Status; got.Accepted != first || got.Target != first {
			t.Errorf("accepted %s, target %s, want %s", got.Accepted, got.Target, first)
		}
	})
	t.Run("a person's sync is refused, with project, field and fix", func(t *testing.T) {
		_, err := w.sync(hub.SyncRequest{})
		written, _ := fault.As(err)
		if fault.KindOf(err) != fault.Conflict || !strings.Contains(written.Cause, `project "default"`) || !strings.Contains(written.Cause, "spec.somethingNewer") || written.Fix == "" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("without the field it continues", func(t *testing.T) {
		w.restrict(false)
		w.Render("r3", "a", "c")
		if got := w.Reload().Status; got.Accepted == first {
			t.Error("nothing new is accepted")
		}
	})
}
