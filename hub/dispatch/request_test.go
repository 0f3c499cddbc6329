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
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// rendered hands in what an operation waits for.
func (w *world) rendered(op hub.OperationID, revision string, objects ...hub.ObjectRef) {
	w.T.Helper()
	r := hub.Rendered{Application: w.App.ID, Generation: w.Reload().Generation, Revision: revision, Revisions: []string{revision}, Operation: op}
	r.Snapshot = hub.Snapshot{Application: w.App.ID, Revision: revision, Revisions: r.Revisions, CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, o := range objects {
		r.Snapshot.Objects = append(r.Snapshot.Objects, o)
		r.Bodies = append(r.Bodies, fmt.Appendf(nil, `{"r":%q,"name":%q}`, revision, o.Name))
	}
	if err := w.Dispatcher.Rendered(w.T.Context(), w.Tenant, []hub.Rendered{r}); err != nil {
		w.T.Fatal(err)
	}
	w.Reload()
}

// order returns the newest operation row.
func (w *world) order() *linkv1.Operation {
	w.T.Helper()
	var m *linkv1.Operation
	for _, r := range w.Rows() {
		if r.Kind == hub.RowOperation {
			m = &linkv1.Operation{}
			if err := proto.Unmarshal(r.Body, m); err != nil {
				w.T.Fatal(err)
			}
		}
	}
	return m
}

func object(name string) hub.ObjectRef {
	return hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: name}
}

func TestOtherRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	w.Render("r1", "a", "old")
	target := w.App.Status.Target
	op, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "v2"}, Options: hub.OperationOptions{Prune: true}})
	t.Run("SYNC-06 SYNC-01 another revision makes an operation that waits for its manifests, and is not sent to agents", func(t *testing.T) {
		if err != nil || op.Phase != hub.Pending || op.Snapshot != "" || w.order() != nil {
			t.Fatalf("operation %+v, error %v, order %v", op, err, w.order())
		}
		if a := w.App.Awaited(); a == nil || a.ID != op.ID {
			t.Errorf("the application does not say what it waits for: %+v", w.App.Status.Operation)
		}
	})
	t.Run("SYNC-07 another operation is refused meanwhile", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	w.rendered(op.ID, "c2", object("a"), object("new"))
	t.Run("SYNC-01 it is applied and enforced, and the target stays what it was", func(t *testing.T) {
		s, o := w.State(), w.order()
		if o.GetId() != string(op.ID) || o.GetSnapshot().GetRevision() != "c2" || len(o.GetSnapshot().GetObjects()) != 2 {
			t.Errorf("order %v", o)
		}
		if s.GetAccepted().GetId() != o.GetSnapshot().GetId() || s.GetTarget().GetId() != string(target) || o.GetFence() != s.GetGeneration() {
			t.Errorf("state %v", s)
		}
		if len(s.GetTombstones()) != 1 || s.GetTombstones()[0].GetName() != "old" {
			t.Errorf("tombstones %v", s.GetTombstones())
		}
	})
	w.End(hub.Succeeded, "")
	t.Run("SYNC-30 it is recorded with its revision", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			h, err := tx.History(ctx, w.App.ID)
			if err == nil && (len(h) != 1 || h[0].Revision != "c2") {
				t.Errorf("history %+v", h)
			}
			return err
		})
	})
	t.Run("INV-3 going back to the target prunes what only the other revision had", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Prune: true}}); err != nil {
			t.Fatal(err)
		}
		if s := w.State(); len(s.GetTombstones()) != 1 || s.GetTombstones()[0].GetName() != "new" {
			t.Errorf("tombstones %v", s.GetTombstones())
		}
		w.End(hub.Succeeded, "")
	})
	t.Run("SYNC-06 a revision that cannot be rendered fails only that operation", func(t *testing.T) {
		op, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "nowhere"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Dispatcher.Failed(t.Context(), w.Tenant, []hub.RefreshFailure{{Application: w.App.ID, Condition: hub.ComparisonError, Message: "there is no nowhere", Operation: op.ID}}); err != nil {
			t.Fatal(err)
		}
		if n := w.newest(); n.Phase != hub.Failed || !strings.Contains(n.Message, "there is no nowhere") || len(w.Reload().Status.Conditions) != 0 {
			t.Errorf("operation %+v, conditions %v", n, w.App.Status.Conditions)
		}
	})
	t.Run("APP-17 a sync of what was rendered before does not hide that the sources cannot be rendered now", func(t *testing.T) {
		broken := hub.RefreshFailure{Application: w.App.ID, Generation: w.App.Generation, Condition: hub.ComparisonError, Message: "unexpected {{end}}"}
		if err := w.Dispatcher.Failed(t.Context(), w.Tenant, []hub.RefreshFailure{broken}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.sync(hub.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
		w.End(hub.Succeeded, "")
		if c := w.Reload().Status.Conditions; len(c) != 1 || c[0].Message != broken.Message {
			t.Errorf("conditions %v", c)
		}
	})
	t.Run("SYNC-09 one that waits is terminated at once, and what comes later starts nothing", func(t *testing.T) {
		op, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "v3"}})
		if err != nil {
			t.Fatal(err)
		}
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Terminate(ctx, storeports.Dispatch(tx), w.App.ID, jane)
			return err
		})
		rows := len(w.Rows())
		w.rendered(op.ID, "c3", object("a"))
		if n := w.newest(); n.Phase != hub.Failed || len(w.Rows()) != rows {
			t.Errorf("operation %+v, %d rows instead of %d", n, len(w.Rows()), rows)
		}
	})
	t.Run("SYNC-04 a dry run of another revision moves nothing", func(t *testing.T) {
		accepted := w.App.Status.Accepted
		op, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "v4"}, Options: hub.OperationOptions{DryRun: true}})
		if err != nil {
			t.Fatal(err)
		}
		w.rendered(op.ID, "c4", object("a"))
		if o := w.order(); !o.GetOptions().GetDryRun() || w.App.Status.Accepted != accepted || w.App.Status.Target != target || len(o.GetSnapshot().GetObjects()) != 1 {
			t.Errorf("order %v, status %+v", o, w.App.Status)
		}
	})
}

func TestOverrideWithAutomation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	local := &hub.Local{Objects: []hub.ObjectRef{object("mine")}, Bodies: [][]byte{[]byte(`{"mine":1}`)}}
	sync := func(req hub.SyncRequest) (op hub.Operation, err error) {
		req.Initiator = jane
		err = w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			keys, err := w.DB.Keys(ctx, w.Tenant)
			if err != nil {
				return err
			}
			op, err = dispatch.Local(ctx, storeports.Dispatch(tx), dispatch.Keys{Digest: keys.Digest, Object: keys.Object}, w.App.ID, req)
			return err
		})
		w.Reload()
		return op, err
	}
	t.Run("SYNC-06 AUTO-10 another revision is refused while automation is on", func(t *testing.T) {
		if _, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "v9"}}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	t.Run("SYNC-05 manifests of one's own are refused while automation is on", func(t *testing.T) {
		if _, err := sync(hub.SyncRequest{Local: local}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	t.Run("SYNC-05 a dry run of them is not, and enforces nothing", func(t *testing.T) {
		accepted := w.App.Status.Accepted
		op, err := sync(hub.SyncRequest{Local: local, Options: hub.OperationOptions{DryRun: true}})
		if err != nil || w.App.Status.Accepted != accepted || op.Options.Override == nil || !op.Options.Override.Local {
			t.Fatalf("operation %+v, error %v", op, err)
		}
		w.End(hub.Succeeded, "")
	})
	t.Run("SYNC-05 without automation they are applied and enforced, and the target stays", func(t *testing.T) {
		m := newWorld(t, manual)
		m.Render("r1", "a")
		w = m
		op, err := sync(hub.SyncRequest{Local: local})
		if err != nil {
			t.Fatal(err)
		}
		if s := w.State(); s.GetAccepted().GetId() != string(op.Snapshot) || s.GetTarget().GetId() == string(op.Snapshot) || w.order().GetSnapshot().GetRevision() != "local" {
			t.Errorf("state %v", s)
		}
	})
}

func TestApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	approve := func() (hub.Operation, error) {
		var op hub.Operation
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			a, err := tx.Application(ctx, "argocd", "shop")
			if err != nil {
				return err
			}
			a.Annotations = a.Annotate(hub.ApprovedAnnotation, time.Now().UTC().Format(time.RFC3339Nano))
			if _, err := tx.UpdateApplication(ctx, a, 0); err != nil {
				return err
			}
			op, err = dispatch.Approve(ctx, storeports.Dispatch(tx), w.App.ID)
			return err
		})
		w.Reload()
		return op, err
	}
	w.Render("r1", "a", "b")
	w.End(hub.Succeeded, "")
	t.Run("SYNC-13 without an operation there is nothing to approve", func(t *testing.T) {
		if _, err := approve(); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	w.Render("r2", "a")
	t.Run("SYNC-13 the approval reaches the cluster with its time, after the operation's", func(t *testing.T) {
		op, err := approve()
		if err != nil || op.Phase.Over() {
			t.Fatalf("operation %+v, error %v", op, err)
		}
		if at := w.State().GetApprovedUnixNano(); at <= w.order().GetCreatedUnixNano() {
			t.Errorf("approved at %d, created at %d", at, w.order().GetCreatedUnixNano())
		}
	})
	w.End(hub.Failed, "refused")
	t.Run("SYNC-13 SYNC-28 the approval counts for retries of the same operation", func(t *testing.T) {
		first := w.newest()
		w.retry(first.ID)
		if o := w.order(); o.GetAttempt() != 1 || o.GetAskedUnixNano() == 0 || o.GetAskedUnixNano() > w.State().GetApprovedUnixNano() {
			t.Errorf("order %v", o)
		}
		w.End(hub.Succeeded, "")
	})
	t.Run("DEL-04 SYNC-13 the deletion of an application is approved in the same way", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{Cascade: true}, jane)
			return err
		})
		w.Reload()
		if _, err := approve(); err != nil {
			t.Fatal(err)
		}
		if s := w.State(); s.GetApprovedUnixNano() <= w.order().GetCreatedUnixNano() || s.GetAccepted() != nil || len(s.GetTombstones()) != 2 {
			t.Errorf("state %v", s)
		}
	})
}

// retry makes the next attempt of an operation now.
func (w *world) retry(id hub.OperationID) {
	w.T.Helper()
	ctx, cancel := context.WithCancel(w.T.Context())
	defer cancel()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		return tx.Enqueue(ctx, dispatch.WorkRetry, string(id), time.Now().Add(-time.Second), false)
	})
	done := make(chan error, 1)
	go func() { done <- w.Dispatcher.Run(ctx) }()
	for w.newest().ID == id {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-w.T.Context().Done():
			w.T.Fatal("the operation was not tried again")
		}
	}
	cancel()
	<-done
	w.Reload()
}

func TestDeletionHooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	op := hub.OperationID("")
	r := hub.Rendered{Application: w.App.ID, Generation: w.App.Generation, Revision: "r1", Revisions: []string{"r1"}}
	r.Snapshot = hub.Snapshot{Application: w.App.ID, Revision: "r1", Revisions: r.Revisions, CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, o := range []hub.ObjectRef{
		object("a"), {Version: "v1", Kind: "Job", Group: "batch", Name: "bye", Hook: "PreDelete"},
		{Version: "v1", Kind: "Job", Group: "batch", Name: "gone", Hook: "PostDelete,PreSync"}, {Version: "v1", Kind: "Job", Group: "batch", Name: "pre", Hook: "PreSync"},
	} {
		r.Snapshot.Objects = append(r.Snapshot.Objects, o)
		r.Bodies = append(r.Bodies, []byte(`{"name":"`+o.Name+`"}`))
	}
	if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{r}); err != nil {
		t.Fatal(err)
	}
	w.End(hub.Succeeded, "")
	w.Reload()
	limits := w.State().GetPolicy().GetLimits()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{Cascade: true, Propagation: "background"}, jane)
		return err
	})
	t.Run("HOOK-16 HOOK-17 the deletion has its hooks and nothing else to create", func(t *testing.T) {
		s, o := w.State(), w.order()
		var names []string
		for _, x := range s.GetTarget().GetObjects() {
			names = append(names, x.GetName())
		}
		if strings.Join(names, ",") != "bye,gone" || s.GetAccepted() != nil || o.GetSnapshot().GetId() != s.GetTarget().GetId() {
			t.Errorf("target %v, order %v", names, o)
		}
	})
	t.Run("SEC-D2 ENG-16 the deletion has the limits of its project, which hold for its hooks too", func(t *testing.T) {
		if l := w.State().GetPolicy().GetLimits(); len(l.GetNamespaces()) == 0 || !proto.Equal(l, limits) {
			t.Errorf("limits %v, those of its syncs %v", l, limits)
		}
	})
	t.Run("DEL-01 the requested propagation is part of it", func(t *testing.T) {
		if got := w.order().GetOptions().GetSyncOptions(); len(got) == 0 || got[len(got)-1] != "PrunePropagationPolicy=background" {
			t.Errorf("options %v", got)
		}
		op = hub.OperationID(w.order().GetId())
	})
	t.Run("HOOK-16 DEL-02 a failed deletion is reported and retried", func(t *testing.T) {
		w.End(hub.Failed, "the hook failed")
		gotText := false
		for _, c := range w.Reload().Status.Conditions {
			gotText = gotText || c.Type == hub.DeletionError && strings.Contains(c.Message, "the hook failed")
		}
		if !gotText || w.newest().RetryAt == nil {
			t.Fatalf("conditions %v, operation %+v", w.App.Status.Conditions, w.newest())
		}
		w.retry(op)
		if o := w.order(); o.GetAttempt() != 1 || o.GetKind() != linkv1.OperationKind_OPERATION_KIND_DELETE || o.GetSnapshot().GetId() == "" {
			t.Errorf("order %v", o)
		}
	})
	t.Run("DEL-02 SYNC-09 one that a person terminates is not", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Terminate(ctx, storeports.Dispatch(tx), w.App.ID, jane)
			return err
		})
		w.End(hub.Failed, "terminated by jane")
		if n := w.newest(); n.RetryAt != nil {
			t.Errorf("it is tried again at %s", n.RetryAt)
		}
	})
	t.Run("DEL-05 an application whose cluster no longer exists is abandoned, and its objects are listed", func(t *testing.T) {
		var left []hub.ObjectRef
		w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
			left, _, err = dispatch.Abandon(ctx, storeports.Dispatch(tx), w.App.ID)
			return err
		})
		if len(left) != 1 || left[0].Name != "a" {
			t.Errorf("left behind %v", left)
		}
		if rows := w.Rows(); rows[len(rows)-1].Kind != hub.RowForget {
			t.Errorf("last row %+v: the cluster would go on deleting when it comes back", rows[len(rows)-1])
		}
	})
}

func TestDeleteWithoutCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	t.Run("DEL-06 an application that no cluster has received is deleted at once", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{Cascade: true}, jane)
			return err
		})
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Application(ctx, "argocd", "shop")
			return err
		})
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
	})
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		a := w.App
		a.Annotations = map[string]string{"capstan.dev/keep-live": "true", "capstan.dev/prune-limit": "5,50%"}
		_, err := tx.UpdateApplication(ctx, a, 0)
		return err
	})
	w.Reload()
	w.Render("r1", "a")
	t.Run("AUTO-06 live state is reverted to what was accepted without following the revision", func(t *testing.T) {
		if s := w.State(); !s.GetPolicy().GetSelfHeal() || s.GetPolicy().GetAutomated() || s.GetAccepted() != nil || w.newest().ID != "" {
			t.Errorf("state %v, operation %+v", s, w.newest())
		}
		if _, err := w.sync(hub.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
		w.End(hub.Succeeded, "")
		w.Render("r2", "a")
		if s := w.State(); s.GetAccepted().GetRevision() != "r1" || s.GetTarget().GetRevision() != "r2" || !s.GetPolicy().GetSelfHeal() {
			t.Errorf("state %v", s)
		}
	})
	t.Run("INV-3 the limit on prunes reaches the agent", func(t *testing.T) {
		if p := w.State().GetPolicy(); p.GetPruneLimit() != 5 || p.GetPruneLimitPercent() != 50 {
			t.Errorf("policy %v", p)
		}
	})
	t.Run("AUTO-01 the other switch follows the revision and heals nothing", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			a := w.App
			a.Annotations = map[string]string{"capstan.dev/follow-revision": "true"}
			_, err := tx.UpdateApplication(ctx, a, 0)
			return err
		})
		w.Reload()
		w.Render("r3", "a")
		if s := w.State(); s.GetAccepted().GetRevision() != "r3" || s.GetPolicy().GetSelfHeal() {
			t.Errorf("state %v", s)
		}
	})
}
