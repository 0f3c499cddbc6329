package dispatch_test

import (
	"context"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

// verified is a render whose commits were verified as a project demands.
func (w *world) verified(by hub.Integrity, revision string, names ...string) {
	w.T.Helper()
	r := w.RenderedOf(w.App.ID, revision, names...)
	spec, err := hub.DecodeSpec(w.Reload().Spec)
	if err != nil {
		w.T.Fatal(err)
	}
	r.Snapshot.Commit.Integrity = by.Digest(spec.EffectiveSources())
	w.Submit(r)
}

func (w *world) demand(g hub.Integrity) {
	w.T.Helper()
	w.project(func(spec map[string]any) {
		delete(spec, "signatureKeys")
		if len(g.SignatureKeys) > 0 {
			spec["signatureKeys"] = g.SignatureKeys
		}
	})
}

func TestSignaturesAreDemanded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	first, unsigned := w.Reload().Status.Accepted, w.last().ID
	keys := hub.Integrity{SignatureKeys: []hub.SignatureKey{{KeyID: "4AEE18F83AFDEB23"}}}
	w.demand(keys)
	t.Run("PROJ-15 what was rendered before the demand, and not verified, is not deployed after", func(t *testing.T) {
		w.Render("r2", "a", "b")
		if got := w.Reload().Status; got.Accepted != first || got.Target != first {
			t.Errorf("accepted %s, target %s, want %s", got.Accepted, got.Target, first)
		}
		if _, err := w.sync(hub.SyncRequest{}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a sync: %v", err)
		}
	})
	t.Run("PROJ-15 what was verified is deployed", func(t *testing.T) {
		w.verified(keys, "r3", "a", "c")
		if got := w.Reload().Status; got.Accepted == first {
			t.Error("nothing new is accepted")
		}
		w.End(hub.Succeeded, "")
		if _, err := w.sync(hub.SyncRequest{}); err != nil {
			t.Errorf("a sync: %v", err)
		}
		w.End(hub.Succeeded, "")
	})
	t.Run("PROJ-15 nobody rolls back to what was not verified", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Rollback(ctx, storeports.Dispatch(tx), w.App.ID, unsigned, "", hub.OperationOptions{}, jane)
			if fault.KindOf(err) != fault.Conflict {
				t.Errorf("the rollback: %v", err)
			}
			return nil
		})
	})
	t.Run("PROJ-16 what was verified under other keys is not deployed", func(t *testing.T) {
		accepted := w.Reload().Status.Accepted
		w.demand(hub.Integrity{SignatureKeys: []hub.SignatureKey{{KeyID: "D56C4FCA57A46444"}}})
		w.verified(keys, "r4", "d")
		if got := w.Reload().Status.Accepted; got != accepted {
			t.Error("it is accepted")
		}
	})
}
