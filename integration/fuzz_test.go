package integration_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fuzzed says which target shows that what strangers send makes no part panic
// or hang. "go test" runs the inputs that a target comes with, and those that
// once failed; "make fuzz" looks for new ones.
func fuzzed() map[string]string {
	return map[string]string{
		"YAML of a repository":       "shared/manifest FuzzParse",
		"masks of objects":           "shared/manifest FuzzMask",
		"differences":                "shared/diff FuzzFields",
		"paths in a repository":      "hub/render FuzzWithin",
		"questions of a renderer":    "hub/render FuzzQuestions",
		"objects of a renderer":      "hub/render FuzzIdentity",
		"templates of charts":        "hub/render/helm FuzzTemplate",
		"kustomizations":             "hub/render/kustomize FuzzKustomization",
		"names in archives":          "hub/source/archives FuzzNames",
		"packs of a Git server":      "hub/source/git/packstore FuzzTake",
		"trees of a Git server":      "hub/source/git/packstore FuzzParseTree",
		"webhooks":                   "hub/source/webhook FuzzParse",
		"join tokens":                "shared/tunnel FuzzParseJoinToken",
		"tokens of issuers":          "hub/identity/connector/exchange FuzzVerify",
		"answers of SAML":            "hub/identity/connector/saml FuzzFinish",
		"frames of the tunnel":       "shared/tunnel FuzzServerMux",
		"rules of access":            "shared/rbac FuzzPolicy",
		"queries":                    "shared/appquery FuzzParse",
		"scripts in Lua":             "shared/lua FuzzScript",
		"patterns of Lua":            "shared/lua FuzzPattern",
		"live objects in health":     "agent/health FuzzOf",
		"settings":                   "hub/settings FuzzCheck",
		"changes by SCIM":            "hub/api/scim FuzzPatch",
		"cursors of lists":           "hub/catalog/listing FuzzParsePlace",
		"configuration of Dex":       "hub/identity/connector/dex FuzzParse",
		"label selectors":            "hub/api/labels FuzzParse",
		"documents of several parts": "hub/render/helm FuzzSplit",
	}
}

func TestFuzzTargets(t *testing.T) {
	t.Parallel()
	for what, target := range fuzzed() {
		t.Run("SEC-L4 a fuzz target with seeds: "+what, func(t *testing.T) {
			t.Parallel()
			dir, name, _ := strings.Cut(target, " ")
			files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			body := regexp.MustCompile(`(?s)func ` + name + `\(f \*testing\.F\) \{\n(.*?)\n\}`)
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if m := body.FindSubmatch(text); m != nil {
					if !strings.Contains(string(m[1]), ".Add(") || !strings.Contains(string(m[1]), ".Fuzz(") {
						t.Errorf("%s in %s adds no seeds, or does not call f.Fuzz", name, file)
					}
					return
				}
			}
			t.Errorf("there is no %s in %s", name, dir)
		})
	}
}
