package dispatch_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// retryPause is how long a failure waits. No test that is well comes near it.
const retryPause = 5 * time.Minute

type db struct{ *store.DB }

func (d db) InTenant(ctx context.Context, id hub.TenantID, do func(context.Context, dispatch.Tx) error) error {
	return d.DB.InTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, t) })
}

func (d db) ReadTenant(ctx context.Context, id hub.TenantID, do func(context.Context, dispatch.Tx) error) error {
	return d.DB.ReadTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, t) })
}

func (d db) Keys(ctx context.Context, id hub.TenantID) (dispatch.Keys, error) {
	k, err := d.DB.Keys(ctx, id)
	return dispatch.Keys{Digest: k.Digest, Object: k.Object}, err
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Log(string(b)); return len(b), nil }

type work struct{ *store.System }

func (w work) Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error) {
	for ctx.Err() == nil {
		items, err := w.System.Claim(ctx, kind, "test", limit, time.Minute)
		if err != nil || len(items) > 0 {
			return items, err
		}
	}
	return nil, ctx.Err()
}

// world is a tenant with a cluster and one application.
type world struct {
	urls    storetest.URLs
	t       *testing.T
	db      *store.DB
	d       *dispatch.Dispatcher
	tenant  hub.TenantID
	cluster hub.Cluster
	app     hub.Application
}

const automated = `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod","namespace":"shop"},"syncPolicy":{"automated":{"prune":true,"selfHeal":true}}}`
const manual = `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod","namespace":"shop"}}`

func newWorld(t *testing.T, spec string) *world {
	t.Helper()
	urls := storetest.Database(t)
	w := &world{t: t, urls: urls, db: storetest.OpenURLs(t, urls.Config())}
	w.tenant = storetest.Tenant(t, w.db, "acme")
	w.d = dispatch.New(db{w.db}, work{w.db.System()}, func(hub.TenantID) {}, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		if w.cluster, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "prod"}}); err != nil {
			return err
		}
		w.app, err = tx.CreateApplication(ctx, hub.Application{
			ID: hub.NewID[hub.ApplicationID](), Meta: hub.Meta{Namespace: "argocd", Name: "shop"}, Project: "default",
			Spec: json.RawMessage(spec), Cluster: w.cluster.ID,
		})
		return err
	})
	return w
}

func (w *world) in(do func(ctx context.Context, tx *store.Tenant) error) {
	w.t.Helper()
	if err := w.db.InTenant(w.t.Context(), w.tenant, do); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reload() hub.Application {
	w.t.Helper()
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		w.app, err = tx.Application(ctx, "argocd", "shop")
		return err
	})
	return w.app
}

// render hands in a complete render of ConfigMaps.
func (w *world) render(revision string, names ...string) {
	w.t.Helper()
	objects := make([]revised, len(names))
	for i, n := range names {
		objects[i] = revised{n, revision}
	}
	w.renderEach(revision, objects)
}

// A revised is a ConfigMap as it is since some revision.
type revised struct{ name, revision string }

func (w *world) renderEach(revision string, objects []revised) {
	w.t.Helper()
	r := hub.Rendered{Application: w.app.ID, Generation: w.reload().Generation, Revision: revision, Revisions: []string{revision}}
	r.Snapshot = hub.Snapshot{Application: w.app.ID, Revision: revision, Revisions: r.Revisions, SourceType: "Directory", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, o := range objects {
		r.Snapshot.Objects = append(r.Snapshot.Objects, hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: o.name})
		r.Bodies = append(r.Bodies, fmt.Appendf(nil, `{"apiVersion":"v1","data":{"r":%q},"kind":"ConfigMap","metadata":{"name":%q}}`, o.revision, o.name))
	}
	if err := w.d.Rendered(w.t.Context(), w.tenant, []hub.Rendered{r}); err != nil {
		w.t.Fatal(err)
	}
	w.reload()
}

// rows reads the cluster's whole log and proves its chain.
func (w *world) rows() []hub.LogRow {
	w.t.Helper()
	var out []hub.LogRow
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		out, _, err = tx.RowsAfter(ctx, w.cluster.ID, 0, 1000)
		return err
	})
	return out
}

func (w *world) state() *linkv1.AppState {
	w.t.Helper()
	var m linkv1.AppState
	for _, r := range w.rows() {
		if r.Kind == hub.RowState {
			m.Reset()
			if err := proto.Unmarshal(r.Body, &m); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return &m
}

// end reports that the open operation is over and settles it.
func (w *world) end(phase hub.Phase, message string) hub.Operation {
	w.t.Helper()
	var op hub.Operation
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		open, err := tx.OpenOperations(ctx, []hub.ApplicationID{w.app.ID})
		if err != nil {
			return err
		}
		var there bool
		if op, there = open[w.app.ID]; !there {
			return fmt.Errorf("no operation is open")
		}
		now := time.Now()
		_, err = tx.PutObservation(ctx, w.cluster.ID, hub.Observation{Epoch: "e" + string(op.ID), Seq: 1, Operations: []hub.OperationObservation{{
			Operation: op.ID, Application: w.app.ID, Phase: phase, Message: message, StartedAt: &now, FinishedAt: &now,
		}}})
		return err
	})
	w.settle()
	return op
}

// settle runs the dispatcher until no outcome waits or is being settled.
func (w *world) settle() { w.t.Helper(); w.drain(hub.WorkOutcome) }

// drain runs the dispatcher until no work of a kind waits that is due.
func (w *world) drain(kind string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), retryPause)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.d.Run(ctx) }()
	for over := false; !over; {
		queues, err := w.db.System().Queues(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		over = !slices.ContainsFunc(queues, func(q hub.QueueFigures) bool {
			return q.Kind == kind && (kind == hub.WorkOutcome || q.Due+q.Leased > 0)
		})
	}
	cancel()
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
}

func TestAutomatedRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.render("r1", "a", "b")
	t.Run("AUTO-01 a new revision is accepted and gets an operation in the same transaction", func(t *testing.T) {
		if w.app.Status.Target == "" || w.app.Status.Accepted != w.app.Status.Target {
			t.Fatalf("target %q, accepted %q", w.app.Status.Target, w.app.Status.Accepted)
		}
		rows := w.rows()
		if len(rows) != 2 || rows[0].Kind != hub.RowState || rows[1].Kind != hub.RowOperation {
			t.Fatalf("rows %+v", rows)
		}
		var op linkv1.Operation
		if err := proto.Unmarshal(rows[1].Body, &op); err != nil {
			t.Fatal(err)
		}
		if op.Fence != uint64(w.app.Generation) || !op.Options.Prune || !op.Automated {
			t.Errorf("operation %v at generation %d", &op, w.app.Generation)
		}
	})
	t.Run("INV-8 rows are numbered without gaps and chained", func(t *testing.T) {
		var head hub.LogHead
		var rows []hub.LogRow
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			var err error
			rows, head, err = tx.RowsAfter(ctx, w.cluster.ID, 0, 10)
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
		w.end(hub.Succeeded, "")
		var h hub.HistoryEntry
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			var err error
			h, err = tx.HistoryEntry(ctx, w.app.ID, 1)
			return err
		})
		if h.Revision != "r1" || !h.Initiator.Automated || h.Snapshot != w.app.Status.Target {
			t.Errorf("history %+v", h)
		}
	})
	t.Run("INV-3 an object that a complete render no longer has gets a tombstone, and loses it when it comes back", func(t *testing.T) {
		w.render("r2", "a")
		if got := w.state().Tombstones; len(got) != 1 || got[0].Name != "b" || got[0].Since == 0 {
			t.Fatalf("tombstones %v", got)
		}
		w.end(hub.Succeeded, "")
		w.render("r3", "a", "b")
		if got := w.state().Tombstones; len(got) != 0 {
			t.Errorf("tombstones %v", got)
		}
		w.end(hub.Succeeded, "")
	})
	t.Run("AUTO-09 a revision that renders nothing is held", func(t *testing.T) {
		before := w.app.Status.Accepted
		w.render("r4")
		if w.app.Status.Hold == "" || w.app.Status.Accepted != before {
			t.Errorf("hold %q, accepted moved %v", w.app.Status.Hold, w.app.Status.Accepted != before)
		}
		if w.state().Accepted.Id != string(before) {
			t.Error("the agent was told to enforce it")
		}
	})
}

func TestNewerRevisionSupersedes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.render("r1", "a")
	w.render("r2", "a")
	t.Run("INV-4 one operation is open at a time, for the newest revision", func(t *testing.T) {
		op := w.end(hub.Succeeded, "")
		if op.Revision != "r2" {
			t.Errorf("the open operation is for %s", op.Revision)
		}
	})
}

func TestFailedOperationIsRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod"},"syncPolicy":{"automated":{},"retry":{"limit":1,"backoff":{"duration":"1ms"}}}}`)
	w.render("r1", "a")
	op := w.end(hub.Failed, "one object failed")
	t.Run("SYNC-28 the operation is tried again up to the limit", func(t *testing.T) {
		var again hub.Operation
		ctx, cancel := context.WithTimeout(t.Context(), retryPause)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- w.d.Run(ctx) }()
		for ctx.Err() == nil && again.ID == "" {
			w.in(func(ctx context.Context, tx *store.Tenant) error {
				open, err := tx.OpenOperations(ctx, []hub.ApplicationID{w.app.ID})
				again = open[w.app.ID]
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
		w.end(hub.Failed, "one object failed")
		found := false
		for _, c := range w.reload().Status.Conditions {
			found = found || c.Type == hub.SyncError
		}
		if !found {
			t.Errorf("conditions %v", w.app.Status.Conditions)
		}
		w.render("r1", "a")
	})
}

func TestManualApplication(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	w.render("r1", "a")
	t.Run("AUTO-01 without automation the target is compared and not enforced", func(t *testing.T) {
		if s := w.state(); s.Target == nil || s.Accepted != nil || len(w.rows()) != 1 {
			t.Errorf("state %v, %d rows", s, len(w.rows()))
		}
	})
	by := hub.Initiator{Username: "jane"}
	t.Run("SYNC-01 a person's sync accepts the target", func(t *testing.T) {
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			op, err := dispatch.Sync(ctx, tx, w.app.ID, hub.SyncRequest{Initiator: by, Options: hub.OperationOptions{Prune: true}})
			if op.Phase != hub.Pending || op.Initiator != by {
				t.Errorf("operation %+v", op)
			}
			return err
		})
		if s := w.state(); s.Accepted.GetId() != s.Target.GetId() {
			t.Errorf("accepted %v", s.Accepted)
		}
	})
	t.Run("SYNC-07 a second one is refused while it runs", func(t *testing.T) {
		err := w.db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Sync(ctx, tx, w.app.ID, hub.SyncRequest{Initiator: by})
			return err
		})
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	w.end(hub.Succeeded, "")
	w.render("r2", "a", "b")
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		_, err := dispatch.Sync(ctx, tx, w.app.ID, hub.SyncRequest{Initiator: by})
		return err
	})
	w.end(hub.Succeeded, "")
	t.Run("ROLL-01 rollback enforces the stored snapshot of an entry and pins it", func(t *testing.T) {
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Rollback(ctx, tx, w.app.ID, 1, "broken", hub.OperationOptions{Prune: true}, by)
			return err
		})
		w.reload()
		s := w.state()
		if w.app.Pin == nil || w.app.Pin.Skipped != "r2" || s.Accepted.Revision != "r1" || len(s.Tombstones) != 1 {
			t.Fatalf("pin %+v, accepted %v, tombstones %v", w.app.Pin, s.Accepted, s.Tombstones)
		}
	})
	t.Run("ROLL-02 it is a sync of its own kind, and leaves the application's specification alone", func(t *testing.T) {
		var op linkv1.Operation
		for _, r := range w.rows() {
			if r.Kind == hub.RowOperation {
				op.Reset()
				if err := proto.Unmarshal(r.Body, &op); err != nil {
					t.Fatal(err)
				}
			}
		}
		if op.Kind != linkv1.OperationKind_OPERATION_KIND_ROLLBACK || op.Snapshot.Revision != "r1" || !strings.Contains(string(w.app.Spec), "shop.git") {
			t.Errorf("operation %v, specification %s", &op, w.app.Spec)
		}
	})
	w.end(hub.Succeeded, "")
	t.Run("ROLL-03 the revision that was rolled back from is skipped, a newer one is not", func(t *testing.T) {
		w.render("r2", "a", "b")
		if w.app.Pin == nil || w.state().Target.Revision != "r1" {
			t.Errorf("pin %+v, target %v", w.app.Pin, w.state().Target)
		}
		w.render("r3", "c")
		if w.app.Pin != nil || w.state().Target.Revision != "r3" {
			t.Errorf("pin %+v, target %v", w.app.Pin, w.state().Target)
		}
	})
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	by := hub.Initiator{Username: "jane"}
	t.Run("DEL-01 with cascade the objects go first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.render("r1", "a", "b")
		w.end(hub.Succeeded, "")
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, tx, w.app.ID, hub.Deletion{Cascade: true}, by)
			return err
		})
		if s := w.state(); len(s.Tombstones) != 2 || s.Target != nil || s.Accepted != nil {
			t.Fatalf("state %v", s)
		}
		if w.reload().DeletingAt == nil {
			t.Error("the application does not say that it is being deleted")
		}
		w.end(hub.Succeeded, "")
		err := w.db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Application(ctx, "argocd", "shop")
			return err
		})
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("the application is still there: %v", err)
		}
		if rows := w.rows(); rows[len(rows)-1].Kind != hub.RowForget {
			t.Errorf("last row %+v", rows[len(rows)-1])
		}
	})
	t.Run("DEL-01 without cascade the cluster forgets the application and keeps its objects", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.render("r1", "a")
		w.end(hub.Succeeded, "")
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, tx, w.app.ID, hub.Deletion{}, by)
			return err
		})
		for _, r := range w.rows() {
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
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		apps = nil
		for i := range n {
			a, err := tx.CreateApplication(ctx, hub.Application{
				Meta: hub.Meta{Namespace: "argocd", Name: fmt.Sprintf("app-%d", i)}, Project: "default", Spec: json.RawMessage(automated), Cluster: w.cluster.ID,
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
		if err := w.d.Rendered(t.Context(), w.tenant, []hub.Rendered{r}); err != nil {
			t.Fatal(err)
		}
	}
	w.render("r1", "stays")
	over := func(prepare func(ctx context.Context, tx *store.Tenant) error) {
		t.Helper()
		w.in(func(ctx context.Context, tx *store.Tenant) error {
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
			_, err = tx.PutObservation(ctx, w.cluster.ID, o)
			return err
		})
		w.settle()
	}
	over(func(context.Context, *store.Tenant) error { return nil })
	over(func(ctx context.Context, tx *store.Tenant) error {
		for _, id := range apps {
			if _, err := dispatch.Delete(ctx, tx, id, hub.Deletion{Cascade: true}, hub.Initiator{Username: "jane"}); err != nil {
				return err
			}
		}
		return nil
	})
	forgotten := map[hub.ApplicationID]int{}
	for _, r := range w.rows() {
		if r.Kind == hub.RowForget {
			forgotten[r.Application]++
		}
	}
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		left, err := tx.ApplicationsByID(ctx, append(apps, w.app.ID))
		if len(left) != 1 {
			t.Errorf("%d applications are left, want the one that nobody deleted", len(left))
		}
		return err
	})
	var gone, transactions int
	err := storetest.Connect(t, w.urls.Superuser).QueryRow(t.Context(),
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
	stale := hub.Rendered{Application: w.app.ID, Generation: w.app.Generation - 1, Revision: "r0", Revisions: []string{"r0"}}
	stale.Snapshot = hub.Snapshot{Application: w.app.ID, Revision: "r0", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	if err := w.d.Rendered(t.Context(), w.tenant, []hub.Rendered{stale}); err != nil {
		t.Fatal(err)
	}
	t.Run("INV-8 a result for an older generation changes nothing", func(t *testing.T) {
		if w.reload().Status.Target != "" || len(w.rows()) != 0 {
			t.Errorf("target %q, rows %v", w.app.Status.Target, w.rows())
		}
	})
}
