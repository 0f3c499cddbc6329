package failpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/shared/failpoint"
)

// constants reads the names and values of all points from the source.
func constants(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "failpoint.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		out[spec.Names[0].Name] = value
		return true
	})
	return out
}

func TestEachPointIsUsedInItsProcess(t *testing.T) {
	t.Parallel()
	used := map[string][]string{}
	for _, dir := range []string{"hub", "agent", "shared"} {
		root := filepath.Join("..", "..", dir)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "failpoint" {
						used[s.Sel.Name] = append(used[s.Sel.Name], dir)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for name, value := range constants(t) {
		if seen[value] {
			t.Errorf("two points are called %s", value)
		}
		seen[value] = true
		if len(used[name]) == 0 {
			t.Errorf("point %s stands nowhere", value)
		}
		for _, dir := range used[name] {
			if process, _, _ := strings.Cut(value, "."); dir != process && (dir != "shared" || process != "agent") {
				t.Errorf("point %s stands in %s", value, dir)
			}
		}
	}
}

func TestWithoutTheTagNothingHappens(t *testing.T) {
	if failpoint.Enabled {
		t.Skip("built with points")
	}
	t.Setenv("CAPSTAN_FAILPOINTS", failpoint.HubRowsAfter+"=panic:*")
	failpoint.Here(failpoint.HubRowsAfter)
	if err := failpoint.Fail(failpoint.HubRowsAfter); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { failpoint.Here(failpoint.HubRowsAfter) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
