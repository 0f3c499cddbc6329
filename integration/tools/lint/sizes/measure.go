package main

import (
	"go/ast"
	"go/token"
	"strings"

	"github.com/uudashr/gocognit"
)

// measurement is the metrics of a checkout while they are filled.
type measurement struct {
	tree       *sources
	packages   metric
	files      metric
	functions  metric
	complexity metric
	parameters metric
	interfaces metric
	structs    metric
	imports    metric
	widths     *widths
}

// measure returns the metrics in the order in which they are printed.
func measure(tree *sources) []metric {
	m := &measurement{
		tree:       tree,
		packages:   newMetric("packages", "lines of a package", 4000),
		files:      newMetric("files", "lines of a file", 500),
		functions:  newMetric("functions", "lines of a function", 80),
		complexity: newMetric("complexity", "cognitive complexity of a function", 15),
		parameters: newMetric("parameters", "parameters of a function", 5),
		interfaces: newMetric("interfaces", "methods of an interface, embedded ones included", 5),
		structs:    newMetric("structs", "fields of a struct outside configuration", 20),
		imports:    newMetric("imports", "packages of this repository that a package imports", 10),
		widths:     &widths{tree: tree, known: map[string]int{}},
	}
	for folder, files := range tree.folder {
		m.folder(folder, files)
	}
	return []metric{m.packages, m.files, m.functions, m.complexity, m.parameters, m.interfaces, m.structs, m.imports}
}

func (m *measurement) folder(folder string, files []source) {
	imported := map[string]bool{}
	for _, f := range files {
		m.packages.sizes[folder] += f.lines
		m.files.sizes[f.path] = f.lines
		for _, i := range f.tree.Imports {
			if path := strings.Trim(i.Path.Value, `"`); strings.HasPrefix(path, module) {
				imported[path] = true
			}
		}
		for _, d := range f.tree.Decls {
			m.declaration(folder, f, d)
		}
	}
	m.imports.sizes[folder] = len(imported)
}

func (m *measurement) declaration(folder string, f source, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := f.path + " " + functionName(d)
		m.functions.sizes[name] = m.tree.lines(d)
		m.complexity.sizes[name] = gocognit.Complexity(d)
		m.parameters.sizes[name] = d.Type.Params.NumFields()
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if spec, ok := s.(*ast.TypeSpec); ok {
				m.named(folder, f, spec)
			}
		}
	}
}

func (m *measurement) named(folder string, f source, spec *ast.TypeSpec) {
	name := f.path + " " + spec.Name.Name
	switch t := spec.Type.(type) {
	case *ast.InterfaceType:
		m.interfaces.sizes[name] = m.widths.of(folder, spec.Name.Name)
	case *ast.StructType:
		if !configuration(spec.Name.Name, t) {
			m.structs.sizes[name] = t.Fields.NumFields()
		}
	}
}

func newMetric(name, what string, limit int) metric {
	return metric{name: name, what: what, limit: limit, sizes: map[string]int{}}
}

func (s *sources) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// configuration reports whether a struct holds what somebody sets: its name
// says so, or its fields are read from YAML.
func configuration(name string, t *ast.StructType) bool {
	for _, suffix := range []string{"Config", "Options", "Settings", "Flags"} {
		if strings.HasSuffix(name, suffix) || strings.HasSuffix(name, strings.ToLower(suffix)) {
			return true
		}
	}
	for _, f := range t.Fields.List {
		if f.Tag != nil && strings.Contains(f.Tag.Value, "yaml:") {
			return true
		}
	}
	return false
}

// widths counts the methods of interfaces through what they embed.
type widths struct {
	tree  *sources
	known map[string]int
}

// of returns how many methods an interface of a folder has. Of an embedded
// interface that is not of this repository it knows nothing and counts one.
func (w *widths) of(folder, name string) int {
	key := folder + "." + name
	if n, ok := w.known[key]; ok {
		return n
	}
	w.known[key] = 1
	file, t := w.tree.interfaceNamed(folder, name)
	if t == nil {
		return 1
	}
	var n int
	for _, m := range t.Methods.List {
		switch embedded := m.Type.(type) {
		case *ast.FuncType:
			n += len(m.Names)
		case *ast.Ident:
			n += w.of(folder, embedded.Name)
		case *ast.SelectorExpr:
			n += w.selected(file, embedded)
		}
	}
	w.known[key] = n
	return n
}

func (w *widths) selected(file source, e *ast.SelectorExpr) int {
	pkg, ok := e.X.(*ast.Ident)
	if !ok {
		return 1
	}
	folder := file.imported(pkg.Name)
	if folder == "" {
		return 1
	}
	return w.of(folder, e.Sel.Name)
}

// interfaceNamed finds an interface of a folder and the file that declares
// it; it returns nil if the folder has none of that name.
func (s *sources) interfaceNamed(folder, name string) (source, *ast.InterfaceType) {
	for _, f := range s.folder[folder] {
		for _, d := range f.tree.Decls {
			if t := declared(d, name); t != nil {
				return f, t
			}
		}
	}
	return source{}, nil
}

func declared(d ast.Decl, name string) *ast.InterfaceType {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.TYPE {
		return nil
	}
	for _, spec := range g.Specs {
		if t, isType := spec.(*ast.TypeSpec); isType && t.Name.Name == name {
			i, _ := t.Type.(*ast.InterfaceType)
			return i
		}
	}
	return nil
}
