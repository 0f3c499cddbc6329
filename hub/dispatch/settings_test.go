package dispatch_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// set gives settings to the one cluster.
func (w *world) set(body string) {
	w.t.Helper()
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		return dispatch.Settings(ctx, tx, map[hub.ClusterID][]byte{w.cluster.ID: []byte(body)})
	})
	w.d.Wake(w.cluster.ID)
}

func TestSettingsTravelInTheLog(t *testing.T) {
	t.Parallel()
	const settings = linkv1.RowKind_ROW_KIND_SETTINGS
	w := newWorld(t, automated)
	conn := w.link(w.tenant, w.cluster.ID)
	w.render("c1", "a")
	w.set("one")
	w.set("two")
	a := newAgent(t)
	a.keepsSettings, a.cursor.Settings = true, true
	t.Run("INV-5 a replay brings the newest settings before any state, and once more in their place", func(t *testing.T) {
		b := a.follow(conn).readToBarrier()
		if string(a.ahead.GetBody()) != "two" {
			t.Errorf("ahead came %v", a.ahead)
		}
		want := []linkv1.RowKind{linkv1.RowKind_ROW_KIND_STATE, linkv1.RowKind_ROW_KIND_OPERATION, settings}
		if d := cmp.Diff(want, a.kinds); d != "" {
			t.Errorf("rows (-want +got):\n%s", d)
		}
		a.ack(b.Seq, a.root())
		w.eventually("the receipt", func() bool { r := w.receipt(); return r != nil && r.Seq == int64(b.Seq) })
	})
	t.Run("a change reaches an agent that follows", func(t *testing.T) {
		w.set("three")
		b := a.readToBarrier()
		if a.kinds[len(a.kinds)-1] != settings {
			t.Errorf("rows %v", a.kinds)
		}
		a.ack(b.Seq, a.root())
		w.eventually("the receipt", func() bool { r := w.receipt(); return r != nil && r.Seq == int64(b.Seq) })
	})
	t.Run("INV-14 an agent that does not know the row is not asked for it", func(t *testing.T) {
		old := newAgent(t)
		b := old.follow(conn).readToBarrier() // compares the roots
		if !slices.Contains(old.kinds, settings) {
			t.Error("the row was hidden: nobody would hear that it is not supported")
		}
		old.ack(b.Seq, old.root())
		w.eventually("the receipt", func() bool { r := w.receipt(); return r != nil && string(r.Root) == string(old.root()) })
		t.Run("and gets the settings once it has learned to keep them", func(t *testing.T) {
			old.keepsSettings, old.cursor.Settings = true, true
			down, err := old.follow(conn).stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			barrier := down.GetBarrier()
			if barrier == nil {
				t.Fatalf("%v", down)
			}
			old.ack(barrier.Seq, old.root()) // without settings: its root differs
			if down, err = old.stream.Recv(); err != nil {
				t.Fatal(err)
			}
			reset := down.GetBatch()
			if !reset.GetReset_() || string(reset.GetSettings().GetBody()) != "three" {
				t.Errorf("the replay begins with %v", down)
			}
			old.batch(reset)
			old.readToBarrier()
		})
	})
}
