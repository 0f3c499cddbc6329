package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// inTenant runs fn and returns its error.
func inTenant(t *testing.T, db *store.DB, id hub.TenantID, fn func(context.Context, *store.Tenant) error) error {
	t.Helper()
	return db.InTenant(t.Context(), id, fn)
}

func wantKind(t *testing.T, err error, want fault.Kind, what string) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("%s: error %v has kind %q, want %q", what, err, got, want)
	}
}

func TestVersionsAndNames(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	run := func(fn func(context.Context, *store.Tenant) error) error { return inTenant(t, db, w.tenant, fn) }

	t.Run("projects", func(t *testing.T) {
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "acme"}})
			return err
		}), fault.Conflict, "a second one of that name")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "broken"}, Spec: []byte(`{"a":`)})
			return err
		}), fault.Invalid, "a broken spec")
		check(t, run(func(ctx context.Context, tx *store.Tenant) error {
			before := tx.PolicyVersion()
			p := must[hub.Project](t)(tx.Project(ctx, "acme"))
			p.Spec = []byte(`{ "description" : "kept as it was given", "unknown": 1e3 }`)
			p.Labels = map[string]string{"a": "b"}
			updated := must[hub.Project](t)(tx.UpdateProject(ctx, p, p.Version))
			again := must[hub.Project](t)(tx.Project(ctx, "acme"))
			if diff := cmp.Diff(string(p.Spec), string(again.Spec)); diff != "" || updated.Version != p.Version+1 || again.Labels["a"] != "b" {
				t.Errorf("version %d, %s", updated.Version, diff)
			}
			if tx.PolicyVersion() <= before {
				t.Error("the policy version did not grow: compiled rights would stay")
			}
			return nil
		}))
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.UpdateProject(ctx, w.project, 1)
			return err
		}), fault.Conflict, "an old version")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.UpdateProject(ctx, hub.Project{Meta: hub.Meta{Name: "none"}}, 1)
			return err
		}), fault.Missing, "an unknown one")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error { return tx.DeleteProject(ctx, "acme") }), fault.Conflict, "in use")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error { return tx.DeleteProject(ctx, "none") }), fault.Missing, "unknown")
	})
	t.Run("clusters", func(t *testing.T) {
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "acme"}})
			return err
		}), fault.Conflict, "a second one of that name")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "two"}, Server: "https://acme"})
			return err
		}), fault.Conflict, "a second one of that alias")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateCluster(ctx, hub.Cluster{})
			return err
		}), fault.Invalid, "no name")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.UpdateCluster(ctx, w.cluster, 17)
			return err
		}), fault.Conflict, "another version")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error { return tx.DeleteCluster(ctx, w.cluster.ID) }), fault.Conflict, "in use")
		check(t, run(func(ctx context.Context, tx *store.Tenant) error {
			c := must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "spare"}}))
			c.Name = "renamed"
			must[hub.Cluster](t)(tx.UpdateCluster(ctx, c, 1))
			check(t, tx.DeleteCluster(ctx, c.ID))
			_, err := tx.Cluster(ctx, "renamed")
			wantKind(t, err, fault.Missing, "after its deletion")
			return nil
		}))
	})
	t.Run("users", func(t *testing.T) {
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateUser(ctx, hub.User{Name: "acme"}, "x")
			return err
		}), fault.Conflict, "a second one of that name")
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateUser(ctx, hub.User{}, "x")
			return err
		}), fault.Invalid, "no name")
		check(t, run(func(ctx context.Context, tx *store.Tenant) error {
			u := w.user
			u.Roles, u.Disabled = []string{hub.RoleTenantAdmin}, true
			check(t, tx.UpdateUser(ctx, u))
			got, hash, err := tx.UserByName(ctx, "acme")
			check(t, err)
			if !got.Disabled || !slices.Equal(got.Roles, u.Roles) || hash != "hash of acme" {
				t.Errorf("user %+v, %q", got, hash)
			}
			return nil
		}))
		_, err := db.System().Session(t.Context(), [32]byte{})
		wantKind(t, err, fault.Missing, "a session of nobody")
	})
	t.Run("unknown ids are missing, not our defect", func(t *testing.T) {
		for _, id := range []string{"", "x", "' OR true --", string(hub.NewID[hub.ApplicationID]())} {
			for what, fn := range map[string]func(context.Context, *store.Tenant) error{
				"user": func(ctx context.Context, tx *store.Tenant) error { _, err := tx.User(ctx, hub.UserID(id)); return err },
				"application": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.ApplicationByID(ctx, hub.ApplicationID(id))
					return err
				},
				"cluster": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.ClusterByID(ctx, hub.ClusterID(id))
					return err
				},
				"repository": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.Repository(ctx, hub.RepositoryID(id))
					return err
				},
				"credential": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.Credential(ctx, hub.RepositoryID(id))
					return err
				},
				"fetch": func(ctx context.Context, tx *store.Tenant) error { return tx.Fetch(ctx, hub.RepositoryID(id)) },
				"fetched": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.Fetched(ctx, hub.RepositoryID(id), nil, now(), "", false)
					return err
				},
				"operation": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.Operation(ctx, hub.OperationID(id))
					return err
				},
				"snapshot": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.Snapshot(ctx, hub.SnapshotID(id))
					return err
				},
				"remove": func(ctx context.Context, tx *store.Tenant) error {
					return tx.RemoveApplication(ctx, hub.ApplicationID(id))
				},
				"mark": func(ctx context.Context, tx *store.Tenant) error {
					return tx.MarkDeleting(ctx, hub.ApplicationID(id), true)
				},
				"history": func(ctx context.Context, tx *store.Tenant) error {
					return tx.AppendHistory(ctx, []hub.HistoryEntry{{Application: hub.ApplicationID(id)}})
				},
				"log": func(ctx context.Context, tx *store.Tenant) error {
					_, _, err := tx.RowsAfter(ctx, hub.ClusterID(id), 0, 1)
					return err
				},
				"enrolment": func(ctx context.Context, tx *store.Tenant) error {
					_, err := tx.CreateEnrolment(ctx, hub.Enrolment{Cluster: hub.ClusterID(id)}, [32]byte{7})
					return err
				},
				"token": func(ctx context.Context, tx *store.Tenant) error {
					return tx.DeleteToken(ctx, hub.UserID(id), hub.TokenID(id))
				},
				"update application": func(ctx context.Context, tx *store.Tenant) error {
					a := newApp("x", "https://git.test/x", "")
					a.ID = hub.ApplicationID(id)
					_, err := tx.UpdateApplication(ctx, a, 0)
					return err
				},
			} {
				wantKind(t, run(fn), fault.Missing, fmt.Sprintf("%s %q", what, id))
			}
		}
	})
	t.Run("characters that cannot be stored are the caller's mistake", func(t *testing.T) {
		wantKind(t, run(func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "a\x00b"}})
			return err
		}), fault.Invalid, "NUL in a name")
	})
}
