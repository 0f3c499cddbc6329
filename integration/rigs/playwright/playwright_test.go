package playwright_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/integration/rigs/playwright"
)

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := playwright.Read([]byte(`{"suites":[{"title":"a.spec.ts","specs":[
		{"title":"passes","ok":true,"tests":[{"status":"expected","results":[{"status":"passed"}]}]},
		{"title":"fails","ok":false,"tests":[{"status":"unexpected","results":[{"errors":[{"message":"no such row"}]}]}]},
		{"title":"passes the second time","ok":true,"tests":[{"status":"flaky","results":[{"errors":[{"message":"too slow"}]},{}]}]},
		{"title":"skips itself","ok":true,"tests":[{"status":"skipped","annotations":[{"type":"skip","description":"no proxy here"}],"results":[{"status":"skipped"}]}]},
		{"title":"comes after a failure","ok":true,"tests":[{"status":"skipped","annotations":[],"results":[]}]},
		{"title":"has no test","ok":true,"tests":[]}],
		"suites":[{"title":"group","suites":[{"title":"inner","specs":[{"title":"passes","ok":true,"tests":[{"status":"expected"}]}]}]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []playwright.Spec{
		{File: "a.spec.ts", Title: "passes", Result: playwright.Passed},
		{File: "a.spec.ts", Title: "fails", Result: playwright.Failed, Why: "unexpected\nno such row"},
		{File: "a.spec.ts", Title: "passes the second time", Result: playwright.Failed, Why: "flaky\ntoo slow"},
		{File: "a.spec.ts", Title: "skips itself", Result: playwright.Skipped, Why: "no proxy here"},
		{File: "a.spec.ts", Title: "comes after a failure", Result: playwright.NotRun, Why: "it was not run"},
		{File: "a.spec.ts", Title: "has no test", Result: playwright.NotRun, Why: "the report has no test of it"},
		{File: "a.spec.ts", Title: "group/inner/passes", Result: playwright.Passed},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Read() differs (-want +got):\n%s", diff)
	}
}

func TestReadRefusesWhatNamesNoSpecs(t *testing.T) {
	t.Parallel()
	for _, report := range []string{``, `{}`, `{"suites":[{"title":"a.spec.ts","specs":[]}]}`} {
		if got, err := playwright.Read([]byte(report)); err == nil {
			t.Errorf("Read(%q) = %v without an error", report, got)
		}
	}
}

func TestReadShowsThePage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "error-context.md")
	if err := os.WriteFile(file, []byte("# Error details\n\nno such row\n\n# Page snapshot\n- heading \"Clusters\"\n\n# Test source\n1 | test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := playwright.Read(fmt.Appendf(nil, `{"suites":[{"title":"a.spec.ts","specs":[{"title":"fails","ok":false,"tests":[{"status":"unexpected","results":[
		{"errors":[{"message":"no such row"}],"attachments":[{"name":"trace","path":"none"},{"name":"error-context","path":%s}]}]}]}]}]}`, path))
	if err != nil {
		t.Fatal(err)
	}
	if want := "unexpected\nno such row\nthe page:\n- heading \"Clusters\"\n"; len(got) != 1 || got[0].Why != want {
		t.Errorf("Read() = %+v, want one with %q", got, want)
	}
}
