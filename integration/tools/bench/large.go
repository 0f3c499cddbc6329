package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// large measures the agent's memory while its cluster grows by objects that
// nobody manages: B15, and its curve of B28.
func (b *bench) large(ctx context.Context) error {
	had := 0
	memory := &measure{what: "objects of a cluster → memory of its agent", most: 1, format: "%.0f MiB"}
	for _, n := range []int{0, b.objects / 10, b.objects / 3, b.objects} {
		if err := b.fill(ctx, had, n); err != nil {
			return err
		}
		had = n
		s, err := b.begin(ctx, nil)
		if err != nil {
			return err
		}
		if err := pause(ctx, 30*time.Second); err != nil {
			return err
		}
		t, err := s.end(ctx)
		if err != nil {
			return err
		}
		size := process.PSS(b.s.Agents["in-cluster"].PID())
		memory.add(float64(n), size)
		b.add("B15", fmt.Sprintf("agent of a cluster with %d more ConfigMaps of 1 KB", n), fmt.Sprintf("%.0f MiB PSS", size), t.String())
	}
	b.show(memory)
	return nil
}

// fill makes ConfigMaps number from to to.
func (b *bench) fill(ctx context.Context, from, to int) error {
	maps := b.s.Clusters["in-cluster"].Dynamic().Resource(configMaps).Namespace("default")
	filler := make([]byte, 1000)
	for i := range filler {
		filler[i] = 'x'
	}
	numbers := make(chan int)
	errs := make(chan error, 16)
	var all sync.WaitGroup
	for range cap(errs) {
		all.Go(func() {
			for i := range numbers {
				o := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("filler-%06d", i)},
					"data": map[string]any{"filler": string(filler)},
				}}
				if _, err := maps.Create(ctx, o, metav1.CreateOptions{}); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for i := from; i < to && len(errs) == 0; i++ {
		numbers <- i
	}
	close(numbers)
	all.Wait()
	close(errs)
	return <-errs
}
