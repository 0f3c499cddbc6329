package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// inTenant runs fn and gives its error.
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

func TestTenants(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	ctx, s := t.Context(), db.System()
	id := storetest.Tenant(t, db, "acme")
	t.Run("a tenant starts with a project that allows everything", func(t *testing.T) {
		storetest.In(t, db, id, func(ctx context.Context, tx *store.Tenant) error {
			p := must[hub.Project](t)(tx.Project(ctx, "default"))
			spec := must[hub.ProjectSpec](t)(hub.DecodeProject(p.Spec))
			if !slices.Equal(spec.SourceRepos, []string{"*"}) || len(spec.Destinations) != 1 || len(spec.ClusterResourceWhitelist) != 1 {
				t.Errorf("project %s", p.Spec)
			}
			return nil
		})
	})
	t.Run("names are unique and checked", func(t *testing.T) {
		wantKind(t, s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: "acme"}), fault.Conflict, "a second acme")
		for _, name := range []string{"", "Acme", "-a", "a-", "a b", "a.b", "ä", "x' OR true --", string(make([]byte, 64))} {
			wantKind(t, s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: name}), fault.Invalid, fmt.Sprintf("name %q", name))
		}
		wantKind(t, s.CreateTenant(ctx, hub.Tenant{ID: "x", Name: "fine"}), fault.Invalid, "no id")
		if all := must[[]hub.Tenant](t)(s.Tenants(ctx)); len(all) != 1 || all[0].ID != id {
			t.Errorf("tenants %+v", all)
		}
	})
	t.Run("an unknown tenant is said so", func(t *testing.T) {
		_, err := s.TenantByName(ctx, "nobody")
		wantKind(t, err, fault.Missing, "by name")
		for _, unknown := range []hub.TenantID{"", "x", hub.NewID[hub.TenantID]()} {
			_, err = s.Tenant(ctx, unknown)
			wantKind(t, err, fault.Missing, "by id")
			_, err = db.Keys(ctx, unknown)
			wantKind(t, err, fault.Missing, "keys")
			wantKind(t, s.SetSuspended(ctx, unknown, true), fault.Missing, "suspend")
			wantKind(t, inTenant(t, db, unknown, func(context.Context, *store.Tenant) error { return nil }), fault.Missing, "InTenant")
		}
	})
	t.Run("of many who create one name, one does", func(t *testing.T) {
		var wg sync.WaitGroup
		errs := make(chan error, 8)
		for range 8 {
			wg.Go(func() { errs <- s.CreateTenant(ctx, hub.Tenant{ID: hub.NewID[hub.TenantID](), Name: "race"}) })
		}
		wg.Wait()
		close(errs)
		made := 0
		for err := range errs {
			if err == nil {
				made++
			} else {
				wantKind(t, err, fault.Conflict, "race")
			}
		}
		if made != 1 {
			t.Errorf("%d tenants were made", made)
		}
	})
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
					_, err := tx.Fetched(ctx, hub.RepositoryID(id), nil, now(), "")
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
					return tx.AppendHistory(ctx, hub.HistoryEntry{Application: hub.ApplicationID(id)})
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

func TestApplications(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	var cluster hub.Cluster
	var app hub.Application
	const url = "https://git.test/team/repo"
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		cluster = must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "prod"}}))
		a := newApp("shop", url+".git", cluster.ID)
		a.Spec = []byte(`{"destination":{}, "source":{"repoURL":"https://GIT.test/team/repo.git"},"unknown":[1, 2.50]}`)
		a.Labels, a.Finalizers = map[string]string{"team": "a"}, []string{"resources-finalizer.argocd.argoproj.io"}
		app = must[hub.Application](t)(tx.CreateApplication(ctx, a))
		if string(app.Spec) != string(a.Spec) || app.Generation != 1 || app.Version != 1 || app.Status.Sync != hub.SyncUnknown || app.Cluster != cluster.ID {
			t.Errorf("application %+v, spec %s", app, app.Spec)
		}
		return nil
	})
	refreshes := func() int {
		t.Helper()
		items := must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkRefresh, "r", 100, time.Minute))
		check(t, db.System().Done(t.Context(), items))
		return len(items)
	}
	t.Run("its repository is known and fetched, and it is refreshed", func(t *testing.T) {
		fetches := must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkFetch, "r", 10, time.Minute))
		if len(fetches) != 1 || refreshes() != 1 {
			t.Fatalf("fetches %v", fetches)
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, url))
			if r.Registered || string(r.ID) != fetches[0].Key {
				t.Errorf("repository %+v", r)
			}
			for _, c := range []struct {
				refs    []hub.Ref
				failure string
				changed bool
				apps    int
			}{
				{[]hub.Ref{{Name: "HEAD", Commit: "1"}, {Name: "refs/heads/main", Commit: "1"}}, "", true, 1},
				{[]hub.Ref{{Name: "HEAD", Commit: "1"}, {Name: "refs/heads/main", Commit: "1"}}, "", false, 0},
			} {
				if changed := must[bool](t)(tx.Fetched(ctx, r.ID, c.refs, now(), c.failure)); changed != c.changed {
					t.Errorf("refs %v: changed %v, want %v", c.refs, changed, c.changed)
				}
			}
			return nil
		})
		if n := refreshes(); n != 1 {
			t.Errorf("%d refreshes after a ref moved, want 1", n)
		}
		fetched := func(failure string, refs ...hub.Ref) (changed bool) {
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				changed = must[bool](t)(tx.Fetched(ctx, hub.RepositoryID(fetches[0].Key), refs, now(), failure))
				return nil
			})
			return changed
		}
		steps := []struct {
			what    string
			failure string
			refs    []hub.Ref
			want    bool
			apps    int
		}{
			{"the same refs", "", []hub.Ref{{Name: "HEAD", Commit: "1"}, {Name: "refs/heads/main", Commit: "1"}}, false, 0},
			{"an error", "the host is away", nil, false, 1},
			{"the same error", "the host is away", nil, false, 0},
			{"well again", "", []hub.Ref{{Name: "HEAD", Commit: "1"}, {Name: "refs/heads/main", Commit: "1"}}, false, 1},
			{"a branch that is gone", "", []hub.Ref{{Name: "HEAD", Commit: "1"}}, true, 1},
			{"a branch that moved", "", []hub.Ref{{Name: "HEAD", Commit: "2"}}, true, 1},
		}
		for _, s := range steps {
			if changed := fetched(s.failure, s.refs...); changed != s.want {
				t.Errorf("%s: changed %v, want %v", s.what, changed, s.want)
			}
			if n := refreshes(); n != s.apps {
				t.Errorf("%s: %d applications refreshed, want %d", s.what, n, s.apps)
			}
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			got := must[[]hub.Ref](t)(tx.Refs(ctx, hub.RepositoryID(fetches[0].Key)))
			if diff := cmp.Diff([]hub.Ref{{Name: "HEAD", Commit: "2"}}, got); diff != "" {
				t.Errorf("refs: %s", diff)
			}
			return nil
		})
	})
	t.Run("INV-8 a change of spec raises the generation, one of labels does not", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			app.Labels = map[string]string{"team": "b"}
			got := must[hub.Application](t)(tx.UpdateApplication(ctx, app, 1))
			if got.Generation != 1 || got.Version != 2 || got.Labels["team"] != "b" {
				t.Errorf("after labels: generation %d, version %d", got.Generation, got.Version)
			}
			app.Spec = []byte(`{"destination":{},"sources":[{"repoURL":"https://git.test/team/repo"},{"repoURL":"https://git.test/second"}]}`)
			got = must[hub.Application](t)(tx.UpdateApplication(ctx, app, 2))
			if got.Generation != 2 || got.Version != 3 {
				t.Errorf("after spec: generation %d, version %d", got.Generation, got.Version)
			}
			if all := must[[]hub.Repository](t)(tx.Repositories(ctx)); len(all) != 2 {
				t.Errorf("repositories %+v", all)
			}
			app.Spec = []byte(`{"destination":{},"source":{"repoURL":"https://git.test/team/repo"}}`)
			app = must[hub.Application](t)(tx.UpdateApplication(ctx, app, 0))
			if all := must[[]hub.Repository](t)(tx.Repositories(ctx)); len(all) != 1 {
				t.Errorf("INV-9 repositories that nobody uses stay: %+v", all)
			}
			return nil
		})
		wantKind(t, inTenant(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.UpdateApplication(ctx, app, 1)
			return err
		}), fault.Conflict, "an old version")
	})
	t.Run("bad applications", func(t *testing.T) {
		for what, c := range map[string]struct {
			change func(*hub.Application)
			want   fault.Kind
		}{
			"the same name":     {func(a *hub.Application) { a.Name = "shop" }, fault.Conflict},
			"no name":           {func(a *hub.Application) { a.Name = "" }, fault.Invalid},
			"no JSON":           {func(a *hub.Application) { a.Spec = []byte("{") }, fault.Invalid},
			"another shape":     {func(a *hub.Application) { a.Spec = []byte(`{"source":"x"}`) }, fault.Invalid},
			"a broken URL":      {func(a *hub.Application) { a.Spec = spec("http://[::1") }, fault.Invalid},
			"no such cluster":   {func(a *hub.Application) { a.Cluster = hub.NewID[hub.ClusterID]() }, fault.Invalid},
			"no such project":   {func(a *hub.Application) { a.Project = "later" }, ""},
			"no cluster":        {func(a *hub.Application) { a.Name, a.Cluster = "homeless", "" }, ""},
			"another namespace": {func(a *hub.Application) { a.Name, a.Namespace = "shop", "team" }, ""},
		} {
			a := newApp("new", url, cluster.ID)
			c.change(&a)
			err := inTenant(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.CreateApplication(ctx, a)
				return err
			})
			wantKind(t, err, c.want, what)
		}
	})
	t.Run("a refresh loads all that decides", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			s := newSnapshot(app)
			check(t, tx.PutSnapshots(ctx, []hub.Snapshot{s}))
			got := must[[]hub.Refresh](t)(tx.Refreshes(ctx, []hub.ApplicationID{app.ID, hub.NewID[hub.ApplicationID](), "x"}, 3))
			if len(got) != 1 {
				t.Fatalf("%d refreshes", len(got))
			}
			r := got[0]
			if r.Application.ID != app.ID || r.Project == nil || r.Cluster == nil || len(r.Sources) != 1 || len(r.Sources[0].Refs) != 1 ||
				r.Sources[0].Repository.URL != url || len(r.Recent) != 1 || r.Recent[0].ID != s.ID || len(r.Recent[0].Inputs) != 1 {
				t.Errorf("refresh %+v", r)
			}
			return nil
		})
	})
	t.Run("INV-3 removal is explicit and leaves nothing behind", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.MarkDeleting(ctx, app.ID, true))
			a := must[hub.Application](t)(tx.ApplicationByID(ctx, app.ID))
			if a.DeletingAt == nil || !a.Cascade || a.Generation != 4 {
				t.Errorf("marked: %+v", a)
			}
			check(t, tx.MarkDeleting(ctx, app.ID, false))
			if b := must[hub.Application](t)(tx.ApplicationByID(ctx, app.ID)); !b.DeletingAt.Equal(*a.DeletingAt) || b.Cascade {
				t.Errorf("marked again: %+v", b)
			}
			check(t, tx.RemoveApplication(ctx, app.ID))
			_, err := tx.Application(ctx, "argocd", "shop")
			wantKind(t, err, fault.Missing, "after its removal")
			return nil
		})
	})
}

func TestApplicationLists(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	var prod, stage hub.Cluster
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		prod = must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "prod"}}))
		stage = must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "stage"}}))
		for _, a := range []struct {
			name, namespace, project string
			cluster                  hub.ClusterID
			labels                   map[string]string
		}{
			{"api", "argocd", "red", prod.ID, map[string]string{"tier": "back", "team": "x"}},
			{"api", "team", "blue", stage.ID, map[string]string{"tier": "back"}},
			{"Web_1%", "argocd", "red", prod.ID, map[string]string{"tier": "front"}},
			{"worker", "argocd", "green", "", nil},
		} {
			app := newApp(a.name, "https://git.test/r", a.cluster)
			app.Namespace, app.Project, app.Labels = a.namespace, a.project, a.labels
			must[hub.Application](t)(tx.CreateApplication(ctx, app))
		}
		return nil
	})
	all := hub.ApplicationFilter{All: true}
	with := func(change func(*hub.ApplicationFilter)) hub.ApplicationFilter { f := all; change(&f); return f }
	label := func(key string, not bool, values ...string) hub.ApplicationFilter {
		return with(func(f *hub.ApplicationFilter) { f.Labels = []hub.LabelTerm{{Key: key, Values: values, Not: not}} })
	}
	cases := map[string]struct {
		filter hub.ApplicationFilter
		want   []string
	}{
		"everything":          {all, []string{"argocd/Web_1%", "argocd/api", "team/api", "argocd/worker"}},
		"nothing allowed":     {hub.ApplicationFilter{}, nil},
		"allowed projects":    {hub.ApplicationFilter{Allowed: []string{"red", "none"}}, []string{"argocd/Web_1%", "argocd/api"}},
		"asked and allowed":   {hub.ApplicationFilter{Allowed: []string{"red"}, Projects: []string{"blue"}}, nil},
		"project":             {with(func(f *hub.ApplicationFilter) { f.Projects = []string{"blue", "green"} }), []string{"team/api", "argocd/worker"}},
		"namespace":           {with(func(f *hub.ApplicationFilter) { f.Namespaces = []string{"team"} }), []string{"team/api"}},
		"cluster":             {with(func(f *hub.ApplicationFilter) { f.Clusters = []hub.ClusterID{stage.ID} }), []string{"team/api"}},
		"sync":                {with(func(f *hub.ApplicationFilter) { f.Sync = []hub.SyncStatus{hub.Synced} }), nil},
		"health":              {with(func(f *hub.ApplicationFilter) { f.Health = []hub.HealthStatus{hub.HealthUnknown}; f.Query = "work" }), []string{"argocd/worker"}},
		"part of the name":    {with(func(f *hub.ApplicationFilter) { f.Query = "B_1" }), []string{"argocd/Web_1%"}},
		"wild cards are text": {with(func(f *hub.ApplicationFilter) { f.Query = "a%i" }), nil},
		"label":               {label("tier", false, "back"), []string{"argocd/api", "team/api"}},
		"label of several":    {label("tier", false, "front", "back"), []string{"argocd/Web_1%", "argocd/api", "team/api"}},
		"label not":           {label("tier", true, "back"), []string{"argocd/Web_1%", "argocd/worker"}},
		"label is there":      {label("team", false), []string{"argocd/api"}},
		"label is not there":  {label("tier", true), []string{"argocd/worker"}},
		"labels together": {with(func(f *hub.ApplicationFilter) {
			f.Labels = []hub.LabelTerm{{Key: "tier", Values: []string{"back"}}, {Key: "team", Not: true}}
		}), []string{"team/api"}},
		"after": {with(func(f *hub.ApplicationFilter) { f.After = hub.ApplicationKey{Namespace: "argocd", Name: "api"} }), []string{"team/api", "argocd/worker"}},
		"limit": {with(func(f *hub.ApplicationFilter) { f.Limit = 1 }), []string{"argocd/Web_1%"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			var total int
			check(t, db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
				for _, a := range must[[]hub.Application](t)(tx.Applications(ctx, c.filter)) {
					got = append(got, a.Namespace+"/"+a.Name)
				}
				for _, n := range must[[]store.StatusCount](t)(tx.CountApplications(ctx, c.filter)) {
					total += n.Count
				}
				return nil
			}))
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if c.filter.Limit == 0 && c.filter.After.Name == "" && total != len(c.want) {
				t.Errorf("counted %d, want %d", total, len(c.want))
			}
		})
	}
	t.Run("a cluster that is no id", func(t *testing.T) {
		t.Parallel()
		err := db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Applications(ctx, hub.ApplicationFilter{All: true, Clusters: []hub.ClusterID{"x"}})
			return err
		})
		wantKind(t, err, fault.Invalid, "a cluster that is no id")
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	tenant := storetest.Tenant(t, db, "acme")
	credential := func(url string) (c hub.Credential) {
		t.Helper()
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, url))
			c = must[hub.Credential](t)(tx.Credential(ctx, r.ID))
			return nil
		})
		return c
	}
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for _, url := range []string{"https://h.test/org/own", "https://h.test/org/none", "https://h.test/org/team/deep", "https://h.test/organisation/x", "https://other.test/x"} {
			var c *hub.Credential
			if url == "https://h.test/org/own" {
				c = &hub.Credential{Username: "me", Password: "canary-own"}
			}
			r := must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url, Registered: true}, c))
			if r.HasCredential != (c != nil) {
				t.Errorf("%s: has a credential %v", url, r.HasCredential)
			}
		}
		must[hub.RepositoryTemplate](t)(tx.PutRepositoryTemplate(ctx, hub.RepositoryTemplate{URL: "https://h.test/org"}, &hub.Credential{Username: "org", Password: "canary-org"}))
		must[hub.RepositoryTemplate](t)(tx.PutRepositoryTemplate(ctx, hub.RepositoryTemplate{URL: "https://h.test/org/team/"}, &hub.Credential{Password: "canary-team"}))
		return nil
	})
	for url, want := range map[string]string{
		"https://h.test/org/own": "canary-own", "https://h.test/org/none": "canary-org", "https://h.test/org/team/deep": "canary-team",
		"https://h.test/organisation/x": "", "https://other.test/x": "",
	} {
		if got := credential(url); got.Password != want {
			t.Errorf("the credential of %s is the wrong one", url)
		}
	}
	t.Run("a credential stays through a change and goes when it is emptied", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://h.test/org/own"))
			r.Name = "named"
			r = must[hub.Repository](t)(tx.PutRepository(ctx, r, nil))
			if !r.HasCredential || r.Name != "named" || r.Version != 2 {
				t.Errorf("repository %+v", r)
			}
			return nil
		})
		if got := credential("https://h.test/org/own"); got.Username != "me" || got.Password != "canary-own" {
			t.Error("the credential changed")
		}
	})
	super := storetest.Connect(t, urls.Superuser)
	t.Run("SEC-C no table holds it in the clear", func(t *testing.T) {
		for _, table := range tenantTables(t, super) {
			if n := ask[int](t, super, `SELECT count(*) FROM `+table+` x WHERE x::text LIKE '%canary-%' OR x::text LIKE '%'||encode('canary-own', 'hex')||'%'`); n != 0 {
				t.Errorf("%s holds it %d times", table, n)
			}
		}
	})
	t.Run("SEC-C a ciphertext is worth nothing in another row", func(t *testing.T) {
		_, err := super.Exec(t.Context(), `UPDATE repository SET credential = (SELECT credential FROM repository WHERE url LIKE '%own') WHERE url LIKE '%none'`)
		check(t, err)
		err = inTenant(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://h.test/org/none"))
			_, err := tx.Credential(ctx, r.ID)
			return err
		})
		if err == nil {
			t.Error("it opened")
		}
	})
	t.Run("a repository in use is only unregistered", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[hub.Application](t)(tx.CreateApplication(ctx, newApp("uses", "https://h.test/org/own", "")))
			own := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://h.test/org/own"))
			check(t, tx.DeleteRepository(ctx, own.ID))
			own = must[hub.Repository](t)(tx.Repository(ctx, own.ID))
			if own.Registered || own.HasCredential {
				t.Errorf("repository %+v", own)
			}
			free := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://other.test/x"))
			check(t, tx.DeleteRepository(ctx, free.ID))
			_, err := tx.Repository(ctx, free.ID)
			wantKind(t, err, fault.Missing, "after its deletion")
			templates := must[[]hub.RepositoryTemplate](t)(tx.RepositoryTemplates(ctx))
			if len(templates) != 2 {
				t.Errorf("templates %+v", templates)
			}
			check(t, tx.DeleteRepositoryTemplate(ctx, templates[0].ID))
			wantKind(t, tx.DeleteRepositoryTemplate(ctx, templates[0].ID), fault.Missing, "twice")
			return nil
		})
	})
	t.Run("FT another master key opens nothing and says so", func(t *testing.T) {
		other := storetest.OpenURLs(t, urls.Config())
		_, err := other.Keys(t.Context(), tenant)
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v, want Missing: the key file lacks the key", err)
		}
	})
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	t.Run("FT-D4 a deadlock is tried again", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			for _, name := range []string{"a", "b"} {
				must[hub.Project](t)(tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: name}}))
			}
			return nil
		})
		var met sync.WaitGroup
		met.Add(2)
		var once [2]sync.Once
		var wg sync.WaitGroup
		for i, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			wg.Go(func() {
				err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
					for n, name := range order {
						if _, err := tx.UpdateProject(ctx, hub.Project{Meta: hub.Meta{Name: name}, Spec: []byte(fmt.Sprintf(`{"i":%d}`, i))}, 0); err != nil {
							return err
						}
						if n == 0 {
							once[i].Do(func() { met.Done(); met.Wait() })
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			if p := must[hub.Project](t)(tx.Project(ctx, "a")); p.Version != 3 {
				t.Errorf("version %d, want one for each writer", p.Version)
			}
			return nil
		})
	})
	t.Run("a reading transaction cannot write", func(t *testing.T) {
		err := db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "x"}})
			return err
		})
		if err == nil {
			t.Error("it did")
		}
	})
	t.Run("a context that ended is said as it is", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := db.InTenant(ctx, tenant, func(context.Context, *store.Tenant) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
	})
}
