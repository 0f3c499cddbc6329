package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/exit"
)

// A manyHub has some applications whose syncs end at once; bodies are the syncs
// that were asked for.
type manyHub struct {
	*httptest.Server
	bodies  map[string]string
	queries []string
}

// many has the applications; those in broken refuse to be synced.
func many(t *testing.T, status, tree string, broken string, names ...string) *manyHub {
	t.Helper()
	h := &manyHub{bodies: map[string]string{}}
	one := func(name, operation string) string {
		return fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":%q,"namespace":"argocd"},
			"spec":{"sources":[{"name":"chart"},{"name":"values"}]},
			"status":{%s,"operationState":{"id":"op-%s","kind":"sync","phase":"Succeeded","startedAt":"2026-05-01T12:00:00Z"},
			"capstan":{"generation":1,"resources":1,"automation":"Manual","target":"s-1"}}}`, name, status, operation)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
		name, verb, _ := strings.Cut(strings.TrimPrefix(path, "applications/argocd/"), "/")
		switch {
		case path == "applications":
			h.queries = append(h.queries, r.URL.RawQuery)
			var items []string
			for _, n := range names {
				items = append(items, one(n, n))
			}
			fmt.Fprintf(w, `{"items":[%s],"metadata":{}}`, strings.Join(items, ","))
		case path == "stream":
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case verb == "sync" && name == broken:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, refusal("CAP-1403", "no right to sync "+name))
		case verb == "sync":
			b, _ := io.ReadAll(r.Body)
			h.bodies[name] = string(b)
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, `{"id":"op-%s","kind":"sync","phase":"Pending"}`, name)
		case verb == "manifests":
			fmt.Fprint(w, `{"items":[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"n","labels":{"tier":"front","team":"shop"}}},
				{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","labels":{"tier":"back"}}}]}`)
		case verb == "tree":
			fmt.Fprint(w, tree)
		default:
			fmt.Fprint(w, one(name, name))
		}
	}))
	t.Cleanup(h.Close)
	return h
}

const (
	well  = `"sync":{"status":"Synced"},"health":{"status":"Healthy"}`
	empty = `{"nodes":[],"cursor":"1"}`
)

func TestSyncOfSeveral(t *testing.T) {
	run := func(h *manyHub, args ...string) (int, string, string) {
		home(t)
		return capstan(t, "", append(args, "--server", h.URL, "--token", "t0ken")...)
	}
	t.Run("CLI-06 several applications are synced by one command, and waited for", func(t *testing.T) {
		h := many(t, well, empty, "", "web", "api")
		code, out, errs := run(h, "app", "sync", "web", "api", "--prune")
		if code != exit.OK || len(h.bodies) != 2 || strings.Count(out, "Healthy") != 2 || strings.Count(out, "NAME") != 1 {
			t.Errorf("exit %d, asked %v, %s%s", code, h.bodies, out, errs)
		}
	})
	t.Run("CLI-06 SRC-13 a sync of other revisions ends with its operation, because the application is not as Git says then", func(t *testing.T) {
		for _, flags := range [][]string{{"--revision", "v1"}, {"--source-positions", "2", "--revisions", "v1"}} {
			h := many(t, `"sync":{"status":"OutOfSync"},"health":{"status":"Healthy"}`, empty, "", "web")
			if code, out, errs := run(h, append([]string{"app", "sync", "web", "--timeout", "1m"}, flags...)...); code != exit.OK || !strings.Contains(out, "OutOfSync") {
				t.Errorf("%v: exit %d, %s%s", flags, code, out, errs)
			}
		}
	})
	t.Run("CLI-06 -l syncs what it matches", func(t *testing.T) {
		h := many(t, well, empty, "", "web", "api")
		code, out, errs := run(h, "app", "sync", "-l", "team=shop", "--async", "-o", "json")
		var l struct{ Items []struct{ ID string } }
		if err := json.Unmarshal([]byte(out), &l); err != nil || code != exit.OK || len(l.Items) != 2 || !strings.Contains(h.queries[0], "labels=team%3Dshop") {
			t.Errorf("exit %d, asked %v, %s%s", code, h.queries, out, errs)
		}
	})
	t.Run("UX-CLI-5 one that cannot be synced does not keep the others", func(t *testing.T) {
		h := many(t, well, empty, "web", "web", "api")
		code, out, errs := run(h, "app", "sync", "web", "api")
		if code != exit.Forbidden || len(h.bodies) != 1 || !strings.Contains(out, "api") || !strings.Contains(errs, "no right to sync web") || !strings.Contains(errs, "1 of 2 applications were not synced") {
			t.Errorf("exit %d, asked %v, %s%s", code, h.bodies, out, errs)
		}
	})
	t.Run("CLI-06 names or a selector, not both, not none", func(t *testing.T) {
		h := many(t, well, empty, "", "web")
		for _, args := range [][]string{{"app", "sync"}, {"app", "sync", "web", "-l", "a=b"}, {"app", "wait"}} {
			if code, _, errs := run(h, args...); code != exit.Usage {
				t.Errorf("%v: exit %d, %s", args, code, errs)
			}
		}
	})
	for name, c := range map[string]struct {
		args []string
		code int
		asks string
	}{
		"CLI-06 --label selects objects":               {[]string{"--label", "tier=front", "--label", "team=shop"}, exit.OK, `"resources":[{"group":"apps","kind":"Deployment","name":"web","namespace":"n"}]`},
		"CLI-06 --label that nothing has":              {[]string{"--label", "tier=none"}, exit.Usage, ""},
		"CLI-06 --label without a value":               {[]string{"--label", "tier"}, exit.Usage, ""},
		"CLI-06 --source-names":                        {[]string{"--source-names", "values,chart", "--revisions", "v1,v2"}, exit.OK, `"sourcePositions":[2,1]`},
		"CLI-06 --source-names that there are not":     {[]string{"--source-names", "valus", "--revisions", "v1"}, exit.Usage, ""},
		"SRC-13 --source-positions counts from 1":      {[]string{"--source-positions", "2", "--revisions", "v1"}, exit.OK, `"revisions":["v1"],"sourcePositions":[2]`},
		"SRC-13 --source-positions in another order":   {[]string{"--source-positions", "2,1", "--revisions", "v1,v2"}, exit.OK, `"revisions":["v1","v2"],"sourcePositions":[2,1]`},
		"CLI-06 --source-names without revisions":      {[]string{"--source-names", "values"}, exit.Usage, ""},
		"CLI-06 options of syncs have flags":           {[]string{"--replace", "--server-side", "--apply-out-of-sync-only"}, exit.OK, `"syncOptions":["ApplyOutOfSyncOnly=true","Replace=true","ServerSideApply=true"]`},
		"CLI-06 --retry-backoff-factor":                {[]string{"--retry-limit", "3", "--retry-backoff-factor", "2"}, exit.OK, `"retry":{"backoff":{"factor":2},"limit":3}`},
		"CLI-06 --assumeYes answers --preview-changes": {[]string{"--preview-changes", "--assumeYes"}, exit.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := many(t, well, empty, "", "web")
			code, _, errs := run(h, append([]string{"app", "sync", "web"}, c.args...)...)
			if code != c.code || !strings.Contains(h.bodies["web"], c.asks) {
				t.Errorf("exit %d, %s, asked %s", code, errs, h.bodies["web"])
			}
		})
	}
}

func TestWaitForStates(t *testing.T) {
	tree := func(sync, health string) string {
		return fmt.Sprintf(`{"cursor":"1","nodes":[{"kind":"Deployment","group":"apps","version":"v1","name":"web","namespace":"n","managed":true,"status":%q,"health":%q}]}`, sync, health)
	}
	for name, c := range map[string]struct {
		status, tree string
		args         []string
		code         int
		says         string
	}{
		"CLI-07 --suspended":                   {`"sync":{"status":"Synced"},"health":{"status":"Suspended"}`, empty, []string{"--suspended"}, exit.OK, "Suspended"},
		"CLI-07 --degraded":                    {`"sync":{"status":"OutOfSync"},"health":{"status":"Degraded"}`, empty, []string{"--degraded"}, exit.OK, "Degraded"},
		"CLI-07 --degraded does not come":      {well, empty, []string{"--degraded", "--timeout", "200ms"}, exit.Timeout, "not degraded"},
		"CLI-07 any of several healths":        {`"sync":{"status":"Synced"},"health":{"status":"Suspended"}`, empty, []string{"--health", "--suspended"}, exit.OK, ""},
		"CLI-07 --resource":                    {`"sync":{"status":"OutOfSync"},"health":{"status":"Degraded"}`, tree("Synced", "Healthy"), []string{"--resource", "apps:Deployment:n/web"}, exit.OK, ""},
		"CLI-07 --resource that is not there":  {well, empty, []string{"--resource", "apps:Deployment:n/web", "--timeout", "200ms"}, exit.Timeout, "no Deployment web"},
		"CLI-07 --resource that is not synced": {well, tree("OutOfSync", "Healthy"), []string{"--resource", "apps:Deployment:web", "--timeout", "200ms"}, exit.Timeout, "Deployment web is not synced"},
		"CLI-07 --resource in a health":        {well, tree("OutOfSync", "Suspended"), []string{"--resource", "apps:Deployment:web", "--suspended"}, exit.OK, ""},
		"CLI-07 --resource takes no exclusion": {well, empty, []string{"--resource", "!apps:Deployment:web"}, exit.Usage, "!"},
		"CLI-07 --delete while it is there":    {well, empty, []string{"--delete", "--timeout", "200ms"}, exit.Timeout, "not gone"},
		"CLI-07 --delete and a state":          {well, empty, []string{"--delete", "--health"}, exit.Usage, "--delete"},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			h := many(t, c.status, c.tree, "", "web")
			code, out, errs := capstan(t, "", append([]string{"app", "wait", "web", "--server", h.URL, "--token", "t0ken"}, c.args...)...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, %s%s", code, out, errs)
			}
		})
	}
	t.Run("CLI-07 --delete of what is gone", func(t *testing.T) {
		home(t)
		h := hub(t, map[string]answer{"GET /api/v1/stream": {200, ""}})
		if code, _, errs := capstan(t, "", "app", "wait", "web", "--delete", "--server", h.URL); code != exit.OK {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("CLI-07 several applications, by label", func(t *testing.T) {
		home(t)
		h := many(t, well, empty, "", "web", "api")
		if code, out, errs := capstan(t, "", "app", "wait", "-l", "team=shop", "-o", "name", "--server", h.URL); code != exit.OK || out != "application/web\napplication/api\n" {
			t.Errorf("exit %d, %q, %s", code, out, errs)
		}
	})
}
