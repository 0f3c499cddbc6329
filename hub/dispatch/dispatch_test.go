package dispatch_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
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
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// world is a tenant with a cluster and one application.
type world struct{ *dispatchtest.World }

const (
	automated = dispatchtest.Automated
	manual    = dispatchtest.Manual
)

func newWorld(t *testing.T, spec string) *world {
	t.Helper()
	return &world{dispatchtest.New(t, spec)}
}

func TestAutomatedRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a", "b")
	t.Run("AUTO-01 a new revision is accepted and gets an operation in the same transaction", func(t *testing.T) {
		if w.App.Status.Target == "" || w.App.Status.Accepted != w.App.Status.Target {
			t.Fatalf("target %q, accepted %q", w.App.Status.Target, w.App.Status.Accepted)
		}
		rows := w.Rows()
		if len(rows) != 2 || rows[0].Kind != hub.RowState || rows[1].Kind != hub.RowOperation {
			t.Fatalf("rows %+v", rows)
		}
		var op linkv1.Operation
		if err := proto.Unmarshal(rows[1].Body, &op); err != nil {
			t.Fatal(err)
		}
		if op.Fence != uint64(w.App.Generation) || !op.Options.Prune || !op.Automated {
			t.Errorf("operation %v at generation %d", &op, w.App.Generation)
		}
	})
	t.Run("INV-8 rows are numbered without gaps and chained", func(t *testing.T) {
		var head hub.LogHead
		var rows []hub.LogRow
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			var err error
			rows, head, err = tx.RowsAfter(ctx, w.Cluster.ID, 0, 10)
			return err
		})
		at := hashchain.First(head.Incarnation)
		for i, r := range rows {
			at = hashchain.Next(at, uint64(r.Seq), int32(r.Kind), string(r.Application), r.Body)
			if r.Seq != int64(i+1) || string(at) != string(r.Chain) {
				t.Errorf("row %d has number %d or another chain", i+1, r.Seq)
			}
		}
	})
	t.Run("APP-12 success is recorded in the history", func(t *testing.T) {
		w.End(hub.Succeeded, "")
		var h hub.HistoryEntry
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			var err error
			h, err = tx.HistoryEntry(ctx, w.App.ID, 1)
			return err
		})
		if h.Revision != "r1" || !h.Initiator.Automated || h.Snapshot != w.App.Status.Target {
			t.Errorf("history %+v", h)
		}
	})
	t.Run("INV-3 an object that a complete render no longer has gets a tombstone, and loses it when it comes back", func(t *testing.T) {
		w.Render("r2", "a")
		if got := w.State().Tombstones; len(got) != 1 || got[0].Name != "b" || got[0].Since == 0 {
			t.Fatalf("tombstones %v", got)
		}
		w.End(hub.Succeeded, "")
		w.Render("r3", "a", "b")
		if got := w.State().Tombstones; len(got) != 0 {
			t.Errorf("tombstones %v", got)
		}
		w.End(hub.Succeeded, "")
	})
	t.Run("AUTO-09 a revision that renders nothing is held", func(t *testing.T) {
		before := w.App.Status.Accepted
		w.Render("r4")
		if w.App.Status.Hold == "" || w.App.Status.Accepted != before {
			t.Errorf("hold %q, accepted moved %v", w.App.Status.Hold, w.App.Status.Accepted != before)
		}
		if w.State().Accepted.Id != string(before) {
			t.Error("the agent was told to enforce it")
		}
	})
}

func TestNewerRevisionSupersedes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.Render("r2", "a")
	t.Run("INV-4 one operation is open at a time, for the newest revision", func(t *testing.T) {
		op := w.End(hub.Succeeded, "")
		if op.Revision != "r2" {
			t.Errorf("the open operation is for %s", op.Revision)
		}
	})
}

func TestFailedOperationIsRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod"},"syncPolicy":{"automated":{},"retry":{"limit":1,"backoff":{"duration":"1ms"}}}}`)
	w.Render("r1", "a")
	op := w.End(hub.Failed, "one object failed")
	t.Run("SYNC-28 the operation is tried again up to the limit", func(t *testing.T) {
		var again hub.Operation
		ctx, cancel := context.WithTimeout(t.Context(), dispatchtest.Timeout)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- w.Dispatcher.Run(ctx) }()
		for ctx.Err() == nil && again.ID == "" {
			w.In(func(ctx context.Context, tx *store.Tenant) error {
				open, err := tx.OpenOperations(ctx, []hub.ApplicationID{w.App.ID})
				again = open[w.App.ID]
				return err
			})
		}
		cancel()
		<-done
		if again.Attempt != 1 || again.ID == op.ID || again.Snapshot != op.Snapshot {
			t.Fatalf("next try %+v", again)
		}
	})
	t.Run("AUTO-04 after the last try the application says so and nothing more is tried", func(t *testing.T) {
		w.End(hub.Failed, "one object failed")
		found := false
		for _, c := range w.Reload().Status.Conditions {
			found = found || c.Type == hub.SyncError
		}
		if !found {
			t.Errorf("conditions %v", w.App.Status.Conditions)
		}
		w.Render("r1", "a")
	})
}

func TestManualApplication(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	w.Render("r1", "a")
	t.Run("AUTO-01 without automation the target is compared and not enforced", func(t *testing.T) {
		if s := w.State(); s.Target == nil || s.Accepted != nil || len(w.Rows()) != 1 {
			t.Errorf("state %v, %d rows", s, len(w.Rows()))
		}
	})
	by := hub.Initiator{Username: "jane"}
	t.Run("SYNC-01 a person's sync accepts the target", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			op, err := dispatch.Sync(ctx, storeports.Dispatch(tx), w.App.ID, hub.SyncRequest{Initiator: by, Options: hub.OperationOptions{Prune: true}})
			if op.Phase != hub.Pending || op.Initiator != by {
				t.Errorf("operation %+v", op)
			}
			return err
		})
		if s := w.State(); s.Accepted.GetId() != s.Target.GetId() {
			t.Errorf("accepted %v", s.Accepted)
		}
	})
	t.Run("SYNC-07 a second one is refused while it runs", func(t *testing.T) {
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Sync(ctx, storeports.Dispatch(tx), w.App.ID, hub.SyncRequest{Initiator: by})
			return err
		})
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	w.End(hub.Succeeded, "")
	w.Render("r2", "a", "b")
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		_, err := dispatch.Sync(ctx, storeports.Dispatch(tx), w.App.ID, hub.SyncRequest{Initiator: by})
		return err
	})
	w.End(hub.Succeeded, "")
	t.Run("ROLL-01 rollback enforces the stored snapshot of an entry and pins it", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Rollback(ctx, storeports.Dispatch(tx), w.App.ID, 1, "broken", hub.OperationOptions{Prune: true}, by)
			return err
		})
		w.Reload()
		s := w.State()
		if w.App.Pin == nil || w.App.Pin.Skipped != "r2" || s.Accepted.Revision != "r1" || len(s.Tombstones) != 1 {
			t.Fatalf("pin %+v, accepted %v, tombstones %v", w.App.Pin, s.Accepted, s.Tombstones)
		}
	})
	t.Run("ROLL-02 it is a sync of its own kind, and does not change the application's specification", func(t *testing.T) {
		var op linkv1.Operation
		for _, r := range w.Rows() {
			if r.Kind == hub.RowOperation {
				op.Reset()
				if err := proto.Unmarshal(r.Body, &op); err != nil {
					t.Fatal(err)
				}
			}
		}
		if op.Kind != linkv1.OperationKind_OPERATION_KIND_ROLLBACK || op.Snapshot.Revision != "r1" || !strings.Contains(string(w.App.Spec), "shop.git") {
			t.Errorf("operation %v, specification %s", &op, w.App.Spec)
		}
	})
	w.End(hub.Succeeded, "")
	t.Run("ROLL-03 the revision that was rolled back from is skipped, a newer one is not", func(t *testing.T) {
		w.Render("r2", "a", "b")
		if w.App.Pin == nil || w.State().Target.Revision != "r1" {
			t.Errorf("pin %+v, target %v", w.App.Pin, w.State().Target)
		}
		w.Render("r3", "c")
		if w.App.Pin != nil || w.State().Target.Revision != "r3" {
			t.Errorf("pin %+v, target %v", w.App.Pin, w.State().Target)
		}
	})
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	by := hub.Initiator{Username: "jane"}
	t.Run("DEL-01 with cascade the objects go first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.Render("r1", "a", "b")
		w.End(hub.Succeeded, "")
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{Cascade: true}, by)
			return err
		})
		if s := w.State(); len(s.Tombstones) != 2 || s.Target != nil || s.Accepted != nil {
			t.Fatalf("state %v", s)
		}
		if w.Reload().DeletingAt == nil {
			t.Error("the application does not say that it is being deleted")
		}
		w.End(hub.Succeeded, "")
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Application(ctx, "argocd", "shop")
			return err
		})
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("the application is still there: %v", err)
		}
		if rows := w.Rows(); rows[len(rows)-1].Kind != hub.RowForget {
			t.Errorf("last row %+v", rows[len(rows)-1])
		}
	})
	t.Run("DEL-01 without cascade the agent removes the application and its objects stay", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.Render("r1", "a")
		w.End(hub.Succeeded, "")
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{}, by)
			return err
		})
		for _, r := range w.Rows() {
			if r.Kind == hub.RowOperation {
				t.Errorf("an operation is left: %+v", r)
			}
		}
	})
}

// Deletions that end at the same time end in one transaction: each of them alone
// would lock the log of its cluster against all others.
func TestDeletionsTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	const n = 12
	var apps []hub.ApplicationID
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		apps = nil
		for i := range n {
			a, err := tx.CreateApplication(ctx, hub.Application{
				Meta: hub.Meta{Namespace: "argocd", Name: fmt.Sprintf("app-%d", i)}, Project: "default", Spec: json.RawMessage(automated), Cluster: w.Cluster.ID,
			})
			if err != nil {
				return err
			}
			apps = append(apps, a.ID)
		}
		return nil
	})
	for _, id := range apps {
		r := hub.Rendered{Application: id, Generation: 1, Revision: "r1", Revisions: []string{"r1"}}
		r.Snapshot = hub.Snapshot{Application: id, Revision: "r1", Revisions: r.Revisions, SourceType: "Directory", CreatedAt: time.Now(), Inputs: []hub.Input{}}
		r.Snapshot.Objects = []hub.ObjectRef{{Version: "v1", Kind: "ConfigMap", Name: "c-" + string(id)}}
		r.Bodies = [][]byte{fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%s"}}`, id)}
		if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{r}); err != nil {
			t.Fatal(err)
		}
	}
	w.Render("r1", "stays")
	over := func(prepare func(ctx context.Context, tx *store.Tenant) error) {
		t.Helper()
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			if err := prepare(ctx, tx); err != nil {
				return err
			}
			open, err := tx.OpenOperations(ctx, apps)
			if err != nil {
				return err
			}
			now := time.Now()
			o := hub.Observation{Epoch: rand.Text(), Seq: 1}
			for _, id := range apps {
				o.Operations = append(o.Operations, hub.OperationObservation{
					Operation: open[id].ID, Application: id, Phase: hub.Succeeded, StartedAt: &now, FinishedAt: &now,
				})
			}
			_, err = tx.PutObservation(ctx, w.Cluster.ID, o)
			return err
		})
		w.Settle()
	}
	over(func(context.Context, *store.Tenant) error { return nil })
	over(func(ctx context.Context, tx *store.Tenant) error {
		for _, id := range apps {
			if _, err := dispatch.Delete(ctx, storeports.Dispatch(tx), id, hub.Deletion{Cascade: true}, hub.Initiator{Username: "jane"}); err != nil {
				return err
			}
		}
		return nil
	})
	forgotten := map[hub.ApplicationID]int{}
	for _, r := range w.Rows() {
		if r.Kind == hub.RowForget {
			forgotten[r.Application]++
		}
	}
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		left, err := tx.ApplicationsByID(ctx, append(apps, w.App.ID))
		if len(left) != 1 {
			t.Errorf("%d applications are left, want the one that nobody deleted", len(left))
		}
		return err
	})
	var gone, transactions int
	err := storetest.Connect(t, w.URLs.Superuser).QueryRow(t.Context(),
		`SELECT count(*), count(DISTINCT xid) FROM change WHERE gone AND ref = ANY ($1::uuid[])`, texts(apps)).Scan(&gone, &transactions)
	if err != nil || gone != n || transactions != 1 {
		t.Errorf("%d of %d deletions ended in %d transactions (%v)", gone, n, transactions, err)
	}
	for _, id := range apps {
		if forgotten[id] != 1 {
			t.Errorf("the cluster was told %d times to forget %s", forgotten[id], id)
		}
	}
}

func texts(ids []hub.ApplicationID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

func TestRenderOfAnOlderSpecIsVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	stale := hub.Rendered{Application: w.App.ID, Generation: w.App.Generation - 1, Revision: "r0", Revisions: []string{"r0"}}
	stale.Snapshot = hub.Snapshot{Application: w.App.ID, Revision: "r0", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{stale}); err != nil {
		t.Fatal(err)
	}
	t.Run("INV-8 a result for an older generation changes nothing", func(t *testing.T) {
		if w.Reload().Status.Target != "" || len(w.Rows()) != 0 {
			t.Errorf("target %q, rows %v", w.App.Status.Target, w.Rows())
		}
	})
}
