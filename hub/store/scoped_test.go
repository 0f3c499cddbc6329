package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

const scopedURL = "https://git.example.com/team/app"

// A scope is a tenant with applications of several projects that name one URL.
type scope struct {
	t      *testing.T
	db     *store.DB
	tenant hub.TenantID
	apps   map[string]hub.ApplicationID // by project
}

func newScope(t *testing.T, db *store.DB, projects ...string) *scope {
	t.Helper()
	s := &scope{t, db, storetest.Tenant(t, db, "acme"), map[string]hub.ApplicationID{}}
	for _, p := range projects {
		s.create(p)
	}
	return s
}

func (s *scope) create(project string) {
	s.t.Helper()
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		a := newApp("of-"+project, scopedURL, "")
		a.Project = project
		s.apps[project] = must[hub.Application](s.t)(tx.CreateApplication(ctx, a)).ID
		return nil
	})
}

func (s *scope) in(do func(ctx context.Context, tx *store.Tenant) error) {
	s.t.Helper()
	storetest.In(s.t, s.db, s.tenant, do)
}

// put registers the repository of a project with a password.
func (s *scope) put(project, password string) (r hub.Repository) {
	s.t.Helper()
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		r = must[hub.Repository](s.t)(tx.PutRepository(ctx, hub.Repository{URL: scopedURL, Project: project, Registered: true}, &hub.Credential{Username: "u", Password: password}))
		return nil
	})
	return r
}

// opens returns the password with which the application of a project is fetched.
func (s *scope) opens(project string) (password string) {
	s.t.Helper()
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		r := s.source(ctx, tx, project)
		password = must[hub.Credential](s.t)(tx.Credential(ctx, r.ID)).Password
		if found := must[hub.Repository](s.t)(tx.RepositoryFor(ctx, scopedURL, project)); found.ID != r.ID || r.URL != scopedURL {
			s.t.Errorf("the application of %s uses %q of project %q, RepositoryFor gives that of %q", project, r.URL, r.Project, found.Project)
		}
		return nil
	})
	return password
}

func (s *scope) source(ctx context.Context, tx *store.Tenant, project string) hub.Repository {
	return must[[]hub.Refresh](s.t)(tx.Refreshes(ctx, []hub.ApplicationID{s.apps[project]}, 1))[0].Sources[0].Repository
}

// due returns what is to be done of a kind, which is done then.
func (s *scope) due(kind string) (keys []string) {
	s.t.Helper()
	items := must[[]hub.WorkItem](s.t)(s.db.System().Claim(s.t.Context(), kind, "me", 100, time.Minute))
	for _, w := range items {
		keys = append(keys, w.Key)
	}
	check(s.t, s.db.System().Done(s.t.Context(), items))
	slices.Sort(keys)
	return keys
}

func (s *scope) repositories() (out []hub.Repository) {
	s.t.Helper()
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		out = must[[]hub.Repository](s.t)(tx.Repositories(ctx))
		return nil
	})
	return out
}

func TestRepositoriesOfProjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, storetest.Open(t), "p", "q", "default")
	want := func(t *testing.T, passwords map[string]string) {
		t.Helper()
		for project, password := range passwords {
			if got := s.opens(project); got != password {
				t.Errorf("the application of %s is fetched with %q, want %q", project, got, password)
			}
		}
	}
	t.Run("CRED-15 a project's repository serves its applications, and no other", func(t *testing.T) {
		s.due(hub.WorkRefresh)
		s.put("p", "canary-p")
		want(t, map[string]string{"p": "canary-p", "q": "", "default": ""})
		if got := s.due(hub.WorkRefresh); !slices.Equal(got, []string{string(s.apps["p"])}) {
			t.Errorf("refreshed are %q, want the application of p alone", got)
		}
	})
	t.Run("CRED-15 the same URL once per project and once without", func(t *testing.T) {
		s.put("", "canary-all")
		s.put("q", "canary-q")
		want(t, map[string]string{"p": "canary-p", "q": "canary-q", "default": "canary-all"})
		var of []string
		for _, r := range s.repositories() {
			if r.URL != scopedURL || !r.Registered {
				t.Errorf("%+v", r)
			}
			of = append(of, r.Project)
		}
		if !slices.Equal(of, []string{"", "p", "q"}) {
			t.Errorf("there are those of %q", of)
		}
		again := s.put("q", "canary-q2")
		if len(s.repositories()) != 3 || again.Version != 2 {
			t.Errorf("a change made another row: %+v", again)
		}
		want(t, map[string]string{"p": "canary-p", "q": "canary-q2", "default": "canary-all"})
	})
	t.Run("CRED-15 an application that comes later, and one that moves to another project", func(t *testing.T) {
		s.create("late")
		want(t, map[string]string{"late": "canary-all"})
		s.put("late", "canary-late")
		s.in(func(ctx context.Context, tx *store.Tenant) error {
			a := must[[]hub.Refresh](t)(tx.Refreshes(ctx, []hub.ApplicationID{s.apps["late"]}, 1))[0].Application
			a.Project = "p"
			must[hub.Application](t)(tx.UpdateApplication(ctx, a, 0))
			if r := s.source(ctx, tx, "late"); r.Project != "p" {
				t.Errorf("it uses the repository of %q", r.Project)
			}
			a.Project = "late"
			must[hub.Application](t)(tx.UpdateApplication(ctx, a, 0))
			return nil
		})
		want(t, map[string]string{"late": "canary-late"})
	})
	t.Run("CRED-15 a repository of one project is not fetched without its credential", func(t *testing.T) {
		const url = "https://git.example.com/team/private"
		s.in(func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url, Project: "p", Registered: true}, &hub.Credential{Password: "x"}))
			a := newApp("private", url, "")
			a.Project = "p"
			must[hub.Application](t)(tx.CreateApplication(ctx, a))
			if _, err := tx.RepositoryByURL(ctx, url); fault.KindOf(err) != fault.Missing {
				t.Errorf("there is one without a project: %v", err)
			}
			page := must[hub.Repository](t)(tx.RepositoryFor(ctx, url, "p"))
			if page.ID != r.ID {
				t.Errorf("it uses %+v", page)
			}
			return nil
		})
	})
	t.Run("CRED-15 after its deletion the one without a project serves again", func(t *testing.T) {
		s.due(hub.WorkFetch)
		s.in(func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.DeleteRepository(ctx, must[hub.Repository](t)(tx.RepositoryFor(ctx, scopedURL, "p")).ID))
			check(t, tx.DeleteRepository(ctx, must[hub.Repository](t)(tx.RepositoryFor(ctx, "https://git.example.com/team/private", "p")).ID))
			return nil
		})
		want(t, map[string]string{"p": "canary-all", "q": "canary-q2"})
		s.in(func(ctx context.Context, tx *store.Tenant) error {
			left := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://git.example.com/team/private"))
			if left.Registered || left.HasCredential || left.Project != "" {
				t.Errorf("what is left has the project's settings: %+v", left)
			}
			return nil
		})
		if got := s.due(hub.WorkFetch); len(got) != 1 {
			t.Errorf("fetches of %q, want the new one alone", got)
		}
	})
}

// The schema and the statements of the release before.
func TestRepositoriesOfProjectsBefore(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	s := newScope(t, db, "p", "q")
	r := s.put("", "canary-p")
	super := storetest.Connect(t, urls.Superuser)
	for _, sql := range []string{
		`DROP TRIGGER key ON repository`, `DROP FUNCTION repository_key`, `ALTER TABLE repository DROP COLUMN address`,
		`UPDATE repository SET project = 'p'`, `DELETE FROM goose_db_version WHERE version_id = 56`,
	} {
		if _, err := super.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	s.due(hub.WorkFetch)
	check(t, store.Migrate(t.Context(), urls.Owner, silent()))
	t.Run("CRED-15 an upgrade leaves a project its repository, and takes it from others", func(t *testing.T) {
		if got := s.opens("p"); got != "canary-p" {
			t.Errorf("p has %q", got)
		}
		if got := s.opens("q"); got != "" {
			t.Errorf("q has %q", got)
		}
		if all := s.repositories(); len(all) != 2 || all[1].ID != r.ID || all[1].Project != "p" || all[0].Registered {
			t.Errorf("there are %+v", all)
		}
		if got := s.due(hub.WorkFetch); len(got) != 1 || got[0] == string(r.ID) {
			t.Errorf("fetches of %q, want the new one", got)
		}
	})
	t.Run("CRED-15 HOOKW-04 a push to the URL has all of them fetched", func(t *testing.T) {
		targets := must[[]store.WebhookTarget](t)(db.System().WebhookTargets(t.Context(), []string{repourl.Place(scopedURL)}, nil))
		var found int
		check(t, db.System().FetchTargets(t.Context(), targets, func(hub.TenantID, hub.RepositoryID) { found++ }))
		if found != 2 {
			t.Errorf("%d are fetched, want 2", found)
		}
	})
	t.Run("CRED-15 a replica of the release before writes what this one understands", func(t *testing.T) {
		const url = "https://git.example.com/team/other"
		if _, err := super.Exec(t.Context(), `
			INSERT INTO repository AS r (tenant_id, id, url, type, name, project, username, insecure, registered, created_at)
			VALUES ($1, gen_random_uuid(), $2, 'git', '', 'p', '', false, true, now())
			ON CONFLICT (tenant_id, url) DO UPDATE SET project = excluded.project`, s.tenant, url); err != nil {
			t.Fatal(err)
		}
		s.in(func(ctx context.Context, tx *store.Tenant) error {
			if r := must[hub.Repository](t)(tx.RepositoryFor(ctx, url, "p")); r.Project != "p" || r.URL != url {
				t.Errorf("%+v", r)
			}
			if _, err := tx.RepositoryFor(ctx, url, "q"); fault.KindOf(err) != fault.Missing {
				t.Errorf("q has it: %v", err)
			}
			return nil
		})
	})
}
