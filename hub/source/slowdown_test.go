package source_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

// A Git host that limits the hub is left alone for as long as it asks.
func TestHostsThatAskToWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		status int
		value  string
		least  time.Duration // until the next attempt
		most   time.Duration
	}{
		"FT-G2 SEC-I6 429 with seconds":          {429, "300", 300 * time.Second, 300 * time.Second},
		"FT-G2 403 of a rate limit":              {403, "300", 300 * time.Second, 300 * time.Second},
		"FT-G2 503 with seconds":                 {503, "300", 300 * time.Second, 300 * time.Second},
		"FT-G2 429 with a date":                  {429, time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat), 5 * time.Minute, 10 * time.Minute},
		"FT-G2 more than an hour is an hour":     {429, "999999", time.Hour, time.Hour},
		"FT-G2 429 without a time":               {429, "", time.Second, 6 * time.Second},
		"FT-G2 429 with a time that is no such":  {429, "-5 or so", time.Second, 6 * time.Second},
		"FT-G2 429 with a date that is over":     {429, "Wed, 21 Oct 2015 07:28:00 GMT", time.Second, 6 * time.Second},
		"FT-G2 a time in another kind of answer": {404, "300", time.Second, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := gittest.New(t)
			limited := s.Repo("limited")
			s.Set("", func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Retry-After", c.value)
				http.Error(w, "slow down", c.status)
				return true
			})
			w := newFakeWork()
			startLoop(t, source.LoopConfig{Parallel: 1}, w, gittest.NewMirrors(t, git.Config{}), runtest.NewClock(now))
			w.add(tenant, limited.Hub(), hub.Credential{})
			got := w.result(t)
			if wait := got.next.Sub(now); got.what != "failed" || wait < c.least || wait > c.most {
				t.Errorf("%+v after %v, want %v to %v", got, wait, c.least, c.most)
			}
		})
	}
	t.Run("FT-G2 SEC-D2 its other repositories wait too, those of other tenants and hosts do not", func(t *testing.T) {
		t.Parallel()
		s := gittest.New(t)
		var limits atomic.Bool
		var asked atomic.Int64
		repos := map[string]*gittest.Repo{}
		for _, name := range []string{"one", "two", "three"} {
			repos[name] = s.Repo(name)
			repos[name].Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
		}
		s.Set("", func(w http.ResponseWriter, r *http.Request) bool {
			asked.Add(1)
			if !limits.Load() {
				return false
			}
			w.Header().Set("Retry-After", "300")
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return true
		})
		w, clock := newFakeWork(), runtest.NewClock(now)
		startLoop(t, source.LoopConfig{Parallel: 1}, w, gittest.NewMirrors(t, git.Config{}), clock)
		does := func(who hub.TenantID, repo hub.Repository, forced bool, want string) outcome {
			t.Helper()
			w.mu.Lock()
			w.repos[string(repo.ID)] = repo
			w.due <- hub.WorkItem{Kind: hub.WorkFetch, Tenant: who, Key: string(repo.ID), Forced: forced}
			w.mu.Unlock()
			got := w.result(t)
			if got.what != want {
				t.Fatalf("%+v, want %s", got, want)
			}
			return got
		}
		limits.Store(true)
		does(tenant, repos["one"].Hub(), false, "failed")
		limits.Store(false)
		before := asked.Load()
		got := does(tenant, repos["two"].Hub(), false, "later")
		if wait := got.next.Sub(now); wait < 300*time.Second || wait > 310*time.Second {
			t.Errorf("the other repository is put off by %v", wait)
		}
		if n := asked.Load(); n != before {
			t.Errorf("the host was asked %d times meanwhile", n-before)
		}
		does(tenant, repos["two"].Hub(), true, "fetched") // a person asks
		does(hub.TenantID("018f3c6e-0000-7000-8000-00000000000e"), repos["three"].Hub(), false, "fetched")
		elsewhere := repos["three"].Hub()
		elsewhere.ID, elsewhere.URL = hub.NewID[hub.RepositoryID](), strings.Replace(elsewhere.URL, "127.0.0.1", "127.0.0.2", 1)
		does(tenant, elsewhere, false, "failed") // nobody listens there, and it is asked
		clock.Advance(300 * time.Second)
		does(tenant, repos["two"].Hub(), false, "fetched")
	})
}
