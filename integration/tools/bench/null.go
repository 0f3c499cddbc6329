package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
)

// null is the floor that the product is measured against: fetch with git, read
// plain files, apply every object with as much concurrency. It has no state,
// no tenants, no safety and no console.
type null struct {
	repo    string
	dir     string
	client  dynamic.Interface
	server  *http.Server
	address string
	sent    map[string]string // what was applied last, so that only changes go
	err     error
}

const nullParallel = 32

func startNull(ctx context.Context, c *kube.Cluster, repo *gitserver.Repository) (*null, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "capstan-null-")
	if err != nil {
		return nil, err
	}
	n := &null{repo: repo.URL(), dir: dir, client: client, sent: map[string]string{}}
	if out, err := exec.CommandContext(ctx, "git", "clone", "-q", "--bare", n.repo, dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("clone: %w: %s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.address = "http://" + ln.Addr().String()
	n.server = &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		go func() {
			if err := n.sync(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "null system:", err)
			}
		}()
	})}
	go func() { n.err = n.server.Serve(ln) }()
	repo.SetWebhook(gitserver.Webhook{URL: n.address})
	return n, nil
}

func (n *null) stop() {
	_ = n.server.Close()
	_ = os.RemoveAll(n.dir)
}

// sync fetches and applies what changed.
func (n *null) sync(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "git", "-C", n.dir, "fetch", "-q", n.repo, "+main:main").CombinedOutput(); err != nil {
		return fmt.Errorf("fetch: %w: %s", err, out)
	}
	archive, err := exec.CommandContext(ctx, "git", "-C", n.dir, "archive", "main").Output()
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	var todo []*unstructured.Unstructured
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if filepath.Ext(h.Name) != ".yaml" {
			continue
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if n.sent[h.Name] == string(body) {
			continue
		}
		n.sent[h.Name] = string(body)
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(body, &o.Object); err != nil {
			return err
		}
		todo = append(todo, o)
	}
	return n.apply(ctx, todo)
}

func (n *null) apply(ctx context.Context, todo []*unstructured.Unstructured) error {
	slots := make(chan struct{}, nullParallel)
	errs := make(chan error, len(todo))
	var all sync.WaitGroup
	for _, o := range todo {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			gvk := o.GroupVersionKind()
			resource := schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s"}
			_, err := n.client.Resource(resource).Namespace("null").Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "null", Force: true})
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// nullSystem measures the null system beside B01 and B02.
func (b *bench) nullSystem(ctx context.Context) error {
	c := b.s.Clusters["in-cluster"]
	if err := c.Apply(ctx, "apiVersion: v1\nkind: Namespace\nmetadata: {name: \"null\"}\n"); err != nil {
		return err
	}
	repo, err := b.s.Git.Create(ctx, "null", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "begin", b.mono("n0")); err != nil {
		return err
	}
	n, err := startNull(ctx, c, repo)
	if err != nil {
		return err
	}
	defer n.stop()
	o, err := observe(ctx, c, configMaps, services, serviceAccounts, deployments)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := n.sync(ctx); err != nil {
		return err
	}
	b.add("null", fmt.Sprintf("create the %d objects", 5*b.apps), fmt.Sprintf("%.2f s", time.Since(begin).Seconds()), "no state, no tenants, no safety")
	settle, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	if err := quiet(settle, o, 3*time.Second); err != nil {
		return err
	}
	var took []time.Duration
	for i := range b.rounds {
		value := fmt.Sprintf("null-%d", i)
		if _, err := repo.Commit(ctx, value, map[string]string{"apps/" + b.name(0) + "/one.yaml": configMap("one-"+b.name(0), value)}); err != nil {
			return err
		}
		pushed := time.Now()
		at, err := o.until(settle, value, 1)
		if err != nil {
			return err
		}
		took = append(took, max(0, at.Sub(pushed)))
	}
	b.add("null", "push to applied, one file", spread(took), "")
	if _, err := repo.Commit(ctx, "all", b.mono("n1")); err != nil {
		return err
	}
	pushed := time.Now()
	at, err := o.until(settle, "n1", 5*b.apps)
	if err != nil {
		return err
	}
	b.add("null", fmt.Sprintf("a commit that changes all %d objects until the last is applied", 5*b.apps), fmt.Sprintf("%.2f s", at.Sub(pushed).Seconds()), "")
	return nil
}

// quiet waits until nothing has happened for a while: pods are being made.
func quiet(ctx context.Context, o *observer, quiet time.Duration) error {
	for {
		o.mu.Lock()
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(quiet):
			return nil
		}
	}
}
