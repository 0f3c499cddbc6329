package watch_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
)

func object(name, version string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"n","uid":"u-%s","resourceVersion":%q}}`, name, name, version)
}

func event(kind, object string) string { return `{"type":"` + kind + `","object":` + object + "}\n" }

func TestUndone(t *testing.T) {
	t.Parallel()
	t.Run("FT-K6 after an interrupted watch, only a server whose version is behind is listed again", func(t *testing.T) {
		t.Parallel()
		s, heard, feed := cluster(t)
		var mu sync.Mutex
		var from []string
		now, reads := "10", 0
		ended := make(chan struct{}, 10) // one for each watch
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			mu.Lock()
			if q.Get("watch") == "" {
				if q.Get("limit") == "1" {
					reads++
				}
				fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[]}`, now)
				mu.Unlock()
				return
			}
			from = append(from, q.Get("resourceVersion"))
			mu.Unlock()
			w.(http.Flusher).Flush()
			defer func() { ended <- struct{}{} }()
			for {
				select {
				case line := <-feed:
					if line == "" {
						return
					}
					fmt.Fprint(w, line)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		})
		set := func(version string) {
			mu.Lock()
			defer mu.Unlock()
			now = version
		}
		w := start(t, s, heard)
		heard.await(t, "listed ConfigMap 10 0 back=false")
		set("30")
		feed <- event("ADDED", object("a", "20"))
		heard.await(t, "seen a 20")
		feed <- "" // cut; the server is ahead
		feed <- event("MODIFIED", object("a", "31"))
		heard.await(t, "seen a 31")
		set("25")
		feed <- "" // cut; the server is behind
		heard.await(t, "listed ConfigMap 25 0 back=true")
		feed <- event("ADDED", object("b", "26"))
		heard.await(t, "seen b 26")
		set("40")
		w.Undone() // versions have grown again, and are of another time all the same
		heard.await(t, "listed ConfigMap 40 0 back=true")
		for range 3 {
			<-ended // what is fed next is for the watch after them
		}
		feed <- event("ADDED", object("c", "41"))
		heard.await(t, "seen c 41")
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(from, []string{"10", "20", "25", "40"}) || reads != 2 {
			t.Errorf("watches began at %v, after %d looks", from, reads)
		}
	})
}
