package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-cd/capstan/integration/harness"
)

var (
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	deployments     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// mark is the label whose value tells the version of an object of the bench.
const mark = "bench"

// An observer watches kinds of a cluster and knows the mark of each object
// and when it was first seen.
type observer struct {
	mu      sync.Mutex
	marks   map[string]string // kind namespace/name → mark
	changed chan struct{}     // closed and replaced with each event
	at      time.Time         // of the last event
}

func observe(ctx context.Context, c *harness.Cluster, kinds ...schema.GroupVersionResource) (*observer, error) {
	o := &observer{marks: map[string]string{}, changed: make(chan struct{})}
	for _, k := range kinds {
		list, err := c.Dynamic().Resource(k).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		w, err := c.Dynamic().Resource(k).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			o.see(k.Resource, &list.Items[i], false)
		}
		go func() {
			for e := range w.ResultChan() {
				if obj, ok := e.Object.(*unstructured.Unstructured); ok {
					o.see(k.Resource, obj, e.Type == watch.Deleted)
				}
			}
		}()
	}
	return o, nil
}

func (o *observer) see(kind string, obj *unstructured.Unstructured, gone bool) {
	now := time.Now()
	key := kind + " " + obj.GetNamespace() + "/" + obj.GetName()
	value := obj.GetLabels()[mark]
	if v, ok, _ := unstructured.NestedString(obj.Object, "data", mark); ok {
		value = v
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if gone {
		delete(o.marks, key)
	} else {
		o.marks[key] = value
	}
	o.at = now
	close(o.changed)
	o.changed = make(chan struct{})
}

// until waits until enough objects have a mark, and says when the last event
// came that made it so.
func (o *observer) until(ctx context.Context, value string, enough int) (time.Time, error) {
	for {
		o.mu.Lock()
		n := 0
		for _, v := range o.marks {
			if v == value {
				n++
			}
		}
		at, changed := o.at, o.changed
		o.mu.Unlock()
		if n >= enough {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%d of %d objects have mark %q: %w", n, enough, value, ctx.Err())
		case <-changed:
		}
	}
}
