package validation

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// argoTypes are the types of Argo CD's API as its module declares them. They
// are read from its source: importing them would make every client of Git
// hosts, clouds and Redis that Argo CD has a dependency of this module.
type argoTypes map[string]ast.Expr

func readArgoTypes(t *testing.T) argoTypes {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-cd/v3").Output()
	if err != nil {
		t.Fatalf("find the module of Argo CD: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "pkg/apis/application/v1alpha1")
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no types in %s: %v", dir, err)
	}
	all := argoTypes{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, s := range g.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok {
						all[ts.Name.Name] = ts.Type
					}
				}
			}
		}
	}
	return all
}

// fields are the paths of the leaves of a type, with lists marked by [].
func (a argoTypes) fields(t *testing.T, name, prefix string) []string {
	t.Helper()
	if a[name] == nil {
		t.Fatalf("Argo CD has no type %s", name)
	}
	var out []string
	a.walk(a[name], prefix, []string{name}, &out)
	slices.Sort(out)
	return slices.Compact(out)
}

func (a argoTypes) walk(e ast.Expr, path string, within []string, out *[]string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		a.walk(e.X, path, within, out)
	case *ast.ArrayType:
		a.walk(e.Elt, path+"[]", within, out)
	case *ast.Ident:
		inner, ours := a[e.Name]
		if !ours || slices.Contains(within, e.Name) {
			*out = append(*out, path)
			return
		}
		a.walk(inner, path, append(slices.Clone(within), e.Name), out)
	case *ast.StructType:
		found := false
		for _, f := range e.Fields.List {
			tag := ""
			if f.Tag != nil {
				tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
			}
			name, _, _ := strings.Cut(tag, ",")
			switch {
			case name == "-":
			case name != "":
				found = true
				a.walk(f.Type, path+"."+name, within, out)
			case len(f.Names) == 0: // embedded
				found = true
				a.walk(f.Type, path, within, out)
			}
		}
		if !found {
			*out = append(*out, path)
		}
	default:
		*out = append(*out, path)
	}
}

// What becomes of a field.
const (
	enforcedField = "enforced" // a part of Capstan acts on it
	harmlessField = "harmless" // it restricts nothing: it is stored, or the answer says that it is not
	refusedField  = "refused"  // the object is refused, or what would be deployed under it
)

// argoFields are the fields of Argo CD's kinds. A source is the same wherever
// it stands, and of kinds and fields that are refused as a whole only the
// name counts.
func argoFields(t *testing.T) []string {
	types := readArgoTypes(t)
	seen := map[string]bool{}
	for _, of := range [][3]string{
		{"Application", "ApplicationSpec", "spec"}, {"Application", "Operation", "operation"}, {"AppProject", "AppProjectSpec", "spec"},
		{"ApplicationSet", "ApplicationSetSpec", "spec"}, {"repository", "Repository", "data"}, {"repo-creds", "RepoCreds", "data"},
		{"cluster", "Cluster", "data"},
	} {
		for _, f := range types.fields(t, of[1], of[2]) {
			switch {
			case of[0] == "ApplicationSet", strings.HasPrefix(f, "spec.sourceHydrator."):
				f = strings.Join(strings.SplitN(f, ".", 3)[:2], ".")
			case of[0] == "cluster" && strings.Count(f, ".") > 1:
				f = strings.Join(strings.SplitN(f, ".", 4)[:3], ".")
			}
			f = strings.Replace(strings.Replace(f, "spec.sources[].", "spec.source.", 1), "operation.sync.sources[].", "operation.sync.source.", 1)
			if strings.HasPrefix(f, "operation.sync.source.") {
				f = "operation.sync.source"
			}
			seen[of[0]+" "+f] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func TestArgoFields(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/argo-fields.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, r := range rows[1:] {
		results[r[0]+" "+r[1]] = r[2]
		if r[2] != enforcedField && r[3] == "" {
			t.Errorf("%s %s: nothing says why it is %s", r[0], r[1], r[2])
		}
	}
	fields := argoFields(t)
	for _, f := range fields {
		if results[f] == "" {
			t.Errorf("%s: Argo CD has this field, and testdata/argo-fields.csv does not say whether it is enforced, harmless or refused", f)
		}
	}
	for f := range results {
		if !slices.Contains(fields, f) {
			t.Errorf("%s: testdata/argo-fields.csv has it, and Argo CD has no such field", f)
		}
	}
	for f, result := range results {
		kind, path, _ := strings.Cut(f, " ")
		var why error
		switch {
		case kind == "Application" && strings.HasPrefix(path, "spec."):
			why = checkField(path, result, reflect.TypeFor[hub.ApplicationSpec](), refusesApplication)
		case kind == "Application":
			why = checkField(strings.Replace(path, "operation", "spec", 1), result, reflect.TypeFor[RequestedOperation](), refusesOperation)
		case kind == "AppProject":
			why = checkField(path, result, reflect.TypeFor[hub.ProjectSpec](), refusesProject)
		case kind == "ApplicationSet":
			if result != refusedField {
				why = fmt.Errorf("the kind is refused, and its field is called %s", result)
			}
		case result == refusedField:
			why = errors.New("no key of a Secret is refused")
		}
		if why != nil {
			t.Errorf("%s is called %s: %v", f, result, why)
		}
	}
	set := &manifest.Object{Object: map[string]any{"apiVersion": ArgoVersion, "kind": "ApplicationSet", "metadata": map[string]any{"name": "x"}}}
	if err := NotServed(set); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an ApplicationSet: %v", err)
	}
}

// checkField holds a verdict against what the code does with a field.
func checkField(path, result string, typ reflect.Type, refuses func(value map[string]any) error) error {
	known := knows(typ, strings.Split(path, ".")[1:])
	switch {
	case result == enforcedField && !known:
		return errors.New("no type of Capstan has it")
	case result == refusedField && refuses(sample(path)) == nil:
		return errors.New("it is not refused")
	case result != refusedField:
		if err := refuses(sample(path)); err != nil && strings.Contains(err.Error(), "not enforced") {
			return fmt.Errorf("it is refused: %w", err)
		}
	}
	return nil
}

// knows reports whether a type has a field of that path.
func knows(t reflect.Type, path []string) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]() {
		t = t.Elem()
	}
	if len(path) == 0 || t == reflect.TypeFor[json.RawMessage]() {
		return true
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	inner, ok := JSONFields(t)[strings.TrimSuffix(path[0], "[]")]
	return ok && knows(inner, path[1:])
}

// sample is an object in which the field of a path is set.
func sample(path string) map[string]any {
	var v any = "x"
	parts := strings.Split(path, ".")
	if last := parts[len(parts)-1]; last == "permitOnlyProjectScopedClusters" {
		v = true
	}
	for _, part := range slices.Backward(parts[1:]) {
		name, isList := strings.CutSuffix(part, "[]")
		if isList {
			v = []any{v}
		}
		v = map[string]any{name: v}
	}
	return v.(map[string]any)
}

func refusesProject(spec map[string]any) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	p, err := hub.DecodeProject(raw)
	if err != nil {
		return nil // a sample of another type
	}
	return p.Refusal("shop")
}

func refusesApplication(spec map[string]any) error {
	if spec["source"] == nil {
		spec["source"] = map[string]any{"path": "."}
	}
	if s, ok := spec["source"].(map[string]any); ok && s["repoURL"] == nil {
		s["repoURL"] = "https://git.example.com/a/b"
	}
	if spec["destination"] == nil {
		spec["destination"] = map[string]any{"name": "prod"}
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	read, _, err := CheckApplication(app("web", string(raw)))
	if err != nil {
		return err
	}
	project := hub.Project{Meta: hub.Meta{Name: "default"}, Spec: json.RawMessage(`{"sourceRepos":["*"],"destinations":[{"server":"*","name":"*","namespace":"*"}]}`)}
	return plan.Permits(hub.Refresh{
		Application: hub.Application{Project: "default", Meta: hub.Meta{Namespace: "argocd"}}, Project: &project,
		Cluster: &hub.Cluster{Meta: hub.Meta{Name: "prod"}},
	}, read)
}

func refusesOperation(operation map[string]any) error {
	raw, err := json.Marshal(operation)
	if err != nil {
		return err
	}
	_, err = ReadRequested(raw)
	return err
}
