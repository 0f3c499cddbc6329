// Package testlog reads what test runners write about their tests: go test
// -json, and the JSON reporters of vitest and Playwright. It runs no tests.
// The programs beside it, gotest and features, call it.
package testlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/capstan-cd/capstan/integration/rigs/playwright"
)

// The results of a test.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// An Event is one line of go test -json.
type Event struct {
	Action      string // run, output, pass, fail, skip, build-output, ...
	Package     string
	ImportPath  string  // of build events
	FailedBuild string  // set when a package fails because something did not compile
	Test        string  // empty: the whole package
	Elapsed     float64 // seconds
	Output      string
}

// A Test is one that ended.
type Test struct {
	Package string
	Name    string // the names of a test and its parents, joined by "/"
	Result  string
}

// Events calls each for every line of go test -json, and hands lines that are
// none, such as a complaint of the Go tool, to it as output.
func Events(r io.Reader, each func(Event) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			e := Event{}
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				e = Event{Action: "build-output", Output: string(line)}
			}
			if err := each(e); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the test log: %w", err)
		}
	}
}

// Read returns the tests of a log of any of the runners.
func Read(data []byte) ([]Test, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil, errors.New("the test log is empty")
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	var e Event
	if json.Unmarshal(first, &e) == nil && e.Action != "" {
		return readGo(data)
	}
	var web struct {
		TestResults []vitestFile       `json:"testResults"`
		Suites      []playwright.Suite `json:"suites"`
	}
	if err := json.Unmarshal(data, &web); err != nil {
		return nil, fmt.Errorf("this is no log of go test -json, vitest or Playwright: %w", err)
	}
	if web.TestResults == nil && web.Suites == nil {
		return nil, errors.New("this is no log of go test -json, vitest or Playwright")
	}
	var tests []Test
	for _, f := range web.TestResults {
		tests = append(tests, f.tests()...)
	}
	for _, s := range web.Suites {
		tests = append(tests, testsOf(s)...)
	}
	return tests, nil
}

func readGo(data []byte) ([]Test, error) {
	var tests []Test
	err := Events(bytes.NewReader(data), func(e Event) error {
		if e.Test != "" && (e.Action == Pass || e.Action == Fail || e.Action == Skip) {
			tests = append(tests, Test{Package: e.Package, Name: e.Test, Result: e.Action})
		}
		return nil
	})
	return tests, err
}

// vitestFile is one file in vitest's JSON report.
type vitestFile struct {
	Name             string `json:"name"`
	AssertionResults []struct {
		FullName string `json:"fullName"`
		Status   string `json:"status"`
	} `json:"assertionResults"`
}

func (f vitestFile) tests() []Test {
	var tests []Test
	for _, a := range f.AssertionResults {
		t := Test{Package: f.Name, Name: a.FullName, Result: Skip}
		switch a.Status {
		case "passed":
			t.Result = Pass
		case "failed":
			t.Result = Fail
		}
		tests = append(tests, t)
	}
	return tests
}

// testsOf are the specs of one file in Playwright's JSON report.
func testsOf(file playwright.Suite) []Test {
	var tests []Test
	for _, spec := range file.Specs() {
		t := Test{Package: spec.File, Name: spec.Title, Result: Fail}
		switch spec.Result {
		case playwright.Passed:
			t.Result = Pass
		case playwright.Skipped, playwright.NotRun:
			t.Result = Skip
		case playwright.Failed:
		}
		tests = append(tests, t)
	}
	return tests
}

// A Tally counts tests. A test with subtests counts through these, unless it
// failed on its own.
type Tally struct{ Passed, Failed, Skipped int }

// Count adds tests up.
func Count(tests []Test) Tally {
	type key struct{ pkg, name string }
	parents, failedBelow := map[key]bool{}, map[key]bool{}
	for _, t := range tests {
		for name := t.Name; ; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			parents[key{t.Package, name}] = true
			if t.Result == Fail {
				failedBelow[key{t.Package, name}] = true
			}
		}
	}
	var n Tally
	for _, t := range tests {
		k := key{t.Package, t.Name}
		switch {
		case t.Result == Fail && !failedBelow[k]:
			n.Failed++
		case parents[k]:
		case t.Result == Pass:
			n.Passed++
		case t.Result == Skip:
			n.Skipped++
		}
	}
	return n
}

// String is the closing line of a run.
func (n Tally) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", n.Passed, n.Failed, n.Skipped)
}
