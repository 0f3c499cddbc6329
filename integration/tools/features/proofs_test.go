package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// aProof is a test as docs/testing.md names it: folder, function, and perhaps
// the name of a subtest.
var aProof = regexp.MustCompile("`([a-z/]+) (Test[A-Za-z0-9]+)(?:/([^`]+))?`")

// proofs finds the tests that a page names.
func proofs(page string) (out [][]string) {
	for _, m := range aProof.FindAllStringSubmatch(page, -1) {
		out = append(out, m[1:])
	}
	return out
}

// exists reports whether the tests of a folder have a function and, somewhere,
// the name of a subtest.
func exists(sources, function, sub string) bool {
	return strings.Contains(sources, "\nfunc "+function+"(t *testing.T) {") && (sub == "" || strings.Contains(sources, `"`+sub+`"`))
}

func TestTheProofsOfDecisionsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := proofs(string(page))
	if len(all) < 50 {
		t.Errorf("the page names %d tests only; it is not read as it is written", len(all))
	}
	for _, line := range strings.Split(string(page), "\n") {
		if row := strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| Decision"); row && len(proofs(line)) != strings.Count(line, "`")/2 {
			t.Errorf("a test is not written as `folder TestName/subtest`: %s", line)
		}
	}
	read := map[string]string{}
	for _, p := range all {
		if _, known := read[p[0]]; !known {
			files, err := filepath.Glob(filepath.Join(root, p[0], "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, name := range files {
				b, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				text.Write(b)
			}
			read[p[0]] = text.String()
		}
		if !exists(read[p[0]], p[1], p[2]) {
			t.Errorf("there is no test %s in %s with %q", p[1], p[0], p[2])
		}
	}
}

func TestAProofThatIsMissingIsSeen(t *testing.T) {
	t.Parallel()
	got := proofs("| x | `a/b TestOne/INV-1 what it does`, `c TestTwo` |")
	if len(got) != 2 || got[0][2] != "INV-1 what it does" || got[1][0] != "c" {
		t.Fatalf("read %q", got)
	}
	sources := "\nfunc TestOne(t *testing.T) {\n\tt.Run(\"INV-1 what it does\", nil)\n}\n"
	for want, c := range map[bool][]string{true: {"TestOne", "INV-1 what it does"}, false: {"TestOne", "INV-1 what it did"}} {
		if exists(sources, c[0], c[1]) != want {
			t.Errorf("%q", c)
		}
	}
	if exists(sources, "TestTwo", "") {
		t.Error("a function that is not there")
	}
}
