package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
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

// observe begins to watch. It goes on until ctx ends: an API server ends the
// watch of a reader that it takes for slow, and then all is listed again.
func observe(ctx context.Context, c *kube.Cluster, kinds ...schema.GroupVersionResource) (*observer, error) {
	o := &observer{marks: map[string]string{}, changed: make(chan struct{})}
	for _, k := range kinds {
		w, err := o.begin(ctx, c, k)
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				o.follow(k, w)
				if w, err = o.begin(ctx, c, k); err != nil {
					return
				}
			}
		}()
	}
	return o, nil
}

// begin lists a kind, forgets what is gone, and watches from there.
func (o *observer) begin(ctx context.Context, c *kube.Cluster, k schema.GroupVersionResource) (w watch.Interface, err error) {
	err = poll.Until(ctx, func(ctx context.Context) error {
		list, err := c.Dynamic().Resource(k).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for i := range list.Items {
			there[keyOf(k, &list.Items[i])] = true
			o.see(k, &list.Items[i], false)
		}
		o.mu.Lock()
		maps.DeleteFunc(o.marks, func(key, _ string) bool { return strings.HasPrefix(key, k.Resource+" ") && !there[key] })
		o.mu.Unlock()
		w, err = c.Dynamic().Resource(k).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		return err
	})
	return w, err
}

// follow returns when the watch has ended.
func (o *observer) follow(k schema.GroupVersionResource, w watch.Interface) {
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return
		}
		if obj, ok := e.Object.(*unstructured.Unstructured); ok {
			o.see(k, obj, e.Type == watch.Deleted)
		}
	}
}

func keyOf(k schema.GroupVersionResource, obj *unstructured.Unstructured) string {
	return k.Resource + " " + obj.GetNamespace() + "/" + obj.GetName()
}

func (o *observer) see(k schema.GroupVersionResource, obj *unstructured.Unstructured, gone bool) {
	now := time.Now()
	key := keyOf(k, obj)
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
