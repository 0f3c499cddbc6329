package releases_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// An installation is what is upgraded, with its clients.
type installation struct {
	*stack.Stack
	t      *testing.T
	client *http.Client
	repo   *gitserver.Repository // of the applications that clients push to and sync

	requests atomic.Int64
	mu       sync.Mutex
	failures []string
	made     map[string]bool // applications that were acknowledged
	ops      map[string]bool // operations that were acknowledged
}

func manifest(name, repo, cluster, path string, automated bool) string {
	policy := ""
	if automated {
		policy = "automated: {prune: true, selfHeal: true}, "
	}
	return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd}
spec:
  project: default
  source: {repoURL: %[2]q, path: %[4]q, targetRevision: main}
  destination: {name: %[3]s, namespace: %[1]s}
  syncPolicy: {%[5]ssyncOptions: [CreateNamespace=true]}
---
`, name, repo, cluster, path, policy)
}

func configMap(value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: %q}\n", value)
}

func (i *installation) fail(text string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failures = append(i.failures, time.Now().Format("15:04:05.000 ")+text)
}

// call sends one request. An answer of 5xx, or none, is a failure.
func (i *installation) call(ctx context.Context, method, path, key, kind, body string) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, i.URL()+path, strings.NewReader(body))
	if err != nil {
		i.fail(err.Error())
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+i.API.Token)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Idempotency-Key", key)
	}
	i.requests.Add(1)
	res, err := i.client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			i.fail(fmt.Sprintf("%s %s: %v", method, path, err))
		}
		return 0, nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if (err != nil || res.StatusCode >= 500) && ctx.Err() == nil {
		i.fail(fmt.Sprintf("%s %s: %d %s %v", method, path, res.StatusCode, answer, err))
	}
	return res.StatusCode, answer
}

// every does something until ctx ends, with pauses.
func every(ctx context.Context, wait *sync.WaitGroup, pause time.Duration, do func(n int)) {
	wait.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				do(n)
			}
		}
	})
}

// load starts the clients.
func (i *installation) load(ctx context.Context, wait *sync.WaitGroup) {
	every(ctx, wait, 30*time.Millisecond, func(int) {
		i.call(ctx, http.MethodGet, "/api/v1/applications?limit=50", "", "", "")
		i.call(ctx, http.MethodGet, "/api/v1/clusters/east", "", "", "")
		i.call(ctx, http.MethodGet, "/api/v1/applications/argocd/web-west", "", "", "")
	})
	every(ctx, wait, 300*time.Millisecond, func(n int) {
		name := fmt.Sprintf("made-%d", n)
		status, body := i.call(ctx, http.MethodPost, "/api/v1/apply", name, "application/yaml", manifest(name, i.repo.URL(), "east", "app", false))
		if status == http.StatusOK && !strings.Contains(string(body), `"error"`) {
			i.mu.Lock()
			i.made[name] = true
			i.mu.Unlock()
		}
	})
	every(ctx, wait, 300*time.Millisecond, func(n int) {
		app := []string{"web-east", "web-west"}[n%2]
		status, body := i.call(ctx, http.MethodPost, "/api/v1/applications/argocd/"+app+"/sync", fmt.Sprintf("sync-%d", n), "application/json", `{}`)
		var op struct {
			ID string `json:"id"`
		}
		if status == http.StatusAccepted && json.Unmarshal(body, &op) == nil && op.ID != "" {
			i.mu.Lock()
			i.ops[op.ID] = true
			i.mu.Unlock()
		}
	})
	every(ctx, wait, time.Second, func(n int) {
		// A push that has begun comes to its end: git that is killed leaves its locks behind.
		if _, err := i.repo.Commit(context.WithoutCancel(ctx), "push", map[string]string{"app/a.yaml": configMap(fmt.Sprint(n))}); err != nil && ctx.Err() == nil {
			i.fail(fmt.Sprintf("push: %v", err))
		}
	})
}

// goes waits until that many more requests were answered.
func (i *installation) goes(more int64) {
	i.t.Helper()
	want := i.requests.Load() + more
	i.until("requests", func(context.Context) error {
		if n := i.requests.Load(); n < want {
			return fmt.Errorf("%d requests of %d", n, want)
		}
		return nil
	})
}

func (i *installation) until(what string, check func(context.Context) error) {
	i.t.Helper()
	if err := poll.Until(within(i.t, 3*time.Minute), check); err != nil {
		i.t.Fatalf("%s: %v", what, err)
	}
}

// exchange stops a hub in order and starts the program of another folder.
func (i *installation) exchange(h *stack.Hub, bin string) {
	i.t.Helper()
	i.goes(30)
	if err := h.Stop(); err != nil {
		i.t.Fatal(err)
	}
	h.Use(bin)
	if err := h.Start(within(i.t, 2*time.Minute)); err != nil {
		i.t.Fatal(err)
	}
	runs(i.t, h.PID(), filepath.Join(bin, "capstan-hub"))
	ctx := within(i.t, 2*time.Minute)
	if err := errors.Join(i.Front.Healthy(ctx, strings.TrimPrefix(h.URL, "http://")), i.Gate.Healthy(ctx, h.Link)); err != nil {
		i.t.Fatal(err)
	}
}

// runs checks which program a process runs.
func runs(t *testing.T, pid int, want string) {
	t.Helper()
	if got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || got != want {
		t.Errorf("process %d runs %s (%v), want %s", pid, got, err, want)
	}
}

// begin starts a sync of many steps, with a hook of some seconds, and returns
// when its hook has begun.
func (i *installation) begin(repo *gitserver.Repository, round int) {
	i.t.Helper()
	if _, err := repo.Commit(i.t.Context(), "round", suite.InWaves(fmt.Sprint(round), "3s", 4, []string{"a", "b", "c", "d", "e", "f", "g", "h"})); err != nil {
		i.t.Fatal(err)
	}
	want := round
	i.until(fmt.Sprintf("the sync of round %d", round), func(context.Context) error {
		if n := i.count(`SELECT count(*) FROM operation o JOIN application a ON a.tenant_id = o.tenant_id AND a.id = o.application_id WHERE a.name = 'waves'`); n < want {
			return fmt.Errorf("%d operations have begun", n)
		}
		return nil
	})
}

func (i *installation) count(sql string, args ...any) int {
	i.t.Helper()
	ctx := within(i.t, time.Minute)
	conn, err := pgx.Connect(ctx, i.Postgres.Superuser("capstan"))
	if err != nil {
		i.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var n int
	if err := conn.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		i.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// at waits until an application is settled at a revision.
func (i *installation) at(t *testing.T, name, revision string) {
	t.Helper()
	_, err := i.API.Wait(within(t, 3*time.Minute), name, func(x stack.App) error {
		if x.Status.Sync.Revision != revision {
			return fmt.Errorf("%s is at %s and not at %s", name, x.Status.Sync.Revision, revision)
		}
		return stack.Settled(x)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReleases ends with what it began with: hubs of the older release, one
// agent of each.
func TestReleases(t *testing.T) {
	s, before, after := installed(t)
	i := &installation{
		Stack: s, t: t, made: map[string]bool{}, ops: map[string]bool{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: 30 * time.Second},
	}
	waves, err := s.Repository(within(t, time.Minute), "waves", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if i.repo, err = s.Repository(within(t, time.Minute), "web", gitserver.RepositoryOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.repo.Commit(t.Context(), "begin", map[string]string{"app/a.yaml": configMap("begin")}); err != nil {
		t.Fatal(err)
	}
	if _, err := waves.Commit(t.Context(), "begin", suite.InWaves("begin", "100ms", 4, []string{"a"})); err != nil {
		t.Fatal(err)
	}
	all := manifest("web-east", i.repo.URL(), "east", "app", true) + manifest("web-west", i.repo.URL(), "west", "app", true) + manifest("waves", waves.URL(), "east", "app", true)
	if _, err := s.API.Apply(within(t, time.Minute), all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web-east", "web-west", "waves"} {
		if _, err := s.API.Wait(within(t, 3*time.Minute), name, stack.Settled); err != nil {
			t.Fatal(err)
		}
	}
	versions := i.count(`SELECT count(DISTINCT version_id) FROM goose_db_version`)
	watched := i.watchHooks(t)

	ctx, stop := context.WithCancel(within(t, 15*time.Minute))
	var wait sync.WaitGroup
	i.load(ctx, &wait)
	round := 1
	for n, h := range s.Hubs {
		round++
		i.begin(waves, round)
		i.exchange(h, after)
		if n == 1 {
			west := s.Agents["west"]
			if err := west.Stop(); err != nil {
				t.Fatal(err)
			}
			west.Use(after)
			if err := west.Start(ctx); err != nil {
				t.Fatal(err)
			}
			runs(t, west.PID(), filepath.Join(after, "capstan-agent"))
		}
	}
	i.goes(50)
	migrated := i.count(`SELECT count(DISTINCT version_id) FROM goose_db_version`)
	for _, h := range s.Hubs {
		round++
		i.begin(waves, round)
		i.exchange(h, before)
	}
	i.goes(50)
	stop()
	wait.Wait()
	last, err := i.repo.Commit(t.Context(), "last", map[string]string{"app/a.yaml": configMap("last")})
	if err != nil {
		t.Fatal(err)
	}
	head, err := waves.Commit(t.Context(), "last", suite.InWaves("last", "100ms", 4, []string{"a", "b"}))
	if err != nil {
		t.Fatal(err)
	}

	t.Run("FT-U1 INV-14 the newer release has migrated the database, and the older one works with it", func(t *testing.T) {
		if migrated <= versions {
			t.Errorf("%d migrations before, %d after", versions, migrated)
		}
	})
	t.Run("FT-U1 no request fails while three hubs are upgraded and downgraded, one after the other", func(t *testing.T) {
		t.Logf("measured: %d requests, %d failed, %d applications and %d operations acknowledged", i.requests.Load(), len(i.failures), len(i.made), len(i.ops))
		for _, f := range i.failures {
			t.Error(f)
		}
	})
	t.Run("FT-U1 INV-5 agents of both releases reach what was pushed last", func(t *testing.T) {
		i.at(t, "web-east", last)
		i.at(t, "web-west", last)
		i.at(t, "waves", head)
	})
	t.Run("FT-U1 INV-1 INV-10 what was acknowledged is stored, and every operation ends", func(t *testing.T) {
		if len(i.made) == 0 || len(i.ops) == 0 {
			t.Errorf("%d applications and %d operations were acknowledged: that is no load", len(i.made), len(i.ops))
		}
		for name := range i.made {
			if _, err := s.API.Get(within(t, time.Minute), name); err != nil {
				t.Errorf("application %s was acknowledged: %v", name, err)
			}
		}
		i.until("the end of all operations", func(context.Context) error {
			if n := i.count(`SELECT count(*) FROM operation WHERE finished_at IS NULL`); n > 0 {
				return fmt.Errorf("%d have not ended", n)
			}
			return nil
		})
		// The newest hundred of an application are kept; ids are in the order of time.
		for id := range i.ops {
			if i.count(`SELECT (SELECT count(*) FROM operation WHERE id = $1::uuid) + (SELECT count(*) FROM (
				SELECT min(id::text) AS oldest FROM operation GROUP BY application_id HAVING count(*) >= 100) x WHERE $1::text < x.oldest)`, id) == 0 {
				t.Errorf("operation %s was acknowledged and is not there", id)
			}
		}
	})
	t.Run("FT-U1 INV-2 INV-4 no operation and no hook runs twice", func(t *testing.T) {
		twice := i.count(`SELECT count(*) FROM (SELECT FROM operation WHERE (initiator ->> 'automated')::boolean
			GROUP BY application_id, snapshot_id, attempt, kind HAVING count(*) > 1) x`)
		if twice != 0 {
			t.Errorf("%d snapshots were accepted more than once", twice)
		}
		operations := i.count(`SELECT count(*) FROM operation o JOIN application a ON a.tenant_id = o.tenant_id AND a.id = o.application_id WHERE a.name = 'waves'`)
		if hooks := watched(); hooks == 0 || hooks > operations {
			t.Errorf("%d hooks were created in %d operations", hooks, operations)
		}
	})
}

// watchHooks returns how many Jobs of the hook were created since.
func (i *installation) watchHooks(t *testing.T) (created func() int) {
	t.Helper()
	jobs := i.Clusters["east"].Dynamic().Resource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}).Namespace("waves")
	var mu sync.Mutex
	seen := map[types.UID]bool{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			changes, err := jobs.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				if ctx.Err() == nil {
					i.fail(fmt.Sprintf("watch of the hooks: %v", err))
				}
				return
			}
			for e := range changes.ResultChan() {
				if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == watch.Added {
					mu.Lock()
					seen[u.GetUID()] = true
					mu.Unlock()
				}
			}
		}
	})
	t.Cleanup(func() { stop(); wait.Wait() })
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}
