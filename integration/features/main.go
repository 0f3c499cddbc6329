// Command features says which of the behaviours in docs/features.csv have a
// passing test. Tests carry the ids of what they show in their names. It
// reads the logs that test runners left and runs nothing. An id in a test
// name that the catalogue does not know is an error, because it is a typing
// mistake.
package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/integration/testlog"
)

func main() {
	catalogue := flag.String("catalogue", "docs/features.csv", "the list of behaviours")
	differences := flag.String("differences", "docs/differences.csv", "the list of behaviours that are others on purpose; empty: none")
	missing := flag.Bool("missing", false, "list what has no passing test instead of what has")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: features [flags] log...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(os.Stdout, *catalogue, *differences, *missing, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "features:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, catalogue, differences string, missing bool, logs []string) error {
	f, err := os.Open(catalogue)
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := readCatalogue(f)
	if err != nil {
		return fmt.Errorf("read %q: %w", catalogue, err)
	}
	others, err := openDifferences(differences, list)
	if err != nil {
		return err
	}
	var tests []testlog.Test
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(out, "%s is not there; run make test first\n", path)
			continue
		}
		if err != nil {
			return err
		}
		found, err := testlog.Read(data)
		if err != nil {
			return fmt.Errorf("read %q: %w", path, err)
		}
		tests = append(tests, found...)
	}
	if len(tests) == 0 {
		return errors.New("no log holds a test: run make test first")
	}
	v := judge(list, tests)
	v.printDifferences(out, others)
	return v.print(out, missing)
}

func openDifferences(path string, list []feature) ([]difference, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	others, err := readDifferences(f, list, filepath.Join(filepath.Dir(path), "decisions"))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return others, nil
}

// A feature is one behaviour.
type feature struct{ id, area, title string }

// readCatalogue reads lines of id, area and title below a heading.
func readCatalogue(r io.Reader) ([]feature, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = 3
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], []string{"id", "area", "title"}) {
		return nil, errors.New("its first line is not id,area,title")
	}
	seen := map[string]bool{}
	var list []feature
	for i, row := range rows[1:] {
		f := feature{id: row[0], area: row[1], title: row[2]}
		if !wholeID.MatchString(f.id) || f.area == "" || f.title == "" || seen[f.id] {
			return nil, fmt.Errorf("line %d: %q is no id of its own with an area and a title", i+2, f.id)
		}
		seen[f.id] = true
		list = append(list, f)
	}
	return list, nil
}

var (
	wholeID = regexp.MustCompile(`^[A-Z]+-[0-9]{2,}$`)
	// anID finds ids in names, where blanks may have become underscores.
	anID = regexp.MustCompile(`(?:^|[^A-Za-z0-9-])([A-Z]+-[0-9]{2,})`)
)

// A verdict says what the tests show.
type verdict struct {
	list           []feature
	passed, failed map[string]bool
	unknown        []string // ids of a known area that are not in the list
}

// judge matches tests with the catalogue. One failing test is enough for its
// ids not to count.
func judge(list []feature, tests []testlog.Test) verdict {
	v := verdict{list: list, passed: map[string]bool{}, failed: map[string]bool{}}
	known, areas := map[string]bool{}, map[string]bool{}
	for _, f := range list {
		known[f.id] = true
		areas[prefix(f.id)] = true
	}
	for _, t := range tests {
		for _, m := range anID.FindAllStringSubmatch(t.Name, -1) {
			id := m[1]
			switch {
			case !known[id]:
				if areas[prefix(id)] && !slices.Contains(v.unknown, id) {
					v.unknown = append(v.unknown, id)
				}
			case t.Result == testlog.Pass:
				v.passed[id] = true
			case t.Result == testlog.Fail:
				v.failed[id] = true
			}
		}
	}
	slices.Sort(v.unknown)
	return v
}

func (v verdict) covered(id string) bool { return v.passed[id] && !v.failed[id] }

// print writes one line for each area, and the total.
func (v verdict) print(out io.Writer, missing bool) error {
	total := 0
	for rest := v.list; len(rest) > 0; {
		n := 1
		for n < len(rest) && prefix(rest[n].id) == prefix(rest[0].id) {
			n++
		}
		area := rest[:n]
		rest = rest[n:]
		count := 0
		var named []string
		for _, f := range area {
			if v.covered(f.id) {
				count++
			}
			if v.covered(f.id) != missing {
				named = append(named, v.name(f, missing))
			}
		}
		total += count
		separator := " "
		if missing {
			separator = "\n      "
		}
		fmt.Fprintf(out, "%3d / %-3d %s: %s\n", count, n, prefix(area[0].id), area[0].area)
		if len(named) > 0 {
			fmt.Fprintf(out, "      %s\n", strings.Join(named, separator))
		}
	}
	fmt.Fprintf(out, "%d of %d behaviours have a passing test\n", total, len(v.list))
	if len(v.unknown) > 0 {
		return fmt.Errorf("tests carry ids that the catalogue does not have: %s", strings.Join(v.unknown, " "))
	}
	return nil
}

func (v verdict) name(f feature, missing bool) string {
	switch {
	case v.failed[f.id]:
		return f.id + " " + f.title + " (its test fails)"
	case missing:
		return f.id + " " + f.title
	default:
		return f.id
	}
}

func prefix(id string) string {
	area, _, _ := strings.Cut(id, "-")
	return area
}
