package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kubelet"
	"github.com/capstan-cd/capstan/integration/rigs/playwright"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// screenIDs are the benchmarks of what a browser shows of an application.
var screenIDs = []string{"B05", "B19"}

const (
	screenTime    = 15 * time.Minute // bounds the run of the browser
	screenChanges = 40               // of the object of B05
	screenObjects = 2000
	screenDiffer  = 500
)

// screen measures the page of an application in Chromium: how soon it shows a
// change in the cluster, and how it copes with many objects and a fast log.
// web/e2e/large.spec.ts says what it does.
func (b *bench) screen(ctx context.Context, bin, dir string) (err error) {
	s, err := stack.Start(ctx, stack.Options{
		Bin: bin, Dir: filepath.Join(dir, "screen"), Clusters: []string{"in-cluster"}, Nodes: true, Settings: b.profiled(),
		Say: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	cluster := s.Clusters["in-cluster"]
	kubelets, err := kubelet.Start(ctx, cluster, "node-1")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kubelets.Stop()) }()
	many := manyObjects(0)
	for name, files := range map[string]map[string]string{"seen": {"app/config.yaml": numberedObject("seen", "1")}, "shop": {"app/store.yaml": screenStore}, "many": many} {
		repo, err := screenApp(ctx, s, name, files)
		if err != nil {
			return fmt.Errorf("deploy %s: %w", name, err)
		}
		if name != "many" {
			continue
		}
		commit, err := repo.Commit(ctx, "change some", manyObjects(screenDiffer))
		if err != nil {
			return err
		}
		if _, err := s.API.CLI(ctx, "", "app", "refresh", name); err != nil {
			return err
		}
		if _, err := s.API.Wait(ctx, name, func(a stack.App) error {
			if a.Status.Sync.Revision != commit {
				return fmt.Errorf("it is at %s", a.Status.Sync.Revision)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	acts := playwright.Serve(map[string]playwright.Act{
		"change": playwright.InTurn(func(ctx context.Context, v string) error { return cluster.SetData(ctx, "seen", "seen", "v", v) }, "2", "1"),
		"change-many": playwright.InTurn(func(ctx context.Context, v string) error {
			return cluster.SetData(ctx, "many", "item-1999", "v", v)
		}, "two", "one"),
		"flood": func(ctx context.Context) (string, error) {
			n, err := kubelets.Container("shop", "store-0", "db").Flood(ctx, time.Minute)
			return strconv.Itoa(n), err
		},
	})
	defer acts.Close()
	return b.screenFigures(ctx, s, dir, acts)
}

// screenFigures runs the spec and writes what it has measured.
func (b *bench) screenFigures(ctx context.Context, s *stack.Stack, dir string, acts *playwright.Acts) error {
	ctx, cancel := context.WithTimeout(ctx, screenTime)
	defer cancel()
	env := append(acts.Env(), "CAPSTAN_CHANGES="+strconv.Itoa(screenChanges))
	text, err := runSpec(ctx, s, filepath.Join(dir, "page"), "large", env)
	if err != nil {
		return err
	}
	var got struct {
		Delays, DelaysMany                                  []int
		Bytes, BytesMany, Tree, Elements, Boxes, Heap       int
		Summary, Counts, Lines, Frames, Slow, Worst, Behind int
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return err
	}
	if len(got.Delays) == 0 || len(got.DelaysMany) == 0 || got.Lines == 0 {
		return fmt.Errorf("the browser has measured nothing: %s", text)
	}
	for _, c := range []struct {
		what   string
		delays []int
		bytes  int
	}{{"an object", got.Delays, got.Bytes}, {fmt.Sprintf("one of %d objects", screenObjects), got.DelaysMany, got.BytesMany}} {
		slices.Sort(c.delays)
		at := func(part float64) int { return c.delays[int(part*float64(len(c.delays)-1))] }
		b.add("B05", fmt.Sprintf("change of %s in the cluster to painted, %d changes", c.what, len(c.delays)),
			fmt.Sprintf("p50 %d ms, p95 %d ms, most %d ms", at(0.5), at(0.95), at(1)), fmt.Sprintf("%d bytes received a change", c.bytes))
	}
	b.add("B19", fmt.Sprintf("page of an application with %d objects, from the list", screenObjects),
		fmt.Sprintf("%d ms, heap %d MB", got.Tree, got.Heap>>20), fmt.Sprintf("%d elements closed, %d boxes with the group opened", got.Elements, got.Boxes))
	b.add("B19", fmt.Sprintf("diff of %d objects", screenDiffer), fmt.Sprintf("%d ms to the summary, %d ms to all counts", got.Summary, got.Counts), "")
	b.add("B19", "log of 5,000 lines a second for 60 s", fmt.Sprintf("%d frames longer than 50 ms, the longest %d ms", got.Slow, got.Worst),
		fmt.Sprintf("%d lines, %d frames, the last line painted %d ms after it was written", got.Lines, got.Frames, got.Behind))
	return nil
}

// runSpec makes an account, runs a spec of web/e2e with it, and returns the
// figures that the spec has written.
func runSpec(ctx context.Context, s *stack.Stack, work, spec string, env []string) ([]byte, error) {
	const password = "a-long-enough-password"
	account := map[string]any{"name": spec, "password": password, "roles": []string{"tenant-admin"}}
	if err := s.API.Do(ctx, http.MethodPost, "/api/v1/users", account, nil); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", "playwright"), "test")
	cmd.Dir = "web"
	cmd.Env = append(append(os.Environ(), env...), "CAPSTAN_SPECS="+spec, "CAPSTAN_URL="+s.Hub.URL, "CAPSTAN_USER="+spec, "CAPSTAN_PASSWORD="+password,
		"CAPSTAN_SHOTS="+work, "CAPSTAN_E2E_WORK="+work)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run the browser: %w", err)
	}
	return os.ReadFile(filepath.Join(work, "figures.json"))
}

// screenApp makes an application that people sync, and syncs it once.
func screenApp(ctx context.Context, s *stack.Stack, name string, files map[string]string) (*gitserver.Repository, error) {
	repo, err := s.Repository(ctx, name, gitserver.RepositoryOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := repo.Commit(ctx, "begin", files); err != nil {
		return nil, err
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd}
spec:
  project: default
  source: {repoURL: %[2]q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {syncOptions: [CreateNamespace=true]}
`, name, repo.URL())); err != nil {
		return nil, err
	}
	_, err = s.API.CLI(ctx, "", "app", "sync", name, "--operation", "--reason", "the first time")
	return repo, err
}

// screenStore has the container whose log is followed.
const screenStore = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: db, image: registry.example.com/db:v1}]}
`

func numberedObject(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {v: %q, same: \"1\"}\n", name, value)
}

// manyObjects are the objects of a large application, of which the first have
// another value.
func manyObjects(changed int) map[string]string {
	files := map[string]string{}
	for i := range screenObjects {
		value := "one"
		if i < changed {
			value = "two"
		}
		name := fmt.Sprintf("item-%04d", i)
		files["app/"+name+".yaml"] = numberedObject(name, value)
	}
	return files
}
