package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/diff"
	"github.com/capstan-cd/capstan/cli/exit"
)

func TestDiff(t *testing.T) {
	const at = "GET /api/v1/applications/argocd/shop/diff"
	one := `{"items":[{"group":"","kind":"ConfigMap","namespace":"shop","name":"a","version":"v1","status":"OutOfSync","summary":"data.v",
"desired":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"},"data":{"v":"two"}},
"live":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","labels":{"noise":"yes"}},"data":{"v":"one"}},
"normalizedLive":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"},"data":{"v":"one"}},
"applied":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"},"data":{"v":"zero"}}PREDICTED},
{"group":"","kind":"Secret","namespace":"shop","name":"s","version":"v1","status":"Synced","live":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}}]}`
	predicted := strings.Replace(one, "PREDICTED", `,"predicted":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","labels":{"noise":"yes","more":"by webhook"}},"data":{"v":"two"}},"problem":"the quota is used up"`, 1)
	one = strings.Replace(one, "PREDICTED", "", 1)
	dir := t.TempDir()
	local := filepath.Join(dir, "a.yaml")
	manifest := func(v string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {v: " + v + "}\n"
	}
	if err := os.WriteFile(local, []byte(manifest("one")), 0o600); err != nil {
		t.Fatal(err)
	}
	viewer := filepath.Join(dir, "viewer")
	if err := os.WriteFile(viewer, []byte("#!/bin/sh\necho seen by $1\ncat \"$2\" \"$3\"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		answer   string
		stdin    string
		external string
		args     []string
		want     int
		has      []string
		lacks    []string
	}{
		"of live only what manifests speak of":        {one, "", "", nil, exit.Differs, []string{"-  v: one", "+  v: two", "data.v"}, []string{"noise", "zero"}},
		"what was applied last":                       {one, "", "", []string{"--three-way"}, exit.Differs, []string{"-  v: zero", "+  v: two"}, []string{"noise"}},
		"what an apply would make":                    {predicted, "", "", []string{"--server-side-diff"}, exit.Differs, []string{"+    more: by webhook", "the quota is used up"}, nil},
		"another exit code":                           {one, "", "", []string{"--diff-exit-code", "1"}, 1, []string{"v: two"}, nil},
		"no exit code":                                {one, "", "", []string{"--exit-code=false"}, exit.OK, []string{"v: two"}, nil},
		"an exit code that is none":                   {one, "", "", []string{"--diff-exit-code", "0"}, exit.Usage, nil, nil},
		"another program shows it":                    {one, "", viewer + " word", nil, exit.Differs, []string{"seen by word", "v: one", "v: two"}, nil},
		"another program that is not there":           {one, "", "/nonexistent/viewer", nil, exit.Usage, nil, nil},
		"local manifests that are live":               {one, "", "", []string{"--local", local}, exit.OK, nil, []string{"Secret"}},
		"local manifests from the input":              {one, manifest("three"), "", []string{"--local", "-"}, exit.Differs, []string{"+  v: three"}, []string{"Secret", "v: two"}},
		"local manifests lack one":                    {one, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n", "", []string{"--local", "-"}, exit.Differs, []string{"ConfigMap shop/a", "ConfigMap b"}, nil},
		"local manifests that are none":               {one, "apiVersion: v1\nkind: [", "", []string{"--local", "-"}, exit.Usage, nil, nil},
		"a folder that is not there":                  {one, "", "", []string{"--local", filepath.Join(dir, "no")}, exit.Usage, nil, nil},
		"local manifests and a prediction do not mix": {one, "", "", []string{"--local", local, "--server-side-diff"}, exit.Usage, nil, nil},
		"the answer as JSON has the local manifests":  {one, manifest("three"), "", []string{"--local", "-", "-o", "json"}, exit.Differs, []string{`"three"`}, []string{`"two"`}},
	}
	for name, c := range cases {
		t.Run("DIFF-17 "+name, func(t *testing.T) {
			home(t)
			t.Setenv(diff.External, c.external)
			h := hub(t, map[string]answer{at: {200, c.answer}})
			code, out, errs := capstan(t, c.stdin, append([]string{"app", "diff", "shop", "--server", h.URL, "--token", "t0ken"}, c.args...)...)
			if code != c.want {
				t.Errorf("exit %d, want %d; output %q, errors %q", code, c.want, out, errs)
			}
			if c.want == exit.Usage && errs == "" {
				t.Error("nothing says why")
			}
			for _, text := range c.has {
				if !strings.Contains(out, text) {
					t.Errorf("%q is not in\n%s", text, out)
				}
			}
			for _, text := range c.lacks {
				if strings.Contains(out, text) {
					t.Errorf("%q is in\n%s", text, out)
				}
			}
		})
	}
}

// The hub has rendered what was pushed before the cluster has heard of it.
func TestDiffAfterARefreshWaitsForTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		connection string
		compared   int // at which look the cluster has compared; 0: never
	}{
		"DIFF-17 a refresh is over when the cluster has compared": {"Connected", 4},
		"DIFF-17 a cluster that is away is not waited for":        {"Disconnected", 0},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			var asked, reads int // requests come one after the other
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch path := strings.TrimPrefix(r.URL.Path, "/api/v1/applications/argocd/shop"); path {
				case "/refresh":
					w.WriteHeader(http.StatusAccepted)
					fmt.Fprint(w, `{}`)
				case "/diff":
					asked = reads
					fmt.Fprint(w, `{"items":[]}`)
				default:
					reads++
					compared := ""
					if reads == c.compared {
						compared = `"reconciledAt":"2026-05-01T12:00:05Z",`
					}
					fmt.Fprintf(w, `{"metadata":{"name":"shop"},"status":{%s"capstan":{"generation":1,"automation":"Manual","target":"s-1","connection":%q,"refreshedAt":"2026-05-01T12:00:0%dZ"}}}`, compared, c.connection, reads)
				}
			}))
			defer server.Close()
			code, _, errs := capstan(t, "", "app", "diff", "shop", "--refresh", "--server", server.URL, "--token", "t0ken")
			if code != exit.OK || asked < c.compared {
				t.Errorf("exit %d, %s; the cluster was asked after look %d, and has compared at look %d", code, errs, asked, c.compared)
			}
		})
	}
}
