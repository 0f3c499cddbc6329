package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

func TestOneOperationAtATime(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		return tx.EndOperation(ctx, w.operation.ID, hub.Succeeded, "done")
	})
	var started atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			err := db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
				return tx.PutOperations(ctx, []hub.Operation{newOperation(w.app, w.snapshot.ID)})
			})
			switch fault.KindOf(err) {
			case "":
				started.Add(1)
			case fault.Conflict:
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := started.Load(); n != 1 {
		t.Errorf("INV-4 %d operations were started at once, want one", n)
	}
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		open := must[map[hub.ApplicationID]hub.Operation](t)(tx.OpenOperations(ctx, []hub.ApplicationID{w.app.ID}))
		newest := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID)).Status.Operation
		if len(open) != 1 || newest == nil || open[w.app.ID].ID != newest.ID {
			t.Errorf("open %v, newest %v", open, newest)
		}
		old := must[hub.Operation](t)(tx.Operation(ctx, w.operation.ID))
		if old.Phase != hub.Succeeded || old.FinishedAt == nil {
			t.Errorf("the first operation is %+v", old)
		}
		check(t, tx.EndOperation(ctx, w.operation.ID, hub.Running, "again"))
		if old := must[hub.Operation](t)(tx.Operation(ctx, w.operation.ID)); old.Phase != hub.Succeeded || old.Message != "done" {
			t.Errorf("INV-8 an operation that is over became %+v", old)
		}
		if err := tx.EndOperation(ctx, hub.NewID[hub.OperationID](), hub.Failed, ""); fault.KindOf(err) != fault.Missing {
			t.Errorf("an unknown operation: error %v, want Missing", err)
		}
		at := now().Add(time.Minute)
		check(t, tx.SetOperationRetry(ctx, w.operation.ID, &at, hub.OperationOptions{Prune: true}))
		if op := must[hub.Operation](t)(tx.Operation(ctx, w.operation.ID)); op.RetryAt == nil || !op.RetryAt.Equal(at) || !op.Options.Prune {
			t.Errorf("retry %+v", op)
		}
		if ops := must[[]hub.Operation](t)(tx.Operations(ctx, w.app.ID, 10)); len(ops) != 2 || ops[1].ID != w.operation.ID {
			t.Errorf("operations %+v, want the newest first", ops)
		}
		return nil
	})
}

func TestDesiredLog(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme") // two rows of a former log, which was given up at row 3
	id := w.cluster.ID
	seqs := func(ctx context.Context, tx *store.Tenant, after int64) []int64 {
		got, _, err := tx.RowsAfter(ctx, id, after, 100)
		check(t, err)
		var out []int64
		for _, r := range got {
			out = append(out, r.Seq)
		}
		return out
	}
	push := func(ctx context.Context, tx *store.Tenant, more ...hub.LogRow) {
		heads := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, []hub.ClusterID{id}))
		check(t, tx.AppendRows(ctx, id, rows(heads[id], more...)))
	}
	t.Run("INV-8 only rows that continue the log are accepted", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			head := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, []hub.ClusterID{id, hub.NewID[hub.ClusterID]()}))
			if len(head) != 1 || head[id].Seq != 3 {
				t.Fatalf("heads %+v", head)
			}
			for name, break_ := range map[string]func(*hub.LogRow){
				"gap":    func(r *hub.LogRow) { r.Seq++ },
				"repeat": func(r *hub.LogRow) { r.Seq-- },
				"chain":  func(r *hub.LogRow) { r.Chain[0] ^= 1 },
				"body":   func(r *hub.LogRow) { r.Body = []byte("other") },
			} {
				bad := rows(head[id], hub.LogRow{Kind: hub.RowState, Application: w.app.ID, Body: []byte("x")})
				break_(&bad[0])
				if err := tx.AppendRows(ctx, id, bad); fault.KindOf(err) != fault.Conflict {
					t.Errorf("%s: error %v, want Conflict", name, err)
				}
			}
			if err := tx.AppendRows(ctx, hub.NewID[hub.ClusterID](), rows(head[id], hub.LogRow{Kind: hub.RowForget, Application: w.app.ID})); fault.KindOf(err) != fault.Missing {
				t.Errorf("no cluster: error %v, want Missing", err)
			}
			return nil
		})
	})
	t.Run("INV-8 a transaction that appends again continues what it has appended", func(t *testing.T) {
		back := errors.New("taken back")
		err := db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			row := hub.LogRow{Kind: hub.RowState, Application: w.app.ID, Body: []byte("x")}
			head := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, []hub.ClusterID{id}))[id]
			first := rows(head, row)
			check(t, tx.AppendRows(ctx, id, first))
			if err := tx.AppendRows(ctx, id, rows(head, row)); fault.KindOf(err) != fault.Conflict {
				t.Errorf("the same rows again: error %v, want Conflict", err)
			}
			head.Seq, head.Chain = first[0].Seq, first[0].Chain
			check(t, tx.AppendRows(ctx, id, rows(head, row)))
			if now := must[map[hub.ClusterID]hub.LogHead](t)(tx.Heads(ctx, []hub.ClusterID{id}))[id]; now.Seq != head.Seq+1 {
				t.Errorf("the log ends at %d, want %d", now.Seq, head.Seq+1)
			}
			return back
		})
		if !errors.Is(err, back) {
			t.Fatal(err)
		}
	})
	t.Run("INV-8 many writers leave one chain", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				err := db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
					push(ctx, tx, hub.LogRow{Kind: hub.RowState, Application: w.app.ID, Body: []byte(fmt.Sprint(i))})
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			got, head, err := tx.RowsAfter(ctx, id, 0, 100)
			check(t, err)
			if head.Seq != 13 || len(got) != 2 || got[0].Kind != hub.RowOperation || got[1].Seq != 13 {
				t.Errorf("head %d, rows %+v; want the operation and the newest state alone", head.Seq, got)
			}
			first, ok, err := tx.HashAt(ctx, id, 0)
			check(t, err)
			if !ok || !slices.Equal(first, hashchain.First(head.Incarnation)) {
				t.Error("the hash before the first row is not that of the incarnation")
			}
			for seq := int64(1); seq <= 13; seq++ {
				if _, ok, err := tx.HashAt(ctx, id, seq); !ok || err != nil {
					t.Errorf("no hash at %d: %v", seq, err)
				}
			}
			if _, ok, err := tx.HashAt(ctx, id, 14); ok || err != nil {
				t.Errorf("a hash beyond the end: %v", err)
			}
			if last, _, _ := tx.HashAt(ctx, id, 13); !slices.Equal(last, head.Chain) {
				t.Error("the last hash is not the head's")
			}
			leaves := must[map[string][32]byte](t)(tx.Leaves(ctx, id))
			want := map[string][32]byte{string(w.app.ID): hashchain.Leaf(string(w.app.ID), got[1].Body)}
			if diff := cmp.Diff(want, leaves); diff != "" {
				t.Errorf("leaves: %s", diff)
			}
			return nil
		})
	})
	t.Run("superseded rows are omitted", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			push(ctx, tx, hub.LogRow{Kind: hub.RowTerminate, Application: w.app.ID, Operation: w.operation.ID, Body: []byte("t")})
			if got := seqs(ctx, tx, 0); !slices.Equal(got, []int64{2, 13, 14}) {
				t.Errorf("rows %v, want operation, state, terminate", got)
			}
			check(t, tx.EndOperation(ctx, w.operation.ID, hub.Failed, ""))
			if got := seqs(ctx, tx, 0); !slices.Equal(got, []int64{13}) {
				t.Errorf("rows %v, want the state alone once the operation is over", got)
			}
			push(ctx, tx, hub.LogRow{Kind: hub.RowForget, Application: w.app.ID})
			if got := seqs(ctx, tx, 0); !slices.Equal(got, []int64{15}) {
				t.Errorf("rows %v, want the forgetting alone", got)
			}
			if leaves := must[map[string][32]byte](t)(tx.Leaves(ctx, id)); len(leaves) != 0 {
				t.Errorf("leaves %v after it was forgotten", leaves)
			}
			if held := must[[]hub.ClusterID](t)(tx.DesiredClusters(ctx, w.app.ID)); len(held) != 0 {
				t.Errorf("held by %v", held)
			}
			push(ctx, tx, hub.LogRow{Kind: hub.RowState, Application: w.app.ID, Body: []byte("back")})
			if got := seqs(ctx, tx, 0); !slices.Equal(got, []int64{16}) {
				t.Errorf("rows %v, want the new state alone", got)
			}
			if got := seqs(ctx, tx, 16); len(got) != 0 {
				t.Errorf("rows %v after the end", got)
			}
			return nil
		})
	})
	t.Run("acknowledgements never go back", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.Acknowledge(ctx, []hub.LogAck{{Cluster: id, Seq: 7}}))
			check(t, tx.Acknowledge(ctx, []hub.LogAck{{Cluster: id, Seq: 5}}))
			check(t, tx.Acknowledge(ctx, []hub.LogAck{{Cluster: id, Seq: 7, Receipt: &hub.Receipt{Seq: 7, Root: []byte("root"), At: now()}}}))
			c := must[hub.Cluster](t)(tx.ClusterByID(ctx, id))
			if c.AckedSeq != 7 || c.Seq != 16 || c.Receipt == nil || c.Receipt.Seq != 7 {
				t.Errorf("INV-8 cluster %+v", c)
			}
			return nil
		})
	})
}

func TestObjectsAndSnapshots(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	keys := storetest.Keys(t)
	db, elsewhere := storetest.OpenKeys(t, urls.Config(), keys), storetest.OpenKeys(t, urls.Config(), keys)
	w := build(t, db, "acme", "acme")
	digest := func(n int) hub.Digest { return sha256.Sum256([]byte(fmt.Sprint("object", n))) }
	snapshot := newSnapshot(w.app)
	for i := range 700 {
		snapshot.Objects = append(snapshot.Objects, hub.ObjectRef{Digest: digest(i % 600), Version: "v1", Kind: "ConfigMap", Name: fmt.Sprint(i), Wave: int32(i - 5), Hook: "PreSync"})
	}
	snapshot.Lists = []hub.Digest{digest(1000), digest(1001)}
	snapshot.Commit = hub.CommitInfo{Author: "Jo", Message: "more", At: now()}
	snapshot.Revisions, snapshot.Warnings, snapshot.ParamsHash = []string{"c0ffee", "1.0.0"}, []string{"old"}, digest(1)
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		var objects []hub.SealedObject
		for i := range 600 {
			objects = append(objects, hub.SealedObject{Digest: digest(i), Sealed: []byte{byte(i)}, Size: i})
		}
		objects = append(objects, objects[0], hub.SealedObject{Digest: digest(1000), Sealed: []byte("list")}, hub.SealedObject{Digest: digest(1001), Sealed: []byte("rest")})
		check(t, tx.PutObjects(ctx, objects))
		check(t, tx.PutObjects(ctx, objects[:3]))
		check(t, tx.PutSnapshots(ctx, []hub.Snapshot{snapshot}))
		return nil
	})
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		got := must[hub.Snapshot](t)(tx.Snapshot(ctx, snapshot.ID))
		want := snapshot
		want.Inputs = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the snapshot came back changed: %s", diff)
		}
		recent := must[map[hub.ApplicationID][]hub.Snapshot](t)(tx.RecentSnapshots(ctx, []hub.ApplicationID{w.app.ID}, 1))
		if list := recent[w.app.ID]; len(list) != 2 || list[0].ID != snapshot.ID || list[1].ID != w.snapshot.ID {
			t.Errorf("recent %+v, want the newest one and the older target", list)
		} else if diff := cmp.Diff(snapshot.Inputs, list[0].Inputs); diff != "" {
			t.Errorf("inputs: %s", diff)
		}
		storetest.In(t, elsewhere, w.tenant, func(ctx context.Context, there *store.Tenant) error {
			read := must[map[hub.ApplicationID][]hub.Snapshot](t)(there.RecentSnapshots(ctx, []hub.ApplicationID{w.app.ID}, 1))
			if diff := cmp.Diff(recent, read); diff != "" {
				t.Errorf("what this replica kept of snapshots is not what another one reads: %s", diff)
			}
			if diff := cmp.Diff(got, must[hub.Snapshot](t)(there.Snapshot(ctx, snapshot.ID))); diff != "" {
				t.Errorf("the snapshot that this replica kept is not what another one reads: %s", diff)
			}
			return nil
		})
		known := must[[]hub.Digest](t)(tx.KnownObjects(ctx, []hub.Digest{digest(1), digest(5000)}))
		if len(known) != 1 || known[0] != digest(1) {
			t.Errorf("known %v", known)
		}
		objects := must[[]hub.SealedObject](t)(tx.Objects(ctx, []hub.Digest{digest(7), digest(5000)}))
		if diff := cmp.Diff([]hub.SealedObject{{Digest: digest(7), Sealed: []byte{7}, Size: 7}}, objects); diff != "" {
			t.Errorf("objects: %s", diff)
		}
		if _, err := tx.Snapshot(ctx, hub.NewID[hub.SnapshotID]()); fault.KindOf(err) != fault.Missing {
			t.Errorf("an unknown snapshot: error %v, want Missing", err)
		}
		return nil
	})
	reach := func(cluster hub.ClusterID, want ...hub.Digest) {
		t.Helper()
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			got := must[[]hub.Digest](t)(tx.Reachable(ctx, cluster, []hub.Digest{w.object.Digest, digest(3), digest(1000), digest(1001), digest(5000)}))
			slices.SortFunc(got, func(a, b hub.Digest) int { return slices.Compare(a[:], b[:]) })
			slices.SortFunc(want, func(a, b hub.Digest) int { return slices.Compare(a[:], b[:]) })
			if !slices.Equal(got, want) {
				t.Errorf("reachable %x, want %x", got, want)
			}
			return nil
		})
	}
	t.Run("an agent reaches what its applications refer to and nothing else", func(t *testing.T) {
		reach(w.cluster.ID, w.object.Digest)
		var other hub.Cluster
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			other = must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "other"}}))
			return tx.SetTargets(ctx, []hub.TargetChange{{Application: w.app.ID, Target: snapshot.ID, Revision: "n", Generation: 3}})
		})
		reach(w.cluster.ID, w.object.Digest, digest(3), digest(1000), digest(1001))
		reach(other.ID)
	})
	t.Run("what is used is never collected, the rest is", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.PutObjects(ctx, []hub.SealedObject{{Digest: digest(5000), Sealed: []byte("unused")}}))
			var made []hub.SnapshotID
			for i := range 15 {
				s := newSnapshot(w.app)
				made = append(made, s.ID)
				s.CreatedAt = now().Add(-time.Duration(i+2) * time.Hour)
				check(t, tx.PutSnapshots(ctx, []hub.Snapshot{s}))
			}
			must[bool](t)(tx.Collect(ctx, time.Now().Add(30*24*time.Hour)))
			known := must[[]hub.Digest](t)(tx.KnownObjects(ctx, []hub.Digest{w.object.Digest, digest(3), digest(1000), digest(1001), digest(5000)}))
			if len(known) != 4 || slices.Contains(known, digest(5000)) {
				t.Errorf("%d of the objects are left, want the four that snapshots use", len(known))
			}
			recent := must[map[hub.ApplicationID][]hub.Snapshot](t)(tx.RecentSnapshots(ctx, []hub.ApplicationID{w.app.ID}, 100))
			if n := len(recent[w.app.ID]); n != 10 {
				t.Errorf("INV-9 %d snapshots are left, want the newest ten", n)
			}
			there := 0
			for _, id := range made {
				if _, err := tx.Snapshot(ctx, id); err == nil {
					there++
				} else if fault.KindOf(err) != fault.Missing {
					t.Errorf("a collected snapshot: %v, want Missing", err)
				}
			}
			if there != 8 {
				t.Errorf("%d of 15 snapshots are given, want those that were not collected", there)
			}
			return nil
		})
	})
}

func TestTargets(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	second := newSnapshot(w.app)
	pin := &hub.Pin{Snapshot: w.snapshot.ID, Skipped: "bad", By: "ann", At: now()}
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		check(t, tx.PutSnapshots(ctx, []hub.Snapshot{second}))
		must[hub.Observed](t)(tx.PutObservation(ctx, w.cluster.ID, hub.Observation{Epoch: "acme", Seq: 2, Applications: []hub.ApplicationObservation{
			{Application: w.app.ID, Target: w.snapshot.ID, Generation: 2, Sync: hub.Synced, Health: hub.Healthy, ComparedAt: now()}}}))
		a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID))
		if a.Status.Sync != hub.Synced || a.Status.ComparedAt == nil || a.Status.Health != hub.Healthy {
			t.Fatalf("status %+v", a.Status)
		}
		return tx.SetTargets(ctx, []hub.TargetChange{{Application: w.app.ID, Target: second.ID, Revision: "new", Revisions: []string{"a", "b"}, Generation: 5, Pin: pin}})
	})
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID))
		s := a.Status
		if s.Target != second.ID || s.Accepted != w.snapshot.ID || a.Generation != 5 || s.PlannedGeneration != 5 || s.Hold != "" {
			t.Errorf("after the change: generation %d, status %+v", a.Generation, s)
		}
		if s.Sync != hub.OutOfSync || s.ComparedAt != nil {
			t.Errorf("INV-6 a target that nobody has compared is %s as of %v", s.Sync, s.ComparedAt)
		}
		if diff := cmp.Diff(pin, a.Pin); diff != "" {
			t.Errorf("pin: %s", diff)
		}
		if !slices.Equal(s.Revisions, []string{"a", "b"}) {
			t.Errorf("revisions %v", s.Revisions)
		}
		for _, c := range s.Conditions {
			if c.Type == hub.RenderWarning {
				t.Errorf("a warning of the former target stayed: %+v", c)
			}
		}
		return nil
	})
	t.Run("INV-8 an older generation never wins", func(t *testing.T) {
		err := db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.SetTargets(ctx, []hub.TargetChange{{Application: w.app.ID, Target: w.snapshot.ID, Generation: 4}})
		})
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v, want Conflict", err)
		}
	})
	t.Run("a pin stays until it is removed", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.SetTargets(ctx, []hub.TargetChange{{Application: w.app.ID, Target: second.ID, Generation: 5}}))
			if a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID)); a.Pin == nil {
				t.Error("the pin went away by itself")
			}
			check(t, tx.SetTargets(ctx, []hub.TargetChange{{Application: w.app.ID, Target: second.ID, Generation: 5, Unpin: true}}))
			if a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID)); a.Pin != nil {
				t.Error("the pin stayed")
			}
			return nil
		})
	})
	t.Run("APP-17 the time of a repeated failure does not change", func(t *testing.T) {
		since := func() time.Time {
			t.Helper()
			var at time.Time
			storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
				for _, c := range must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID)).Status.Conditions {
					if c.Type == hub.ComparisonError {
						at = c.Since
					}
				}
				return nil
			})
			return at
		}
		fail := func(kind, message string) {
			storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
				return tx.SetFailures(ctx, []hub.RefreshFailure{{Application: w.app.ID, Condition: kind, Message: message}, {Application: hub.NewID[hub.ApplicationID](), Condition: kind, Message: message}})
			})
		}
		fail(hub.ComparisonError, "no such path\x00")
		first := since()
		fail(hub.ComparisonError, "no such path\x00")
		if again := since(); first.IsZero() || !again.Equal(first) {
			t.Errorf("since %v, then %v", first, again)
		}
		fail(hub.ComparisonError, "something else")
		if changed := since(); !changed.After(first) {
			t.Errorf("another message has the time of the first: %v", changed)
		}
		fail(hub.InvalidSpecError, "project is gone")
		if left := since(); !left.IsZero() {
			t.Error("the former failure stayed beside the new one")
		}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			was := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID)).Status
			check(t, tx.SetTargets(ctx, []hub.TargetChange{{Application: w.app.ID, Target: w.snapshot.ID, Generation: 9}}))
			is := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID)).Status
			if len(is.Conditions) != len(was.Conditions) || !cmp.Equal(is.RefreshedAt, was.RefreshedAt) {
				t.Errorf("an operation without a look at the sources: %+v, then %+v", was, is)
			}
			check(t, tx.Unchanged(ctx, []hub.Unchanged{{Application: w.app.ID, Revision: "z", RefreshedAt: now()}}))
			a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID))
			if a.Status.Revision != "z" || a.Status.RefreshedAt == nil || len(a.Status.Conditions) != 1 || a.Status.Conditions[0].Type != hub.SyncError {
				t.Errorf("after a good refresh: %+v, want only what others say", a.Status)
			}
			check(t, tx.SetCondition(ctx, w.app.ID, hub.SyncError, ""))
			if a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID)); len(a.Status.Conditions) != 0 {
				t.Errorf("conditions %+v", a.Status.Conditions)
			}
			return nil
		})
	})
	t.Run("tombstones stay open until they are closed", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			again := w.tombstone()
			again.Since = 99
			check(t, tx.OpenTombstones(ctx, []hub.Tombstone{again, again}))
			open := must[map[hub.ApplicationID][]hub.Tombstone](t)(tx.Tombstones(ctx, []hub.ApplicationID{w.app.ID}))
			if diff := cmp.Diff([]hub.Tombstone{w.tombstone()}, open[w.app.ID]); diff != "" {
				t.Errorf("INV-3 tombstones: %s", diff)
			}
			check(t, tx.CloseTombstones(ctx, []hub.Tombstone{w.tombstone(), again}))
			if open := must[map[hub.ApplicationID][]hub.Tombstone](t)(tx.Tombstones(ctx, []hub.ApplicationID{w.app.ID})); len(open) != 0 {
				t.Errorf("tombstones %v after they were closed", open)
			}
			return nil
		})
	})
}
