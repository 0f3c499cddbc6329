package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// A printer writes the result of a command, and notes beside it.
type printer struct {
	out, err io.Writer
	format   string // of the result: table, wide, json, yaml or name
}

// print writes an answer in the form that was asked for.
func (p *printer) print(raw []byte, t table) error {
	switch p.format {
	case "json":
		var b bytes.Buffer
		if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
			return err
		}
		_, err := fmt.Fprintln(p.out, b.String())
		return err
	case "yaml":
		b, err := yaml.JSONToYAML(raw)
		if err != nil {
			return err
		}
		_, err = p.out.Write(b)
		return err
	case "name":
		for _, n := range t.name {
			if _, err := fmt.Fprintln(p.out, n); err != nil {
				return err
			}
		}
		return nil
	case "table", "wide", "":
		return p.tabulate(t)
	}
	return usageErrorf("output %q is unknown; use table, wide, json, yaml or name", p.format)
}

// printValue is print for an answer that was put together here.
func (p *printer) printValue(v any, t table) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return p.print(raw, t)
}

func (p *printer) tabulate(t table) error {
	keep := len(t.head)
	if p.format != "wide" {
		keep -= t.wide
	}
	w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
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
func (p *printer) note(format string, args ...any) {
	fmt.Fprintf(p.err, format+"\n", args...)
}

func (p *printer) warn(warnings []string) {
	for _, w := range warnings {
		p.note("capstan: warning: %s", w)
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
