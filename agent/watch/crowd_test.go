package watch_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/watch"
)

func TestManyKinds(t *testing.T) {
	t.Parallel()
	const (
		kinds   = 80
		most    = 16
		watches = 20
	)
	s := newServer(t)
	s.text("/api", coreKinds)
	var wanted []schema.GroupVersionKind
	var served []string
	for i := range kinds {
		wanted = append(wanted, schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: fmt.Sprint("Thing", i)})
		served = append(served, fmt.Sprintf(`{"resource":"things%[1]d","responseKind":{"kind":"Thing%[1]d"},"scope":"Namespaced","verbs":["get","list","watch"]}`, i))
	}
	s.text("/apis", groupsWith("Current", strings.Join(served, ",")))
	var mu sync.Mutex
	var now, peak, watched int
	full := make(chan struct{}) // closed when as many are under way as may be
	for i := range kinds {
		s.on(fmt.Sprintf("/apis/metrics.k8s.io/v1beta1/things%d", i), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				mu.Lock()
				watched++
				mu.Unlock()
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			mu.Lock()
			if now++; now > peak {
				if peak = now; peak == most {
					close(full)
				}
			}
			mu.Unlock()
			select {
			case <-full:
			case <-r.Context().Done():
			}
			mu.Lock()
			now--
			mu.Unlock()
			fmt.Fprint(w, `{"kind":"ThingList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[]}`)
		})
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.http.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	heard := &counter{listed: make(chan int)}
	w := watch.New(client, watch.NewMapper(s.api(t)), heard, nil, slog.New(slog.DiscardHandler))
	w.Bound(most, watches)
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
	t.Run("SEC-B15 FT-K11 of many kinds a few are listed at a time, each is listed, and not all empty ones are watched", func(t *testing.T) {
		w.SetKinds(wanted)
		for range kinds {
			<-heard.listed
		}
		mu.Lock()
		defer mu.Unlock()
		if peak != most {
			t.Errorf("%d lists at once, want %d", peak, most)
		}
		if watched > watches {
			t.Errorf("%d empty kinds are watched, want at most %d", watched, watches)
		}
	})
}
