package dispatch_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// set gives settings to the one cluster.
func (w *world) set(body string) {
	w.T.Helper()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		return dispatch.Settings(ctx, tx, map[hub.ClusterID][]byte{w.Cluster.ID: []byte(body)})
	})
	w.Streams.Wake(w.Cluster.ID)
}

func TestSettingsAreRowsOfTheLog(t *testing.T) {
	t.Parallel()
	const settings = linkv1.RowKind_ROW_KIND_SETTINGS
	w := newWorld(t, automated)
	conn := w.Link(w.Tenant, w.Cluster.ID)
	w.Render("c1", "a")
	w.set("one")
	w.set("two")
	a := dispatchtest.NewAgent(t)
	a.KeepsSettings, a.Cursor.Settings = true, true
	t.Run("INV-5 a replay has the newest settings before any state, and again at their number", func(t *testing.T) {
		b := a.Follow(conn).ReadToBarrier()
		if string(a.Ahead.GetBody()) != "two" {
			t.Errorf("ahead came %v", a.Ahead)
		}
		want := []linkv1.RowKind{linkv1.RowKind_ROW_KIND_STATE, linkv1.RowKind_ROW_KIND_OPERATION, settings}
		if d := cmp.Diff(want, a.Kinds); d != "" {
			t.Errorf("rows (-want +got):\n%s", d)
		}
		a.Ack(b.Seq, a.Root())
		w.Eventually("the receipt", func() bool { r := w.Receipt(); return r != nil && r.Seq == int64(b.Seq) })
	})
	t.Run("a change reaches an agent that follows", func(t *testing.T) {
		w.set("three")
		b := a.ReadToBarrier()
		if a.Kinds[len(a.Kinds)-1] != settings {
			t.Errorf("rows %v", a.Kinds)
		}
		a.Ack(b.Seq, a.Root())
		w.Eventually("the receipt", func() bool { r := w.Receipt(); return r != nil && r.Seq == int64(b.Seq) })
	})
	t.Run("INV-14 an agent that does not know the row does not get it", func(t *testing.T) {
		old := dispatchtest.NewAgent(t)
		b := old.Follow(conn).ReadToBarrier() // compares the roots
		if !slices.Contains(old.Kinds, settings) {
			t.Error("the row was hidden: nobody would hear that it is not supported")
		}
		old.Ack(b.Seq, old.Root())
		w.Eventually("the receipt", func() bool { r := w.Receipt(); return r != nil && string(r.Root) == string(old.Root()) })
		t.Run("and gets the settings once it supports them", func(t *testing.T) {
			old.KeepsSettings, old.Cursor.Settings = true, true
			down, err := old.Follow(conn).Stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			barrier := down.GetBarrier()
			if barrier == nil {
				t.Fatalf("%v", down)
			}
			old.Ack(barrier.Seq, old.Root()) // without settings: its root differs
			if down, err = old.Stream.Recv(); err != nil {
				t.Fatal(err)
			}
			reset := down.GetBatch()
			if !reset.GetReset_() || string(reset.GetSettings().GetBody()) != "three" {
				t.Errorf("the replay begins with %v", down)
			}
			old.Apply(reset)
			old.ReadToBarrier()
		})
	})
}
