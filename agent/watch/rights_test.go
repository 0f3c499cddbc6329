package watch_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/watch"
)

const (
	listPath   = "/api/v1/configmaps"
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	refusal    = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"configmaps is forbidden","code":403}`
)

// guarded is a server that refuses to list ConfigMaps until it is told to
// allow it, and that says so in reviews.
func guarded(t *testing.T, respect watch.Respect) (s *server, heard *sink, w *watch.Informers, allow, honest *atomic.Bool) {
	t.Helper()
	s, heard, _ = cluster(t)
	allow, honest = &atomic.Bool{}, &atomic.Bool{}
	honest.Store(true)
	s.on(listPath, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !allow.Load():
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, refusal)
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`)
		}
	})
	s.on(reviewPath, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%v}}`, allow.Load() || !honest.Load())
	})
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.http.URL, QPS: -1, WarningHandlerWithContext: watch.Warnings{}})
	if err != nil {
		t.Fatal(err)
	}
	w = watch.New(client, watch.NewMapper(s.api(t)), heard, nil, slog.New(slog.DiscardHandler))
	w.LeaveOut(func() watch.Respect { return respect }, client)
	w.SetKinds([]schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}})
	return s, heard, w, allow, honest
}

func runUntilEnd(t *testing.T, s *server, w *watch.Informers) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s.http.CloseClientConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRights(t *testing.T) {
	t.Parallel()
	t.Run("CLU-12 normal: a refused kind is listed once, and again when asked", func(t *testing.T) {
		t.Parallel()
		s, heard, w, allow, _ := guarded(t, watch.RespectNormal)
		runUntilEnd(t, s, w)
		heard.await(t, "left out denied")
		w.AskAgain()
		heard.await(t, "left out denied")
		if n := s.count(listPath); n != 2 {
			t.Errorf("%d lists, want 2", n)
		}
		allow.Store(true)
		w.AskAgain()
		heard.await(t, "listed ConfigMap 5 0 back=false")
		heard.await(t, "broken ")
		if n := s.count(reviewPath); n != 0 {
			t.Errorf("%d reviews, want none", n)
		}
	})
	t.Run("CLU-12 strict: a kind without the right is never listed, and listed when a review allows it", func(t *testing.T) {
		t.Parallel()
		s, heard, w, allow, _ := guarded(t, watch.RespectStrict)
		runUntilEnd(t, s, w)
		heard.await(t, "left out denied")
		if lists, reviews := s.count(listPath), s.count(reviewPath); lists != 0 || reviews != 1 {
			t.Errorf("%d lists and %d reviews, want 0 and 1", lists, reviews)
		}
		allow.Store(true)
		w.AskAgain()
		heard.await(t, "listed ConfigMap 5 0 back=false")
		if n := s.count(reviewPath); n != 3 {
			t.Errorf("%d reviews, want one for the refusal, one for list and one for watch", n)
		}
	})
	t.Run("CLU-12 strict: a kind that is refused although a review allows it is retried", func(t *testing.T) {
		t.Parallel()
		s, heard, w, allow, honest := guarded(t, watch.RespectStrict)
		honest.Store(false)
		runUntilEnd(t, s, w)
		heard.await(t, "broken denied")
		heard.await(t, "broken denied")
		allow.Store(true)
		heard.await(t, "listed ConfigMap 5 0 back=false")
	})
	t.Run("CLU-12 strict: without an answer to reviews the refused list counts", func(t *testing.T) {
		t.Parallel()
		s, heard, w, _, _ := guarded(t, watch.RespectStrict)
		s.on(reviewPath, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, refusal)
		})
		runUntilEnd(t, s, w)
		heard.await(t, "left out denied")
		if lists, reviews := s.count(listPath), s.count(reviewPath); lists != 1 || reviews != 1 {
			t.Errorf("%d lists and %d reviews, want 1 of each", lists, reviews)
		}
	})
	t.Run("CLU-12 without the setting a refused kind is retried", func(t *testing.T) {
		t.Parallel()
		s, heard, w, allow, _ := guarded(t, "")
		runUntilEnd(t, s, w)
		heard.await(t, "broken denied")
		heard.await(t, "broken denied")
		allow.Store(true)
		heard.await(t, "listed ConfigMap 5 0 back=false")
	})
}
