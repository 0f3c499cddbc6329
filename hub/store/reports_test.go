package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestReportsOfSeveralClusters(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	clusters := make([]hub.ClusterID, 3)
	apps := make([]hub.ApplicationID, 3)
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		for i := range clusters {
			clusters[i] = must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: fmt.Sprint("edge-", i)}})).ID
			apps[i] = must[hub.Application](t)(tx.CreateApplication(ctx, newApp(fmt.Sprint("edge-", i), w.repository.URL, clusters[i]))).ID
		}
		return nil
	})
	report := func(cluster, app int, seq int64, name string) hub.ClusterObservation {
		return hub.ClusterObservation{Cluster: clusters[cluster], Observation: hub.Observation{
			Epoch: "one", Seq: seq, Snapshot: 1,
			Applications: []hub.ApplicationObservation{{Application: apps[app], Health: hub.Healthy, ComparedAt: now(), Warnings: []string{name}}},
			Resources:    []hub.Resource{{Application: apps[app], Kind: "Pod", Version: "v1", Namespace: "shop", Name: name}},
		}}
	}
	put := func(reports ...hub.ClusterObservation) (out []hub.Observed) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
			out, err = tx.PutObservations(ctx, reports)
			return err
		})
		return out
	}
	found := func(app int) (pods, warnings []string) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			pods, warnings = nil, nil
			for _, r := range must[[]hub.Resource](t)(tx.Resources(ctx, apps[app])) {
				pods = append(pods, r.Name)
			}
			for _, c := range must[hub.Application](t)(tx.Application(ctx, "argocd", fmt.Sprint("edge-", app))).Status.Conditions {
				if c.Type == hub.AgentWarning {
					warnings = append(warnings, c.Message)
				}
			}
			return nil
		})
		return pods, warnings
	}
	t.Run("each gets its own answer, in order, also the second one of a cluster", func(t *testing.T) {
		got := put(report(0, 0, 1, "a"), report(1, 1, 1, "b"), report(0, 0, 2, "c"), report(1, 1, 1, "b"), report(2, 2, 7, "d"))
		want := []hub.Observed{{}, {}, {}, {Repeated: true}, {Resnapshot: true}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for app, want := range [][]string{{"a", "c"}, {"b"}, {"d"}} {
			pods, warnings := found(app)
			if diff := cmp.Diff(want, pods); diff != "" {
				t.Errorf("application %d: %s", app, diff)
			}
			if diff := cmp.Diff(want[len(want)-1:], warnings); diff != "" {
				t.Errorf("application %d: %s", app, diff)
			}
		}
	})
	t.Run("ISO-1 reports about the application of another cluster are ignored", func(t *testing.T) {
		put(report(0, 1, 3, "stolen"), report(1, 1, 2, "own"), report(2, 1, 8, "stolen"))
		pods, warnings := found(1)
		if diff := cmp.Diff([]string{"b", "own"}, pods); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"own"}, warnings); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("ISO-1 each ends its own operations, and in one batch with others none of another cluster", func(t *testing.T) {
		ops := make([]hub.Operation, len(apps))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			for i := range ops {
				app := must[hub.Application](t)(tx.ApplicationByID(ctx, apps[i]))
				snapshot := newSnapshot(app)
				check(t, tx.PutSnapshots(ctx, []hub.Snapshot{snapshot}))
				ops[i] = newOperation(app, snapshot.ID)
			}
			return tx.PutOperations(ctx, ops)
		})
		ended := func(cluster int, seq int64, of ...int) hub.ClusterObservation {
			r := report(cluster, cluster, seq, "x")
			for _, i := range of {
				r.Operations = append(r.Operations, hub.OperationObservation{Operation: ops[i].ID, Application: apps[i], Phase: hub.Succeeded})
			}
			return r
		}
		got := put(ended(0, 5, 0, 2), ended(1, 6, 1), ended(2, 9, 0, 1))
		want := []hub.Observed{{Over: []hub.OperationID{ops[0].ID}, Resnapshot: true}, {Over: []hub.OperationID{ops[1].ID}, Resnapshot: true}, {}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if op := must[hub.Operation](t)(tx.Operation(ctx, ops[2].ID)); op.Phase != hub.Pending {
				t.Errorf("an operation of the third cluster is %s by what the first one says", op.Phase)
			}
			return nil
		})
	})
	t.Run("B10 the statements that store reports are planned once, and not for each report", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			before, _, err := store.Plans(ctx, tx)
			check(t, err)
			for n := range int64(20) {
				_, err := tx.PutObservations(ctx, []hub.ClusterObservation{report(2, 2, 10+n, fmt.Sprint("pod-", n))})
				check(t, err)
			}
			own, general, err := store.Plans(ctx, tx)
			check(t, err)
			if own != before || general < 20 {
				t.Errorf("20 reports were stored by %d plans of their own and %d uses of general ones", own-before, general)
			}
			return nil
		})
	})
	t.Run("with a report of an unknown cluster nothing is stored", func(t *testing.T) {
		none := report(0, 0, 1, "x")
		none.Cluster = hub.NewID[hub.ClusterID]()
		err := db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.PutObservations(ctx, []hub.ClusterObservation{report(0, 0, 6, "e"), none})
			return err
		})
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v, want Missing", err)
		}
		if got := put(report(0, 0, 6, "e")); got[0].Repeated {
			t.Error("the report is taken for stored")
		}
	})
	t.Run("none is no error", func(t *testing.T) {
		if got := put(); len(got) != 0 {
			t.Errorf("answers %v", got)
		}
	})
}
