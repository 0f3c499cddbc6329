package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// manyApps makes applications of one repository and cluster.
func manyApps(t testing.TB, db *store.DB, n int) (*world, []hub.Application) {
	w := build(t, db, "acme", "acme")
	apps := make([]hub.Application, n)
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		for i := range apps {
			apps[i] = must[hub.Application](t)(tx.CreateApplication(ctx, newApp(fmt.Sprintf("app-%04d", i), w.repository.URL, w.cluster.ID)))
		}
		return nil
	})
	return w, apps
}

// BenchmarkDispatch stores what a push that changes 200 applications of five
// objects each leads to, in one transaction as dispatch does.
func BenchmarkDispatch(b *testing.B) {
	db := storetest.Open(b)
	w, apps := manyApps(b, db, 200)
	ids := make([]hub.ApplicationID, len(apps))
	for i, a := range apps {
		ids[i] = a.ID
	}
	round := int64(1)
	b.ResetTimer()
	for b.Loop() {
		round++
		storetest.In(b, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[map[hub.ApplicationID]hub.Application](b)(tx.LockApplications(ctx, ids))
			open := must[map[hub.ApplicationID]hub.Operation](b)(tx.OpenOperations(ctx, ids))
			for _, op := range open {
				check(b, tx.EndOperation(ctx, op.ID, hub.Succeeded, ""))
			}
			var objects []hub.SealedObject
			var snapshots []hub.Snapshot
			var targets []hub.TargetChange
			var ops []hub.Operation
			var more []hub.LogRow
			for _, a := range apps {
				s := newSnapshot(a)
				for j := range 5 {
					d := sha256.Sum256([]byte(fmt.Sprint(a.ID, round, j)))
					objects = append(objects, hub.SealedObject{Digest: d, Sealed: make([]byte, 600), Size: 1200})
					s.Objects = append(s.Objects, hub.ObjectRef{Digest: d, Version: "v1", Kind: "ConfigMap", Name: fmt.Sprint(j)})
				}
				a.Generation = round
				op := newOperation(a, s.ID)
				snapshots, ops = append(snapshots, s), append(ops, op)
				targets = append(targets, hub.TargetChange{Application: a.ID, Target: s.ID, Accepted: s.ID, Revision: fmt.Sprint(round), Generation: round})
				more = append(more, hub.LogRow{Kind: hub.RowState, Application: a.ID, Body: make([]byte, 700)},
					hub.LogRow{Kind: hub.RowOperation, Application: a.ID, Operation: op.ID, Body: make([]byte, 150)})
			}
			check(b, tx.PutObjects(ctx, objects))
			check(b, tx.PutSnapshots(ctx, snapshots))
			check(b, tx.SetTargets(ctx, targets))
			check(b, tx.PutOperations(ctx, ops))
			heads := must[map[hub.ClusterID]hub.LogHead](b)(tx.LockClusters(ctx, []hub.ClusterID{w.cluster.ID}))
			return tx.AppendRows(ctx, w.cluster.ID, rows(heads[w.cluster.ID], more...))
		})
	}
}

// BenchmarkRefreshes loads what decides about 200 applications.
func BenchmarkRefreshes(b *testing.B) {
	db := storetest.Open(b)
	w, apps := manyApps(b, db, 200)
	var ids []hub.ApplicationID
	for _, a := range apps {
		ids = append(ids, a.ID)
	}
	storetest.In(b, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		for range 3 {
			for _, a := range apps {
				check(b, tx.PutSnapshots(ctx, []hub.Snapshot{newSnapshot(a)}))
			}
		}
		return nil
	})
	for b.Loop() {
		check(b, db.ReadTenant(b.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			got := must[[]hub.Refresh](b)(tx.Refreshes(ctx, ids, 3))
			if len(got) != len(apps) {
				b.Fatalf("%d refreshes", len(got))
			}
			return nil
		}))
	}
}

// BenchmarkObserve stores a report of 1,000 resources that all changed.
func BenchmarkObserve(b *testing.B) {
	db := storetest.Open(b)
	w, apps := manyApps(b, db, 200)
	seq := int64(1)
	for b.Loop() {
		seq++
		o := hub.Observation{Epoch: "acme", Seq: seq}
		for _, a := range apps {
			o.Applications = append(o.Applications, hub.ApplicationObservation{Application: a.ID, Generation: 1, Sync: hub.Synced, Health: hub.Healthy, ComparedAt: now()})
			for j := range 5 {
				o.Resources = append(o.Resources, hub.Resource{Application: a.ID, Kind: "ConfigMap", Version: "v1", Namespace: "shop", Name: fmt.Sprint(j), UID: "u", Message: fmt.Sprint(seq)})
			}
		}
		storetest.In(b, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.PutObservation(ctx, w.cluster.ID, o)
			return err
		})
	}
}

// BenchmarkInTenant is the least that a transaction costs.
func BenchmarkInTenant(b *testing.B) {
	db := storetest.Open(b)
	w := build(b, db, "acme", "acme")
	for b.Loop() {
		storetest.In(b, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.ApplicationByID(ctx, w.app.ID)
			return err
		})
	}
}

// BenchmarkClaim claims and finishes one item beside 1,000 tenants that have
// one waiting for later each.
func BenchmarkClaim(b *testing.B) {
	db := storetest.Open(b)
	var last hub.TenantID
	for i := range 1000 {
		last = storetest.Tenant(b, db, fmt.Sprintf("t-%d", i))
		check(b, db.System().Enqueue(b.Context(), hub.WorkRefresh, last, key(), time.Now().Add(time.Hour), false))
	}
	for b.Loop() {
		check(b, db.System().Enqueue(b.Context(), hub.WorkRefresh, last, key(), time.Now(), false))
		items := must[[]hub.WorkItem](b)(db.System().Claim(b.Context(), hub.WorkRefresh, "r", 10, time.Minute))
		check(b, db.System().Done(b.Context(), items))
	}
}
