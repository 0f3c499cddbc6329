package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/harness"
	"github.com/capstan-cd/capstan/integration/stack"
)

// single measures one application alone in a repository: B01, push to
// applied, and B04, drift to healed.
func (b *bench) single(ctx context.Context) error {
	repo, err := b.s.Repository(ctx, "single", harness.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "begin", web("app", "v0")); err != nil {
		return err
	}
	if _, err := b.s.API.Apply(ctx, application("single", "app", repo.URL(), "single")); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := b.s.API.Wait(wait, "single", stack.Settled); err != nil {
		return err
	}
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps)
	if err != nil {
		return err
	}
	if b.wants("B01") {
		if err := b.pushes(ctx, repo, o); err != nil {
			return err
		}
	}
	if b.wants("B04") {
		return b.drift(ctx, o)
	}
	return nil
}

func (b *bench) pushes(ctx context.Context, repo *harness.Repository, o *observer) error {
	s, err := b.begin(ctx, repo)
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range b.rounds {
		value := fmt.Sprintf("push-%d", i)
		if _, err := repo.Commit(ctx, value, map[string]string{"app/one.yaml": configMap("one", value)}); err != nil {
			return err
		}
		pushed := time.Now()
		wait, cancel := context.WithTimeout(ctx, 30*time.Second)
		at, err := o.until(wait, value, 1)
		cancel()
		if err != nil {
			return err
		}
		took = append(took, max(0, at.Sub(pushed)))
		if _, err := b.s.API.Wait(ctx, "single", stack.Settled); err != nil {
			return err
		}
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	b.add("B01", fmt.Sprintf("push to applied, one application, %d pushes", b.rounds), spread(took), t.String())
	return nil
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
