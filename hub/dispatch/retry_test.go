package dispatch_test

import (
	"context"
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// tryAgain makes the next attempt of an operation due, and runs the dispatcher
// until it is there.
func (w *world) tryAgain(of hub.Operation) hub.Operation {
	w.T.Helper()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		return tx.Enqueue(ctx, dispatch.WorkRetry, string(of.ID), w.App.CreatedAt, false)
	})
	ctx, cancel := context.WithTimeout(w.T.Context(), dispatchtest.Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Dispatcher.Run(ctx) }()
	var next hub.Operation
	for next.ID == "" {
		if ctx.Err() != nil {
			w.T.Fatal("the operation is not tried again")
		}
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			open, err := tx.OpenOperations(ctx, []hub.ApplicationID{w.App.ID})
			if op := open[w.App.ID]; op.ID != of.ID {
				next = op
			}
			return err
		})
	}
	cancel()
	<-done
	w.Reload()
	return next
}

// names are the objects of a reference.
func names(ref *linkv1.SnapshotRef) (out []string) {
	for _, o := range ref.GetObjects() {
		out = append(out, o.GetName())
	}
	slices.Sort(out)
	return out
}

const (
	retrySlowly  = `,"retry":{"limit":3,"backoff":{"duration":"4s"}}`
	retryRefresh = `,"retry":{"limit":3,"refresh":true,"backoff":{"duration":"4s"}}`
)

func withPolicy(policy string) string {
	return `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod"},"syncPolicy":{` + policy + `}}`
}

func TestRetryOfAPersonsSync(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, policy string) (*world, hub.Operation) {
		w := newWorld(t, withPolicy(policy))
		w.Render("r0", "a", "kept")
		if _, err := w.sync(hub.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
		w.End(hub.Succeeded, "")
		w.Render("r1", "a", "kept", "b")
		op, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Prune: true}})
		if err != nil {
			t.Fatal(err)
		}
		w.End(hub.Failed, "one object failed")
		w.Render("r2", "a", "c") // meanwhile, and nobody asked for it
		return w, op
	}
	t.Run("SYNC-28 without refresh a retry applies what the person synced, and prunes nothing that only a newer revision drops", func(t *testing.T) {
		t.Parallel()
		w, op := begin(t, retrySlowly[1:])
		next := w.tryAgain(op)
		if next.Snapshot != op.Snapshot || next.Revision != "r1" || next.Attempt != 1 || next.Initiator != jane {
			t.Errorf("next attempt %+v", next)
		}
		s := w.State()
		if s.GetAccepted().GetId() != string(op.Snapshot) || s.GetAccepted().GetRevision() != "r1" || w.App.Status.Accepted != op.Snapshot {
			t.Errorf("accepted %s at %s: nobody synced it", s.GetAccepted().GetId(), s.GetAccepted().GetRevision())
		}
		if s.GetTarget().GetRevision() != "r2" || w.App.Status.Revision != "r2" {
			t.Errorf("target %v, revision %s: the application is compared with the newest all the same", s.GetTarget(), w.App.Status.Revision)
		}
		for _, tombstone := range s.GetTombstones() {
			if tombstone.GetName() == "kept" || tombstone.GetName() == "b" {
				t.Errorf("%s is to be deleted, which r1 has", tombstone.GetName())
			}
		}
		if got := names(w.order().GetSnapshot()); !slices.Equal(got, []string{"a", "b", "kept"}) {
			t.Errorf("the order applies %v", got)
		}
		w.End(hub.Succeeded, "")
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			h, err := tx.HistoryEntry(ctx, w.App.ID, 2)
			if h.Revision != "r1" || h.Snapshot != op.Snapshot || !slices.Equal(h.Revisions, []string{"r1"}) || h.Initiator != jane {
				t.Errorf("history %+v", h)
			}
			return err
		})
	})
	t.Run("SYNC-28 with refresh a retry applies the newest", func(t *testing.T) {
		t.Parallel()
		w, op := begin(t, retryRefresh[1:])
		next := w.tryAgain(op)
		if next.Snapshot != w.App.Status.Target || next.Revision != "r2" || w.State().GetAccepted().GetRevision() != "r2" {
			t.Errorf("next attempt %+v, accepted %v", next, w.State().GetAccepted())
		}
		var doomed []string
		for _, tombstone := range w.State().GetTombstones() {
			doomed = append(doomed, tombstone.GetName())
		}
		slices.Sort(doomed)
		if !slices.Equal(doomed, []string{"b", "kept"}) {
			t.Errorf("to be deleted: %v", doomed)
		}
	})
	t.Run("INV-3 with refresh a retry does not use a newest revision that renders nothing", func(t *testing.T) {
		t.Parallel()
		w, op := begin(t, retryRefresh[1:])
		w.Render("r3")
		if next := w.tryAgain(op); next.Snapshot != op.Snapshot || w.State().GetAccepted().GetRevision() != "r1" {
			t.Errorf("next attempt %+v, accepted %v", next, w.State().GetAccepted())
		}
	})
	t.Run("SYNC-28 the retry of a part leaves what is enforced as it was", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, withPolicy(retrySlowly[1:]))
		w.Render("r1", "a", "b")
		op, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: []string{":ConfigMap:a"}}})
		if err != nil {
			t.Fatal(err)
		}
		w.End(hub.Failed, "one object failed")
		w.Render("r2", "a", "b")
		if next := w.tryAgain(op); next.Snapshot != op.Snapshot || w.App.Status.Accepted != "" {
			t.Errorf("next attempt %+v, accepted %q", next, w.App.Status.Accepted)
		}
	})
}

func TestRetryOfAutomation(t *testing.T) {
	t.Parallel()
	// A revision that renders nothing is held, so the failed one is tried again.
	begin := func(t *testing.T, policy string) (*world, hub.Operation) {
		w := newWorld(t, withPolicy(`"automated":{"prune":true}`+policy))
		w.Render("r1", "a")
		op := w.End(hub.Failed, "one object failed")
		return w, op
	}
	t.Run("SYNC-28 without refresh automation tries its own snapshot again, not a newer one that is held", func(t *testing.T) {
		t.Parallel()
		w, op := begin(t, retrySlowly)
		w.Render("r2")
		next := w.tryAgain(op)
		if next.Snapshot != op.Snapshot || !next.Initiator.Automated || w.App.Status.Accepted != op.Snapshot || w.App.Status.Hold == "" {
			t.Errorf("next attempt %+v, accepted %q, hold %q", next, w.App.Status.Accepted, w.App.Status.Hold)
		}
	})
	t.Run("SYNC-28 with refresh it does not use one that is held either", func(t *testing.T) {
		t.Parallel()
		w, op := begin(t, retryRefresh)
		w.Render("r2")
		if next := w.tryAgain(op); next.Snapshot != op.Snapshot || w.App.Status.Accepted != op.Snapshot {
			t.Errorf("next attempt %+v, accepted %q", next, w.App.Status.Accepted)
		}
	})
	for name, policy := range map[string]string{"with refresh": retryRefresh, "without refresh": retrySlowly} {
		t.Run("SYNC-28 AUTO-02 "+name+" a newer revision replaces the attempts of the older one", func(t *testing.T) {
			t.Parallel()
			w, op := begin(t, policy)
			w.Render("r2", "a", "b")
			next := w.newest()
			if next.ID == op.ID || next.Revision != "r2" || next.Attempt != 0 || w.App.Status.Accepted != next.Snapshot {
				t.Errorf("operation %+v", next)
			}
			w.End(hub.Succeeded, "")
			w.retryNow(op.ID)
			if got := w.newest(); got.ID != next.ID {
				t.Errorf("operation %+v came after it", got)
			}
		})
	}
}

// retryNow has a retry looked at that is due later, and waits for it.
func (w *world) retryNow(op hub.OperationID) {
	w.T.Helper()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		return tx.Enqueue(ctx, dispatch.WorkRetry, string(op), w.App.CreatedAt, false)
	})
	w.Drain(dispatch.WorkRetry)
}
