package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func observe(t *testing.T, db *store.DB, w *world, o hub.Observation) (out hub.Observed) {
	t.Helper()
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
		out, err = tx.PutObservation(ctx, w.cluster.ID, o)
		return err
	})
	return out
}

func names(t *testing.T, db *store.DB, w *world) []string {
	t.Helper()
	var out []string
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		out = nil
		for _, r := range must[[]hub.Resource](t)(tx.Resources(ctx, w.app.ID)) {
			out = append(out, r.Name)
		}
		return nil
	})
	return out
}

func (w *world) resources(names ...string) []hub.Resource {
	var out []hub.Resource
	for _, n := range names {
		out = append(out, hub.Resource{Application: w.app.ID, Kind: "Pod", Version: "v1", Namespace: "shop", Name: n, UID: "uid-" + n})
	}
	return out
}

func status(t *testing.T, db *store.DB, w *world) (a hub.Application) {
	t.Helper()
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		a = must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID))
		return nil
	})
	return a
}

func TestObservedResources(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme") // epoch "acme", report 1, snapshot 1
	born := now()
	full := hub.Resource{
		Cluster: w.cluster.ID, Application: w.app.ID, UID: "u", Parent: "p", Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Managed: true,
		Sync: hub.OutOfSync, Health: hub.Degraded, Message: "nul \x00 byte", RequiresPrune: true, Hook: true, Wave: -3, DiffSummary: "spec.replicas",
		Info: []hub.Info{{Name: "Images", Value: "a:1"}}, CreatedAt: &born, Confirm: true, Links: []string{"Docs|https://docs.example.com", "http://web"},
	}
	t.Run("a resource is returned completely", func(t *testing.T) {
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 2, Resources: []hub.Resource{{Application: full.Application, Group: full.Group, Kind: full.Kind, Namespace: full.Namespace, Name: full.Name, UID: "old"}, full}})
		var got hub.Resource
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			for _, r := range must[[]hub.Resource](t)(tx.Resources(ctx, w.app.ID)) {
				if r.Name == "web" {
					got = r
				}
			}
			return nil
		})
		want := full
		want.Message, want.UpdatedAt = "nul \uFFFD byte", got.UpdatedAt
		if diff := cmp.Diff(want, got); diff != "" || got.UpdatedAt.IsZero() {
			t.Errorf("INV-13 resource: %s", diff)
		}
	})
	t.Run("INV-2 a report that was stored before changes nothing", func(t *testing.T) {
		out := observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 2, Resources: w.resources("late")})
		if !out.Repeated || out.Resnapshot {
			t.Errorf("%+v, want repeated", out)
		}
		if got := names(t, db, w); slices.Contains(got, "late") {
			t.Errorf("resources %v", got)
		}
	})
	t.Run("a deleted object is removed by key or by uid, and never a newer one", func(t *testing.T) {
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 3, Resources: w.resources("a", "b", "c", "web-0")})
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 4,
			Gone: []hub.ResourceGone{
				{Application: w.app.ID, UID: "uid-a"},
				{Application: w.app.ID, Kind: "Pod", Namespace: "shop", Name: "b"},
				{Application: w.app.ID, Kind: "Pod", Namespace: "shop", Name: "c", UID: "an older one"},
				{Application: w.app.ID, UID: "uid-web-0", Kind: "Pod", Namespace: "shop", Name: "web-0"},
			},
			Resources: []hub.Resource{{Application: w.app.ID, Kind: "Pod", Version: "v1", Namespace: "shop", Name: "web-0", UID: "its successor"}},
		})
		if got := names(t, db, w); !slices.Equal(got, []string{"acme", "web", "c", "web-0"}) {
			t.Errorf("resources %v", got)
		}
	})
	t.Run("a complete snapshot sweeps what it does not have", func(t *testing.T) {
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 5, Snapshot: 2, Resources: w.resources("a", "web-0")})
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 6, Resources: w.resources("delta")})
		if got := names(t, db, w); len(got) != 6 {
			t.Errorf("resources %v before the snapshot is complete", got)
		}
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 7, Snapshot: 2, Resources: w.resources("b"), Sweep: 2})
		if got := names(t, db, w); !slices.Equal(got, []string{"a", "b", "delta", "web-0"}) {
			t.Errorf("resources %v, want those of the snapshot and of the delta beside it", got)
		}
	})
	t.Run("INV-6 after a gap everything is requested, and nothing is swept", func(t *testing.T) {
		if out := observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 9, Resources: w.resources("after gap")}); !out.Resnapshot {
			t.Error("a gap was not noticed")
		}
		if out := observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 10, Snapshot: 3, Resources: w.resources("x")}); out.Resnapshot {
			t.Error("a snapshot in order counts as a gap")
		}
		if out := observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 12, Snapshot: 3, Resources: w.resources("y"), Sweep: 3}); !out.Resnapshot {
			t.Error("a gap inside a snapshot was not noticed")
		}
		if got := names(t, db, w); len(got) != 7 {
			t.Errorf("resources %v: an incomplete snapshot swept", got)
		}
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 13, Snapshot: 4, Resources: w.resources("x"), Sweep: 4})
		if got := names(t, db, w); !slices.Equal(got, []string{"x"}) {
			t.Errorf("resources %v, want those of the complete snapshot", got)
		}
	})
	t.Run("another epoch begins with a snapshot", func(t *testing.T) {
		if out := observe(t, db, w, hub.Observation{Epoch: "second", Seq: 1, Resources: w.resources("z")}); !out.Resnapshot {
			t.Error("an epoch that begins with a delta was taken for complete")
		}
		if out := observe(t, db, w, hub.Observation{Epoch: "third", Seq: 1, Snapshot: 4, Sweep: 4, Resources: w.resources("z")}); out.Resnapshot || out.Repeated {
			t.Errorf("%+v", out)
		}
		if got := names(t, db, w); !slices.Equal(got, []string{"z"}) {
			t.Errorf("resources %v: the same number in another epoch is another snapshot", got)
		}
	})
	t.Run("what is equal is not written", func(t *testing.T) {
		version := func() (at time.Time) {
			storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
				at = must[[]hub.Resource](t)(tx.Resources(ctx, w.app.ID))[0].UpdatedAt
				return nil
			})
			return at
		}
		before := version()
		observe(t, db, w, hub.Observation{Epoch: "third", Seq: 2, Resources: w.resources("z")})
		if after := version(); !after.Equal(before) {
			t.Errorf("updated at %v, then %v", before, after)
		}
	})
	t.Run("an agent cannot report applications of other clusters or unknown ones", func(t *testing.T) {
		var other hub.Application
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			c := must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "other"}}))
			other = must[hub.Application](t)(tx.CreateApplication(ctx, newApp("other", "https://git.test/o", c.ID)))
			return nil
		})
		foreign := other
		stranger := hub.NewID[hub.ApplicationID]()
		observe(t, db, w, hub.Observation{Epoch: "third", Seq: 3,
			Applications: []hub.ApplicationObservation{{Application: foreign.ID, Sync: hub.Synced, Health: hub.Healthy, Error: "x"}, {Application: stranger}, {Application: "no id"}},
			Resources:    []hub.Resource{{Application: foreign.ID, Kind: "Pod", Name: "x"}, {Application: stranger, Kind: "Pod", Name: "x"}, {Application: "no id", Kind: "Pod", Name: "x"}},
			Gone:         []hub.ResourceGone{{Application: stranger, UID: "x"}},
			Operations:   []hub.OperationObservation{{Operation: "no id"}, {Operation: hub.NewID[hub.OperationID](), Phase: hub.Failed}},
			Closed:       []hub.Tombstone{{Application: stranger, Kind: "Pod"}},
		})
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			a := must[hub.Application](t)(tx.ApplicationByID(ctx, other.ID))
			if a.Status.Health != hub.HealthUnknown || len(a.Status.Conditions) != 0 {
				t.Errorf("status %+v", a.Status)
			}
			if got := must[[]hub.Resource](t)(tx.Resources(ctx, other.ID)); len(got) != 0 {
				t.Errorf("resources %+v", got)
			}
			return nil
		})
	})
	t.Run("an unknown cluster is refused as such", func(t *testing.T) {
		err := db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.PutObservation(ctx, hub.NewID[hub.ClusterID](), hub.Observation{})
			return err
		})
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v, want Missing", err)
		}
	})
}

func TestObservedApplications(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	seq := int64(1)
	say := func(o hub.ApplicationObservation) {
		seq++
		o.Application = w.app.ID
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: seq, Applications: []hub.ApplicationObservation{o}})
	}
	at := now()
	say(hub.ApplicationObservation{Target: w.snapshot.ID, Generation: 2, Sync: hub.Synced, Health: hub.Progressing, HealthCause: "Deployment web", ComparedAt: at,
		Error: "cannot compare", Warnings: []string{"fought over", "fought over"}})
	first := status(t, db, w).Status
	if first.Sync != hub.Synced || first.Health != hub.Progressing || first.HealthCause != "Deployment web" || !first.ComparedAt.Equal(at) || !first.HealthSince.Equal(at) {
		t.Fatalf("APP-10 APP-11 status %+v", first)
	}
	var types []string
	for _, c := range first.Conditions {
		types = append(types, c.Type)
	}
	if want := []string{hub.AgentWarning, hub.ComparisonError, hub.RenderWarning, hub.SyncError}; !slices.Equal(types, want) {
		t.Errorf("APP-17 conditions %v, want %v", types, want)
	}
	t.Run("HLT-26 the time of unchanged health does not change", func(t *testing.T) {
		say(hub.ApplicationObservation{Target: w.snapshot.ID, Generation: 2, Sync: hub.Synced, Health: hub.Progressing, ComparedAt: at.Add(time.Minute)})
		s := status(t, db, w).Status
		if !s.HealthSince.Equal(at) || !s.ComparedAt.Equal(at.Add(time.Minute)) || len(s.Conditions) != 2 {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("INV-6 sync is valid only for the current target", func(t *testing.T) {
		say(hub.ApplicationObservation{Target: hub.NewID[hub.SnapshotID](), Generation: 2, Sync: hub.OutOfSync, Health: hub.Healthy, ComparedAt: at.Add(time.Hour)})
		if s := status(t, db, w).Status; s.Sync != hub.Synced || s.ComparedAt.Equal(at.Add(time.Hour)) || s.Health != hub.Healthy {
			t.Errorf("status %+v", s)
		}
		say(hub.ApplicationObservation{Target: "no id", Generation: 2, Sync: hub.OutOfSync, Health: hub.Healthy, ComparedAt: at})
		if s := status(t, db, w).Status; s.Sync != hub.Synced {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("INV-8 a result of an older generation is ignored", func(t *testing.T) {
		say(hub.ApplicationObservation{Target: w.snapshot.ID, Generation: 1, Sync: hub.OutOfSync, Health: hub.Degraded, ComparedAt: at})
		if s := status(t, db, w).Status; s.Health != hub.Healthy || s.Sync != hub.Synced {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("closed tombstones are removed", func(t *testing.T) {
		seq++
		closed := w.tombstone()
		closed.Cluster = hub.NewID[hub.ClusterID]() // an agent reports only its own cluster, whatever it sends
		observe(t, db, w, hub.Observation{Epoch: "acme", Seq: seq, Closed: []hub.Tombstone{closed}})
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if open := must[map[hub.ApplicationID][]hub.Tombstone](t)(tx.Tombstones(ctx, []hub.ApplicationID{w.app.ID})); len(open) != 0 {
				t.Errorf("tombstones %v", open)
			}
			return nil
		})
	})
}

func TestObservedOperations(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	seq := int64(1)
	say := func(o hub.OperationObservation) hub.Observed {
		seq++
		o.Operation, o.Application = w.operation.ID, w.app.ID
		return observe(t, db, w, hub.Observation{Epoch: "acme", Seq: seq, Operations: []hub.OperationObservation{o}})
	}
	operation := func() (op hub.Operation) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			op = must[hub.Operation](t)(tx.Operation(ctx, w.operation.ID))
			return nil
		})
		return op
	}
	at := now()
	say(hub.OperationObservation{Phase: hub.Running, Message: "wave 0", StartedAt: &at})
	say(hub.OperationObservation{Phase: hub.Pending, Message: "late", StartedAt: &at})
	if op := operation(); op.Phase != hub.Running || op.StartedAt == nil {
		t.Errorf("INV-8 operation %+v", op)
	}
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		return tx.EndOperation(ctx, w.operation.ID, hub.Terminating, "on its way")
	})
	say(hub.OperationObservation{Phase: hub.Running, Message: "wave 1"})
	if op := operation(); op.Phase != hub.Terminating || op.FinishedAt != nil {
		t.Errorf("INV-8 a terminated operation runs again: %+v", op)
	}
	results := []hub.ObjectResult{{Kind: "ConfigMap", Name: "a", Status: "Synced"}}
	out := say(hub.OperationObservation{Phase: hub.Failed, Message: "terminated", Results: results})
	if !slices.Equal(out.Over, []hub.OperationID{w.operation.ID}) {
		t.Errorf("over: %v", out.Over)
	}
	if op := operation(); op.Phase != hub.Failed || op.FinishedAt == nil || !cmp.Equal(op.Results, results) {
		t.Errorf("INV-10 operation %+v", op)
	}
	items := must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkOutcome, "r", 10, time.Minute))
	if len(items) != 1 || items[0].Key != string(w.operation.ID) {
		t.Errorf("outcome work %+v", items)
	}
	if out := say(hub.OperationObservation{Phase: hub.Succeeded, Message: "after all", HealthyAt: &at}); len(out.Over) != 0 {
		t.Errorf("an operation was over twice: %v", out.Over)
	}
	op := operation()
	if op.Phase != hub.Failed || op.Message != "terminated" || op.HealthyAt == nil {
		t.Errorf("INV-8 an operation that was over became %+v", op)
	}
	if a := status(t, db, w); a.Status.Operation == nil || a.Status.Operation.ID != w.operation.ID || len(a.Status.Operation.Results) != 1 {
		t.Errorf("APP-13 newest operation %+v", a.Status.Operation)
	}
}
