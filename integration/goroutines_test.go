package integration_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var goroutineRow = regexp.MustCompile("^\\| `([^`]+)` \\| [^|`]+ \\| [^|`]+ \\|$")

// TestContributingGoroutines keeps the list of CONTRIBUTING.md true: it has each
// file of the product with a go statement, and no other.
func TestContributingGoroutines(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, line := range contributing(t) {
		if m := goroutineRow.FindStringSubmatch(line); m != nil {
			listed = append(listed, m[1])
		}
	}
	found := filesWithGoStatements(t)
	for _, file := range found {
		if !slices.Contains(listed, file) {
			t.Errorf("%s has a go statement: CONTRIBUTING.md must say what ends it and who waits", file)
		}
	}
	for _, file := range listed {
		if !slices.Contains(found, file) {
			t.Errorf("%s has no go statement any more: take it out of CONTRIBUTING.md", file)
		}
	}
}

// filesWithGoStatements returns the files of the product, without tests and
// their rigs, as paths from the root with slashes.
func filesWithGoStatements(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, folder := range []string{"agent", "cli", "hub", "shared"} {
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(filepath.Base(filepath.Dir(path)), "test") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			starts := false
			ast.Inspect(file, func(n ast.Node) bool {
				_, is := n.(*ast.GoStmt)
				starts = starts || is
				return !starts
			})
			if starts {
				from, err := filepath.Rel("..", path)
				if err != nil {
					return err
				}
				found = append(found, filepath.ToSlash(from))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
