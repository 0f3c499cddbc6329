package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

const module = "github.com/capstan-cd/capstan/"

// source is one hand-written Go file that is not a test.
type source struct {
	// path is relative to the checkout, with slashes.
	path  string
	lines int
	tree  *ast.File
}

// sources are the files of a checkout by package folder.
type sources struct {
	fset   *token.FileSet
	folder map[string][]source
}

// read parses the Go files below the named folders of a checkout, without
// tests, test data and generated code.
func read(root string, folders []string) (*sources, error) {
	all := &sources{fset: token.NewFileSet(), folder: map[string][]source{}}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				return skipped(d.Name())
			}
			return all.add(root, path)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func skipped(folder string) error {
	if folder == "testdata" || folder == "node_modules" {
		return filepath.SkipDir
	}
	return nil
}

func (s *sources) add(root, path string) error {
	if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
		return nil
	}
	tree, err := parser.ParseFile(s.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(tree) || strings.HasSuffix(path, ".gen.go") {
		return nil
	}
	relative, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	relative = filepath.ToSlash(relative)
	folder := relative[:strings.LastIndex(relative, "/")]
	s.folder[folder] = append(s.folder[folder], source{
		path: relative, lines: s.fset.File(tree.FileStart).LineCount(), tree: tree,
	})
	return nil
}

// imported returns the folder of this repository that a file knows by a
// package name, or "".
func (f source) imported(name string) string {
	for _, i := range f.tree.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		folder, ours := strings.CutPrefix(path, module)
		if !ours {
			continue
		}
		if i.Name != nil && i.Name.Name == name || i.Name == nil && folder[strings.LastIndex(folder, "/")+1:] == name {
			return folder
		}
	}
	return ""
}
