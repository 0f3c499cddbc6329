package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
)

// addApplication makes another application of the world's cluster.
func (w *world) due(apps ...hub.Application) {
	w.T.Helper()
	for _, a := range apps {
		if err := w.DB.System().Enqueue(w.T.Context(), hub.WorkRefresh, w.Tenant, string(a.ID), time.Now().Add(-time.Second), false); err != nil {
			w.T.Fatal(err)
		}
	}
}

// refreshed leases all that is due, and gives it back done.
func (w *world) refreshed() (keys []string) {
	w.T.Helper()
	items, err := w.DB.System().Claim(w.T.Context(), hub.WorkRefresh, "test", 100, time.Minute)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, i := range items {
		keys = append(keys, i.Key)
	}
	if err := w.DB.System().Done(w.T.Context(), items); err != nil {
		w.T.Fatal(err)
	}
	return keys
}

// of is a complete render of ConfigMaps of an application.
func TestObjectsThatMoveBetweenApplications(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*world, hub.Application) {
		t.Helper()
		w := newWorld(t, automated)
		other := w.AddApplication("cart", automated, w.Cluster.ID)
		w.Submit(w.RenderedOf(w.App.ID, "r1", "a", "b"))
		w.End(hub.Succeeded, "")
		w.Submit(w.RenderedOf(other.ID, "r1", "c"))
		w.refreshed()
		return w, other
	}
	t.Run("TRK-07 what leaves one application is not deleted while another one of the repository is still to be rendered", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(other)
		w.Submit(w.RenderedOf(w.App.ID, "r2", "a"))
		held := w.App.Status
		if !strings.Contains(held.Hold, "would delete ConfigMap b") || !strings.Contains(held.Hold, "application cart") || held.Accepted == held.Target || w.newest().Revision != "r1" {
			t.Fatalf("status %+v", held)
		}
		w.Submit(w.RenderedOf(other.ID, "r2", "b", "c"))
		w.refreshTarget("r2", held.Target) // the pause is over; the other's work is not given back yet
		rows := w.Rows()
		last := rows[len(rows)-1]
		if w.App.Status.Hold != "" || last.Kind != hub.RowOperation || last.Application != w.App.ID {
			t.Fatalf("status %+v, last row %+v", w.App.Status, last)
		}
		for _, r := range rows {
			if r.Kind == hub.RowState && r.Application == other.ID && r.Seq > last.Seq {
				t.Error("the other application is told after the deletion")
			}
		}
	})
	t.Run("TRK-07 it continues when the other one was refreshed, with any result", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(other)
		w.Submit(w.RenderedOf(w.App.ID, "r2", "a"))
		if w.App.Status.Hold == "" {
			t.Fatal("it does not wait")
		}
		w.refreshed()
		w.refreshTarget("r2", w.App.Status.Target)
		if w.App.Status.Hold != "" || w.App.Status.Accepted != w.App.Status.Target {
			t.Errorf("status %+v", w.App.Status)
		}
	})
	t.Run("TRK-07 applications that wait for each other do so a second at most", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(w.App, other)
		w.Submit(w.RenderedOf(w.App.ID, "r2", "a"))
		if w.App.Status.Hold == "" {
			t.Fatal("it does not wait")
		}
		w.Submit(w.RenderedOf(other.ID, "r2", "b"))
		var a hub.Application
		w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
			a, err = tx.ApplicationByID(ctx, other.ID)
			return err
		})
		if a.Status.Hold != "" {
			t.Errorf("the first one was rendered at this revision, and the second one waits for it: %q", a.Status.Hold)
		}
	})
	t.Run("TRK-07 of one transaction all states are sent before the first operation", func(t *testing.T) {
		t.Parallel()
		w, other := begin(t)
		w.due(w.App, other)
		w.Submit(w.RenderedOf(w.App.ID, "r2", "a"), w.RenderedOf(other.ID, "r2", "b", "c"))
		rows := w.Rows()
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
		w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
			far, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "far"}})
			return err
		})
		w.due(w.AddApplication("far", automated, far.ID), w.AddApplication("else", strings.ReplaceAll(automated, "shop.git", "else.git"), w.Cluster.ID))
		w.Submit(w.RenderedOf(w.App.ID, "r2", "a"))
		if w.App.Status.Hold != "" {
			t.Errorf("it waits: %q", w.App.Status.Hold)
		}
		w.End(hub.Succeeded, "")
		w.due(other)
		w.Submit(w.RenderedOf(w.App.ID, "r3", "a", "d"))
		if w.App.Status.Hold != "" && !strings.Contains(w.App.Status.Hold, "ConfigMap b") {
			t.Errorf("it waits: %q", w.App.Status.Hold)
		}
	})
}
