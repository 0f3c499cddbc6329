package integration_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An example is one of CONTRIBUTING.md: the files that a change touches, each
// with a text that it contains.
type example struct {
	title string
	files map[string]string
}

var (
	exampleRow = regexp.MustCompile("^\\| `([^`]+)` \\| `([^`]+)` \\| [^|]+ \\|$")
	question   = regexp.MustCompile(`^\d+\. … `)
	pathInText = regexp.MustCompile("`([A-Za-z0-9_.-]+/[A-Za-z0-9_./-]+)`")
)

// TestContributingExamples keeps the worked examples true: each file exists and
// contains what the example says of it.
func TestContributingExamples(t *testing.T) {
	examples := contributingExamples(t)
	if len(examples) != 4 {
		t.Fatalf("CONTRIBUTING.md has %d worked examples, want 4", len(examples))
	}
	for _, e := range examples {
		if len(e.files) < 5 {
			t.Errorf("%s: %d files; are the rows of its table as | `file` | `text` | what |?", e.title, len(e.files))
		}
		for file, marker := range e.files {
			text, err := os.ReadFile(filepath.Join("..", file))
			if err != nil {
				t.Errorf("%s: %v", e.title, err)
			} else if !strings.Contains(string(text), marker) {
				t.Errorf("%s: %s does not contain %q", e.title, file, marker)
			}
		}
	}
}

// TestContributingExamplesAreComplete follows what an example is about through
// the code: each file that names it is in the example.
func TestContributingExamplesAreComplete(t *testing.T) {
	for title, c := range map[string]struct {
		why     string
		folders []string
		names   *regexp.Regexp
	}{
		"An API noun": {
			"who reads or writes host keys",
			[]string{"hub/api", "hub/catalog", "hub/store", "hub/daemon"}, regexp.MustCompile(`\b(Put|Delete)?HostKeys\(ctx`),
		},
		"A link message": {
			"who calls or serves Confirm",
			[]string{"agent", "hub"}, regexp.MustCompile(`\bConfirm\(ctx|linkv1\.ConfirmRequest`),
		},
		"A console page": {
			"who shows the page",
			[]string{"web/src"}, regexp.MustCompile(`\bProjectList\b`),
		},
	} {
		examples := contributingExamples(t)
		i := slices.IndexFunc(examples, func(e example) bool { return e.title == title })
		if i < 0 {
			t.Errorf("CONTRIBUTING.md has no example %q", title)
			continue
		}
		for _, folder := range c.folders {
			for _, file := range filesThatContain(t, folder, c.names) {
				if examples[i].files[file] == "" {
					t.Errorf("%s: %s is missing (%s)", title, file, c.why)
				}
			}
		}
	}
}

// TestContributingQuestions keeps the answers true: the files exist.
func TestContributingQuestions(t *testing.T) {
	questions := 0
	for _, line := range contributing(t) {
		if !question.MatchString(line) {
			continue
		}
		questions++
		paths := pathInText.FindAllStringSubmatch(line, -1)
		if len(paths) == 0 {
			t.Errorf("no file answers %q", line)
		}
		for _, p := range paths {
			if _, err := os.Stat(filepath.Join("..", p[1])); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if questions != 10 {
		t.Errorf("CONTRIBUTING.md has %d questions, want 10", questions)
	}
}

func contributing(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

func contributingExamples(t *testing.T) []example {
	t.Helper()
	var examples []example
	within := false
	for _, line := range contributing(t) {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			examples, within = append(examples, example{title, map[string]string{}}), true
		} else if strings.HasPrefix(line, "## ") {
			within = false
		}
		if m := exampleRow.FindStringSubmatch(line); within && m != nil {
			examples[len(examples)-1].files[m[1]] = m[2]
		}
	}
	return examples
}

// filesThatContain returns the files below a folder that match, without tests
// and generated code, as paths from the root with slashes.
func filesThatContain(t *testing.T, folder string, names *regexp.Regexp) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join("..", filepath.FromSlash(folder)), func(path string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || d.IsDir() || ext != ".go" && ext != ".ts" && ext != ".tsx" {
			return err
		}
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, ".test.") || strings.HasSuffix(path, ".gen.ts") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text[:min(len(text), 500)]), "DO NOT EDIT") || !names.Match(text) {
			return err
		}
		from, err := filepath.Rel("..", path)
		found = append(found, filepath.ToSlash(from))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
