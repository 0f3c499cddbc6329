package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/cli/exit"
)

func TestWait(t *testing.T) {
	t.Run("UX-CLI-5 a wait that takes too long says what was missing", func(t *testing.T) {
		home(t)
		h := hub(t, map[string]answer{
			"GET /api/v1/stream":                   {200, ""},
			"GET /api/v1/applications/argocd/shop": {200, strings.Replace(shop, "Healthy", "Progressing", 1)},
		})
		for timeout := 50 * time.Millisecond; ; timeout *= 2 {
			code, _, errs := capstan(t, "", "app", "wait", "shop", "--timeout", timeout.String(), "--server", h.URL)
			if code == exit.Timeout && strings.Contains(errs, "not healthy") {
				break
			}
			// A slow machine may not have seen the application in that time.
			if code != exit.Timeout || timeout > time.Minute {
				t.Fatalf("exit %d after %s, %s", code, timeout, errs)
			}
		}
	})
	t.Run("UX-CLI-5 so does one of a hub that is slow to answer", func(t *testing.T) {
		home(t)
		slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		t.Cleanup(slow.Close)
		for _, verb := range []string{"wait", "sync"} {
			if code, _, errs := capstan(t, "", "app", verb, "shop", "--timeout", "50ms", "--server", slow.URL); code != exit.Timeout || !strings.Contains(errs, "timed out") {
				t.Errorf("%s: exit %d, %s", verb, code, errs)
			}
		}
	})
	t.Run("UX-CLI-5 one that is over at once prints the application", func(t *testing.T) {
		home(t)
		h := hub(t, map[string]answer{"GET /api/v1/stream": {200, ""}, "GET /api/v1/applications/argocd/shop": {200, shop}})
		code, out, errs := capstan(t, "", "app", "wait", "shop", "-o", "name", "--server", h.URL)
		if code != 0 || out != "application/shop\n" {
			t.Errorf("exit %d, %q, %s", code, out, errs)
		}
	})
	t.Run("UX-CLI-5 an application that does not exist ends the wait", func(t *testing.T) {
		home(t)
		h := hub(t, map[string]answer{"GET /api/v1/stream": {200, ""}})
		if code, _, errs := capstan(t, "", "app", "wait", "shop", "--server", h.URL); code != exit.Missing {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
}
