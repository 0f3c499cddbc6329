package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/cli/exit"
)

const (
	unconfirmed = `{"code":"CAP-1503","message":"cluster prod: its agent is not connected","fix":"look at the agent","request_id":"req-1","retryable":true}`
	awayStatus  = `,"capstan":{"generation":1,"resources":1,"automation":"Auto","connection":"Disconnected","cluster":"prod","asOf":"2026-01-02T03:04:05Z",
		"stale":{"reason":"AgentAway","message":"the agent of cluster prod is not connected","since":"2026-01-02T03:04:05Z","sync":"Synced","health":"Healthy"}}}}`
)

// away is the application while its agent is away: expired is what it is like
// after a minute.
func awayShop(expired bool) string {
	x := strings.TrimSuffix(shop, "}}") + awayStatus
	if expired {
		x = strings.Replace(strings.Replace(x, `{"status":"Synced"`, `{"status":"Unknown"`, 1), `"health":{"status":"Healthy"}`, `"health":{"status":"Unknown"}`, 1)
	}
	return x
}

// confirming is a hub that answers reads and confirmed reads in its own way.
func confirming(t *testing.T, read func() string, confirm func() (int, string)) *httptest.Server {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := 200, ""
		switch {
		case r.URL.Path == "/api/v1/stream":
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		case r.URL.Query().Get("confirm") == "true":
			status, text = confirm()
		default:
			text = read()
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(h.Close)
	return h
}

func TestWaitIsConfirmed(t *testing.T) {
	always := func(status int, text string) func() (int, string) {
		return func() (int, string) { return status, text }
	}
	state := func(text string) func() string { return func() string { return text } }
	for name, h := range map[string]*httptest.Server{
		"INV-6 what the hub has does not end a wait while the agent is away":                  confirming(t, state(awayShop(false)), always(503, unconfirmed)),
		"INV-6 neither does it when the hub has not noticed yet that the agent is away":       confirming(t, state(shop), always(503, unconfirmed)),
		"INV-6 nor does a wait for an agent that is away for long take until its own timeout": confirming(t, state(awayShop(true)), always(503, unconfirmed)),
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			for _, what := range []string{"", "--sync", "--health"} {
				args := []string{"app", "wait", "shop", "--agent-timeout", "20ms", "--timeout", "1h", "--server", h.URL}
				if what != "" {
					args = append(args, what)
				}
				code, out, errs := capstan(t, "", args...)
				if code != exit.Away || out != "" || !strings.Contains(errs, "prod") || !strings.Contains(errs, "not connected") {
					t.Errorf("%s: exit %d, %q, %s", what, code, out, errs)
				}
			}
		})
	}
	t.Run("INV-6 the timeout of the command ends it with the same code", func(t *testing.T) {
		home(t)
		h := confirming(t, state(awayShop(true)), always(503, unconfirmed))
		code, _, errs := capstan(t, "", "app", "wait", "shop", "--agent-timeout", "1h", "--timeout", "3s", "--server", h.URL)
		if code != exit.Away || !strings.Contains(errs, "Synced and Healthy are as of 2026-01-02T03:04:05Z") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("INV-6 what the agent confirms is what counts", func(t *testing.T) {
		home(t)
		var asked atomic.Int32
		h := confirming(t, state(shop), func() (int, string) {
			switch asked.Add(1) {
			case 1:
				return 503, unconfirmed
			case 2:
				return 200, strings.Replace(shop, "Healthy", "Degraded", 1)
			}
			return 200, shop
		})
		code, out, errs := capstan(t, "", "app", "wait", "shop", "-o", "name", "--server", h.URL)
		if code != 0 || out != "application/shop\n" || asked.Load() != 3 {
			t.Errorf("exit %d, %q, asked %d times, %s", code, out, asked.Load(), errs)
		}
	})
}

func TestAge(t *testing.T) {
	home(t)
	h := hub(t, map[string]answer{
		"GET /api/v1/applications":                  {200, `{"items":[` + awayShop(false) + `],"metadata":{},"cursor":"1"}`},
		"GET /api/v1/applications/argocd/shop":      {200, awayShop(true)},
		"GET /api/v1/applications/argocd/shop/tree": {200, `{"nodes":[],"cursor":"1"}`},
	})
	t.Run("INV-6 a list shows the age of each status, and that its agent is away", func(t *testing.T) {
		_, out, _ := capstan(t, "", "app", "list", "--server", h.URL)
		if !strings.Contains(out, "AS OF") || !strings.Contains(out, "(agent away)") {
			t.Errorf("it prints\n%s", out)
		}
		if _, out, _ = capstan(t, "", "app", "list", "-o", "json", "--server", h.URL); !strings.Contains(out, `"stale"`) || !strings.Contains(out, `"asOf"`) {
			t.Errorf("it prints\n%s", out)
		}
	})
	t.Run("INV-6 an application says why its status is not current, and what was known last", func(t *testing.T) {
		_, out, _ := capstan(t, "", "app", "get", "shop", "--server", h.URL)
		if !strings.Contains(out, "Not current: the agent of cluster prod is not connected; Synced and Healthy are as of 2026-01-02T03:04:05Z") {
			t.Errorf("it prints\n%s", out)
		}
	})
}
