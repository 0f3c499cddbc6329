// Command sizes measures the Go code of a checkout: the lengths of files,
// functions and packages, the width of interfaces and structs. It reads the
// sources alone, builds nothing and fails nothing; "make lint" prints what it
// says. With -list METRIC it names what lies beyond that metric's limit.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	root := flag.String("root", ".", "the checkout to measure")
	list := flag.String("list", "", "name what lies beyond the limit of one metric, such as structs")
	flag.Parse()
	if err := run(os.Stdout, *root, *list); err != nil {
		fmt.Fprintln(os.Stderr, "sizes:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, root, list string) error {
	tree, err := read(root, []string{"agent", "cli", "hub", "shared", "integration"})
	if err != nil {
		return err
	}
	metrics := measure(tree)
	if list == "" {
		return table(out, metrics)
	}
	for _, m := range metrics {
		if m.name == list {
			return beyond(out, m)
		}
	}
	return fmt.Errorf("there is no metric %q; there are %s", list, strings.Join(names(metrics), ", "))
}

// metric is one row of the table: the sizes of all things of a kind, and the
// size beyond which one of them deserves a second look.
type metric struct {
	name  string
	what  string
	limit int
	// sizes holds the size of each thing by its name.
	sizes map[string]int
}

func names(metrics []metric) []string {
	var found []string
	for _, m := range metrics {
		found = append(found, m.name)
	}
	return found
}

// table prints one line per metric.
func table(out io.Writer, metrics []metric) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "METRIC\tWHAT\tCOUNT\tMEDIAN\tP95\tMAX\tLIMIT\tBEYOND")
	for _, m := range metrics {
		sorted := m.sorted()
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n",
			m.name, m.what, len(sorted), quantile(sorted, 50), quantile(sorted, 95), quantile(sorted, 100), m.limit, share(sorted, m.limit))
	}
	return w.Flush()
}

// beyond prints what exceeds a metric's limit, the largest first.
func beyond(out io.Writer, m metric) error {
	var found []string
	for name, size := range m.sizes {
		if size > m.limit {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		if m.sizes[a] != m.sizes[b] {
			return m.sizes[b] - m.sizes[a]
		}
		return strings.Compare(a, b)
	})
	for _, name := range found {
		fmt.Fprintf(out, "%d\t%s\n", m.sizes[name], name)
	}
	return nil
}

func (m metric) sorted() []int {
	sizes := make([]int, 0, len(m.sizes))
	for _, size := range m.sizes {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	return sizes
}

// quantile returns the size at or below which percent of the sizes lie.
func quantile(sorted []int, percent int) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

// share says how many sizes exceed the limit, as a number and in percent.
func share(sorted []int, limit int) string {
	var n int
	for _, size := range sorted {
		if size > limit {
			n++
		}
	}
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(max(1, len(sorted))))
}
