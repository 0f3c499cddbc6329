// Package live_test shows what people see of running containers: logs, events
// and objects, through real binaries, a real API server and the kubelet's own
// protocol.
package live_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	// policyFile is the policy of the cluster's owner, which the agent reads again
	// when it has changed.
	policyFile string
	binaries   string // folder with the programs
	podKind    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

const nodeName = "node-1"

// openPolicy permits what these tests are about.
const openPolicy = "exec: {enabled: true}\nportForward: {enabled: true}\n"

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "live", 25*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	policyFile, binaries = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "bin")
	if err := os.WriteFile(policyFile, []byte(openPolicy), 0o600); err != nil {
		return nil, err
	}
	env := []string{"CAPSTAN_GUARD_FILE=" + policyFile}
	if s, err = suite.Installed(ctx, dir, stack.Options{Clusters: []string{"in-cluster"}, Nodes: true, AgentEnv: env}); err != nil {
		return nil, err
	}
	if kubelets, err = kubelet.Start(ctx, s.Clusters["in-cluster"], nodeName); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return func() error { return errors.Join(kubelets.Stop(), s.Stop()) }, nil
}

const waitLimit = 2 * time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers:
      - {name: app, image: registry.example.com/app:v1}
      - {name: side, image: registry.example.com/side:v1}
`

// deploy deploys a Deployment of two containers, and returns its pods.
func deploy(t *testing.T, name string, replicas int, more ...string) []string {
	t.Helper()
	ctx := within(t)
	repo, err := s.Repository(ctx, name, gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"app/workload.yaml": fmt.Sprintf(workload, name, replicas)}
	for i, text := range more {
		files[fmt.Sprintf("app/more-%d.yaml", i)] = text
	}
	if _, err := repo.Commit(ctx, "begin", files); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: %[2]q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {automated: {prune: true}, syncOptions: [CreateNamespace=true]}
`, name, repo.URL())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Wait(ctx, name, stack.Settled); err != nil {
		t.Fatal(err)
	}
	return podsOf(t, name, replicas)
}

// podsOf returns the pods of a namespace in order.
func podsOf(t *testing.T, namespace string, n int) (names []string) {
	t.Helper()
	err := poll.Until(within(t), func(ctx context.Context) error {
		list, err := s.Clusters["in-cluster"].Dynamic().Resource(podKind).Namespace(namespace).List(ctx, metav1.ListOptions{})
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

// An entry is one of a stream of logs.
type entry struct {
	Content, PodName, Container, Notice string
	Skipped                             int64
	Last                                bool
}

// A user is a caller with a token.
type user struct{ name, token string }

func admin() user { return user{"admin", s.API.Token} }

func (u user) get(ctx context.Context, path, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	req.Header.Set("Accept", accept)
	return http.DefaultClient.Do(req)
}

// logs opens a stream, and returns it with the status of the answer.
func (u user) logs(ctx context.Context, t *testing.T, app, query string) (*stream, int) {
	t.Helper()
	res, err := u.get(ctx, "/api/v1/applications/argocd/"+app+"/logs?"+query, "application/x-ndjson")
	if err != nil {
		t.Error(err)
		return &stream{refused: err.Error()}, 0
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		return &stream{refused: body(t, res)}, res.StatusCode
	}
	return &stream{in: bufio.NewReader(res.Body)}, res.StatusCode
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

type stream struct {
	in      *bufio.Reader
	refused string // why there is none
}

func (s *stream) next() (e entry, err error) {
	for {
		line, err := s.in.ReadBytes('\n')
		if err != nil {
			return e, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return e, json.Unmarshal(line, &e)
		}
	}
}

// rest are the lines up to the end, and the notice that it has.
func (s *stream) rest(t *testing.T) (lines []string, notice string) {
	t.Helper()
	for {
		e, err := s.next()
		switch {
		case err != nil:
			t.Fatalf("after %d lines: %v", len(lines), err)
		case e.Last:
			return lines, e.Notice
		case e.Notice == "":
			lines = append(lines, e.Content)
		}
	}
}

// until reads up to a line.
func (s *stream) until(t *testing.T, want string) {
	t.Helper()
	for {
		e, err := s.next()
		if err != nil || e.Last {
			t.Errorf("%q did not come: %v, %v", want, e, err)
			return
		}
		if e.Content == want {
			return
		}
	}
}

// newUser makes an account with the rights of some lines of the policy.
func newUser(t *testing.T, name string, policies ...string) user {
	t.Helper()
	ctx := within(t)
	if err := s.API.Do(ctx, http.MethodPost, "/api/v1/users", map[string]any{"name": name, "password": "correct horse battery"}, nil); err != nil {
		t.Fatal(err)
	}
	allow(t, name, policies...)
	var out struct {
		Token string `json:"token"`
	}
	if err := s.API.Do(ctx, http.MethodPost, "/api/v1/users/"+name+"/tokens", map[string]any{"expiresIn": "1h"}, &out); err != nil {
		t.Fatal(err)
	}
	return user{name, out.Token}
}

// allow replaces the rights of an account.
func allow(t *testing.T, name string, policies ...string) {
	t.Helper()
	var lines []string
	for _, p := range policies {
		lines = append(lines, "p, "+name+", "+p+", allow")
	}
	set(t, "argocd-rbac-cm", "policy."+name+".csv", strings.Join(lines, "\n"))
}

// set sets a setting of the tenant; nil removes it.
func set(t *testing.T, of, key string, value any) {
	t.Helper()
	values := map[string]any{of: map[string]any{key: value}}
	if err := s.API.Do(within(t), http.MethodPatch, "/api/v1/settings", map[string]any{"values": values}, nil); err != nil {
		t.Fatal(err)
	}
}

// token makes another token of the admin.
func token(t *testing.T, name string) user {
	t.Helper()
	var out struct {
		Token string `json:"token"`
	}
	if err := s.API.Do(within(t), http.MethodPost, "/api/v1/tokens", map[string]any{"name": name, "expiresIn": "1h"}, &out); err != nil {
		t.Fatal(err)
	}
	return user{"admin", out.Token}
}
