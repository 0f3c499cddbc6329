package testlog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/integration/tools/testlog"
)

func TestRead(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		log  string
		want []testlog.Test // nil: an error
	}{
		"Go": {
			log: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA/DIR-01_reads","Output":"x\n"}
{"Action":"pass","Package":"p","Test":"TestA/DIR-01_reads","Elapsed":0.1}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`,
			want: []testlog.Test{{Package: "p", Name: "TestA/DIR-01_reads", Result: "pass"}, {Package: "p", Name: "TestA", Result: "fail"}},
		},
		"Vitest": {
			log:  `{"numTotalTests":2,"testResults":[{"name":"a.test.ts","assertionResults":[{"fullName":"list UI-01 sorts","status":"passed"},{"fullName":"later","status":"todo"}]}]}`,
			want: []testlog.Test{{Package: "a.test.ts", Name: "list UI-01 sorts", Result: "pass"}, {Package: "a.test.ts", Name: "later", Result: "skip"}},
		},
		"Playwright": {
			log: `{"config":{},"suites":[{"title":"a.spec.ts","specs":[{"title":"UI-02 filters","ok":false,"tests":[{"status":"unexpected"}]}],
				"suites":[{"title":"group","specs":[{"title":"x","ok":true,"tests":[{"status":"expected"}]}]}]}]}`,
			want: []testlog.Test{{Package: "a.spec.ts", Name: "UI-02 filters", Result: "fail"}, {Package: "a.spec.ts", Name: "group/x", Result: "pass"}},
		},
		"Empty":     {log: " \n"},
		"NotJSON":   {log: "ok  \tpackage\t0.1s\n"},
		"OtherJSON": {log: `{"a":1}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := testlog.Read([]byte(c.log))
			if (err != nil) != (c.want == nil) {
				t.Fatalf("Read() error %v", err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("Read() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCountTakesEachTestOnce(t *testing.T) {
	t.Parallel()
	got := testlog.Count([]testlog.Test{
		{Package: "p", Name: "TestA/x", Result: "pass"},
		{Package: "p", Name: "TestA/y/z", Result: "fail"},
		{Package: "p", Name: "TestA/y", Result: "fail"},
		{Package: "p", Name: "TestA", Result: "fail"},
		{Package: "p", Name: "TestB/x", Result: "pass"},
		{Package: "p", Name: "TestB", Result: "fail"}, // failed by itself
		{Package: "p", Name: "TestC", Result: "skip"},
		{Package: "q", Name: "TestC", Result: "pass"},
	})
	if want := (testlog.Tally{Passed: 3, Failed: 2, Skipped: 1}); got != want {
		t.Errorf("Count() = %v, want %v", got, want)
	}
}
