package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/apimodel"
)

func TestWaitDecision(t *testing.T) {
	t.Parallel()
	good := `"sync":{"status":"Synced"},"health":{"status":"Healthy"}`
	broken := `,"conditions":[{"type":"ComparisonError","message":"unexpected {{end}}"}]`
	paused := `,"capstan":{"paused":{"since":"2026-05-01T12:00:00Z","by":"jane","revision":"r1","skipped":"r2","message":"paused at r1 since 2026-05-01T12:00:00Z, rolled back by jane"}}`
	op := func(rest string) string { return `"operationState":{"id":"op-1","kind":"sync",` + rest + `}` }
	cases := map[string]struct {
		why    string
		w      waiting
		status string
		over   bool
		failed bool
		says   string // while it is not over
	}{
		"all: at rest":              {"nothing is missing", waiting{}, good, true, false, ""},
		"all: no status":            {"it was just made", waiting{}, ``, false, false, "not synced"},
		"all: out of sync":          {"Git is ahead", waiting{}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}`, false, false, "not synced"},
		"all: degraded":             {"it may recover", waiting{}, `"sync":{"status":"Synced"},"health":{"status":"Degraded","message":"crash loop"}`, false, false, "crash loop"},
		"all: running":              {"an operation is in progress", waiting{}, good + `,` + op(`"phase":"Running","message":"wave 2"`), false, false, "wave 2"},
		"health only: out of sync":  {"sync was not asked for", waiting{health: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}`, true, false, ""},
		"health only: running":      {"the operation was not asked for", waiting{health: true}, good + `,` + op(`"phase":"Running"`), true, false, ""},
		"sync only: degraded":       {"health was not asked for", waiting{sync: true}, `"sync":{"status":"Synced"},"health":{"status":"Degraded"}`, true, false, ""},
		"operation only: running":   {"it was asked for", waiting{finished: true}, good + `,` + op(`"phase":"Pending"`), false, false, "Pending"},
		"operation only: failed":    {"its end was waited for, nothing else", waiting{finished: true}, op(`"phase":"Failed"`), true, false, ""},
		"mine: not seen yet":        {"the status is older than the request", waiting{operation: "op-1"}, good, false, false, "not been seen"},
		"mine: another one":         {"the status is of an earlier operation", waiting{operation: "op-2"}, good + `,` + op(`"phase":"Failed"`), false, false, "not been seen"},
		"mine: succeeded":           {"and all is well", waiting{operation: "op-1"}, good + `,` + op(`"phase":"Succeeded"`), true, false, ""},
		"mine: not healthy yet":     {"health follows the operation", waiting{operation: "op-1"}, `"sync":{"status":"Synced"},"health":{"status":"Progressing"},` + op(`"phase":"Succeeded"`), false, false, "not healthy"},
		"mine: failed":              {"it will not come right by waiting", waiting{operation: "op-1"}, good + `,` + op(`"phase":"Failed","message":"quota"`), true, true, ""},
		"mine: error":               {"it will not come right by waiting", waiting{operation: "op-1"}, op(`"phase":"Error"`), true, true, ""},
		"mine: failed, tried again": {"the next try may do", waiting{operation: "op-1"}, op(`"phase":"Failed","retryAt":"2026-05-01T12:00:00Z"`), false, false, "tried again"},
		"mine: the next try":        {"a retry stands for the first", waiting{operation: "op-0"}, good + `,` + op(`"phase":"Succeeded","retryCount":1`), true, false, ""},
		"mine: dry run":             {"nothing was applied: nothing becomes synced", waiting{operation: "op-1"}, `"sync":{"status":"OutOfSync"},` + op(`"phase":"Succeeded","operation":{"sync":{"dryRun":true}}`), true, false, ""},
		"all: cannot be rendered":   {"Synced is what was rendered before", waiting{}, good + broken, false, false, "unexpected {{end}}"},
		"sync only: not rendered":   {"Synced is what was rendered before", waiting{sync: true}, good + broken, false, false, "unexpected {{end}}"},
		"health only: not rendered": {"health was asked for", waiting{health: true}, good + broken, true, false, ""},
		"mine: not rendered":        {"the newest was to be applied, and was not", waiting{operation: "op-1", newest: true}, good + broken + `,` + op(`"phase":"Succeeded"`), true, true, ""},
		"mine: an older revision":   {"the newest does not matter", waiting{operation: "op-1"}, good + broken + `,` + op(`"phase":"Succeeded"`), true, false, ""},
		"all: paused":               {"nothing happens by itself", waiting{}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}` + paused, true, true, ""},
		"sync only: paused":         {"nothing happens by itself", waiting{sync: true}, `"sync":{"status":"OutOfSync"}` + paused, true, true, ""},
		"health only: paused":       {"sync was not asked for", waiting{health: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}` + paused, true, false, ""},
		"all: paused, and equal":    {"Git renders what is deployed", waiting{}, good + paused, true, false, ""},
		"mine: rolled back":         {"what was gone back to is not what Git says", waiting{operation: "op-1", rollback: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"},` + op(`"phase":"Succeeded"`) + paused, true, false, ""},
		"mine: rolling back":        {"it is under way", waiting{operation: "op-1", rollback: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"},` + op(`"phase":"Running"`) + paused, false, false, "Running"},
		"mine: unknown since":       {"a rollback to it does not need the newest", waiting{operation: "op-1"}, `"sync":{"status":"Unknown"},"health":{"status":"Healthy"}` + broken + `,` + op(`"phase":"Succeeded"`), true, false, ""},
		"sync only: unknown":        {"the branch is gone", waiting{sync: true}, `"sync":{"status":"Unknown"},"health":{"status":"Healthy"}` + broken, false, false, "unexpected {{end}}"},
		"conditions are told":       {"they say why it takes so long", waiting{}, `"sync":{"status":"Unknown"},"conditions":[{"type":"ComparisonError","message":"no such branch"}]`, false, false, "no such branch"},
	}
	for name, c := range cases {
		t.Run("CLI-07 "+name, func(t *testing.T) {
			t.Parallel()
			var x apimodel.Application
			if err := json.Unmarshal([]byte(`{"metadata":{"name":"shop"},"status":{`+c.status+`}}`), &x); err != nil {
				t.Fatal(err)
			}
			over, why, err := c.w.decide(x)
			if over != c.over || (err != nil) != c.failed || !strings.Contains(why, c.says) {
				t.Errorf("%s: over %v, why %q, error %v", c.why, over, why, err)
			}
			if given(x.Status.Capstan.Paused) && err != nil && !strings.Contains(err.Error(), "paused at r1 since") {
				t.Errorf("it says %v", err)
			}
			if !over && why == "" {
				t.Error("a wait that goes on must say what is missing")
			}
		})
	}
}

func TestWait(t *testing.T) {
	t.Run("UX-CLI-5 a wait that takes too long says what was missing", func(t *testing.T) {
		home(t)
		h := hub(t, map[string]answer{
			"GET /api/v1/stream":                   {200, ""},
			"GET /api/v1/applications/argocd/shop": {200, strings.Replace(shop, "Healthy", "Progressing", 1)},
		})
		for timeout := 50 * time.Millisecond; ; timeout *= 2 {
			code, _, errs := capstan(t, "", "app", "wait", "shop", "--timeout", timeout.String(), "--server", h.URL)
			if code == exitTimeout && strings.Contains(errs, "not healthy") {
				break
			}
			// A slow machine may not have seen the application in that time.
			if code != exitTimeout || timeout > time.Minute {
				t.Fatalf("exit %d after %s, %s", code, timeout, errs)
			}
		}
	})
	t.Run("UX-CLI-5 so does one of a hub that is slow to answer", func(t *testing.T) {
		home(t)
		slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		t.Cleanup(slow.Close)
		for _, verb := range []string{"wait", "sync"} {
			if code, _, errs := capstan(t, "", "app", verb, "shop", "--timeout", "50ms", "--server", slow.URL); code != exitTimeout || !strings.Contains(errs, "timed out") {
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
		if code, _, errs := capstan(t, "", "app", "wait", "shop", "--server", h.URL); code != exitMissing {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
}

func TestConcerns(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]bool{
		`{"name":"shop","namespace":"argocd"}`:  true,
		`{"name":"other","namespace":"argocd"}`: false,
		`{}`:                                    true,
		`not json`:                              true,
	} {
		if got := concerns(data, "argocd/shop"); got != want {
			t.Errorf("%s: %v", data, got)
		}
	}
}
