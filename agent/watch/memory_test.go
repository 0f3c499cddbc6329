package watch_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/watch"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// counter keeps nothing of what it is told but numbers.
type counter struct {
	seen   atomic.Int64
	listed chan int
}

func (c *counter) OnUpdate(context.Context, *manifest.Object) { c.seen.Add(1) }
func (c *counter) OnDelete(context.Context, *manifest.Object) {}
func (c *counter) OnReplace(_ context.Context, _ schema.GroupVersionKind, _, _ string, _ bool, _ map[string]struct{}) {
	c.listed <- int(c.seen.Load())
}
func (c *counter) Broken(context.Context, schema.GroupVersionKind, string, error) {}
func (c *counter) Warned(context.Context, schema.GroupVersionKind, string)        {}
func (c *counter) Left(context.Context, schema.GroupVersionKind)                  {}

// TestMemory runs alone: what others hold would be counted too.
func TestMemory(t *testing.T) {
	const (
		objects = 50_000
		page    = 500
		most    = 40 << 20 // uids and names; the objects decoded would be some 250 MiB
	)
	s := newServer(t)
	s.text("/api", coreKinds)
	s.text("/apis", groupsWith("Current", ""))
	filling := strings.Repeat("x", 1000)
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	base := live()
	var peak atomic.Uint64 // in use after a collection
	s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		if got := q.Get("limit"); got != strconv.Itoa(page) {
			t.Errorf("a list asks for %q objects at once, want %d", got, page)
		}
		from, _ := strconv.Atoi(q.Get("continue"))
		if from/page%20 == 19 {
			peak.Store(max(peak.Load(), live()))
		}
		next := ""
		if from+page < objects {
			next = strconv.Itoa(from + page)
		}
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":%q},"items":[`, next)
		for i := from; i < from+page; i++ {
			if i > from {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n-%[1]d","namespace":"n","uid":"00000000-0000-0000-0000-%012[1]d","resourceVersion":"5"},"data":{"a":"%[2]s","b":"%[1]d","c":"%[1]d"}}`, i, filling)
		}
		fmt.Fprint(w, "]}")
	})
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.http.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	heard := &counter{listed: make(chan int, 1)}
	w := watch.New(client, watch.NewMapper(s.api(t)), heard, watch.NewTree(none, nobody{}), slog.New(slog.DiscardHandler))
	w.SetKinds([]schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s.http.CloseClientConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("SEC-B15 FT-A4 50,000 objects are listed page by page, and none stays in memory", func(t *testing.T) {
		if n := <-heard.listed; n != objects {
			t.Errorf("%d objects were seen, want %d", n, objects)
		}
		if got := int64(peak.Load()) - int64(base); got > most {
			t.Errorf("%d MiB more are in use meanwhile, want at most %d", got>>20, most>>20)
		}
		t.Logf("measured: %d MiB more in use while they are listed", (int64(peak.Load())-int64(base))>>20)
	})
}
