package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// fetchedRepos makes repositories of a tenant that have been fetched once.
func fetchedRepos(t *testing.T, db *store.DB, tenant hub.TenantID, names ...string) map[string]hub.RepositoryID {
	t.Helper()
	out := map[string]hub.RepositoryID{}
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for _, name := range names {
			r := must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: "https://git.test/" + name, Registered: true}, nil))
			must[bool](t)(tx.Fetched(ctx, r.ID, refsOf(name), now(), "", false))
			out[name] = r.ID
		}
		return nil
	})
	return out
}

func refsOf(name string) []hub.Ref {
	return []hub.Ref{{Name: "refs/heads/main", Commit: strings.Repeat("ab", 20)}, {Name: "refs/heads/" + name, Commit: strings.Repeat("cd", 20)}}
}

func claimFetches(t *testing.T, db *store.DB, owner string) map[hub.RepositoryID]hub.WorkItem {
	t.Helper()
	out := map[hub.RepositoryID]hub.WorkItem{}
	for _, item := range must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkFetch, owner, 100, time.Minute)) {
		out[hub.RepositoryID(item.Key)] = item
	}
	return out
}

func TestDueRepositories(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	acme, globex := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "globex")
	repos := fetchedRepos(t, db, acme, "a", "b")
	theirs := fetchedRepos(t, db, globex, "a")["a"]
	storetest.In(t, db, acme, func(ctx context.Context, tx *store.Tenant) error {
		check(t, tx.LockSettings(ctx))
		return tx.ChangeSettings(ctx, []hub.Setting{{Map: hub.SettingsMap, Key: "one", Value: "1", UpdatedAt: now(), UpdatedBy: "ada"}}, nil)
	})
	want := []hub.RepositoryID{repos["a"], repos["b"], theirs, hub.NewID[hub.RepositoryID](), "../../etc"}
	load := func(t *testing.T) map[hub.RepositoryID]hub.DueRepository {
		t.Helper()
		due, settings, err := db.DueRepositories(t.Context(), acme, want, []string{"one", "two"})
		if check(t, err); !cmp.Equal(settings, map[string]string{"one": "1"}) {
			t.Errorf("settings %v", settings)
		}
		return due
	}
	t.Run("they are as they are singly", func(t *testing.T) {
		due := load(t)
		for name, id := range repos {
			var one hub.Repository
			storetest.In(t, db, acme, func(ctx context.Context, tx *store.Tenant) error {
				one = must[hub.Repository](t)(tx.Repository(ctx, id))
				return nil
			})
			if diff := cmp.Diff(one, due[id].Repository); diff != "" {
				t.Error(diff)
			}
			if due[id].Refs != hub.RefsDigest(refsOf(name)) {
				t.Errorf("%s has another digest of its refs", name)
			}
		}
	})
	t.Run("ISO-1 ISO-4 those of other tenants are not among them, with row security or without", func(t *testing.T) {
		if due := load(t); len(due) != 2 {
			t.Errorf("%d repositories", len(due))
		}
		super := storetest.Connect(t, urls.Superuser)
		for _, table := range []string{"repository", "repository_template", "ref", "application", "app_source", "setting"} {
			_, err := super.Exec(t.Context(), `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`)
			check(t, err)
		}
		if due := load(t); len(due) != 2 {
			t.Errorf("%d repositories without row security", len(due))
		}
	})
	t.Run("a credential that does not open is an error of its repository only", func(t *testing.T) {
		super := storetest.Connect(t, urls.Superuser)
		_, err := super.Exec(t.Context(), `UPDATE repository SET credential = 'x' WHERE id = $1`, repos["a"])
		check(t, err)
		if due := load(t); due[repos["a"]].Err == nil || due[repos["b"]].Err != nil {
			t.Errorf("errors %v and %v", due[repos["a"]].Err, due[repos["b"]].Err)
		}
	})
}

// What decides whom a fetch trusts is read in one round trip.
func TestTrustOfFetches(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	acme, globex := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "globex")
	storetest.In(t, db, acme, func(ctx context.Context, tx *store.Tenant) error {
		check(t, tx.PutHostKeys(ctx, []hub.HostKey{{Host: "git.test", Type: "ssh-ed25519", Key: "key"}}))
		check(t, tx.LockSettings(ctx))
		return tx.ChangeSettings(ctx, []hub.Setting{{Map: hub.CertificatesMap, Key: "git.test", Value: "pem", UpdatedAt: now(), UpdatedBy: "ada"}}, nil)
	})
	super := storetest.Connect(t, urls.Superuser)
	for _, off := range []bool{false, true} {
		if off {
			_, err := super.Exec(t.Context(), `ALTER TABLE setting DISABLE ROW LEVEL SECURITY; ALTER TABLE host_key DISABLE ROW LEVEL SECURITY`)
			check(t, err)
		}
		t.Run(fmt.Sprint("ISO-1 ISO-4 a tenant trusts what it has stored, and nobody else does, row security off ", off), func(t *testing.T) {
			for tenant, n := range map[hub.TenantID]int{acme: 1, globex: 0} {
				keys := must[[]hub.HostKey](t)(db.HostKeys(t.Context(), tenant))
				values := must[map[string]string](t)(db.SettingValues(t.Context(), tenant, hub.CertificatesMap, []string{"git.test", "other.test"}))
				if len(keys) != n || len(values) != n {
					t.Errorf("%d keys, settings %v, want %d", len(keys), values, n)
				}
			}
			if _, err := db.HostKeys(t.Context(), "no id"); fault.KindOf(err) != fault.Missing {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestRefsDigest(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	repo := fetchedRepos(t, db, tenant, "a")["a"]
	for i, refs := range [][]hub.Ref{
		{{Name: "refs/heads/ä", Commit: "1"}, {Name: "refs/heads/Z", Commit: "2"}, {Name: "refs/heads/a", Commit: "3"}, {Name: "HEAD", Commit: "3"}},
		{{Name: "b", Commit: "1"}, {Name: "a", Commit: "2"}, {Name: "b", Commit: "3"}},
		{{Name: "a", Commit: "1"}},
		{{Name: "a", Commit: "11:b1:2"}},
		{{Name: "a", Commit: "1"}, {Name: "b", Commit: "2"}},
	} {
		t.Run(fmt.Sprint("the digest of stored refs is that of the listed ones: ", i), func(t *testing.T) {
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				must[bool](t)(tx.Fetched(ctx, repo, refs, now(), "", false))
				return nil
			})
			due, _, err := db.DueRepositories(t.Context(), tenant, []hub.RepositoryID{repo}, nil)
			if check(t, err); due[repo].Refs != hub.RefsDigest(refs) {
				t.Error("it differs")
			}
			if due[repo].Refs == hub.RefsDigest(append(refs, hub.Ref{Name: "c", Commit: "1"})) {
				t.Error("another list has the same")
			}
		})
	}
}

// quietFetches are claimed repositories whose fetches found nothing new.
type quietFetches struct {
	*store.DB

	super  *pgx.Conn
	tenant hub.TenantID
	repos  map[string]hub.RepositoryID
	all    []store.QuietFetch
	next   time.Time
}

func newQuietFetches(t *testing.T, names ...string) *quietFetches {
	t.Helper()
	urls := storetest.Database(t)
	q := &quietFetches{DB: storetest.OpenURLs(t, urls.Config()), super: storetest.Connect(t, urls.Superuser), next: now().Add(time.Hour)}
	q.tenant = storetest.Tenant(t, q.DB, "acme")
	q.repos = fetchedRepos(t, q.DB, q.tenant, names...)
	items := claimFetches(t, q.DB, "replica")
	for _, name := range names {
		q.all = append(q.all, store.QuietFetch{Repository: q.repos[name], Token: items[q.repos[name]].Token, Next: q.next})
	}
	return q
}

// finish returns the names of what was recorded, and checks that it, and no
// other, was fetched and is due at the next time.
func (q *quietFetches) finish(t *testing.T, want ...string) (again bool) {
	t.Helper()
	at := now().Add(time.Second)
	done, again, err := q.FinishQuiet(t.Context(), q.tenant, q.all, at)
	check(t, err)
	for name, id := range q.repos {
		recorded := slices.Contains(want, name)
		fetched := queryOne[time.Time](t, q.super, `SELECT fetched_at FROM repository WHERE id = $1`, id).Equal(at)
		free := queryOne[bool](t, q.super, `SELECT token IS NULL AND due = ready AND attempts = 0 AND due <= $2 FROM work.item WHERE kind = 'fetch' AND key = $1`, id, q.next)
		if done[id] != recorded || fetched != recorded || free != recorded {
			t.Errorf("%s: reported %v, fetched %v, released %v, want all %v", name, done[id], fetched, free, recorded)
		}
	}
	return again
}

func TestFinishQuiet(t *testing.T) {
	t.Parallel()
	t.Run("all leave the queue, and are due again at their times", func(t *testing.T) {
		t.Parallel()
		q := newQuietFetches(t, "a", "b", "c")
		if q.finish(t, "a", "b", "c") {
			t.Error("one is due already")
		}
		if got := claimFetches(t, q.DB, "replica"); len(got) != 0 {
			t.Errorf("%d are due", len(got))
		}
	})
	t.Run("INV-2 one whose lease was lost is left to the replica that has it", func(t *testing.T) {
		t.Parallel()
		q := newQuietFetches(t, "a", "b", "c")
		_, err := q.super.Exec(t.Context(), `UPDATE work.item SET ready = now() WHERE kind = 'fetch' AND key = $1`, q.repos["b"])
		check(t, err)
		theirs := claimFetches(t, q.DB, "another")[q.repos["b"]]
		q.finish(t, "a", "c")
		if n := must[int](t)(q.System().Renew(t.Context(), []hub.WorkItem{theirs}, time.Minute)); n != 1 {
			t.Error("the other replica has lost its lease")
		}
	})
	t.Run("INV-1 one that was enqueued meanwhile is due then, and forced", func(t *testing.T) {
		t.Parallel()
		q := newQuietFetches(t, "a", "b")
		storetest.In(t, q.DB, q.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.FetchFor(ctx, q.repos["b"]) })
		if !q.finish(t, "a", "b") {
			t.Error("nothing is due already")
		}
		got := claimFetches(t, q.DB, "replica")
		if item := got[q.repos["b"]]; len(got) != 1 || !item.Forced {
			t.Errorf("claimed %+v", got)
		}
	})
	t.Run("one with an error, or with an application that asks for a refresh, is left out", func(t *testing.T) {
		t.Parallel()
		q := newQuietFetches(t, "a", "b", "c")
		storetest.In(t, q.DB, q.tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[bool](t)(tx.Fetched(ctx, q.repos["b"], nil, now(), "it does not answer", false))
			app := newApp("asks", "https://git.test/c", "")
			app.Annotations = map[string]string{hub.RefreshAnnotations()[0]: "normal"}
			must[hub.Application](t)(tx.CreateApplication(ctx, app))
			return nil
		})
		q.finish(t, "a")
	})
	t.Run("one that somebody is changing does not hold up the others", func(t *testing.T) {
		t.Parallel()
		q := newQuietFetches(t, "a", "b", "c")
		tx, err := q.super.Begin(t.Context())
		check(t, err)
		_, err = tx.Exec(t.Context(), `UPDATE repository SET name = 'x' WHERE id = $1`, q.repos["b"])
		check(t, err)
		done, _, err := q.FinishQuiet(t.Context(), q.tenant, q.all, now())
		if check(t, err); len(done) != 2 || done[q.repos["b"]] {
			t.Errorf("recorded %v", done)
		}
		check(t, tx.Rollback(t.Context()))
	})
	t.Run("ISO-1 ISO-4 those of other tenants stay as they are, with row security or without", func(t *testing.T) {
		t.Parallel()
		q := newQuietFetches(t, "a")
		other := storetest.Tenant(t, q.DB, "globex")
		for _, off := range []bool{false, true} {
			if off {
				_, err := q.super.Exec(t.Context(), `ALTER TABLE repository DISABLE ROW LEVEL SECURITY`)
				check(t, err)
			}
			done, _, err := q.FinishQuiet(t.Context(), other, q.all, now())
			if check(t, err); len(done) != 0 {
				t.Errorf("recorded %v for another tenant", done)
			}
		}
		q.finish(t, "a")
	})
	t.Run("what is no id is refused", func(t *testing.T) {
		t.Parallel()
		q := newQuietFetches(t, "a")
		if _, _, err := q.FinishQuiet(t.Context(), q.tenant, []store.QuietFetch{{Repository: "../x"}}, now()); fault.KindOf(err) != fault.Internal {
			t.Errorf("error %v", err)
		}
	})
}
