//go:build soak

package replicas_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// pressure makes the hubs collect garbage all the time.
func pressure() []string { return []string{"GOGC=10", "GOMEMLIMIT=48MiB"} }

// starve lets every hub run a tenth of the time, until the test calls end.
func starve(t *testing.T) (end func()) {
	t.Helper()
	over := make(chan struct{})
	var all sync.WaitGroup
	for _, h := range s.Hubs {
		all.Go(func() {
			for {
				for _, step := range []struct {
					signal syscall.Signal
					wait   time.Duration
				}{{syscall.SIGSTOP, 90 * time.Millisecond}, {syscall.SIGCONT, 10 * time.Millisecond}} {
					if err := h.Signal(step.signal); err != nil {
						t.Error(err)
						return
					}
					select {
					case <-time.After(step.wait):
					case <-over:
						_ = h.Signal(syscall.SIGCONT)
						return
					}
				}
			}
		})
	}
	end = sync.OnceFunc(func() {
		close(over)
		all.Wait()
	})
	t.Cleanup(end)
	return end
}

// logged counts what the hubs have logged.
func logged(t *testing.T, text string) (n int) {
	t.Helper()
	for _, h := range s.Hubs {
		log, err := os.ReadFile(h.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(log, []byte(text))
	}
	return n
}

func TestStarved(t *testing.T) {
	const apps = 90 // a page of the list has them all
	name := func(i int) string { return fmt.Sprintf("starved-%d", i) }
	files := func(value string) map[string]string {
		out := map[string]string{}
		for i := range apps {
			out[name(i)+"/a.yaml"] = configMap("a", value)
		}
		return out
	}
	many := repository(t, "starved", files("one"))
	for i := range apps {
		deploy(t, name(i), many.URL(), name(i))
	}
	for i := range apps {
		settled(t, name(i))
	}
	own := repository(t, "asked", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "asked", own.URL(), "app")
	settled(t, "asked")
	own.SetWebhook(gitserver.Webhook{})
	bad := []string{"replicas are gone", "agent disconnected", "another replica has taken work over", "leases of work cannot be renewed", "panic"}
	before := map[string]int{}
	for _, text := range bad {
		before[text] = logged(t, text)
	}
	if _, err := many.Commit(t.Context(), "two", files("two")); err != nil {
		t.Fatal(err)
	}
	settledAt, err := many.Commit(t.Context(), "three", files("three"))
	if err != nil {
		t.Fatal(err)
	}
	end := starve(t)
	behind := func() int {
		return queryOne[int](t, `SELECT count(*) FROM application a JOIN application_status s ON s.tenant_id = a.tenant_id AND s.application_id = a.id
			WHERE a.name LIKE 'starved-%' AND s.revision IS DISTINCT FROM $1`, settledAt)
	}
	t.Run("FT-H10 with a tenth of the CPU and little memory users get replies while work of Git waits", func(t *testing.T) {
		asked, err := own.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := s.API.Do(within(t, time.Minute), http.MethodPost, "/api/v1/applications/argocd/asked/refresh", nil, nil); err != nil {
			t.Fatal(err)
		}
		at(t, "asked", asked)
		n := behind()
		t.Logf("a refresh took %s, %d applications are behind", time.Since(began).Round(time.Millisecond), n)
		if n == 0 {
			t.Error("a refresh that a person asked for has waited for everything that came from Git")
		}
		for i := range 20 {
			began := time.Now()
			var list struct{ Items []stack.App }
			if err := s.API.Do(within(t, 30*time.Second), http.MethodGet, "/api/v1/applications", nil, &list); err != nil || len(list.Items) < apps {
				t.Fatalf("request %d: %d applications, %v", i, len(list.Items), err)
			}
			t.Logf("list %d took %s, %d applications are behind", i, time.Since(began).Round(time.Millisecond), behind())
		}
	})
	t.Run("FT-H10 INV-5 all of it arrives", func(t *testing.T) {
		for i := range apps {
			at(t, name(i), settledAt)
		}
	})
	end()
	t.Run("FT-H10 FT-H3 no lease and no agent is lost", func(t *testing.T) {
		for _, text := range bad {
			if n := logged(t, text) - before[text]; n != 0 {
				t.Errorf("%q was said %d times", text, n)
			}
		}
		if n := queryOne[int](t, `SELECT count(*) FROM directory.replica`); n != len(s.Hubs) {
			t.Errorf("%d replicas count as living", n)
		}
	})
}
