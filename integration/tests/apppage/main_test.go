// Package apppage_test shows the page of an application in a real browser:
// real binaries, a real API server, and kubelets that speak their own protocol.
package apppage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kubelet"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

var (
	s        *stack.Stack // the installation of all tests
	kubelets *kubelet.Kubelet
)

const (
	cluster   = "in-cluster"
	waitLimit = 3 * time.Minute
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "apppage", 30*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	// The hub has the console inside; the rule of the Makefile builds it where its sources are newer.
	build := exec.CommandContext(ctx, "make", "web/dist/index.html")
	build.Dir = filepath.Join("..", "..", "..")
	build.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the console: %w\n%s", err, out)
	}
	policy, styles := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "styles")
	if err := errors.Join(os.WriteFile(policy, []byte("exec: {enabled: true}\n"), 0o600), os.Mkdir(styles, 0o700), os.WriteFile(filepath.Join(styles, "acme.css"), []byte(ownStyle), 0o600)); err != nil {
		return nil, err
	}
	if s, err = suite.Installed(ctx, dir, stack.Options{
		Clusters: []string{cluster}, Nodes: true, AgentEnv: []string{"CAPSTAN_GUARD_FILE=" + policy}, Settings: map[string]any{"consoleStyles": styles},
	}); err != nil {
		return nil, err
	}
	if kubelets, err = kubelet.Start(ctx, s.Clusters[cluster], "node-1"); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return suite.All(kubelets.Stop, s.Stop), nil
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// deploy makes a repository with files in folder app, and an application of it
// that people sync. It is synced once.
func deploy(t *testing.T, name string, files map[string]string) *gitserver.Repository {
	t.Helper()
	ctx := within(t)
	repo, err := s.Repository(ctx, name, gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(ctx, "Begin the "+name, files); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd}
spec:
  project: default
  source: {repoURL: %[2]q, path: app, targetRevision: main}
  destination: {name: %[3]s, namespace: %[1]s}
  syncPolicy: {syncOptions: [CreateNamespace=true]}
`, name, repo.URL(), cluster)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.CLI(ctx, "", "app", "sync", name, "--operation", "--reason", "the first time"); err != nil {
		t.Fatal(err)
	}
	return repo
}

// podsOf waits until a namespace has so many pods, and returns their names in order.
func podsOf(t *testing.T, namespace string, n int) (names []string) {
	t.Helper()
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	err := poll.Until(within(t), func(ctx context.Context) error {
		list, err := s.Clusters[cluster].Dynamic().Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		names = nil
		for _, p := range list.Items {
			names = append(names, p.GetName())
		}
		if len(names) != n {
			return fmt.Errorf("%d pods, not %d", len(names), n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// named is the first of the names that begins so.
func named(t *testing.T, names []string, begin string) string {
	t.Helper()
	at := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, begin) })
	if at < 0 {
		t.Fatalf("none of %q begins with %q", names, begin)
	}
	return names[at]
}
