package replicas_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

func TestOneHop(t *testing.T) {
	repo := repository(t, "hop", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "hop", repo.URL(), "app")
	settled(t, "hop")

	t.Run("FT-H5 CLU-15 a request to another replica than the agent's succeeds", func(t *testing.T) {
		for i, h := range s.Hubs {
			if err := live(within(t, time.Minute), only(h), "hop", "a"); err != nil {
				t.Errorf("live state through replica %d: %v", i, err)
			}
			if err := only(h).Do(within(t, time.Minute), http.MethodGet, "/api/v1/applications/argocd/hop/diff?all=true", nil, nil); err != nil {
				t.Errorf("diff through replica %d: %v", i, err)
			}
		}
		// What the agent itself refuses comes back as it was.
		var status *stack.StatusError
		for i, h := range s.Hubs {
			err := live(within(t, time.Minute), only(h), "hop", "not-there")
			if !errors.As(err, &status) || status.Status != http.StatusNotFound {
				t.Errorf("an object that is not there through replica %d: %v", i, err)
			}
		}
	})

	t.Run("FT-H5 CLU-16 CLU-17 the replica with the agent's connection ends", func(t *testing.T) {
		holds, other := holder(t)
		if err := holds.Kill(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		a := only(other)
		err := poll.Until(within(t, 3*time.Minute), func(ctx context.Context) error {
			return promptly(ctx, t, a)
		})
		if err != nil {
			t.Fatalf("the agent did not come back: %v", err)
		}
		t.Logf("measured: live state is readable again %.1f s after the replica of the agent was killed", time.Since(begin).Seconds())
		if err := holds.Start(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		restarted(t, holds)
	})
}

// promptly asks for live state; the answer is there, or says when to come
// again.
func promptly(ctx context.Context, t *testing.T, a *stack.API) error {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		a.URL+"/api/v1/applications/argocd/hop/resource?version=v1&kind=ConfigMap&resourceNamespace=hop&resourceName=a", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusOK {
		return nil
	}
	after, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if res.StatusCode != http.StatusServiceUnavailable || err != nil || after > 5 {
		t.Errorf("answer %d, Retry-After %q: %s", res.StatusCode, res.Header.Get("Retry-After"), body)
	}
	return fmt.Errorf("status %d: %s", res.StatusCode, body)
}

func TestAttachedElsewhere(t *testing.T) {
	repo := repository(t, "seen", map[string]string{"app/a.yaml": configMap("a", "one")})
	a, b := only(s.Hubs[0]), only(s.Hubs[1])

	t.Run("INV-5 a stream of one replica has the changes through another", func(t *testing.T) {
		ctx := within(t, 2*time.Minute)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL+"/api/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+b.Token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := applyTo(ctx, a, manifest("seen", repo.URL(), "app")); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data:") && strings.Contains(lines.Text(), `"seen"`) {
				return
			}
		}
		t.Fatalf("the stream ended without it: %v", lines.Err())
	})

	t.Run("SEC-D8 a token that was revoked through one replica ends at the other", func(t *testing.T) {
		ctx := within(t, 2*time.Minute)
		var made struct {
			Token string `json:"token"`
			ID    string `json:"id"`
		}
		out := map[string]any{}
		if err := a.Do(ctx, http.MethodPost, "/api/v1/tokens", map[string]any{"name": "brief"}, &out); err != nil {
			t.Fatal(err)
		}
		made.Token, made.ID = text(out, "token", "secret"), text(out, "id")
		with := &stack.API{URL: b.URL, Token: made.Token}
		if err := with.Do(ctx, http.MethodGet, "/api/v1/applications", nil, nil); err != nil {
			t.Fatalf("before: %v in %v", err, out)
		}
		if err := a.Do(ctx, http.MethodDelete, "/api/v1/tokens/"+made.ID, nil, nil); err != nil {
			t.Fatal(err)
		}
		err := poll.Until(ctx, func(ctx context.Context) error {
			var status *stack.StatusError
			if err := with.Do(ctx, http.MethodGet, "/api/v1/applications", nil, nil); !errors.As(err, &status) || status.Status != http.StatusUnauthorized {
				return fmt.Errorf("answer %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})

	t.Run("INV-5 what was removed through one replica is removed at the other at once", func(t *testing.T) {
		ctx := within(t, 2*time.Minute)
		project := map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "narrow"},
			"spec": map[string]any{"sourceRepos": []string{"*"}, "destinations": []any{map[string]any{"name": "in-cluster", "namespace": "*"}}},
		}
		if err := a.Do(ctx, http.MethodPost, "/api/v1/projects", project, nil); err != nil {
			t.Fatal(err)
		}
		// The index of the other replica is compiled by now.
		if err := b.Do(ctx, http.MethodGet, "/api/v1/projects/narrow", nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := a.Do(ctx, http.MethodDelete, "/api/v1/projects/narrow", nil, nil); err != nil {
			t.Fatal(err)
		}
		var status *stack.StatusError
		if err := b.Do(ctx, http.MethodGet, "/api/v1/projects/narrow", nil, nil); !errors.As(err, &status) || status.Status != http.StatusNotFound {
			t.Errorf("answer %v", err)
		}
	})
}

func text(m map[string]any, keys ...string) string {
	for _, k := range keys {
		switch v := m[k].(type) {
		case string:
			return v
		case map[string]any:
			if got := text(v, keys...); got != "" {
				return got
			}
		}
	}
	for _, v := range m {
		if inner, ok := v.(map[string]any); ok {
			if got := text(inner, keys...); got != "" {
				return got
			}
		}
	}
	return ""
}

func applyTo(ctx context.Context, a *stack.API, manifest string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+"/api/v1/apply", strings.NewReader(manifest))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.Token)
	req.Header.Set("Content-Type", "application/yaml")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	return err
}

var frozenRuns atomic.Int32

func TestFrozen(t *testing.T) {
	const apps = 4 // some of their repositories belong to the replica that sleeps
	repos := make([]*gitserver.Repository, apps)
	round := frozenRuns.Add(1) // with -count the names of the last run are taken
	name := func(i int) string { return fmt.Sprintf("frozen-%d-%d", round, i) }
	for i := range repos {
		repos[i] = repository(t, name(i), map[string]string{"app/a.yaml": configMap("a", "0")})
		deploy(t, name(i), repos[i].URL(), "app")
	}
	for i := range repos {
		settled(t, name(i))
	}
	last := make([]string, apps)
	n := 0
	push := func() {
		t.Helper()
		n++
		for i, r := range repos {
			rev, err := r.Commit(t.Context(), "push", map[string]string{"app/a.yaml": configMap("a", strconv.Itoa(n))})
			if err != nil {
				t.Fatal(err)
			}
			last[i] = rev
		}
	}
	t.Run("FT-H3 a replica that slept longer than its leases overwrites nothing", func(t *testing.T) {
		ctx := within(t, 6*time.Minute)
		_, victim := holder(t)
		push() // so that it is in the middle of something
		if err := victim.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		wake := sync.OnceFunc(func() {
			if err := victim.Signal(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		})
		defer wake()
		err := poll.Until(ctx, func(context.Context) error {
			if n := queryOne[int](t, `SELECT count(*) FROM directory.replica`); n != 1 {
				return fmt.Errorf("%d replicas count as living", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		push()
		for i := range repos {
			at(t, name(i), last[i])
		}
		begun := queryOne[int64](t, `SELECT count(*) FROM operation`)
		wake()
		restarted(t, victim)
		err = poll.Until(ctx, func(context.Context) error {
			for i := range repos {
				x, err := only(victim).Get(ctx, name(i))
				if err != nil {
					return err
				}
				if x.Status.Sync.Revision != last[i] {
					t.Fatalf("%s went back from %s to %s", name(i), last[i], x.Status.Sync.Revision)
				}
			}
			if n := queryOne[int](t, `SELECT count(*) FROM directory.replica`); n != 2 {
				return fmt.Errorf("%d replicas count as living", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if more := queryOne[int64](t, `SELECT count(*) FROM operation`); more != begun {
			t.Errorf("%d operations began when it woke, although nothing had changed", more-begun)
		}
		push()
		for i := range repos {
			at(t, name(i), last[i])
		}
	})
}
