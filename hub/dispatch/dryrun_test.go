package dispatch_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
)

// A desire is all that a dry run must leave as it is.
type desire struct {
	App        hub.Application
	States     [][]byte // rows of the log that say what is desired
	History    []hub.HistoryEntry
	Tombstones []hub.Tombstone
}

func (w *world) desired() desire {
	w.T.Helper()
	d := desire{App: w.Reload()}
	d.App.Status.Operation = nil
	for _, r := range w.Rows() {
		if r.Kind != hub.RowOperation {
			d.States = append(d.States, r.Body)
		}
	}
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		if d.History, err = tx.History(ctx, w.App.ID); err != nil {
			return err
		}
		tombstones, err := tx.Tombstones(ctx, []hub.ApplicationID{w.App.ID})
		d.Tombstones = tombstones[w.App.ID]
		return err
	})
	return d
}

// same fails if anything but the operations differs.
func (w *world) same(t *testing.T, before desire) {
	t.Helper()
	if diff := cmp.Diff(before, w.desired()); diff != "" {
		t.Errorf("the dry run changed what is desired (-before +after):\n%s", diff)
	}
}

func (w *world) dry(t *testing.T, req hub.SyncRequest) hub.Operation {
	t.Helper()
	req.Options.DryRun, req.Options.Prune = true, true
	op, err := w.sync(req)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"a manual application": manual, "an automated application": automated} {
		// A world that was rolled back: there is a pause that could be lost.
		begin := func(t *testing.T) *world {
			w := newWorld(t, spec)
			w.Render("r1", "a", "b")
			if spec == manual {
				if _, err := w.sync(hub.SyncRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			w.End(hub.Succeeded, "")
			w.Render("r2", "a")
			if spec == manual {
				if _, err := w.sync(hub.SyncRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			w.End(hub.Succeeded, "")
			return w
		}
		t.Run("SYNC-04 ROLL-03 of "+name+" that is paused after a rollback", func(t *testing.T) {
			t.Parallel()
			w := begin(t)
			w.rollback(1)
			w.End(hub.Succeeded, "")
			before := w.desired()
			if before.App.Pin == nil || before.App.Status.Hold == "" {
				t.Fatal("it is not paused")
			}
			op := w.dry(t, hub.SyncRequest{})
			if o := w.order(); o.GetId() != string(op.ID) || !o.GetOptions().GetDryRun() || !slices.Equal(names(o.GetSnapshot()), []string{"a"}) || o.GetFence() < w.State().GetGeneration() {
				t.Errorf("order %v: it is to try out what Git says", o)
			}
			w.same(t, before)
			w.End(hub.Succeeded, "")
			w.same(t, before)
		})
		t.Run("SYNC-04 of "+name+" with another revision and another source", func(t *testing.T) {
			t.Parallel()
			w := begin(t)
			before := w.desired()
			op := w.dry(t, hub.SyncRequest{Override: &hub.Override{Revision: "v9"}})
			w.rendered(op.ID, "c9", object("z"))
			if o := w.order(); o.GetId() != string(op.ID) || !slices.Equal(names(o.GetSnapshot()), []string{"z"}) {
				t.Errorf("order %v", o)
			}
			w.same(t, before)
			w.End(hub.Failed, "an object would be refused")
			w.same(t, before)
			if w.newest().RetryAt != nil {
				t.Error("a dry run is tried again")
			}
		})
		t.Run("ROLL-01 of "+name+", of a rollback", func(t *testing.T) {
			t.Parallel()
			w := begin(t)
			before := w.desired()
			w.In(func(ctx context.Context, tx *store.Tenant) error {
				_, err := dispatch.Rollback(ctx, storeports.Dispatch(tx), w.App.ID, 1, "to see", hub.OperationOptions{DryRun: true}, jane)
				return err
			})
			if o := w.order(); !o.GetOptions().GetDryRun() || !slices.Equal(names(o.GetSnapshot()), []string{"a", "b"}) {
				t.Errorf("order %v", o)
			}
			w.End(hub.Succeeded, "")
			w.same(t, before)
		})
	}
}

func TestDryRunAlongsideOtherOperations(t *testing.T) {
	t.Parallel()
	t.Run("SYNC-04 SYNC-28 a dry run between two attempts neither ends nor delays for good the attempts of a sync", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, withPolicy(retrySlowly[1:]))
		w.Render("r1", "a")
		op, err := w.sync(hub.SyncRequest{})
		if err != nil {
			t.Fatal(err)
		}
		w.End(hub.Failed, "one object failed")
		dry := w.dry(t, hub.SyncRequest{})
		w.retryNow(op.ID)
		if got := w.newest(); got.ID != dry.ID {
			t.Fatalf("operation %+v began beside the dry run", got)
		}
		w.End(hub.Succeeded, "")
		if next := w.tryAgain(op); next.Attempt != 1 || next.Snapshot != op.Snapshot {
			t.Errorf("next attempt %+v", next)
		}
	})
	t.Run("SYNC-04 AUTO-04 a successful dry run does not reset that automation stopped", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, withPolicy(`"automated":{},"retry":{"limit":0}`))
		w.Render("r1", "a")
		w.End(hub.Failed, "one object failed")
		if c := w.Reload().Status.Conditions; len(c) != 1 || c[0].Type != hub.SyncError {
			t.Fatalf("conditions %v", c)
		}
		before := w.desired()
		w.dry(t, hub.SyncRequest{})
		w.End(hub.Succeeded, "")
		w.same(t, before)
	})
	t.Run("SYNC-04 AUTO-01 automation does not wait for a dry run", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.Render("r1", "a")
		w.End(hub.Succeeded, "")
		dry := w.dry(t, hub.SyncRequest{})
		w.Render("r2", "a", "b")
		if op := w.newest(); op.ID == dry.ID || op.Revision != "r2" || w.App.Status.Accepted != op.Snapshot {
			t.Errorf("operation %+v, hold %q", op, w.App.Status.Hold)
		}
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			op, err := tx.Operation(ctx, dry.ID)
			if op.Phase != hub.Failed {
				t.Errorf("the dry run is %s", op.Phase)
			}
			return err
		})
	})
}
