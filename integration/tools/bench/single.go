package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// single measures one application alone in a repository: B01, push to
// applied, and B04, drift to healed. The Git server is git http-backend, which
// starts git for each request.
func (b *bench) single(ctx context.Context) error {
	repo, err := b.onlyApplication(ctx, "single")
	if err != nil {
		return err
	}
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps)
	if err != nil {
		return err
	}
	if b.wants("B01") {
		if err := b.pushes(ctx, repo, o, "single", fmt.Sprintf("push to applied, one application, %d pushes", b.rounds)); err != nil {
			return err
		}
		named, err := b.onlyApplication(ctx, "named")
		if err != nil {
			return err
		}
		if err := named.Configure(ctx, "uploadpack.allowRefInWant", "true"); err != nil {
			return err
		}
		if err := b.pushes(ctx, named, o, "named", "  where the Git host gives branches by name"); err != nil {
			return err
		}
	}
	if b.wants("B04") {
		return b.drift(ctx, o)
	}
	return nil
}

// onlyApplication makes a repository with one application.
func (b *bench) onlyApplication(ctx context.Context, name string) (*gitserver.Repository, error) {
	repo, err := b.s.Repository(ctx, name, gitserver.RepositoryOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := repo.Commit(ctx, "begin", web("app", "v0")); err != nil {
		return nil, err
	}
	if _, err := b.s.API.Apply(ctx, application(name, "app", repo.URL(), name)); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = b.s.API.Wait(wait, name, stack.Settled)
	return repo, err
}

// pushes measures one push after the other. The first one is not counted: what
// the server can do is asked with it.
func (b *bench) pushes(ctx context.Context, repo *gitserver.Repository, o *observer, app, what string) error {
	if _, err := b.push(ctx, repo, o, app, app+"-first"); err != nil {
		return err
	}
	s, err := b.begin(ctx, repo)
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range b.rounds {
		d, err := b.push(ctx, repo, o, app, fmt.Sprintf("%s-%d", app, i))
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	b.add("B01", what, spread(took), t.String())
	return nil
}

// push makes one commit and waits until it is applied and settled.
func (b *bench) push(ctx context.Context, repo *gitserver.Repository, o *observer, app, value string) (time.Duration, error) {
	if _, err := repo.Commit(ctx, value, map[string]string{"app/one.yaml": configMap("one", value)}); err != nil {
		return 0, err
	}
	pushed := time.Now()
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	at, err := o.until(wait, value, 1)
	if err != nil {
		return 0, err
	}
	_, err = b.s.API.Wait(ctx, app, stack.Settled)
	return max(0, at.Sub(pushed)), err
}

// drift edits a managed field as a person would and waits for the old value.
func (b *bench) drift(ctx context.Context, o *observer) error {
	c := b.s.Clusters["in-cluster"]
	maps := c.Dynamic().Resource(configMaps).Namespace("single")
	s, err := b.begin(ctx, nil)
	if err != nil {
		return err
	}
	before, err := maps.Get(ctx, "two", metav1.GetOptions{})
	if err != nil {
		return err
	}
	healthy := before.Object["data"].(map[string]any)[mark].(string)
	var took []time.Duration
	for i := range b.rounds {
		edit := fmt.Sprintf(`{"data":{%q:"edit-%d"}}`, mark, i)
		if _, err := maps.Patch(ctx, "two", types.MergePatchType, []byte(edit), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			return err
		}
		edited := time.Now()
		wait, cancel := context.WithTimeout(ctx, 30*time.Second)
		if _, err := o.until(wait, fmt.Sprintf("edit-%d", i), 1); err != nil && ctx.Err() != nil {
			cancel()
			return err
		}
		at, err := o.back(wait, "configmaps single/two", healthy)
		cancel()
		if err != nil {
			return err
		}
		took = append(took, max(0, at.Sub(edited)))
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	b.add("B04", fmt.Sprintf("edit of a managed field to healed, %d edits in a row", b.rounds), spread(took), t.String())
	return nil
}
