package integration_test

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var soakPackages = regexp.MustCompile(`(?m)^SOAK\s*\?=\s*([^#\n]+)`)

// TestSoakHasAll keeps the packages of `make soak` complete: each test with the
// tag soak is in one of them.
func TestSoakHasAll(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := soakPackages.FindSubmatch(text)
	if m == nil {
		t.Fatal("the Makefile does not say which packages `make soak` runs")
	}
	patterns := strings.Fields(string(m[1]))
	folders := foldersWithSoakTests(t)
	if len(folders) < 5 {
		t.Errorf("tests with the tag soak are found in %v alone", folders)
	}
	for _, folder := range folders {
		if !slices.ContainsFunc(patterns, func(p string) bool {
			below, all := strings.CutSuffix(p, "/...")
			return p == folder || all && strings.HasPrefix(folder+"/", below+"/")
		}) {
			t.Errorf("%s has tests with the tag soak: add it to SOAK in the Makefile", folder)
		}
	}
}

// foldersWithSoakTests returns the folders that have tests which need the tag
// soak, as package patterns from the root.
func foldersWithSoakTests(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, folder := range []string{"agent", "cli", "hub", "integration", "shared"} {
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !needsSoak(string(text)) {
				return err
			}
			at := "./" + filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
			if !slices.Contains(found, at) {
				found = append(found, at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// needsSoak reports whether a file is compiled with the tag soak, and not
// without it.
func needsSoak(text string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "package ") {
			return false
		}
		if !constraint.IsGoBuild(line) {
			continue
		}
		expr, err := constraint.Parse(strings.TrimSpace(line))
		with := func(soak bool) bool { return expr.Eval(func(tag string) bool { return tag != "soak" || soak }) }
		return err == nil && with(true) && !with(false)
	}
	return false
}
