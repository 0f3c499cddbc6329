package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestApplications(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
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
				if changed := must[bool](t)(tx.Fetched(ctx, r.ID, c.refs, now(), c.failure, false)); changed != c.changed {
					t.Errorf("refs %v: changed %v, want %v", c.refs, changed, c.changed)
				}
			}
			return nil
		})
		if n := refreshes(); n != 1 {
			t.Errorf("%d refreshes after a ref moved, want 1", n)
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			same := []hub.Ref{{Name: "HEAD", Commit: "1"}, {Name: "refs/heads/main", Commit: "1"}}
			if must[bool](t)(tx.Fetched(ctx, hub.RepositoryID(fetches[0].Key), same, now(), "", true)) {
				t.Error("equal refs are a change because somebody waits")
			}
			return nil
		})
		if n := refreshes(); n != 1 {
			t.Errorf("%d refreshes after a look that somebody waited for, want 1", n)
		}
		fetched := func(failure string, refs ...hub.Ref) (changed bool) {
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				changed = must[bool](t)(tx.Fetched(ctx, hub.RepositoryID(fetches[0].Key), refs, now(), failure, false))
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
			shown   int // applications in the feed before they were refreshed
		}{
			{"the same refs", "", []hub.Ref{{Name: "HEAD", Commit: "1"}, {Name: "refs/heads/main", Commit: "1"}}, false, 0, 0},
			{"an error", "the host is away", nil, false, 1, 1},
			{"the same error", "the host is away", nil, false, 0, 0},
			{"well again", "", []hub.Ref{{Name: "HEAD", Commit: "1"}, {Name: "refs/heads/main", Commit: "1"}}, false, 1, 1},
			{"a branch that is gone", "", []hub.Ref{{Name: "HEAD", Commit: "1"}}, true, 1, 0},
			{"a branch that moved", "", []hub.Ref{{Name: "HEAD", Commit: "2"}}, true, 1, 0},
		}
		// What is stored, and not what the feed returns: that waits for other
		// transactions.
		super, before := storetest.Connect(t, urls.Superuser), 0
		shown := func() int {
			var all int
			check(t, super.QueryRow(t.Context(), `SELECT count(*) FROM change WHERE tenant_id = $1 AND kind = 'application'`, tenant).Scan(&all))
			n := all - before
			before = all
			return n
		}
		shown()
		for _, s := range steps {
			if changed := fetched(s.failure, s.refs...); changed != s.want {
				t.Errorf("%s: changed %v, want %v", s.what, changed, s.want)
			}
			if n := refreshes(); n != s.apps {
				t.Errorf("%s: %d applications refreshed, want %d", s.what, n, s.apps)
			}
			if n := shown(); n != s.shown {
				t.Errorf("%s: %d applications in the feed, want %d", s.what, n, s.shown)
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
			a := newApp("new-"+strings.ReplaceAll(what, " ", "-"), url, cluster.ID)
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
	t.Run("a cluster with an invalid id", func(t *testing.T) {
		t.Parallel()
		err := db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Applications(ctx, hub.ApplicationFilter{All: true, Clusters: []hub.ClusterID{"x"}})
			return err
		})
		wantKind(t, err, fault.Invalid, "a cluster with an invalid id")
	})
}
