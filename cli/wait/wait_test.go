package wait

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/client"
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
		w      Goal
		status string
		over   bool
		failed bool
		says   string // while it is not over
	}{
		"all: at rest":              {"nothing is missing", Goal{}, good, true, false, ""},
		"all: no status":            {"it was just made", Goal{}, ``, false, false, "not synced"},
		"all: out of sync":          {"Git is ahead", Goal{}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}`, false, false, "not synced"},
		"all: degraded":             {"it may recover", Goal{}, `"sync":{"status":"Synced"},"health":{"status":"Degraded","message":"crash loop"}`, false, false, "crash loop"},
		"all: running":              {"an operation is in progress", Goal{}, good + `,` + op(`"phase":"Running","message":"wave 2"`), false, false, "wave 2"},
		"health only: out of sync":  {"sync was not asked for", Goal{health: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}`, true, false, ""},
		"health only: running":      {"the operation was not asked for", Goal{health: true}, good + `,` + op(`"phase":"Running"`), true, false, ""},
		"sync only: degraded":       {"health was not asked for", Goal{sync: true}, `"sync":{"status":"Synced"},"health":{"status":"Degraded"}`, true, false, ""},
		"operation only: running":   {"it was asked for", Goal{finished: true}, good + `,` + op(`"phase":"Pending"`), false, false, "Pending"},
		"operation only: failed":    {"its end was waited for, nothing else", Goal{finished: true}, op(`"phase":"Failed"`), true, false, ""},
		"mine: not seen yet":        {"the status is older than the request", Goal{Operation: "op-1"}, good, false, false, "not been seen"},
		"mine: another one":         {"the status is of an earlier operation", Goal{Operation: "op-2"}, good + `,` + op(`"phase":"Failed"`), false, false, "not been seen"},
		"mine: succeeded":           {"and all is well", Goal{Operation: "op-1"}, good + `,` + op(`"phase":"Succeeded"`), true, false, ""},
		"mine: not healthy yet":     {"health follows the operation", Goal{Operation: "op-1"}, `"sync":{"status":"Synced"},"health":{"status":"Progressing"},` + op(`"phase":"Succeeded"`), false, false, "not healthy"},
		"mine: failed":              {"it will not come right by waiting", Goal{Operation: "op-1"}, good + `,` + op(`"phase":"Failed","message":"quota"`), true, true, ""},
		"mine: error":               {"it will not come right by waiting", Goal{Operation: "op-1"}, op(`"phase":"Error"`), true, true, ""},
		"mine: failed, tried again": {"the next try may do", Goal{Operation: "op-1"}, op(`"phase":"Failed","retryAt":"2026-05-01T12:00:00Z"`), false, false, "tried again"},
		"mine: the next try":        {"a retry stands for the first", Goal{Operation: "op-0"}, good + `,` + op(`"phase":"Succeeded","retryCount":1`), true, false, ""},
		"mine: dry run":             {"nothing was applied: nothing becomes synced", Goal{Operation: "op-1"}, `"sync":{"status":"OutOfSync"},` + op(`"phase":"Succeeded","operation":{"sync":{"dryRun":true}}`), true, false, ""},
		"all: cannot be rendered":   {"Synced is what was rendered before", Goal{}, good + broken, false, false, "unexpected {{end}}"},
		"sync only: not rendered":   {"Synced is what was rendered before", Goal{sync: true}, good + broken, false, false, "unexpected {{end}}"},
		"health only: not rendered": {"health was asked for", Goal{health: true}, good + broken, true, false, ""},
		"mine: not rendered":        {"the newest was to be applied, and was not", Goal{Operation: "op-1", Newest: true}, good + broken + `,` + op(`"phase":"Succeeded"`), true, true, ""},
		"mine: an older revision":   {"the newest does not matter", Goal{Operation: "op-1"}, good + broken + `,` + op(`"phase":"Succeeded"`), true, false, ""},
		"all: paused":               {"nothing happens by itself", Goal{}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}` + paused, true, true, ""},
		"sync only: paused":         {"nothing happens by itself", Goal{sync: true}, `"sync":{"status":"OutOfSync"}` + paused, true, true, ""},
		"health only: paused":       {"sync was not asked for", Goal{health: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}` + paused, true, false, ""},
		"all: paused, and equal":    {"Git renders what is deployed", Goal{}, good + paused, true, false, ""},
		"mine: rolled back":         {"what was gone back to is not what Git says", Goal{Operation: "op-1", Elsewhere: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"},` + op(`"phase":"Succeeded"`) + paused, true, false, ""},
		"mine: another, and sync":   {"Synced was asked for", Goal{Operation: "op-1", Elsewhere: true, sync: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"},` + op(`"phase":"Succeeded"`), false, false, "not synced"},
		"mine: rolling back":        {"it is under way", Goal{Operation: "op-1", Elsewhere: true}, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"},` + op(`"phase":"Running"`) + paused, false, false, "Running"},
		"mine: unknown since":       {"a rollback to it does not need the newest", Goal{Operation: "op-1"}, `"sync":{"status":"Unknown"},"health":{"status":"Healthy"}` + broken + `,` + op(`"phase":"Succeeded"`), true, false, ""},
		"sync only: unknown":        {"the branch is gone", Goal{sync: true}, `"sync":{"status":"Unknown"},"health":{"status":"Healthy"}` + broken, false, false, "unexpected {{end}}"},
		"conditions are told":       {"they say why it takes so long", Goal{}, `"sync":{"status":"Unknown"},"conditions":[{"type":"ComparisonError","message":"no such branch"}]`, false, false, "no such branch"},
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
			if client.Given(x.Status.Capstan.Paused) && err != nil && !strings.Contains(err.Error(), "paused at r1 since") {
				t.Errorf("it says %v", err)
			}
			if !over && why == "" {
				t.Error("a wait that goes on must say what is missing")
			}
		})
	}
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
