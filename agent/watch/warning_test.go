package watch_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (s *sink) Warned(_ context.Context, _ schema.GroupVersionKind, text string) {
	s.say("warned %q", text)
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	t.Run("FT-K10 a warning of the server is reported once, and so is its end", func(t *testing.T) {
		t.Parallel()
		s, heard, _ := cluster(t)
		var watches atomic.Int32
		next := make(chan struct{})
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
			n := watches.Load() + 1 // lists come before their watch
			if r.URL.Query().Get("watch") != "" {
				n = watches.Add(1)
			}
			if n <= 2 {
				for range 2 {
					w.Header().Add("Warning", `299 - "v1 ConfigMap is deprecated"`)
				}
			}
			if r.URL.Query().Get("watch") == "" {
				_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`))
				return
			}
			_, _ = w.Write([]byte(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}`))
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
			}
		})
		start(t, s, heard)
		heard.await(t, `warned "v1 ConfigMap is deprecated"`)
		next <- struct{}{}
		next <- struct{}{}
		heard.await(t, `warned ""`)
		if n := watches.Load(); n != 3 {
			t.Errorf("it was told after watch %d", n)
		}
	})
}
