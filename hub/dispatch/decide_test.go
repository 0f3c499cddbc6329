package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

var jane = hub.Initiator{Username: "jane"}

func (w *world) sync(req hub.SyncRequest) (op hub.Operation, err error) {
	w.T.Helper()
	req.Initiator = jane
	err = w.DB.InTenant(w.T.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
		op, err = dispatch.Sync(ctx, storeports.Dispatch(tx), w.App.ID, req)
		return err
	})
	w.Reload()
	return op, err
}

func (w *world) rollback(entry int64) hub.Operation {
	w.T.Helper()
	var op hub.Operation
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		op, err = dispatch.Rollback(ctx, storeports.Dispatch(tx), w.App.ID, entry, "broken", hub.OperationOptions{Prune: true}, jane)
		return err
	})
	w.Reload()
	return op
}

func (w *world) newest() hub.Operation {
	w.T.Helper()
	var op hub.Operation
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		a, err := tx.ApplicationByID(ctx, w.App.ID)
		if a.Status.Operation != nil {
			op = *a.Status.Operation
		}
		return err
	})
	return op
}

// refreshTarget hands in the application's own target, as a refresh does whose inputs
// are answered.
func (w *world) refreshTarget(revision string, snapshot hub.SnapshotID) {
	w.T.Helper()
	r := hub.Rendered{Application: w.App.ID, Generation: w.Reload().Generation, Revision: revision, Revisions: []string{revision}, Reused: true, Snapshot: hub.Snapshot{ID: snapshot}}
	if err := w.Dispatcher.Rendered(w.T.Context(), w.Tenant, []hub.Rendered{r}); err != nil {
		w.T.Fatal(err)
	}
	w.Reload()
}

func TestPinnedApplication(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	w.Render("r2", "a", "b")
	bad := w.App.Status.Target
	w.End(hub.Succeeded, "")
	op := w.rollback(1)
	t.Run("ROLL-03 a refresh at the skipped revision does not invalidate the rollback that waits for its agent", func(t *testing.T) {
		rows := len(w.Rows())
		w.refreshTarget("r2", bad)
		w.refreshTarget("r2b", bad)
		if w.App.Generation != op.Fence || len(w.Rows()) != rows {
			t.Errorf("generation %d, fence %d, %d rows instead of %d: the agent would refuse the operation", w.App.Generation, op.Fence, len(w.Rows()), rows)
		}
	})
	t.Run("INV-6 the status still names the enforced revision", func(t *testing.T) {
		if w.App.Status.Revision != "r1" || w.App.Status.Hold == "" || w.App.Pin == nil {
			t.Errorf("status %+v", w.App.Status)
		}
	})
	w.End(hub.Succeeded, "")
	t.Run("SYNC-06 a sync for the pinned revision is refused: it would apply the other one", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "r1"}}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	t.Run("ROLL-03 a person's sync ends the pin and names what it applies", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "r2"}}); err != nil {
			t.Fatal(err)
		}
		if w.App.Pin != nil || w.App.Status.Target != bad || w.App.Status.Revision != "r2" || w.App.Status.Hold != "" {
			t.Errorf("pin %v, status %+v", w.App.Pin, w.App.Status)
		}
	})
}

func TestEqualStateIsWrittenOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	t.Run("AUTO-11 another commit with the same objects voids no operation", func(t *testing.T) {
		w.refreshTarget("r2", w.App.Status.Target)
		if len(w.Rows()) != 2 || w.newest().Fence != w.App.Generation || w.App.Status.Revision != "r2" {
			t.Errorf("%d rows, fence %d, status %+v", len(w.Rows()), w.newest().Fence, w.App.Status)
		}
	})
	t.Run("a change of policy is sent", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			a, err := tx.Application(ctx, "argocd", "shop")
			if err != nil {
				return err
			}
			a.Spec = []byte(`{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod","namespace":"shop"},"syncPolicy":{"automated":{"prune":true}}}`)
			_, err = tx.UpdateApplication(ctx, a, 0)
			return err
		})
		w.refreshTarget("r2", w.Reload().Status.Target)
		if w.State().Policy.SelfHeal || w.App.Status.PlannedGeneration != w.App.Generation {
			t.Errorf("policy %v, status %+v", w.State().Policy, w.App.Status)
		}
	})
}

func TestFailedTargetIsNotRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod"},"syncPolicy":{"automated":{},"retry":{"limit":0}}}`)
	w.Render("r1", "a")
	w.End(hub.Failed, "quota")
	first := w.newest()
	t.Run("AUTO-04 repeated refreshes start nothing", func(t *testing.T) {
		for _, revision := range []string{"r1", "r2", "r3"} {
			w.refreshTarget(revision, w.App.Status.Target)
		}
		if got := w.newest(); got.ID != first.ID {
			t.Errorf("operation %+v", got)
		}
	})
}

// A person's sync that failed because another application owned an object has
// no retry. That the object is free is a change of its cause.
func TestFailedTargetIsUnblocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod"},"syncPolicy":{"automated":{},"retry":{"limit":0}}}`)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		_, err := dispatch.Sync(ctx, storeports.Dispatch(tx), w.App.ID, hub.SyncRequest{Initiator: hub.Initiator{Username: "jane"}})
		return err
	})
	failed := w.End(hub.Failed, "it is managed by application other")
	seq := int64(1)
	say := func(op hub.OperationID) (enqueued int) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.PutObservation(ctx, w.Cluster.ID, hub.Observation{Epoch: "unblocked", Seq: seq, Applications: []hub.ApplicationObservation{{
				Application: w.App.ID, Target: w.App.Status.Target, Generation: w.App.Generation, Sync: hub.OutOfSync, Health: hub.Healthy, ComparedAt: time.Now(), Unblocked: op,
			}}})
			return err
		})
		seq++
		items, err := w.DB.System().Claim(t.Context(), hub.WorkRefresh, "r", 10, time.Minute)
		if err == nil {
			err = w.DB.System().Done(t.Context(), items)
		}
		if err != nil {
			t.Fatal(err)
		}
		return len(items)
	}
	say("") // what was enqueued before
	t.Run("AUTO-04 nothing is tried again while the object is not free", func(t *testing.T) {
		w.refreshTarget("r1", w.App.Status.Target)
		if got := w.newest(); got.ID != failed.ID {
			t.Errorf("operation %+v", got)
		}
	})
	t.Run("AUTO-04 TRK-07 once it is free the application is decided about again, once", func(t *testing.T) {
		if n := say(failed.ID); n != 1 {
			t.Errorf("%d refreshes are enqueued", n)
		}
		if n := say(failed.ID); n != 0 {
			t.Errorf("%d refreshes are enqueued when it is said again", n)
		}
		w.refreshTarget("r1", w.App.Status.Target)
		got := w.newest()
		if got.ID == failed.ID || !got.Initiator.Automated || got.Snapshot != failed.Snapshot {
			t.Errorf("operation %+v", got)
		}
	})
	t.Run("AUTO-04 TRK-07 that an earlier operation is free does not concern a later one", func(t *testing.T) {
		last := w.End(hub.Failed, "quota")
		say(failed.ID)
		w.refreshTarget("r1", w.App.Status.Target)
		if got := w.newest(); got.ID != last.ID {
			t.Errorf("operation %+v", got)
		}
	})
}

func TestWarningsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	r := dispatchtest.Rendered(w.App, "r1", "a")
	r.Snapshot.Warnings = []string{"a field is set twice"}
	if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{r}); err != nil {
		t.Fatal(err)
	}
	t.Run("APP-17 a warning of the renderer stays while its snapshot is the target", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
		if c := w.App.Status.Conditions; len(c) != 1 || c[0].Type != hub.RenderWarning {
			t.Errorf("conditions %v", c)
		}
	})
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	t.Run("SYNC-07 nothing has been rendered yet", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	w.Render("r1", "a")
	t.Run("ROLL-03 an entry that does not exist", func(t *testing.T) {
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Rollback(ctx, storeports.Dispatch(tx), w.App.ID, 7, "", hub.OperationOptions{}, jane)
			return err
		})
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
	})
	t.Run("SYNC-09 nothing to terminate", func(t *testing.T) {
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Terminate(ctx, storeports.Dispatch(tx), w.App.ID, jane)
			return err
		})
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	t.Run("INV-7 an application that does not exist", func(t *testing.T) {
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Sync(ctx, storeports.Dispatch(tx), hub.NewID[hub.ApplicationID](), hub.SyncRequest{})
			return err
		})
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
	})
	if w.App.Generation != w.Reload().Generation || len(w.Rows()) != 1 {
		t.Error("a refused request changed something")
	}
}

func TestPartialSync(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]hub.OperationOptions{
		"SYNC-03 selected objects are not enforced as a whole and make no history": {Resources: []string{":ConfigMap:a"}},
		"SYNC-04 a dry run enforces nothing and makes no history":                  {DryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, manual)
			w.T = t
			w.Render("r1", "a", "b")
			if _, err := w.sync(hub.SyncRequest{Options: options}); err != nil {
				t.Fatal(err)
			}
			if w.State().Accepted != nil || w.App.Status.Accepted != "" {
				t.Errorf("accepted %v", w.State().Accepted)
			}
			w.End(hub.Succeeded, "")
			err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.HistoryEntry(ctx, w.App.ID, 1)
				return err
			})
			if fault.KindOf(err) != fault.Missing {
				t.Errorf("history: %v", err)
			}
		})
	}
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		_, err := dispatch.Terminate(ctx, storeports.Dispatch(tx), w.App.ID, jane)
		return err
	})
	rows := w.Rows()
	t.Run("SYNC-09 the agent gets the operation to end, and the initiator", func(t *testing.T) {
		last := rows[len(rows)-1]
		var m linkv1.Terminate
		if err := proto.Unmarshal(last.Body, &m); err != nil || last.Kind != hub.RowTerminate || m.Actor != "jane" || m.OperationId != string(w.newest().ID) {
			t.Errorf("row %+v, %v, %v", last, &m, err)
		}
	})
	t.Run("SYNC-09 it is not tried again", func(t *testing.T) {
		w.End(hub.Failed, "terminated")
		if op := w.newest(); op.RetryAt != nil || op.Attempt != 0 {
			t.Errorf("operation %+v", op)
		}
	})
}

func TestTerminateWithoutItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	var ended hub.Operation
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		app, err := tx.ApplicationByID(ctx, w.App.ID)
		if err != nil {
			return err
		}
		app.Cluster = ""
		if _, err := tx.UpdateApplication(ctx, app, 0); err != nil {
			return err
		}
		if err := tx.DeleteCluster(ctx, w.Cluster.ID); err != nil {
			return err
		}
		ended, err = dispatch.Terminate(ctx, storeports.Dispatch(tx), w.App.ID, jane)
		return err
	})
	t.Run("SYNC-09 CLU-19 an operation whose cluster was removed ends at once", func(t *testing.T) {
		if op := w.newest(); op.ID != ended.ID || op.Phase != hub.Failed || !strings.Contains(op.Message, "cluster was removed") {
			t.Errorf("operation %+v", op)
		}
	})
}

func TestLongListsAreBlobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	names := make([]string, 501)
	for i := range names {
		names[i] = fmt.Sprintf("object-%d", i)
	}
	w.Render("r1", names...)
	if ref := w.State().Target; len(ref.Objects) != 0 || len(ref.Lists) < 2 {
		t.Fatalf("%d objects in the row, lists %x", len(ref.Objects), ref.Lists)
	}
	conn := w.Link(w.Tenant, w.Cluster.ID)
	_, objects := w.listed(conn)
	if len(objects) != 501 {
		t.Fatalf("%d objects", len(objects))
	}
	if body, _, _ := dispatchtest.Fetch(t, conn, objects[500].Digest); len(body) != 1 {
		t.Error("an object of the list is not served")
	}
}

func TestFailureKeepsWhatIsDesired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	rows, before := len(w.Rows()), w.App.Status
	err := w.Dispatcher.Failed(t.Context(), w.Tenant, []hub.RefreshFailure{{Application: w.App.ID, Generation: w.App.Generation, Condition: hub.ComparisonError, Message: "broken"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("INV-3 a failed render shows a condition and moves nothing", func(t *testing.T) {
		got := w.Reload().Status
		if len(w.Rows()) != rows || got.Target != before.Target || got.Accepted != before.Accepted || len(got.Conditions) != 1 {
			t.Errorf("%d rows, status %+v", len(w.Rows()), got)
		}
	})
	t.Run("CMPR-01 the next successful refresh removes the condition", func(t *testing.T) {
		err := w.Dispatcher.Unchanged(t.Context(), w.Tenant, []hub.Unchanged{{Application: w.App.ID, Revision: "r2", Revisions: []string{"r2"}, RefreshedAt: time.Now()}})
		if got := w.Reload().Status; err != nil || len(got.Conditions) != 0 || got.Revision != "r2" {
			t.Errorf("%v, status %+v", err, got)
		}
	})
}
