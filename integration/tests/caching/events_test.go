package caching_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// announce sends a push event, signed with the installation's secret.
func announce(t *testing.T, url, commit string) (status int) {
	t.Helper()
	body := fmt.Sprintf(`{"ref":"refs/heads/main","after":%q,"repository":{"clone_url":%q}}`, commit, url)
	mac := hmac.New(sha256.New, []byte(s.Hub.Secret()))
	mac.Write([]byte(body))
	r, err := http.NewRequestWithContext(within(t), http.MethodPost, s.URL()+"/api/webhook", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", "push")
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// silent is a repository that calls no webhook, with one application.
func silent(t *testing.T, name string) *gitserver.Repository {
	t.Helper()
	repo, err := s.Git.Create(within(t), name, gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := push(t, repo, "a/a.yaml", configMap("a", "0"))
	if _, err := s.API.Apply(within(t), application(name, "", source(repo, "a"))); err != nil {
		t.Fatal(err)
	}
	shows(t, first, name)
	return repo
}

func TestBurstOfEvents(t *testing.T) {
	repo := silent(t, "burst")
	t.Run("FT-G4 INV-7 ten thousand events, lost in between, repeated, in any order and for unknown repositories, cost one render of a commit", func(t *testing.T) {
		const events, senders = 10_000, 16
		before, fetched := read(t), repo.Requests()
		old := push(t, repo, "README", "0")
		commit := push(t, repo, "a/a.yaml", configMap("a", "burst"))
		var next, refused atomic.Int64
		var all sync.WaitGroup
		for range senders {
			all.Go(func() {
				for n := next.Add(1); n <= events; n = next.Add(1) {
					url, at := repo.URL(), commit
					switch n % 4 {
					case 0:
						at = old
					case 1:
						url = fmt.Sprintf("https://git.example.com/team/unknown-%d", n)
					}
					switch status := announce(t, url, at); status {
					case http.StatusAccepted:
					case http.StatusTooManyRequests:
						refused.Add(1)
					default:
						t.Errorf("an event is answered with status %d", status)
					}
				}
			})
		}
		all.Wait()
		shows(t, commit, "burst")
		if got := before.since(t); got != 1 {
			t.Errorf("%d renders, want one", got)
		}
		now := repo.Requests()
		if asked := now.Listings + now.Fetches - fetched.Listings - fetched.Fetches; asked > events/20 || refused.Load() == events {
			t.Errorf("the Git server was asked %d times for %d events, of which %d were refused", asked, events, refused.Load())
		}
	})
	t.Run("FT-G4 a push whose event was lost is found by polling", func(t *testing.T) {
		shows(t, push(t, repo, "a/a.yaml", configMap("a", "lost")), "burst")
	})
}

// The tenant polls once a day, so that polling does not hide a lost event.
func TestAcknowledgedEvents(t *testing.T) {
	repo := silent(t, "acknowledged")
	if out, err := s.API.CLI(within(t), "0", "settings", "set", "timeout.reconciliation", "--from-file", "-"); err != nil {
		t.Fatal(out, err)
	}
	t.Cleanup(func() { // the other tests need polls
		if out, err := s.API.CLI(context.WithoutCancel(t.Context()), "", "settings", "set", "timeout.reconciliation", "--unset"); err != nil {
			t.Error(out, err)
		}
	})
	// The setting has all repositories fetched once more, and then tomorrow.
	begin := push(t, repo, "README", "1")
	if status := announce(t, repo.URL(), begin); status != http.StatusAccepted {
		t.Fatalf("the event is answered with status %d", status)
	}
	shows(t, begin, "acknowledged")
	t.Run("HOOKW-01 INV-1 an event that was answered with 202 is not lost when the hub is killed at that moment", func(t *testing.T) {
		for i := range 3 {
			commit := push(t, repo, "a/a.yaml", configMap("a", fmt.Sprint("killed ", i)))
			if status := announce(t, repo.URL(), commit); status != http.StatusAccepted {
				t.Fatalf("the event is answered with status %d", status)
			}
			if err := s.Hub.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.Hub.Start(within(t)); err != nil {
				t.Fatal(err)
			}
			shows(t, commit, "acknowledged")
		}
	})
	t.Run("HOOKW-01 without an event nothing is found meanwhile, so that this test proves something", func(t *testing.T) {
		commit := push(t, repo, "a/a.yaml", configMap("a", "not announced"))
		if _, err := s.API.CLI(within(t), "", "app", "list"); err != nil {
			t.Fatal(err)
		}
		x, err := s.API.Get(within(t), "acknowledged")
		if err != nil || x.Status.Sync.Revision == commit {
			t.Errorf("%v, %v: the hub has found the commit without an event", revision(x), err)
		}
		if status := announce(t, repo.URL(), commit); status != http.StatusAccepted {
			t.Fatalf("the event is answered with status %d", status)
		}
		shows(t, commit, "acknowledged")
	})
}

func revision(x stack.App) string { return x.Status.Sync.Revision }
