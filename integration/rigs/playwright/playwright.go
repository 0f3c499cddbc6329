// Package playwright runs the specs of web/e2e, does for them what happens
// outside of the console, and reads what Playwright reports about them.
package playwright

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The results of a spec.
const (
	Passed  Result = "passed"
	Failed  Result = "failed"
	Skipped Result = "skipped" // by itself, on purpose
	NotRun  Result = "not run" // for example because one before it has failed
)

// A Result says how a spec has ended.
type Result string

// A Spec is one test of a file of specs.
type Spec struct {
	File   string
	Title  string // with the titles of its groups before it, joined by "/"
	Result Result
	Why    string // it did not pass: the messages of Playwright, or the reason of who skipped it
}

// A Suite is a file or a group in a report of Playwright's JSON reporter.
type Suite struct {
	Title  string  `json:"title"`
	Groups []Suite `json:"suites"`
	Found  []found `json:"specs"`
}

// found is a spec as the report has it.
type found struct {
	Title string `json:"title"`
	OK    bool   `json:"ok"`
	Tests []try  `json:"tests"`
}

// A try is a spec in one of Playwright's projects.
type try struct {
	Status      string `json:"status"` // expected, unexpected, flaky, skipped
	Annotations []struct {
		Type        string `json:"type"` // skip, fixme, ...
		Description string `json:"description"`
	} `json:"annotations"`
	Results []struct {
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
		Attachments []attachment `json:"attachments"`
	} `json:"results"`
}

// An attachment is a file that Playwright has left about a try.
type attachment struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// mostOfPage is how many bytes of a page are shown.
const mostOfPage = 12_000

// page is what stood on the page when a try failed; empty: this attachment does
// not say it.
func (a attachment) page() string {
	if a.Name != "error-context" {
		return ""
	}
	text, err := os.ReadFile(a.Path)
	if err != nil {
		return ""
	}
	_, page, found := strings.Cut(string(text), "# Page snapshot")
	if !found {
		return ""
	}
	page, _, _ = strings.Cut(page, "\n# ")
	return "the page:" + page[:min(len(page), mostOfPage)]
}

// Specs are all specs of a suite and of its groups, in their order.
func (s Suite) Specs() []Spec { return s.under(s.Title, "") }

func (s Suite) under(file, before string) []Spec {
	var specs []Spec
	for _, f := range s.Found {
		spec := f.spec()
		spec.File, spec.Title = file, before+f.Title
		specs = append(specs, spec)
	}
	for _, group := range s.Groups {
		specs = append(specs, group.under(file, before+group.Title+"/")...)
	}
	return specs
}

// spec has the worst result of all tries: one that was skipped shows nothing,
// although Playwright calls it "ok".
func (f found) spec() Spec {
	if len(f.Tests) == 0 {
		return Spec{Result: NotRun, Why: "the report has no test of it"}
	}
	rank := map[Result]int{Passed: 0, Skipped: 1, NotRun: 2, Failed: 3}
	worst := Spec{Result: Passed}
	if !f.OK {
		worst.Result = Failed
	}
	var why []string
	for _, t := range f.Tests {
		result, because := t.result()
		if rank[result] > rank[worst.Result] {
			worst.Result = result
		}
		why = append(why, because...)
	}
	worst.Why = strings.Join(why, "\n")
	return worst
}

func (t try) result() (Result, []string) {
	if t.Status == "expected" {
		return Passed, nil
	}
	if t.Status == "skipped" {
		for _, a := range t.Annotations {
			if a.Type == "skip" || a.Type == "fixme" {
				return Skipped, []string{a.Description}
			}
		}
		return NotRun, []string{"it was not run"}
	}
	why := []string{t.Status}
	for _, r := range t.Results {
		for _, e := range r.Errors {
			why = append(why, e.Message)
		}
		for _, a := range r.Attachments {
			if page := a.page(); page != "" {
				why = append(why, page)
			}
		}
	}
	return Failed, why
}

// Read returns the specs of a report of Playwright's JSON reporter.
func Read(report []byte) ([]Spec, error) {
	var files struct {
		Suites []Suite `json:"suites"`
	}
	if err := json.Unmarshal(report, &files); err != nil {
		return nil, fmt.Errorf("read the report of Playwright: %w", err)
	}
	var specs []Spec
	for _, file := range files.Suites {
		specs = append(specs, file.Specs()...)
	}
	if len(specs) == 0 {
		return nil, errors.New("the report of Playwright names no specs")
	}
	return specs, nil
}

// Subtests reports each spec of the report at the path as a subtest of its title.
// A spec that skips itself is skipped, one that was not run fails.
func Subtests(t *testing.T, path string) {
	t.Helper()
	report, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("Playwright has left no report: %v", err)
		return
	}
	specs, err := Read(report)
	if err != nil {
		t.Error(err)
	}
	for _, spec := range specs {
		t.Run(spec.Title, func(t *testing.T) {
			switch spec.Result {
			case Passed:
			case Skipped:
				t.Skip(spec.Why)
			case Failed, NotRun:
				t.Errorf("the browser did not get past this: %s", spec.Why)
			}
		})
	}
}
