package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"
)

// table is what people see; wide columns appear with -o wide alone.
type table struct {
	head []string
	wide int // the last so many columns are for -o wide
	rows [][]string
	name []string // one line for each row with -o name
}

// print writes an answer in the form that was asked for.
func (a *app) print(raw []byte, t table) error {
	switch a.output {
	case "json":
		var b bytes.Buffer
		if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.streams.Out, b.String())
		return err
	case "yaml":
		b, err := yaml.JSONToYAML(raw)
		if err != nil {
			return err
		}
		_, err = a.streams.Out.Write(b)
		return err
	case "name":
		for _, n := range t.name {
			if _, err := fmt.Fprintln(a.streams.Out, n); err != nil {
				return err
			}
		}
		return nil
	case "table", "wide", "":
		return a.tabulate(t)
	}
	return usageError{fmt.Errorf("output %q is unknown; use table, wide, json, yaml or name", a.output)}
}

// printValue is print for an answer that was put together here.
func (a *app) printValue(v any, t table) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.print(raw, t)
}

func (a *app) tabulate(t table) error {
	keep := len(t.head)
	if a.output != "wide" {
		keep -= t.wide
	}
	w := tabwriter.NewWriter(a.streams.Out, 0, 4, 2, ' ', 0)
	if len(t.head) > 0 {
		fmt.Fprintln(w, strings.Join(t.head[:keep], "\t"))
	}
	for _, row := range t.rows {
		if len(t.head) > 0 {
			row = row[:min(keep, len(row))]
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// note writes a line for people, apart from the answer.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.streams.Err, format+"\n", args...)
}

func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		a.note("capstan: warning: %s", w)
	}
}

// given reports whether an optional part of an answer is there.
func given[T comparable](v T) bool {
	var zero T
	return v != zero
}

func ref[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func short(revision string) string {
	if len(revision) == 40 {
		return revision[:8]
	}
	return revision
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := time.Since(t)
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
