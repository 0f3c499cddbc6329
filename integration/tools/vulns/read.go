package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A vulnerability is a known one in what is shipped.
type vulnerability struct {
	id, summary   string
	module, found string // found: the version, or the versions that have it
	fixed         string // empty: no version, or it is not known
	trace         string // where it is called from
}

// standard is what Go's vulnerability database calls the standard library.
const standard = "stdlib"

// A message is one of the stream of govulncheck. It has one field.
type message struct {
	Config *struct {
		GoVersion string `json:"go_version"`
	}
	OSV     *struct{ ID, Summary string }
	Finding *struct {
		OSV          string
		FixedVersion string `json:"fixed_version"`
		Trace        []frame
	}
}

// A frame is one call of a trace. The first one is the vulnerable function.
type frame struct {
	Module, Version, Package, Function, Receiver string
	Position                                     *struct {
		Filename     string
		Line, Column int
	}
}

// name is package, type and function.
func (f frame) name() string {
	parts := []string{path.Base(f.Package), strings.TrimPrefix(f.Receiver, "*"), f.Function}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ".")
}

// readFindings returns the vulnerabilities that are called, each with its first
// trace, in the order of their ids, and the version of Go. What is only imported
// or required is left out.
func readFindings(stream io.Reader) (called []vulnerability, version string, err error) {
	summaries := map[string]string{}
	known := map[string]bool{}
	for in := json.NewDecoder(stream); ; {
		var m message
		err := in.Decode(&m)
		switch {
		case errors.Is(err, io.EOF) && version == "":
			return nil, "", errors.New("govulncheck does not say with which Go it ran")
		case errors.Is(err, io.EOF):
			for i := range called {
				called[i].summary = summaries[called[i].id]
			}
			slices.SortFunc(called, func(a, b vulnerability) int { return strings.Compare(a.id, b.id) })
			return called, version, nil
		case err != nil:
			return nil, "", fmt.Errorf("read what govulncheck prints: %w", err)
		case m.Config != nil:
			version = m.Config.GoVersion
		case m.OSV != nil:
			summaries[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && len(m.Finding.Trace) > 0:
			f := m.Finding
			at := f.Trace[0]
			if at.Function == "" || known[f.OSV] {
				continue
			}
			known[f.OSV] = true
			called = append(called, vulnerability{id: f.OSV, module: at.Module, found: at.Version, fixed: f.FixedVersion, trace: traceOf(f.Trace)})
		}
	}
}

// traceOf is a trace in one line, from the function of Capstan that is nearest
// to the vulnerable one.
func traceOf(frames []frame) string {
	const ours = "github.com/capstan-cd/capstan"
	first := slices.IndexFunc(frames, func(f frame) bool { return f.Module == ours })
	if first < 0 {
		first = len(frames) - 1
	}
	var line strings.Builder
	if p := frames[first].Position; p != nil {
		fmt.Fprintf(&line, "%s:%d:%d: ", p.Filename, p.Line, p.Column)
	}
	for i := first; i >= 0; i-- {
		line.WriteString(frames[i].name())
		if i > 0 {
			line.WriteString(" → ")
		}
	}
	return line.String()
}

// readAudit returns what npm found of high or critical severity. A notice says
// that the registry serves no advisories, or was not reached.
func readAudit(text []byte) (shipped []vulnerability, notice string, err error) {
	var report struct {
		Vulnerabilities map[string]struct{ Via []json.RawMessage }
		Message         string // what the registry answered instead
		Error           struct{ Code, Summary string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, "", fmt.Errorf("read what npm audit prints: %w", err)
	}
	switch {
	case report.Message != "":
		return nil, "the packages of the console were not checked, because the registry serves no advisories: " + report.Message, nil
	case report.Error.Code != "" || report.Vulnerabilities == nil:
		return nil, "", fmt.Errorf("npm audit: %s %s", report.Error.Code, report.Error.Summary)
	}
	known := map[string]bool{}
	for _, p := range report.Vulnerabilities {
		for _, raw := range p.Via {
			var v struct{ Name, Title, URL, Severity, Range string }
			if json.Unmarshal(raw, &v) != nil { // the name of a package that has an advisory itself
				continue
			}
			id := path.Base(v.URL)
			if (v.Severity != "high" && v.Severity != "critical") || known[id] {
				continue
			}
			known[id] = true
			shipped = append(shipped, vulnerability{id: id, summary: v.Title, module: v.Name, found: v.Range})
		}
	}
	slices.SortFunc(shipped, func(a, b vulnerability) int { return strings.Compare(a.id, b.id) })
	return shipped, "", nil
}

// exception is one line of exceptions.txt: id, date and reason.
var exception = regexp.MustCompile(`^(GO-\d{4}-\d+|GHSA(?:-[a-z0-9]{4}){3}) (\d{4}-\d{2}-\d{2}) (\S.*)$`)

// readExceptions returns the ids of exceptions.txt. Lines that begin with # are
// comments.
func readExceptions(text string) ([]string, error) {
	var ids []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := exception.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%q is not an id, a date and a reason", line)
		}
		if _, err := time.Parse(time.DateOnly, m[2]); err != nil {
			return nil, err
		}
		if slices.Contains(ids, m[1]) {
			return nil, fmt.Errorf("%s is there twice", m[1])
		}
		ids = append(ids, m[1])
	}
	return ids, nil
}
