package replicas_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// s is the installation of all tests: two hubs, one agent.
var s *stack.Stack

// Work of a silent replica is free after the lease; agents count as gone
// after three beats.
var settings = map[string]any{"lease": "3s", "heartbeat": "2s", "drain": "2s"}

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "replicas", 15*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	s, err = suite.Installed(ctx, dir, stack.Options{Clusters: []string{"in-cluster"}, Replicas: 2, Settings: settings, HubEnv: pressure()})
	return s.Stop, err
}

// within bounds a step.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// only is a client of one replica, past the balancer.
func only(h *stack.Hub) *stack.API { return &stack.API{URL: h.URL, Token: s.API.Token} }

func repository(t *testing.T, name string, files map[string]string) *gitserver.Repository {
	t.Helper()
	r, err := s.Repository(within(t, time.Minute), name, gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(t.Context(), "begin", files); err != nil {
		t.Fatal(err)
	}
	return r
}

func manifest(name, repo, path string) string {
	return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd}
spec:
  project: default
  source: {repoURL: %[2]q, path: %[3]q, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true]
---
`, name, repo, path)
}

func deploy(t *testing.T, name, repo, path string) {
	t.Helper()
	if _, err := s.API.Apply(within(t, time.Minute), manifest(name, repo, path)); err != nil {
		t.Fatal(err)
	}
}

func settled(t *testing.T, name string) {
	t.Helper()
	if _, err := s.API.Wait(within(t, 3*time.Minute), name, stack.Settled); err != nil {
		t.Fatal(err)
	}
}

// at waits until an application is settled at a revision.
func at(t *testing.T, name, revision string) {
	t.Helper()
	_, err := s.API.Wait(within(t, 3*time.Minute), name, func(x stack.App) error {
		if x.Status.Sync.Revision != revision {
			return fmt.Errorf("%s is at %s and not at %s", name, x.Status.Sync.Revision, revision)
		}
		return stack.Settled(x)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  v: %q\n", name, value)
}

// queryOne reads one value from the database.
func queryOne[T any](t *testing.T, sql string, args ...any) T {
	t.Helper()
	ctx := within(t, time.Minute)
	conn, err := pgx.Connect(ctx, s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var v T
	if err := conn.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// holder is the hub that holds the agent, and one that does not.
func holder(t *testing.T) (holds, other *stack.Hub) {
	t.Helper()
	var name string
	err := poll.Until(within(t, 2*time.Minute), func(context.Context) error {
		name = queryOne[string](t, `SELECT coalesce(max(replica), '') FROM directory.agent_attachment WHERE session_id IS NOT NULL AND until > now()`)
		if name == "" {
			return fmt.Errorf("no replica holds the agent")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(name, "replica-0.") {
		return s.Hubs[0], s.Hubs[1]
	}
	return s.Hubs[1], s.Hubs[0]
}

// live reads a config map through the hub from its cluster.
func live(ctx context.Context, a *stack.API, app, name string) error {
	q := url.Values{"version": {"v1"}, "kind": {"ConfigMap"}, "resourceNamespace": {app}, "resourceName": {name}}
	return a.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/"+app+"/resource?"+q.Encode(), nil, nil)
}

// restarted waits until the balancers use a hub again.
func restarted(t *testing.T, h *stack.Hub) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	if err := s.Front.Healthy(ctx, strings.TrimPrefix(h.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	if err := s.Gate.Healthy(ctx, h.Link); err != nil {
		t.Fatal(err)
	}
}
