package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// stream is what govulncheck prints for some findings.
func stream(findings ...string) string {
	return `{"config":{"protocol_version":"v1.0.0","go_version":"go1.26.8"}}
{"progress":{"message":"Fetching vulnerabilities from the database..."}}
{"osv":{"id":"GO-1","summary":"it trusts a header","details":"…"}}
{"osv":{"id":"GO-2","summary":"it reads too much"}}
` + strings.Join(findings, "\n")
}

const (
	required     = `{"finding":{"osv":"GO-1","trace":[{"module":"example.com/m","version":"v1.0.0"}]}}`
	imported     = `{"finding":{"osv":"GO-1","trace":[{"module":"example.com/m","version":"v1.0.0","package":"example.com/m/proxy"}]}}`
	calledModule = `{"finding":{"osv":"GO-1","fixed_version":"v1.0.1","trace":[
		{"module":"example.com/m","version":"v1.0.0","package":"example.com/m/proxy","function":"forward","receiver":"*Proxy","position":{"filename":"proxy.go","line":9,"column":6}},
		{"module":"example.com/m","version":"v1.0.0","package":"example.com/m/proxy","function":"ServeHTTP","receiver":"*Proxy","position":{"filename":"proxy.go","line":5,"column":3}},
		{"module":"github.com/capstan-cd/capstan","package":"github.com/capstan-cd/capstan/hub/api","function":"New","position":{"filename":"hub/api/api.go","line":7,"column":2}},
		{"module":"github.com/capstan-cd/capstan","package":"github.com/capstan-cd/capstan/hub/cmd/capstan-hub","function":"main","position":{"filename":"hub/cmd/capstan-hub/main.go","line":3,"column":1}}]}}`
	calledAgain    = `{"finding":{"osv":"GO-1","fixed_version":"v1.0.1","trace":[{"module":"example.com/m","version":"v1.0.0","package":"example.com/m/proxy","function":"Other"}]}}`
	calledUnfixed  = `{"finding":{"osv":"GO-1","trace":[{"module":"example.com/m","version":"v1.0.0","package":"example.com/m/proxy","function":"forward"}]}}`
	calledStandard = `{"finding":{"osv":"GO-2","fixed_version":"v1.26.10","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Get"}]}}`
	standardLater  = `{"finding":{"osv":"GO-2","fixed_version":"v1.26.11","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Get"}]}}`
	standardNever  = `{"finding":{"osv":"GO-2","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Get"}]}}`
)

func TestCalled(t *testing.T) {
	t.Parallel()
	const mended = "this machine builds with go1.26.8; go.mod asks for go1.26.10, which mends 1"
	for name, c := range map[string]struct {
		why               string
		findings          []string
		exceptions        []string
		failures, notices []string
	}{
		"Nothing":   {why: "no finding is no failure"},
		"NotCalled": {why: "code that nothing calls harms nobody", findings: []string{required, imported}},
		"NeedsFunction": {why: "an exception of what is not called is not needed", findings: []string{required, imported}, exceptions: []string{"GO-1"},
			failures: []string{"GO-1: nothing needs this line of exceptions.txt any more; remove it"}},
		"Called": {
			why: "each is reported once, with its first trace", findings: []string{required, imported, calledModule, calledAgain},
			failures: []string{"GO-1: it trusts a header\n    found in example.com/m v1.0.0; fixed in v1.0.1\n    hub/api/api.go:7:2: api.New → proxy.Proxy.ServeHTTP → proxy.Proxy.forward"},
		},
		"Unfixed": {
			why: "without a fixed version an exception may be written", findings: []string{calledUnfixed},
			failures: []string{"GO-1: it trusts a header\n    found in example.com/m v1.0.0; there is no fixed version; if it does not concern Capstan, say why in exceptions.txt\n    proxy.forward"},
		},
		"Excepted":      {why: "its reason is in the file", findings: []string{calledUnfixed}, exceptions: []string{"GO-1"}},
		"Mended":        {why: "users build with the Go of go.mod, or a newer one", findings: []string{calledStandard}, notices: []string{mended}},
		"MendedAnyhow":  {why: "the next Go of this machine would find the exception left over", findings: []string{calledStandard}, exceptions: []string{"GO-2"}, notices: []string{mended}, failures: []string{"GO-2: nothing needs this line of exceptions.txt any more; remove it"}},
		"Both":          {why: "a mended one hides no other", findings: []string{calledStandard, calledUnfixed}, exceptions: []string{"GO-1"}, notices: []string{mended}},
		"FixedLater":    {why: "go.mod must ask for a newer Go", findings: []string{standardLater}, failures: []string{"GO-2: it reads too much\n    found in the standard library of go1.26.8; fixed in go1.26.11: go.mod asks for go1.26.10, raise its toolchain\n    http.Get"}},
		"FixedNever":    {why: "no Go mends it", findings: []string{standardNever}, failures: []string{"GO-2: it reads too much\n    found in the standard library of go1.26.8; there is no fixed version; if it does not concern Capstan, say why in exceptions.txt\n    http.Get"}},
		"NotAudited":    {why: "exceptions of packages count only if these were audited", exceptions: []string{"GHSA-aaaa-bbbb-cccc"}},
		"ExceptedTwice": {why: "each exception has to be needed", findings: []string{calledUnfixed}, exceptions: []string{"GO-1", "GO-3"}, failures: []string{"GO-3: nothing needs this line of exceptions.txt any more; remove it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, version, err := readFindings(strings.NewReader(stream(c.findings...)))
			if err != nil {
				t.Fatal(err)
			}
			r := assess(called, nil, c.exceptions, builds{version, "go1.26.10"}, false)
			if !slices.Equal(r.failures, c.failures) || !slices.Equal(r.notices, c.notices) {
				t.Errorf("failures %q, notices %q; want %q, %q: %s", r.failures, r.notices, c.failures, c.notices, c.why)
			}
		})
	}
}

func TestBrokenStream(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Empty": "", "NoVersion": `{"progress":{"message":"x"}}`, "Cut": stream(calledModule[:60]), "Text": "govulncheck: loading packages",
	} {
		if _, _, err := readFindings(strings.NewReader(text)); err == nil {
			t.Errorf("%s: a stream that says nothing must not count as one without findings", name)
		}
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	const report = `{"auditReportVersion":2,"vulnerabilities":{
		"router":{"name":"router","severity":"high","via":["history"]},
		"history":{"name":"history","severity":"high","via":[
			{"source":1,"name":"history","title":"it opens any address","url":"https://github.com/advisories/GHSA-aaaa-bbbb-cccc","severity":"high","range":"<5.0.1"},
			{"source":2,"name":"history","title":"it is slow","url":"https://github.com/advisories/GHSA-dddd-eeee-ffff","severity":"moderate","range":"<5.0.1"}]}}}`
	const failure = "GHSA-aaaa-bbbb-cccc: it opens any address\n    found in history <5.0.1; cd web && npm audit says which version has no such fault"
	for name, c := range map[string]struct {
		why, text  string
		exceptions []string
		failures   []string
		notice     string // a part of it
		wantErr    bool
	}{
		"Nothing":  {why: "no finding is no failure", text: `{"auditReportVersion":2,"vulnerabilities":{}}`},
		"High":     {why: "a moderate one does not fail", text: report, failures: []string{failure}},
		"Excepted": {why: "its reason is in the file", text: report, exceptions: []string{"GHSA-aaaa-bbbb-cccc"}},
		"LeftOver": {why: "the exception of a moderate one is not needed", text: report, exceptions: []string{"GHSA-aaaa-bbbb-cccc", "GHSA-dddd-eeee-ffff"},
			failures: []string{"GHSA-dddd-eeee-ffff: nothing needs this line of exceptions.txt any more; remove it"}},
		"NotServed": {why: "mirrors of the registry have no advisories", notice: "not checked",
			text: `{"message":"405 Method Not Allowed - POST https://registry.example.com/-/npm/v1/security/advisories/bulk","statusCode":405,"error":{"summary":"","detail":""}}`},
		"NoLockFile": {why: "a fault of the checkout must show", wantErr: true, text: `{"error":{"code":"ENOLOCK","summary":"This command requires an existing lockfile."}}`},
		"Empty":      {why: "a report without findings has a list", wantErr: true, text: `{}`},
		"Text":       {why: "what is no report says nothing", wantErr: true, text: `npm error`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shipped, notice, err := readAudit([]byte(c.text))
			if (err != nil) != c.wantErr || (notice != "") != (c.notice != "") || !strings.Contains(notice, c.notice) {
				t.Fatalf("notice %q, error %v: %s", notice, err, c.why)
			}
			if r := assess(nil, shipped, c.exceptions, builds{"go1.26.8", "go1.26.10"}, notice == "" && err == nil); !slices.Equal(r.failures, c.failures) || len(r.notices) > 0 {
				t.Errorf("failures %q, notices %q; want %q: %s", r.failures, r.notices, c.failures, c.why)
			}
		})
	}
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want int // -1: an error
	}{
		"Empty":     {"# a comment\n\n", 0},
		"Two":       {"GO-2026-1 2026-11-27 It is not called.\n# why\nGHSA-aaaa-bbbb-cccc 2026-11-28 Neither is it.\n", 2},
		"NoReason":  {"GO-2026-1 2026-11-27\n", -1},
		"NoDate":    {"GO-2026-1 It is not called.\n", -1},
		"NoSuchDay": {"GO-2026-1 2026-11-31 It is not called.\n", -1},
		"Twice":     {"GO-2026-1 2026-11-27 a\nGO-2026-1 2026-11-28 b\n", -1},
		"OtherName": {"CVE-2026-1 2026-11-27 It is not called.\n", -1},
	} {
		ids, err := readExceptions(c.text)
		if err != nil && c.want >= 0 || err == nil && len(ids) != c.want {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
	}
	text, err := os.ReadFile("exceptions.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readExceptions(string(text)); err != nil {
		t.Error(err)
	}
}
