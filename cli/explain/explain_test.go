package explain_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/explain"
)

const root = "../.."

// source reads the Go files of a folder that are part of the product.
func source(t *testing.T, folders ...string) string {
	t.Helper()
	var b strings.Builder
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// codes finds the codes that the product can answer with: those that it names,
// and one for each status.
func codes(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`= "(CAP-[0-9]{4})"`).FindAllStringSubmatch(source(t, "hub", "agent", "shared"), -1) {
		found[m[1]] = true
	}
	text, err := os.ReadFile(filepath.Join(root, "hub", "api", "errors.go"))
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[string]int{}
	for status := 400; status < 600; status++ {
		name := strings.NewReplacer(" ", "", "-", "", "'", "").Replace(http.StatusText(status))
		statuses[name] = status
	}
	for _, m := range regexp.MustCompile(`status(?: :=| =) http\.Status(\w+)`).FindAllStringSubmatch(string(text), -1) {
		if status, ok := statuses[m[1]]; ok {
			found["CAP-1"+strconv.Itoa(status)] = true
		}
	}
	return keys(found)
}

// conditions finds the types of conditions.
func conditions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "hub", "application.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`= "(\w+(?:Error|Warning))"`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = true
	}
	if text, err = os.ReadFile(filepath.Join(root, "hub", "applicationset.go")); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Set\w+ += "(ErrorOccurred|Invalid\w+|\w+Held)"`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = true
	}
	return keys(found)
}

func keys(found map[string]bool) (out []string) {
	for k := range found {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestTopics(t *testing.T) {
	t.Parallel()
	t.Run("UX-CLI-12 every code and every condition has a text, and every text a code", func(t *testing.T) {
		t.Parallel()
		want := append(codes(t), conditions(t)...)
		if len(want) < 15 {
			t.Fatalf("the source has only %v", want)
		}
		have := explain.Codes()
		for _, code := range want {
			if !slices.Contains(have, code) {
				t.Errorf("%s has no text", code)
			}
		}
		for _, code := range have {
			if !slices.Contains(want, code) {
				t.Errorf("nothing answers with %s", code)
			}
		}
	})
	t.Run("UX-CLI-12 each says what it means, why, and what to do", func(t *testing.T) {
		t.Parallel()
		for _, topic := range explain.Topics() {
			if topic.Title == "" || topic.Means == "" || len(topic.Causes) == 0 || len(topic.Fixes) == 0 {
				t.Errorf("%s is not complete", topic.Code)
			}
			for _, line := range append(append([]string{topic.Means}, topic.Causes...), topic.Fixes...) {
				if len(line) > 200 {
					t.Errorf("%s: %q is too long", topic.Code, line)
				}
			}
		}
	})
	t.Run("docs/errors.md is the same text", func(t *testing.T) {
		t.Parallel()
		page := filepath.Join(root, "docs", "errors.md")
		if os.Getenv("CAPSTAN_WRITE_DOCS") != "" {
			if err := os.WriteFile(page, []byte(explain.Markdown()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != explain.Markdown() {
			t.Error("it differs; CAPSTAN_WRITE_DOCS=1 go test ./cli/explain writes it")
		}
	})
}
