// Command features says which of the behaviours in docs/features.csv have a
// passing test. Tests carry the ids of what they show in their names. It
// reads the logs that test runners left and runs nothing.
//
// An id counts as what its mark says: "SRC-02(refused) …" shows only that the
// behaviour is refused, on purpose or not yet; "SRC-02(part) …" shows a part,
// and the catalogue's column "missing" says which part is not shown. An id
// without a mark shows all of it, unless that column says otherwise. An id or
// a mark that the catalogue does not know is an error, because it is a typing
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

	"github.com/capstan-cd/capstan/integration/tools/testlog"
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
	v := match(list, tests)
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
type feature struct {
	id, area, title string
	semantics       string // what exactly Argo CD does
	missing         string // what no test shows yet of a behaviour that is tested; empty: nothing
}

var columns = []string{"id", "area", "title", "semantics", "missing"}

// readCatalogue reads one feature for each line below a heading.
func readCatalogue(r io.Reader) ([]feature, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = len(columns)
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], columns) {
		return nil, fmt.Errorf("its first line is not %s", strings.Join(columns, ","))
	}
	seen := map[string]bool{}
	var list []feature
	for i, row := range rows[1:] {
		f := feature{id: row[0], area: row[1], title: row[2], semantics: row[3], missing: row[4]}
		if !wholeID.MatchString(f.id) || f.area == "" || f.title == "" || f.semantics == "" || seen[f.id] {
			return nil, fmt.Errorf("line %d: %q is no id of its own with an area, a title and its semantics", i+2, f.id)
		}
		seen[f.id] = true
		list = append(list, f)
	}
	return list, nil
}

var (
	wholeID = regexp.MustCompile(`^[A-Z]+-[0-9]{2,}$`)
	// markedID finds ids in names, where blanks may have become underscores.
	markedID = regexp.MustCompile(`(?:^|[^A-Za-z0-9-])([A-Z]+-[0-9]{2,})(?:\(([^)]*)\))?`)
)

// A status is how much of a behaviour passing tests show.
type status int

const (
	untested status = iota
	refused         // tests show only that it is refused
	partial         // tests show a part of it
	whole           // tests show all of it
)

// marks are the words that may stand in parentheses behind an id.
var marks = map[string]status{"": whole, "part": partial, "refused": refused}

// A coverage says what the tests show.
type coverage struct {
	list     []feature
	shown    map[string]status // by passing tests
	failed   map[string]bool
	mistakes []string // ids of a known area that are not in the list, and unknown marks
}

// match matches tests with the catalogue. One failing test is enough for its
// ids not to count.
func match(list []feature, tests []testlog.Test) coverage {
	v := coverage{list: list, shown: map[string]status{}, failed: map[string]bool{}}
	known, prefixes := map[string]feature{}, map[string]bool{}
	for _, f := range list {
		known[f.id] = f
		prefixes[prefix(f.id)] = true
	}
	for _, t := range tests {
		for _, m := range markedID.FindAllStringSubmatch(t.Name, -1) {
			if !prefixes[prefix(m[1])] {
				continue
			}
			f, ok := known[m[1]]
			if !ok {
				v.mistake(m[1])
				continue
			}
			v.record(f, m[0], m[2], t.Result)
		}
	}
	slices.Sort(v.mistakes)
	return v
}

// record adds what one test shows of a behaviour: text is the id with its mark.
func (v *coverage) record(f feature, text, sign, result string) {
	mark, understood := marks[sign]
	switch {
	case !understood:
		v.mistake(text)
	case mark == partial && f.missing == "":
		v.mistake(f.id + "(part), of which the catalogue says that nothing is missing")
	case result == testlog.Pass:
		if mark == whole && f.missing != "" {
			mark = partial
		}
		v.shown[f.id] = max(v.shown[f.id], mark)
	case result == testlog.Fail:
		v.failed[f.id] = true
	}
}

func (v *coverage) mistake(what string) {
	if what = strings.TrimSpace(what); !slices.Contains(v.mistakes, what) {
		v.mistakes = append(v.mistakes, what)
	}
}

// status returns how much of a behaviour is shown.
func (v coverage) status(id string) status {
	if v.failed[id] {
		return untested
	}
	return v.shown[id]
}

// covered reports whether a passing test shows the behaviour or a part of it.
func (v coverage) covered(id string) bool { return v.status(id) >= partial }

// print writes one line for each area, and the totals. With missing it names
// what is not shown, or not all of it, instead of what is.
func (v coverage) print(out io.Writer, missing bool) error {
	var total [whole + 1]int
	for _, area := range areas(v.list) {
		var count [whole + 1]int
		var named []string
		for _, f := range area {
			s := v.status(f.id)
			count[s]++
			total[s]++
			if missing && s < whole || !missing && s > untested {
				named = append(named, v.name(f, missing))
			}
		}
		separator := " "
		if missing {
			separator = "\n      "
		}
		fmt.Fprintf(out, "%3d / %-3d %s: %s%s\n", count[whole], len(area), prefix(area[0].id), area[0].area, aside(count))
		if len(named) > 0 {
			fmt.Fprintf(out, "      %s\n", strings.Join(named, separator))
		}
	}
	fmt.Fprintf(out, "%d of %d behaviours have a passing test for all of them, %d for a part; %d are refused, on purpose or not yet\n",
		total[whole], len(v.list), total[partial], total[refused])
	if len(v.mistakes) > 0 {
		return fmt.Errorf("tests carry ids or marks that the catalogue does not have: %s", strings.Join(v.mistakes, ", "))
	}
	return nil
}

// areas are the features of one prefix each, in the order of the list.
func areas(list []feature) (out [][]feature) {
	for len(list) > 0 {
		n := 1
		for n < len(list) && prefix(list[n].id) == prefix(list[0].id) {
			n++
		}
		out, list = append(out, list[:n]), list[n:]
	}
	return out
}

// aside says what the first number of a line leaves out.
func aside(count [whole + 1]int) string {
	var parts []string
	if n := count[partial]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d in part", n))
	}
	if n := count[refused]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", n))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func (v coverage) name(f feature, missing bool) string {
	s := v.status(f.id)
	switch {
	case v.failed[f.id]:
		return f.id + " " + f.title + " (its test fails)"
	case missing && s == partial:
		return f.id + " " + f.title + " (in part; missing: " + f.missing + ")"
	case missing && s == refused:
		return f.id + " " + f.title + " (refused)"
	case missing:
		return f.id + " " + f.title
	case s == partial:
		return f.id + "(part)"
	case s == refused:
		return f.id + "(refused)"
	default:
		return f.id
	}
}

func prefix(id string) string {
	area, _, _ := strings.Cut(id, "-")
	return area
}
