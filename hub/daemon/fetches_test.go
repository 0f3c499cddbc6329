package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/batch"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// fetching is a tenant with repositories on real Git servers, each of which was
// fetched once.
type fetching struct {
	t      *testing.T
	db     *store.DB
	tenant hub.TenantID
	work   *fetchWork
	repos  []hub.Repository
}

func newFetching(t *testing.T, db *store.DB, urls ...string) *fetching {
	t.Helper()
	f := &fetching{t: t, db: db, tenant: storetest.Tenant(t, db, "acme"), work: newFetchWork(newQueue(db.System(), "replica"), db, slog.New(slog.DiscardHandler))}
	storetest.In(t, db, f.tenant, func(ctx context.Context, tx *store.Tenant) error {
		f.repos = nil
		for _, url := range urls {
			r, err := tx.PutRepository(ctx, hub.Repository{URL: url, Registered: true}, nil)
			if err != nil {
				return err
			}
			f.repos = append(f.repos, r)
		}
		return nil
	})
	return f
}

// fetched waits until repositories were fetched after a time, or are failing.
func (f *fetching) fetched(after time.Time, which ...int) {
	f.t.Helper()
	for ctx := gittest.Context(f.t); ; {
		n := 0
		for _, i := range which {
			if r := f.repo(i); r.FetchedAt != nil && r.FetchedAt.After(after) || r.Error != "" {
				n++
			}
		}
		if n == len(which) {
			return
		}
		select {
		case <-ctx.Done():
			f.t.Fatalf("%d of %d were fetched", n, len(which))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (f *fetching) repo(i int) (r hub.Repository) {
	f.t.Helper()
	storetest.In(f.t, f.db, f.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
		r, err = tx.Repository(ctx, f.repos[i].ID)
		return err
	})
	return r
}

// again has all repositories fetched again, as if their time had come.
func (f *fetching) again() time.Time {
	f.t.Helper()
	now := time.Now()
	for _, r := range f.repos {
		if err := f.db.System().Enqueue(f.t.Context(), hub.WorkFetch, f.tenant, string(r.ID), now, false); err != nil {
			f.t.Fatal(err)
		}
	}
	f.work.queue.notify(hub.WorkFetch)
	return now
}

// start runs the loop until the test ends, or until stop is called.
func (f *fetching) start() (stop func()) {
	f.t.Helper()
	mirrors := gittest.NewMirrors(f.t, git.Config{Attempts: 1})
	registry, err := source.NewRegistry(map[hub.RepositoryKind]source.Source{hub.GitRepository: mirrors, hub.HelmRepository: mirrors, hub.OCIRepository: mirrors})
	if err != nil {
		f.t.Fatal(err)
	}
	loop := source.NewLoop(source.LoopConfig{Parallel: 16, Interval: time.Hour}, f.work, registry, lifecycle.System{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.work.run(ctx, loop.Run) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("run() = %v", err)
		}
	}
	f.t.Cleanup(stop)
	return stop
}

func served(t *testing.T, n int) (s *gittest.Server, urls []string) {
	t.Helper()
	s = gittest.New(t)
	for i := range n {
		r := s.Repo(fmt.Sprint("app", i))
		r.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
		urls = append(urls, r.Hub().URL)
	}
	return s, urls
}

func TestFetchesTogether(t *testing.T) {
	t.Parallel()
	t.Run("polls that find nothing new cost a few round trips for all of them", func(t *testing.T) {
		t.Parallel()
		const n = 8 // a tenant's share
		urls, meter := storetest.Metered(t, storetest.Database(t))
		db := storetest.OpenURLs(t, urls.Config())
		_, all := served(t, n)
		f := newFetching(t, db, all...)
		stop := f.start()
		which := []int{0, 1, 2, 3, 4, 5, 6, 7}
		f.fetched(time.Time{}, which...)
		f.fetched(f.again(), which...) // statements are prepared
		stop()
		f.again()
		f.work = newFetchWork(f.work.queue, db, slog.New(slog.DiscardHandler))
		ended := make(chan struct{})
		f.work.quiet = batch.New(f.work.finishQuiet).After(func(context.Context) { <-ended })
		refs := map[string][]hub.Ref{}
		for _, r := range f.repos {
			refs[string(r.ID)] = f.refs(r.ID)
		}
		meter.Take()
		items, err := f.work.Claim(t.Context(), func() (int, []hub.TenantID) { return n, nil }, nil)
		if err != nil || len(items) != n {
			t.Fatalf("claimed %d, %v", len(items), err)
		}
		for _, item := range items {
			if _, _, err := f.work.Load(t.Context(), item); err != nil {
				t.Fatal(err)
			}
			if err := f.work.Fetched(t.Context(), item, refs[item.Key], time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if err := poll.Until(gittest.Context(t), func(context.Context) error {
			if joined := f.work.quiet.Waiting(string(f.tenant)); joined != n {
				return fmt.Errorf("%d of %d polls are to be recorded", joined, n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		close(ended)
		f.work.settling.Wait()
		// To claim, to load and to record, each perhaps on a connection where its
		// statements are not prepared.
		if trips := meter.Take().Trips; trips > 6 {
			t.Errorf("%d round trips for %d polls", trips, n)
		}
		if got := drain(t, db); len(got) != 0 {
			t.Errorf("%d are due", len(got))
		}
	})
	t.Run("INV-2 a lease that is lost in the middle of a batch leaves the others recorded", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		f := newFetching(t, db, "https://git.test/a", "https://git.test/b", "https://git.test/c")
		refs := []hub.Ref{{Name: "refs/heads/main", Commit: "89abcdef0123456789abcdef0123456789abcdef"}}
		claim := func() []hub.WorkItem {
			items, err := f.work.Claim(t.Context(), func() (int, []hub.TenantID) { return 8, nil }, nil)
			if err != nil || len(items) != 3 {
				t.Fatalf("claimed %d, %v", len(items), err)
			}
			return items
		}
		end := func(items []hub.WorkItem) {
			for _, item := range items {
				if err := f.work.Fetched(t.Context(), item, refs, time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			f.work.settling.Wait()
		}
		end(claim())
		before := f.again()
		items := claim()
		for _, item := range items {
			if _, _, err := f.work.Load(t.Context(), item); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.System().Later(t.Context(), items[1:2], time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		theirs, err := db.System().Claim(t.Context(), hub.WorkFetch, "another", 8, time.Minute)
		if err != nil || len(theirs) != 1 {
			t.Fatalf("another replica claimed %d, %v", len(theirs), err)
		}
		end(items)
		for i, r := range f.repos {
			if recorded, want := f.repo(i).FetchedAt.After(before), string(r.ID) != items[1].Key; recorded != want {
				t.Errorf("%s: recorded %v, want %v", r.URL, recorded, want)
			}
		}
		if n, err := db.System().Renew(t.Context(), theirs, time.Minute); n != 1 || err != nil {
			t.Errorf("the other replica has %d leases, %v", n, err)
		}
	})
	t.Run("one failing repository is recorded as such, and the others as fetched", func(t *testing.T) {
		t.Parallel()
		_, good := served(t, 3)
		bad, broken := served(t, 1)
		f := newFetching(t, storetest.Open(t), append(good, broken...)...)
		f.start()
		f.fetched(time.Time{}, 0, 1, 2, 3)
		bad.Set("", func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		})
		f.fetched(f.again(), 0, 1, 2, 3)
		for i := range f.repos {
			if failing := f.repo(i).Error != ""; failing != (i == 3) {
				t.Errorf("%d fails: %v", i, failing)
			}
		}
	})
	t.Run("a host that hangs delays nothing of quick ones", func(t *testing.T) {
		t.Parallel()
		_, good := served(t, 3)
		bad, slow := served(t, 1)
		f := newFetching(t, storetest.Open(t), append(good, slow...)...)
		stop := f.start()
		f.fetched(time.Time{}, 0, 1, 2, 3)
		hangs := make(chan struct{}, 10)
		bad.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
			hangs <- struct{}{}
			<-r.Context().Done()
			return true
		})
		now := f.again()
		<-hangs
		f.fetched(now, 0, 1, 2)
		if r := f.repo(3); r.FetchedAt.After(now) || r.Error != "" {
			t.Error("the slow one has ended")
		}
		stop()
		if got := drain(t, f.db); len(got) != 1 || got[0].Key != string(f.repos[3].ID) {
			t.Errorf("%+v are due after an orderly stop, want the one that was not fetched", got)
		}
	})
	t.Run("what a person asked for, and what changed, is stored at once", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		f := newFetching(t, db, "https://git.test/a")
		refs := []hub.Ref{{Name: "refs/heads/main", Commit: "89abcdef0123456789abcdef0123456789abcdef"}}
		for _, forced := range []bool{false, true} {
			items, err := f.work.Claim(t.Context(), func() (int, []hub.TenantID) { return 8, nil }, nil)
			if err != nil || len(items) != 1 || items[0].Forced != forced {
				t.Fatalf("claimed %+v, %v", items, err)
			}
			if _, _, err := f.work.Load(t.Context(), items[0]); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := f.work.Fetched(t.Context(), items[0], refs, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if at := f.repo(0).FetchedAt; at == nil || at.Before(began.Truncate(time.Microsecond)) {
				t.Errorf("forced %v: fetched at %v, want after %v", forced, at, began)
			}
			storetest.In(t, db, f.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.FetchFor(ctx, f.repos[0].ID) })
		}
	})
}

// refs are those that are stored.
func (f *fetching) refs(id hub.RepositoryID) (refs []hub.Ref) {
	f.t.Helper()
	storetest.In(f.t, f.db, f.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
		refs, err = tx.Refs(ctx, id)
		return err
	})
	return refs
}
