// Package output prints what a command answers: a table for people, or JSON, YAML and
// names for programs. The result goes to one stream and notes to another.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/usage"
)

// Table is what people see; wide columns appear with -o wide alone.
type Table struct {
	Head  []string
	Wide  int // the last so many columns are for -o wide
	Rows  [][]string
	Names []string // one line for each row with -o name
}

// A Printer writes the result of a command, and notes beside it.
type Printer struct {
	Out, Err io.Writer
	Format   string // of the result: table, wide, json, yaml or name
}

// Print writes an answer in the form that was asked for.
func (p *Printer) Print(raw []byte, t Table) error {
	switch p.Format {
	case "json":
		var b bytes.Buffer
		if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
			return err
		}
		_, err := fmt.Fprintln(p.Out, b.String())
		return err
	case "yaml":
		b, err := yaml.JSONToYAML(raw)
		if err != nil {
			return err
		}
		_, err = p.Out.Write(b)
		return err
	case "name":
		for _, n := range t.Names {
			if _, err := fmt.Fprintln(p.Out, n); err != nil {
				return err
			}
		}
		return nil
	case "table", "wide", "":
		return p.Tabulate(t)
	}
	return usage.Errorf("output %q is unknown; use table, wide, json, yaml or name", p.Format)
}

// PrintValue is Print for an answer that was put together here.
func (p *Printer) PrintValue(v any, t Table) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return p.Print(raw, t)
}

// Tabulate writes a table, whatever the format.
func (p *Printer) Tabulate(t Table) error {
	keep := len(t.Head)
	if p.Format != "wide" {
		keep -= t.Wide
	}
	w := tabwriter.NewWriter(p.Out, 0, 4, 2, ' ', 0)
	if len(t.Head) > 0 {
		fmt.Fprintln(w, strings.Join(t.Head[:keep], "\t"))
	}
	for _, row := range t.Rows {
		if len(t.Head) > 0 {
			row = row[:min(keep, len(row))]
		}
		fmt.Fprintln(w, lines(strings.Join(row, "\t")))
	}
	return w.Flush()
}

// Note writes a line for people, apart from the answer.
func (p *Printer) Note(format string, args ...any) {
	fmt.Fprintln(p.Err, lines(fmt.Sprintf(format, args...)))
}

// Warn writes the warnings of an answer, apart from the answer.
func (p *Printer) Warn(warnings []string) {
	for _, w := range warnings {
		p.Note("capstan: warning: %s", w)
	}
}

// Short is how a commit is shown to people.
func Short(revision string) string {
	if len(revision) == 40 {
		return revision[:8]
	}
	return revision
}

// Ago is the age of a time; without one a dash.
func Ago(t time.Time) string {
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

// Dash is the text, or a dash in its place.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
