package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
)

// addApplication makes another application of the world's cluster.
func (w *world) addApplication(name, spec string, cluster hub.ClusterID) hub.Application {
	w.t.Helper()
	var out hub.Application
	w.in(func(ctx context.Context, tx *store.Tenant) (err error) {
		out, err = tx.CreateApplication(ctx, hub.Application{
			ID: hub.NewID[hub.ApplicationID](), Meta: hub.Meta{Namespace: "argocd", Name: name}, Project: "default", Spec: json.RawMessage(spec), Cluster: cluster,
		})
		return err
	})
	return out
}

// due makes applications due to be refreshed, and done that they were.
func (w *world) due(apps ...hub.Application) {
	w.t.Helper()
	for _, a := range apps {
		if err := w.db.System().Enqueue(w.t.Context(), hub.WorkRefresh, w.tenant, string(a.ID), time.Now().Add(-time.Second), false); err != nil {
			w.t.Fatal(err)
		}
	}
}

// refreshed leases all that is due, and gives it back done.
func (w *world) refreshed() (keys []string) {
	w.t.Helper()
	items, err := w.db.System().Claim(w.t.Context(), hub.WorkRefresh, "test", 100, time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range items {
		keys = append(keys, i.Key)
	}
	if err := w.db.System().Done(w.t.Context(), items); err != nil {
		w.t.Fatal(err)
	}
	return keys
}

// of is a complete render of ConfigMaps of an application.
func (w *world) of(app hub.ApplicationID, revision string, names ...string) hub.Rendered {
	w.t.Helper()
	var a hub.Application
	w.in(func(ctx context.Context, tx *store.Tenant) (err error) {
		a, err = tx.ApplicationByID(ctx, app)
		return err
	})
	r := hub.Rendered{Application: app, Generation: a.Generation, Revision: revision, Revisions: []string{revision}}
	r.Snapshot = hub.Snapshot{Application: app, Revision: revision, Revisions: r.Revisions, SourceType: "Directory", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, n := range names {
		r.Snapshot.Objects = append(r.Snapshot.Objects, hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: n})
		r.Bodies = append(r.Bodies, fmt.Appendf(nil, `{"apiVersion":"v1","data":{"r":%q},"kind":"ConfigMap","metadata":{"name":%q}}`, revision, n))
	}
	return r
}

func (w *world) hand(all ...hub.Rendered) {
	w.t.Helper()
	if err := w.d.Rendered(w.t.Context(), w.tenant, all); err != nil {
		w.t.Fatal(err)
	}
	w.reload()
}

func TestObjectsThatMoveBetweenApplications(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*world, hub.Application) {
		t.Helper()
		w := newWorld(t, automated)
		other := w.addApplication("cart", automated, w.cluster.ID)
		w.hand(w.of(w.app.ID, "r1", "a", "b"))
		w.end(hub.Succeeded, "")
		w.hand(w.of(other.ID, "r1", "c"))
		w.refreshed()
		return w, other
	}
	t.Run("TRK-07 what leaves one application is not deleted while another one of the repository is still to be rendered", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(other)
		w.hand(w.of(w.app.ID, "r2", "a"))
		held := w.app.Status
		if !strings.Contains(held.Hold, "would delete ConfigMap b") || !strings.Contains(held.Hold, "application cart") || held.Accepted == held.Target || w.newest().Revision != "r1" {
			t.Fatalf("status %+v", held)
		}
		w.hand(w.of(other.ID, "r2", "b", "c"))
		w.refreshTarget("r2", held.Target) // the pause is over; the other's work is not given back yet
		rows := w.rows()
		last := rows[len(rows)-1]
		if w.app.Status.Hold != "" || last.Kind != hub.RowOperation || last.Application != w.app.ID {
			t.Fatalf("status %+v, last row %+v", w.app.Status, last)
		}
		for _, r := range rows {
			if r.Kind == hub.RowState && r.Application == other.ID && r.Seq > last.Seq {
				t.Error("the other application is told after the deletion")
			}
		}
	})
	t.Run("TRK-07 it goes on when the other one was looked at, whatever came of it", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(other)
		w.hand(w.of(w.app.ID, "r2", "a"))
		if w.app.Status.Hold == "" {
			t.Fatal("it does not wait")
		}
		w.refreshed()
		w.refreshTarget("r2", w.app.Status.Target)
		if w.app.Status.Hold != "" || w.app.Status.Accepted != w.app.Status.Target {
			t.Errorf("status %+v", w.app.Status)
		}
	})
	t.Run("TRK-07 applications that wait for each other do so a second at most", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(w.app, other)
		w.hand(w.of(w.app.ID, "r2", "a"))
		if w.app.Status.Hold == "" {
			t.Fatal("it does not wait")
		}
		w.hand(w.of(other.ID, "r2", "b"))
		var a hub.Application
		w.in(func(ctx context.Context, tx *store.Tenant) (err error) {
			a, err = tx.ApplicationByID(ctx, other.ID)
			return err
		})
		if a.Status.Hold != "" {
			t.Errorf("the first one was rendered at this revision, and the second one waits for it: %q", a.Status.Hold)
		}
	})
	t.Run("TRK-07 of one transaction all states are told before the first operation", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(w.app, other)
		w.hand(w.of(w.app.ID, "r2", "a"), w.of(other.ID, "r2", "b", "c"))
		rows := w.rows()
		rows = rows[len(rows)-4:]
		for i, kind := range []hub.RowKind{hub.RowState, hub.RowState, hub.RowOperation, hub.RowOperation} {
			if rows[i].Kind != kind {
				t.Errorf("row %d is of kind %d", i, rows[i].Kind)
			}
		}
	})
	t.Run("TRK-07 nothing waits for applications elsewhere, of other repositories, or without a deletion", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		var far hub.Cluster
		w.in(func(ctx context.Context, tx *store.Tenant) (err error) {
			far, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "far"}})
			return err
		})
		w.due(w.addApplication("far", automated, far.ID), w.addApplication("else", strings.ReplaceAll(automated, "shop.git", "else.git"), w.cluster.ID))
		w.hand(w.of(w.app.ID, "r2", "a"))
		if w.app.Status.Hold != "" {
			t.Errorf("it waits: %q", w.app.Status.Hold)
		}
		w.end(hub.Succeeded, "")
		w.due(other)
		w.hand(w.of(w.app.ID, "r3", "a", "d"))
		if w.app.Status.Hold != "" && !strings.Contains(w.app.Status.Hold, "ConfigMap b") {
			t.Errorf("it waits: %q", w.app.Status.Hold)
		}
	})
}
