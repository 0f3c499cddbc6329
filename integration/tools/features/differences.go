package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A difference is a behaviour that is another one on purpose. Its test shows
// what happens instead.
type difference struct{ id, decision, instead, why string }

// readDifferences reads lines of id, decision, what happens instead and why,
// below a heading. The pages of the decisions, in a folder, must speak of
// their ids.
func readDifferences(r io.Reader, list []feature, decisions string) ([]difference, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = 4
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], []string{"id", "decision", "instead", "why"}) {
		return nil, errors.New("its first line is not id,decision,instead,why")
	}
	var out []difference
	for i, row := range rows[1:] {
		d := difference{id: row[0], decision: row[1], instead: row[2], why: row[3]}
		switch {
		case !slices.ContainsFunc(list, func(f feature) bool { return f.id == d.id }):
			return nil, fmt.Errorf("line %d: the catalogue has no %q", i+2, d.id)
		case d.instead == "" || d.why == "":
			return nil, fmt.Errorf("line %d: %s does not say what happens instead, and why", i+2, d.id)
		case slices.ContainsFunc(out, func(other difference) bool { return other.id == d.id }):
			return nil, fmt.Errorf("line %d: %s stands there twice", i+2, d.id)
		}
		if err := mentioned(decisions, d); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// mentioned reports whether the page of a decision is there and names the id.
func mentioned(folder string, d difference) error {
	pages, err := filepath.Glob(filepath.Join(folder, d.decision+"-*.md"))
	if err != nil || len(pages) != 1 {
		return fmt.Errorf("%s: %d pages in %s begin with %q, want one", d.id, len(pages), folder, d.decision)
	}
	text, err := os.ReadFile(pages[0])
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), d.id) {
		return fmt.Errorf("%s does not speak of %s", pages[0], d.id)
	}
	return nil
}

// printDifferences writes one line for each.
func (v coverage) printDifferences(out io.Writer, list []difference) {
	if len(list) == 0 {
		return
	}
	tested := 0
	for _, d := range list {
		if v.covered(d.id) {
			tested++
		}
	}
	fmt.Fprintf(out, "%d behaviours are others on purpose (docs/decisions), %d of them with a passing test of what happens instead:\n", len(list), tested)
	for _, d := range list {
		mark := ""
		if !v.covered(d.id) {
			mark = " (no passing test)"
		}
		fmt.Fprintf(out, "      %s %s, because %s; decision %s%s\n", d.id, d.instead, d.why, d.decision, mark)
	}
}
