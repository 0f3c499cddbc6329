package source_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestMain(m *testing.M) { runtest.Main(m) }

const (
	tenant = gittest.Tenant
	secret = "c4n4ry-s3cret"
)

// fakeWork is a work queue in memory. Every outcome is sent to results.
type fakeWork struct {
	due     chan hub.WorkItem
	behind  []hub.WorkItem // of due, what there was no room for
	results chan outcome

	mu    sync.Mutex
	repos map[string]hub.Repository
	creds map[string]hub.Credential
	fail  error // of the next Claim
}

type outcome struct {
	what     string
	item     hub.WorkItem
	refs     map[string]string
	sentence string
	next     time.Time
}

func newFakeWork() *fakeWork {
	return &fakeWork{due: make(chan hub.WorkItem, 100), results: make(chan outcome, 100), repos: map[string]hub.Repository{}, creds: map[string]hub.Credential{}}
}

func (w *fakeWork) add(t hub.TenantID, repo hub.Repository, cred hub.Credential) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repos[string(repo.ID)], w.creds[string(repo.ID)] = repo, cred
	w.due <- hub.WorkItem{Kind: hub.WorkFetch, Tenant: t, Key: string(repo.ID)}
}

func (w *fakeWork) Claim(ctx context.Context, room func() (int, []hub.TenantID), freed <-chan struct{}) ([]hub.WorkItem, error) {
	w.mu.Lock()
	err := w.fail
	w.fail = nil
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for {
		limit, busy := room()
		var items, behind []hub.WorkItem
		for _, item := range w.behind {
			if len(items) < limit && !slices.Contains(busy, item.Tenant) {
				items = append(items, item)
			} else {
				behind = append(behind, item)
			}
		}
		if w.behind = behind; len(items) > 0 {
			return items, nil
		}
		select {
		case item := <-w.due:
			w.behind = append(w.behind, item)
			for range len(w.due) {
				w.behind = append(w.behind, <-w.due)
			}
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *fakeWork) Load(_ context.Context, item hub.WorkItem) (hub.Repository, hub.Credential, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	repo, ok := w.repos[item.Key]
	if !ok {
		return repo, hub.Credential{}, fault.New(fault.Missing, "no repository %q", item.Key)
	}
	return repo, w.creds[item.Key], nil
}

func (w *fakeWork) Fetched(_ context.Context, item hub.WorkItem, refs []hub.Ref, next time.Time) error {
	w.results <- outcome{"fetched", item, gittest.ByName(refs), "", next}
	return nil
}

func (w *fakeWork) Failed(_ context.Context, item hub.WorkItem, sentence string, next time.Time) error {
	w.results <- outcome{"failed", item, nil, sentence, next}
	return nil
}

func (w *fakeWork) Later(_ context.Context, item hub.WorkItem, due time.Time) error {
	w.results <- outcome{"later", item, nil, "", due}
	return nil
}

func (w *fakeWork) Done(_ context.Context, item hub.WorkItem) error {
	w.results <- outcome{"done", item, nil, "", time.Time{}}
	return nil
}

// registry serves only Git repositories.
func registry(t *testing.T, s source.Source) *source.Registry {
	t.Helper()
	r, err := source.NewRegistry(map[hub.RepositoryKind]source.Source{hub.GitRepository: s, hub.HelmRepository: s, hub.OCIRepository: s})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// startLoop runs a loop until the test ends, or until stop is called.
func startLoop(t *testing.T, cfg source.LoopConfig, w *fakeWork, m source.Source, clock lifecycle.Clock) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	loop := source.NewLoop(cfg, w, registry(t, m), clock, slog.New(slog.DiscardHandler))
	go func() { ended <- loop.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (w *fakeWork) result(t *testing.T) outcome {
	t.Helper()
	select {
	case o := <-w.results:
		return o
	case <-gittest.Context(t).Done():
		t.Fatal("no outcome")
		return outcome{}
	}
}

func TestLoop(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := gittest.New(t)
	origin := s.Repo("app")
	head := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	w, clock := newFakeWork(), runtest.NewClock(now)
	// One worker: an item that comes before the one before it has ended would
	// count as the same.
	startLoop(t, source.LoopConfig{Parallel: 1}, w, gittest.NewMirrors(t, git.Config{}), clock)
	repo := origin.Hub()

	w.add(tenant, repo, hub.Credential{})
	got := w.result(t)
	if wait := got.next.Sub(now); got.what != "fetched" || got.refs["HEAD"] != head || wait < 144*time.Second || wait > 216*time.Second {
		t.Errorf("outcome %+v after %v, want refs and three minutes give or take a fifth", got, got.next.Sub(now))
	}

	s.Set(secret, nil)
	var last time.Duration
	for i := range 12 {
		w.add(tenant, repo, hub.Credential{Username: "bob", Password: "wr0ng"})
		got := w.result(t)
		if got.what != "failed" || !strings.Contains(got.sentence, "does not accept the credentials") || strings.Contains(got.sentence, "wr0ng") || got.refs != nil {
			t.Fatalf("outcome %+v, want the sentence and no refs", got)
		}
		wait := got.next.Sub(now)
		if i == 0 && wait > 6*time.Second || wait > 12*time.Minute || i < 6 && wait < last {
			t.Errorf("failure %d waits %v after %v", i+1, wait, last)
		}
		last = wait
	}

	s.Set("", nil)
	w.add(tenant, repo, hub.Credential{})
	if got := w.result(t); got.what != "fetched" {
		t.Errorf("outcome %+v", got)
	}
	s.Set(secret, nil)
	w.add(tenant, repo, hub.Credential{})
	if got := w.result(t); got.what != "failed" || got.next.Sub(now) > 6*time.Second {
		t.Errorf("outcome %+v, want the waits to start anew", got)
	}

	w.due <- hub.WorkItem{Kind: hub.WorkFetch, Tenant: tenant, Key: string(hub.NewID[hub.RepositoryID]())}
	if got := w.result(t); got.what != "done" {
		t.Errorf("a repository that is gone: %+v", got)
	}
	w.due <- hub.WorkItem{Kind: hub.WorkFetch, Tenant: tenant, Key: "../../etc"}
	if got := w.result(t); got.what != "done" {
		t.Errorf("a key that is no id: %+v", got)
	}
}

func TestLoopIsFair(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	slow := gittest.New(t)
	arrived := make(chan struct{}, 100)
	release := make(chan struct{})
	slow.Set("", func(w http.ResponseWriter, r *http.Request) bool {
		arrived <- struct{}{}
		<-release
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	w := newFakeWork()
	startLoop(t, source.LoopConfig{Parallel: 4}, w, gittest.NewMirrors(t, git.Config{}), lifecycle.System{})
	t.Cleanup(func() { close(release) })
	for range 8 {
		repo := origin.Hub()
		repo.URL = slow.HTTP.URL + "/app"
		w.add(tenant, repo, hub.Credential{})
	}
	<-arrived
	<-arrived
	other := hub.TenantID("018f3c6e-0000-7000-8000-000000000002")
	for range 3 {
		w.add(other, origin.Hub(), hub.Credential{})
	}
	for range 3 {
		if got := w.result(t); got.what != "fetched" || got.item.Tenant != other {
			t.Fatalf("outcome %+v, want those of the other tenant fetched", got)
		}
	}
	if n := len(arrived); n != 0 {
		t.Errorf("%d more fetches of the tenant with the slow server, want two at once", n)
	}
}

func TestLoopContinuesUnderANewLease(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	entered, release := make(chan struct{}, 10), make(chan struct{})
	s.Set("", func(http.ResponseWriter, *http.Request) bool {
		entered <- struct{}{}
		<-release
		return false
	})
	w := newFakeWork()
	startLoop(t, source.LoopConfig{}, w, gittest.NewMirrors(t, git.Config{}), lifecycle.System{})
	repo := origin.Hub()
	w.add(tenant, repo, hub.Credential{})
	<-entered
	w.due <- hub.WorkItem{Kind: hub.WorkFetch, Tenant: tenant, Key: string(repo.ID), Token: 7}
	// The same claimer claims this one after the one before.
	w.due <- hub.WorkItem{Kind: hub.WorkFetch, Tenant: "018f3c6e-0000-7000-8000-000000000002", Key: string(hub.NewID[hub.RepositoryID]())}
	if got := w.result(t); got.what != "done" {
		t.Errorf("outcome %+v", got)
	}
	close(release)
	if got := w.result(t); got.what != "fetched" || got.item.Token != 7 {
		t.Errorf("outcome %+v, want one fetch, given back under the newest lease", got)
	}
	if len(w.results) != 0 {
		t.Error("it was fetched twice")
	}
}

func TestLoopStopsAndContinuesAfterErrors(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	entered := make(chan struct{}, 1)
	s.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
		entered <- struct{}{}
		<-r.Context().Done()
		return true
	})
	w := newFakeWork()
	w.fail = errors.New("the database is away")
	stop := startLoop(t, source.LoopConfig{}, w, gittest.NewMirrors(t, git.Config{}), lifecycle.System{})
	w.add(tenant, s.Repo("app").Hub(), hub.Credential{})
	<-entered
	stop()
	if got := w.result(t); got.what != "later" {
		t.Errorf("outcome %+v, want the lease given back without a failure", got)
	}
}

// lastWork stops the loop while it claims, and answers all the same. Like a
// database it does nothing for a context that has ended.
type lastWork struct {
	*fakeWork
	stop  func()
	items []hub.WorkItem
}

func (w lastWork) Claim(context.Context, func() (int, []hub.TenantID), <-chan struct{}) ([]hub.WorkItem, error) {
	w.stop()
	return w.items, nil
}

func (w lastWork) Later(ctx context.Context, item hub.WorkItem, due time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return w.fakeWork.Later(ctx, item, due)
}

// stuckWork stops the loop while a repository is read from the database.
type stuckWork struct{ lastWork }

func (w stuckWork) Claim(ctx context.Context, room func() (int, []hub.TenantID), freed <-chan struct{}) ([]hub.WorkItem, error) {
	return w.fakeWork.Claim(ctx, room, freed)
}

func (w stuckWork) Load(ctx context.Context, _ hub.WorkItem) (hub.Repository, hub.Credential, error) {
	w.stop()
	return hub.Repository{}, hub.Credential{}, ctx.Err()
}

func TestLoopReleasesLeases(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := func(t *testing.T, work func(last lastWork) source.Work, want ...string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		last := lastWork{fakeWork: newFakeWork(), stop: cancel}
		for _, id := range want {
			last.items = append(last.items, hub.WorkItem{Kind: hub.WorkFetch, Tenant: "tenant", Key: id})
		}
		loop := source.NewLoop(source.LoopConfig{Parallel: 4, PerTenant: 2}, work(last), registry(t, gittest.NewMirrors(t, git.Config{})), runtest.NewClock(now), slog.New(slog.DiscardHandler))
		if err := loop.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
		close(last.results)
		var got []string
		for o := range last.results {
			if o.what != "later" || o.next.After(now.Add(time.Second)) {
				t.Errorf("outcome %+v", o)
			}
			got = append(got, o.item.Key)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("given back: %q, want %q", got, want)
		}
	}
	t.Run("FT-H2 claimed work that has not begun is released at an orderly stop", func(t *testing.T) {
		t.Parallel()
		run(t, func(last lastWork) source.Work { return last }, "four", "one", "three", "two")
	})
	t.Run("FT-H2 so is what was begun and not yet read", func(t *testing.T) {
		t.Parallel()
		run(t, func(last lastWork) source.Work {
			last.due <- last.items[0]
			return stuckWork{last}
		}, "one")
	})
}
