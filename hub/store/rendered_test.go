package store_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestRenderedBy(t *testing.T) {
	t.Parallel()
	db := storetest.OpenURLs(t, storetest.Database(t).Config())
	a, b := build(t, db, "alpha", "canary-alpha"), build(t, db, "beta", "canary-beta")
	in := func(w *world, do func(ctx context.Context, tx *store.Tenant) error) error {
		return db.InTenant(t.Context(), w.tenant, do)
	}
	applied := json.RawMessage(`{"spec": 1}`)
	check(t, in(a, func(ctx context.Context, tx *store.Tenant) error {
		child := newApp("child", "https://git.test/x", "")
		made, err := tx.CreateApplication(ctx, child)
		check(t, err)
		check(t, tx.PutRenderedBy(ctx, hub.RenderedBy{Object: string(made.ID), Kind: "Application", Parent: a.app.ID, Applied: applied}))
		check(t, tx.PutRenderedBy(ctx, hub.RenderedBy{Object: string(made.ID), Kind: "Application", Parent: a.app.ID, Applied: applied}))
		return nil
	}))
	t.Run("APP-31 a child names its parent, until the parent is deleted", func(t *testing.T) {
		check(t, in(a, func(ctx context.Context, tx *store.Tenant) error {
			found, err := tx.ApplicationsNamed(ctx, []hub.ApplicationKey{{Namespace: "argocd", Name: "child"}, {Namespace: "argocd", Name: "none"}})
			check(t, err)
			if len(found) != 1 || found[0].Parent == nil || found[0].Parent.Name != a.app.Name {
				t.Fatalf("%+v", found)
			}
			held, err := tx.RenderedBy(ctx, []string{string(found[0].ID), "none"})
			check(t, err)
			if r := held[string(found[0].ID)]; r.Parent != a.app.ID || r.Kind != "Application" || string(r.Applied) != string(applied) {
				t.Errorf("%+v", held)
			}
			check(t, tx.RemoveApplication(ctx, a.app.ID))
			again, err := tx.Application(ctx, "argocd", "child")
			check(t, err)
			if again.Parent != nil {
				t.Errorf("%+v", again.Parent)
			}
			return nil
		}))
	})
	t.Run("ISO-1 APP-31 no application becomes the parent of another tenant's object", func(t *testing.T) {
		for _, r := range []hub.RenderedBy{
			{Object: string(b.app.ID), Kind: "Application", Parent: b.app.ID, Applied: applied},
			{Object: "none", Kind: "AppProject", Parent: b.app.ID, Applied: applied},
		} {
			err := in(a, func(ctx context.Context, tx *store.Tenant) error { return tx.PutRenderedBy(ctx, r) })
			if kind := fault.KindOf(err); kind != fault.Conflict && kind != fault.Missing {
				t.Errorf("%v", err)
			}
		}
		check(t, in(a, func(ctx context.Context, tx *store.Tenant) error {
			held, err := tx.RenderedBy(ctx, []string{string(b.app.ID)})
			if len(held) > 0 {
				t.Errorf("%+v", held)
			}
			return err
		}))
	})
}
