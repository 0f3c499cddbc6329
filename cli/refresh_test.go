package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/cli/exit"
)

// refreshing is a hub whose application has been refreshed after some looks.
// moved are the revision and the target from then on.
func refreshing(t *testing.T, after int, revision, target, conditions string) *httptest.Server {
	t.Helper()
	annotations := "{}"
	if target == "left alone" {
		annotations = `{"argocd.argoproj.io/skip-reconcile":"true"}`
	}
	reads := 0 // requests come one after the other
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/refresh") {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		reads++
		at, rev, to, cond := time.Unix(1767323045, 0), "1111111111111111111111111111111111111111", "s-1", ""
		if after > 0 && reads > after {
			at, rev, to, cond = at.Add(time.Second), revision, target, conditions
		}
		fmt.Fprintf(w, `{"metadata":{"name":"shop","namespace":"argocd","annotations":%s},"status":{"sync":{"status":"Synced","revision":%q},"conditions":[%s],
			"capstan":{"generation":1,"resources":1,"automation":"Manual","target":%q,"refreshedAt":%q}}}`, annotations, rev, cond, to, at.UTC().Format(time.RFC3339Nano))
	}))
	t.Cleanup(h.Close)
	return h
}

func TestRefreshSaysWhatItFound(t *testing.T) {
	same := "1111111111111111111111111111111111111111"
	for name, c := range map[string]struct {
		hub  *httptest.Server
		args []string
		code int
		says string
	}{
		"APP-22 nothing new":             {refreshing(t, 3, same, "s-1", ""), nil, exit.OK, "11111111  unchanged"},
		"APP-22 a new revision":          {refreshing(t, 3, strings.Repeat("2", 40), "s-2", ""), nil, exit.OK, "22222222  was 11111111 "},
		"APP-22 only the commit is new":  {refreshing(t, 3, strings.Repeat("2", 40), "s-1", ""), nil, exit.OK, "was 11111111, same manifests"},
		"APP-22 hard, and others now":    {refreshing(t, 3, same, "s-2", ""), []string{"--hard"}, exit.OK, "same revision, other manifests"},
		"APP-22 what cannot be rendered": {refreshing(t, 3, same, "s-1", `{"type":"ComparisonError","message":"no such branch"}`), nil, exit.OK, "ComparisonError: no such branch"},
		"APP-22 it never happens":        {refreshing(t, 0, "", "", ""), []string{"--timeout", "300ms"}, exit.Timeout, "the refresh timed out after 300ms"},
		"APP-22 it is left alone":        {refreshing(t, 0, "", "left alone", ""), nil, exit.OK, "leaves it alone"},
		"APP-22 nobody waits":            {refreshing(t, 0, "", "", ""), []string{"--async"}, exit.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			code, out, errs := capstan(t, "", append([]string{"app", "refresh", "shop", "--server", c.hub.URL, "--token", "t0ken"}, c.args...)...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, %q, %s", code, out, errs)
			}
		})
	}
}

func TestPausedIsShown(t *testing.T) {
	const paused = `"paused":{"since":"2026-05-01T12:00:00Z","by":"jane","revision":"r1","skipped":"r2","message":"paused at r1 since 2026-05-01T12:00:00Z, rolled back by jane because broken","resume":"capstan app resume shop"}`
	const at = "GET /api/v1/applications/argocd/shop/"
	for verb, body := range map[string]string{
		"tree":      `{"cursor":"1","nodes":[{"uid":"u1","kind":"Deployment","group":"apps","version":"v1","name":"web","managed":true},{"uid":"u2","parent":"u1","kind":"Pod","group":"","version":"v1","name":"web-1","managed":false}],`,
		"diff":      `{"items":[],`,
		"manifests": `{"items":[{"kind":"ConfigMap"}],`,
	} {
		t.Run("ROLL-02 app "+verb, func(t *testing.T) {
			home(t)
			h := hub(t, map[string]answer{at + verb: {200, body + paused + "}"}})
			code, out, errs := capstan(t, "", "app", verb, "shop", "--server", h.URL, "--token", "t0ken")
			if code != exit.OK || !strings.Contains(errs, "rolled back by jane because broken") || !strings.Contains(errs, "`capstan app resume shop` ends the pause") || strings.Contains(out, "jane") {
				t.Errorf("exit %d, %q, %s", code, out, errs)
			}
			if verb == "tree" && !strings.Contains(out, "\n  Pod/web-1") {
				t.Errorf("what the Deployment owns is not below it:\n%s", out)
			}
		})
	}
}
