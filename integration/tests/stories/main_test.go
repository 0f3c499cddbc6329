// Package stories_test runs the product as its users do: real binaries, a
// real API server, real Git over HTTP, Postgres. One installation serves all
// stories, which run one after the other where they stop parts of it.
package stories_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// s is the installation of all stories.
var s *stack.Stack

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "stories", 55*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	if err := buildConsole(ctx); err != nil {
		return nil, err
	}
	env, err := writeSecretPolicy(dir)
	if err != nil {
		return nil, err
	}
	here := map[string]any{"notifications": map[string]any{"allowPrivate": []string{"127.0.0.0/8"}}}
	s, err = suite.Installed(ctx, dir, stack.Options{Clusters: []string{"in-cluster"}, Nodes: true, AgentEnv: env, Settings: here})
	return s.Stop, err
}

// waitLimit is how long a step of a story may hang, on a slow machine too. It is
// less than the time between two looks of the hub at a repository: an event
// that was lost is not made up for by the next look.
const waitLimit = 2 * time.Minute

// within bounds a step of a story.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// repository makes a repository with files.
func repository(t *testing.T, name string, files map[string]string) *gitserver.Repository {
	t.Helper()
	ctx := within(t, waitLimit)
	r, err := s.Repository(ctx, name, gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(ctx, "begin", files); err != nil {
		t.Fatal(err)
	}
	return r
}

// deploy applies an automated application of one path.
func deploy(t *testing.T, name, repo, path, extra string) {
	t.Helper()
	manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %[1]s
  namespace: argocd
  finalizers: [resources-finalizer.argocd.argoproj.io]
spec:
  project: default
  source: {repoURL: %[2]q, path: %[3]q, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true]
%[4]s`, name, repo, path, extra)
	if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
		t.Fatal(err)
	}
}

// settled waits until an application is Synced and Healthy.
func settled(t *testing.T, name string) stack.App {
	t.Helper()
	x, err := s.API.Wait(within(t, waitLimit), name, stack.Settled)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// condition waits until an application says something.
func condition(t *testing.T, name string, check func(stack.App) error) stack.App {
	t.Helper()
	x, err := s.API.Wait(within(t, waitLimit), name, check)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  v: %q\n", name, value)
}
