package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// A cached value is returned only if reading it again would return the same.
func TestLockIfUnchanged(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "acme")
	var app hub.Application
	var op hub.Operation
	in := func(fn func(context.Context, *store.Tenant) error) { storetest.In(t, db, w.tenant, fn) }
	in(func(ctx context.Context, tx *store.Tenant) error {
		app = must[hub.Application](t)(tx.CreateApplication(ctx, newApp("seen", w.repository.URL, w.cluster.ID)))
		op = newOperation(app, "")
		return tx.PutOperations(ctx, []hub.Operation{op})
	})
	const asSeen = "as it was seen" // marks what was not read again
	see := func() *hub.ReadVersion {
		var got []hub.Refresh
		check(t, db.ReadTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
			got, err = tx.Refreshes(ctx, []hub.ApplicationID{app.ID}, 1)
			return err
		}))
		s := &hub.ReadVersion{Application: got[0].Application, Version: got[0].Version}
		s.Application.Name = asSeen
		return s
	}
	lock := func(ctx context.Context, tx *store.Tenant, s *hub.ReadVersion) hub.Application {
		got := must[map[hub.ApplicationID]hub.Application](t)(tx.LockIfUnchanged(ctx, []hub.ApplicationID{app.ID, hub.NewID[hub.ApplicationID]()}, map[hub.ApplicationID]*hub.ReadVersion{app.ID: s}))
		if len(got) != 1 {
			t.Fatalf("%d applications are there", len(got))
		}
		return got[app.ID]
	}
	rolledBack := errors.New("rolled back")
	cases := []struct {
		name   string
		change func(ctx context.Context, tx *store.Tenant) error
		same   bool
	}{
		{"nothing has changed", func(context.Context, *store.Tenant) error { return nil }, true},
		{"a change was rolled back", func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.MarkDeleting(ctx, app.ID, true))
			return rolledBack
		}, true},
		{"its labels have changed", func(ctx context.Context, tx *store.Tenant) error {
			a := must[hub.Application](t)(tx.ApplicationByID(ctx, app.ID))
			a.Labels = map[string]string{"tier": "web"}
			_, err := tx.UpdateApplication(ctx, a, 0)
			return err
		}, false},
		{"it was looked at", func(ctx context.Context, tx *store.Tenant) error {
			return tx.Unchanged(ctx, []hub.Unchanged{{Application: app.ID, Revision: "c0ffee", RefreshedAt: now()}})
		}, false},
		{"its operation has ended", func(ctx context.Context, tx *store.Tenant) error {
			return tx.EndOperation(ctx, op.ID, hub.Failed, "it is over")
		}, false},
		{"it has another operation", func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutOperations(ctx, []hub.Operation{newOperation(app, "")})
		}, false},
		{"another application renders it", func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutRenderedBy(ctx, hub.RenderedBy{Object: string(app.ID), Kind: "Application", Parent: w.app.ID, Applied: []byte(`{}`)})
		}, false},
		{"it has a condition", func(ctx context.Context, tx *store.Tenant) error {
			return tx.SetCondition(ctx, app.ID, hub.SyncError, "no")
		}, false},
		{"it has the same condition still", func(context.Context, *store.Tenant) error { return nil }, false},
		{"its condition is gone", func(ctx context.Context, tx *store.Tenant) error {
			return tx.SetCondition(ctx, app.ID, hub.SyncError, "")
		}, false},
		{"its repository fails", func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Fetched(ctx, w.repository.ID, nil, now(), "no answer", false)
			return err
		}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			seen := see()
			if err := inTenant(t, db, w.tenant, c.change); err != nil && !errors.Is(err, rolledBack) {
				t.Fatal(err)
			}
			in(func(ctx context.Context, tx *store.Tenant) error {
				got := lock(ctx, tx, seen)
				if (got.Name == asSeen) != c.same {
					t.Errorf("it was read again: %t", got.Name != asSeen)
				}
				got.Name = app.Name
				if diff := cmp.Diff(must[hub.Application](t)(tx.ApplicationByID(ctx, app.ID)), got); diff != "" {
					t.Errorf("it is another one (-read +given):\n%s", diff)
				}
				return nil
			})
		})
	}
	in(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.Fetched(ctx, w.repository.ID, []hub.Ref{{Name: "refs/heads/main", Commit: "c0ffee"}}, now(), "", false)
		return err
	})
	t.Run("the transaction itself has changed it", func(t *testing.T) {
		seen := see()
		in(func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.MarkDeleting(ctx, app.ID, true))
			if got := lock(ctx, tx, seen); got.Name == asSeen || got.DeletingAt == nil {
				t.Errorf("given: %+v", got)
			}
			return nil
		})
	})
	t.Run("another server assigns the same numbers to other transactions", func(t *testing.T) {
		seen := see()
		seen.Version.Server++
		in(func(ctx context.Context, tx *store.Tenant) error {
			if got := lock(ctx, tx, seen); got.Name == asSeen {
				t.Error("it was not read again")
			}
			return nil
		})
	})
	t.Run("nothing was seen", func(t *testing.T) {
		in(func(ctx context.Context, tx *store.Tenant) error {
			if got := lock(ctx, tx, nil); got.Name != app.Name {
				t.Errorf("given: %+v", got)
			}
			if got := lock(ctx, tx, &hub.ReadVersion{}); got.Name != app.Name {
				t.Errorf("given: %+v", got)
			}
			return nil
		})
	})
}

func TestPlatformsTogether(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "acme")
	served := map[string][]string{"none": {}, "few": {"v1"}, "few-too": {"v1"}, "many": {"v1", "apps/v1"}, "many-too": {"v1", "apps/v1"}, "one-name": {"v1,apps/v1"}}
	want := map[string][]string{}
	var apps []hub.ApplicationID
	for name, apis := range served {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			cluster := must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: name}, Server: "https://" + name}))
			app := must[hub.Application](t)(tx.CreateApplication(ctx, newApp("to-"+name, w.repository.URL, cluster.ID)))
			want[app.Name], apps = apis, append(apps, app.ID)
			return nil
		})
	}
	super := storetest.Connect(t, urls.Superuser)
	for name, apis := range served {
		_, err := super.Exec(t.Context(), `UPDATE cluster SET kube_version = 'v1.35.4', api_versions = $2 WHERE name = $1`, name, apis)
		check(t, err)
	}
	check(t, db.ReadTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		got := map[string][]string{}
		for _, r := range must[[]hub.Refresh](t)(tx.Refreshes(ctx, apps, 1)) {
			if r.Cluster == nil || r.Cluster.KubeVersion != "v1.35.4" || r.Cluster.ID != r.Application.Cluster {
				t.Errorf("application %s: cluster %+v", r.Application.Name, r.Cluster)
				continue
			}
			got[r.Application.Name] = r.Cluster.APIVersions
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("APIs (-want +got):\n%s", diff)
		}
		return nil
	}))
}
